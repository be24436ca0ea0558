//! Reads the objects of a cluster, or of a file. It writes nothing.

use std::fmt::Display;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use refit_cluster::kube::permissions::account_may;
use refit_cluster::kube::{Answer, brief};
use refit_offline::migrate::Reading;
use refit_offline::migrate::permissions::Permission;
use refit_rehearse::json::{Value, json};
use refit_rehearse::snapshot::{MAX_TEXT, parse};
use refit_view::{Scope, Snapshot};

const DEFINITION: &str = "plans.upgrade.cattle.io";
/// Plurals and kinds of what is read.
const KINDS: [(&str, &str); 6] = [
    ("configmaps", "ConfigMap"),
    ("customresourcedefinitions", "CustomResourceDefinition"),
    ("deployments", "Deployment"),
    ("jobs", "Job"),
    ("nodes", "Node"),
    ("plans", "Plan"),
];
/// Access reviews at a time.
const REVIEWS: usize = 8;

#[derive(Default)]
pub(super) struct ReadCluster {
    pub(super) snapshot: Snapshot,
    deployments: Vec<Deployment>,
    config_maps: Vec<ConfigMap>,
    definition: Option<ObjectMeta>,
    /// What could not be read.
    pub(super) errors: Vec<String>,
}

impl ReadCluster {
    pub(super) async fn read(client: &Client, namespace: &str, now: Timestamp) -> anyhow::Result<Self> {
        let mut read = Self::default();
        let scope = Scope {
            namespace: Some(namespace.to_owned()),
            fallback_namespace: namespace.to_owned(),
        };
        match Snapshot::read_work(client, &scope, now).await {
            Ok(mut snapshot) => {
                read.errors = std::mem::take(&mut snapshot.gaps);
                read.snapshot = snapshot;
            }
            // Without the definition there are no Plans.
            Err(error) if Answer::of(&error) == Answer::NotFound => {}
            Err(error @ kube::Error::Api(_)) => read.failed("Plans", &error),
            Err(error) => return Err(anyhow!("the API server cannot be reached: {}", brief(&error))),
        }
        read.deployments = read.list(client, namespace, "Deployments").await;
        read.config_maps = read.list(client, namespace, "ConfigMaps").await;
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        match definitions.get_metadata_opt(DEFINITION).await {
            Ok(found) => read.definition = found.map(|found| found.metadata),
            Err(error) => read.failed("the definition of the Plan", &error),
        }
        Ok(read)
    }

    async fn list<K>(&mut self, client: &Client, namespace: &str, what: &str) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        // The API server may answer from its cache.
        let cached = ListParams::default().match_any();
        let list = Api::<K>::namespaced(client.clone(), namespace)
            .list(&cached)
            .await;
        list.map(|list| list.items).unwrap_or_else(|error| {
            self.failed(what, &error);
            Vec::new()
        })
    }

    fn failed(&mut self, what: impl Display, error: &kube::Error) {
        self.errors
            .push(format!("{what} cannot be read: {}", brief(error)));
    }

    pub(super) fn reading<'a>(&'a self, namespace: &'a str, controller: &'a str) -> Reading<'a> {
        let nodes = self.snapshot.nodes.iter().flat_map(|nodes| nodes.values());
        let jobs = self.snapshot.jobs.iter();
        Reading {
            namespace,
            controller,
            plans: self.snapshot.plans.iter().map(|plan| &plan.facts).collect(),
            nodes: nodes.map(|node| &node.facts).collect(),
            jobs: jobs.map(|job| (job.controller.as_str(), &job.facts)).collect(),
            deployments: self.deployments.clone(),
            config_maps: self.config_maps.clone(),
            definition: self.definition.clone(),
            ..Reading::default()
        }
    }
}

/// Those of the permissions that the API server denies.
pub(super) async fn denied(
    client: &Client,
    namespace: &str,
    needed: Vec<Permission>,
) -> Result<Vec<Permission>, String> {
    let reviews = futures::stream::iter(needed).map(|permission| async {
        let (account, attributes) = (&permission.account, permission.attributes.clone());
        let may = account_may(client, namespace, account, attributes).await;
        may.map(|may| (!may).then_some(permission))
    });
    let answers: Vec<_> = reviews.buffered(REVIEWS).collect().await;
    let answers: Result<Vec<_>, kube::Error> = answers.into_iter().collect();
    let answers = answers.map_err(|error| {
        format!(
            "permissions cannot be checked, for which this account needs to create subjectaccessreviews: {}",
            brief(&error)
        )
    })?;
    Ok(answers.into_iter().flatten().collect())
}

/// A client that reads the objects of a file.
pub(super) fn client_of(file: &str) -> anyhow::Result<Client> {
    let unreadable = || format!("{file} cannot be read");
    let size = std::fs::metadata(file).with_context(unreadable)?.len();
    ensure!(size <= MAX_TEXT, "{file} is larger than 1 GiB");
    let objects = parse(file, &std::fs::read_to_string(file).with_context(unreadable)?)?;
    ensure!(!objects.is_empty(), "{file}: there is no object in it");
    let objects = Arc::new(objects);
    let answer = tower::service_fn(move |request: Request<kube::client::Body>| {
        let answer = answer(&objects, request.uri().path());
        async move { answer }
    });
    Ok(Client::new(answer, "default"))
}

/// A list, or the object whose name ends the path.
fn answer(objects: &[Value], path: &str) -> Result<Response<Full<bytes::Bytes>>, serde_json::Error> {
    let parts: Vec<&str> = path.split('/').collect();
    let kind = |part: Option<&&str>| {
        KINDS
            .iter()
            .find(|(plural, _)| Some(plural) == part)
            .map(|(_, kind)| *kind)
    };
    let namespace = parts.iter().position(|part| *part == "namespaces");
    let namespace = namespace.and_then(|at| parts.get(at + 1));
    let all = |kind: Option<&'static str>| {
        objects.iter().filter(move |object| {
            let is_here = namespace.is_none_or(|namespace| object["metadata"]["namespace"] == **namespace);
            kind.is_some_and(|kind| object["kind"] == *kind) && is_here
        })
    };
    let found = match (kind(parts.iter().rev().nth(1)), parts.last()) {
        (named @ Some(_), Some(name)) => all(named)
            .find(|object| object["metadata"]["name"] == **name)
            .cloned(),
        _ => {
            let items: Vec<Value> = all(kind(parts.last())).cloned().collect();
            Some(json!({ "metadata": {}, "items": items }))
        }
    };
    let status = if found.is_some() {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    };
    let found = found.unwrap_or_else(
        || json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "it is not in the file" }),
    );
    let mut response = Response::new(Full::from(serde_json::to_vec(&found)?));
    *response.status_mut() = status;
    Ok(response)
}
