//! Reads the objects of a cluster, or of a file. It writes nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use http::Request;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;
use serde::de::DeserializeOwned;

use super::Flags;
use crate::cli::cluster::list;
use refit_cluster::kube::permissions::account_may;
use refit_cluster::kube::{Answer, brief};
use refit_offline::migrate::Cluster;
use refit_offline::migrate::permissions::{MissingPermission, Permission, missing};
use refit_rehearse::json::Value;
use refit_rehearse::snapshot::{MAX_TEXT, parse};

/// Kinds, with the paths of their lists; `NS` is the controller's namespace.
const LISTS: [(&str, &str); 9] = [
    ("Deployment", "/apis/apps/v1/namespaces/NS/deployments"),
    ("ConfigMap", "/api/v1/namespaces/NS/configmaps"),
    ("Job", "/apis/batch/v1/namespaces/NS/jobs"),
    ("Node", "/api/v1/nodes"),
    ("Plan", "/apis/upgrade.cattle.io/v1/namespaces/NS/plans"),
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    (
        "ClusterRoleBinding",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ),
    ("Role", "/apis/rbac.authorization.k8s.io/v1/roles"),
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1/rolebindings"),
];
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/plans.upgrade.cattle.io";

pub(super) struct ReadCluster {
    pub(super) cluster: Cluster,
    pub(super) missing: Vec<MissingPermission>,
    /// What could not be read.
    pub(super) errors: Vec<String>,
}

pub(super) fn read(flags: &Flags) -> anyhow::Result<ReadCluster> {
    if let Some(file) = &flags.snapshot {
        let text = text(file)?;
        let objects = parse(file, &text)?;
        anyhow::ensure!(!objects.is_empty(), "{file}: there is no object in it");
        let cluster = collect(flags, objects);
        let missing = missing(&cluster);
        return Ok(ReadCluster {
            cluster,
            missing,
            errors: Vec::new(),
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    runtime.block_on(async {
        let client = flags.connection.client().await?;
        let (objects, mut errors) = objects(&client, &flags.namespace).await?;
        let cluster = collect(flags, objects);
        let missing = confirmed(&client, &cluster, &mut errors).await;
        Ok(ReadCluster {
            cluster,
            missing,
            errors,
        })
    })
}

fn text(file: &str) -> anyhow::Result<String> {
    let size = std::fs::metadata(file)
        .with_context(|| format!("{file} cannot be read"))?
        .len();
    anyhow::ensure!(size <= MAX_TEXT, "{file} is larger than 1 GiB");
    std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))
}

async fn objects(client: &Client, namespace: &str) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for (kind, path) in LISTS {
        match list(client, &path.replace("NS", namespace), kind).await {
            Ok(found) => objects.extend(found),
            // Without the definition there are no Plans.
            Err(error) if kind == "Plan" && Answer::of(&error) == Answer::NotFound => {}
            Err(error @ kube::Error::Api(_)) => {
                errors.push(format!("{kind}s cannot be read: {}", brief(&error)));
            }
            Err(error) => return Err(anyhow!("the API server cannot be reached: {}", brief(&error))),
        }
    }
    let request = Request::get(DEFINITION).body(Vec::new())?;
    match client.request::<Value>(request).await {
        Ok(definition) => objects.push(definition),
        Err(error) if Answer::of(&error) == Answer::NotFound => {}
        Err(error) => errors.push(format!(
            "the definition of the Plan cannot be read: {}",
            brief(&error)
        )),
    }
    Ok((objects, errors))
}

fn collect(flags: &Flags, objects: Vec<Value>) -> Cluster {
    let mut cluster = Cluster {
        namespace: flags.namespace.clone(),
        controller: flags.name.clone(),
        ..Cluster::default()
    };
    let mut by_kind: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        by_kind.entry(kind).or_default().push(object);
    }
    let mut unreadable = Vec::new();
    let mut take = |kind: &str, of_namespace: bool| -> Vec<Value> {
        let mut found = by_kind.remove(kind).unwrap_or_default();
        found.retain(|object| !of_namespace || object["metadata"]["namespace"] == *flags.namespace);
        found
    };
    cluster.deployments = typed(take("Deployment", true), &mut unreadable);
    cluster.config_maps = typed(take("ConfigMap", true), &mut unreadable);
    cluster.jobs = typed(take("Job", true), &mut unreadable);
    cluster.plans = typed(take("Plan", true), &mut unreadable);
    cluster.nodes = typed(take("Node", false), &mut unreadable);
    cluster.cluster_roles = typed(take("ClusterRole", false), &mut unreadable);
    cluster.cluster_role_bindings = typed(take("ClusterRoleBinding", false), &mut unreadable);
    cluster.roles = typed(take("Role", false), &mut unreadable);
    cluster.role_bindings = typed(take("RoleBinding", false), &mut unreadable);
    let mut definitions = take("CustomResourceDefinition", false);
    definitions.retain(|definition| definition["metadata"]["name"] == "plans.upgrade.cattle.io");
    cluster.definition = typed(definitions, &mut unreadable).pop();
    cluster.unreadable = unreadable;
    cluster
}

/// The objects that can be read, and the names of the others.
fn typed<T: DeserializeOwned>(objects: Vec<Value>, unreadable: &mut Vec<(String, String)>) -> Vec<T> {
    let mut found = Vec::new();
    for object in objects {
        match T::deserialize(&object) {
            Ok(typed) => found.push(typed),
            Err(error) => {
                let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
                let (metadata, kind) = (&object["metadata"], text(&object["kind"]));
                let name = match text(&metadata["namespace"]) {
                    namespace if namespace.is_empty() => text(&metadata["name"]),
                    namespace => format!("{namespace}/{}", text(&metadata["name"])),
                };
                unreadable.push((format!("{kind} {name}"), error.to_string()));
            }
        }
    }
    found
}

/// The missing permissions, without those that another authorizer than RBAC grants.
async fn confirmed(client: &Client, cluster: &Cluster, errors: &mut Vec<String>) -> Vec<MissingPermission> {
    let mut found = Vec::new();
    for one in missing(cluster) {
        match account_may(
            client,
            &cluster.namespace,
            &one.account,
            attributes(&one.permission),
        )
        .await
        {
            Ok(true) => {}
            Ok(false) => found.push(one),
            // Without the permission to review access, the roles decide.
            Err(error) if Answer::of(&error) == Answer::Forbidden => found.push(one),
            Err(error) => {
                errors.push(format!("permissions cannot be checked: {}", brief(&error)));
                found.push(one);
            }
        }
    }
    found
}

fn attributes(permission: &Permission) -> ResourceAttributes {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (resource, subresource) = permission
        .resource
        .split_once('/')
        .unwrap_or((&permission.resource, ""));
    ResourceAttributes {
        group: text(&permission.group),
        resource: text(resource),
        subresource: text(subresource),
        name: permission.name.clone(),
        namespace: permission.namespace.clone(),
        verb: text(&permission.verb),
        ..ResourceAttributes::default()
    }
}
