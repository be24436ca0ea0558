//! Reads the objects of a cluster, or of a file, as `refit status` reads them. It writes nothing.

use anyhow::{Context as _, anyhow, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use serde::Deserialize as _;

use crate::cli::cluster::list;
use refit_cluster::kube::permissions::account_may;
use refit_cluster::kube::{Answer, brief};
use refit_offline::migrate::Permission;
use refit_offline::migrate::Reading;
use refit_rehearse::json::Value;
use refit_rehearse::snapshot::{MAX_TEXT, parse};
use refit_view::Snapshot;
use refit_view::read::ObjectKind;

/// Kinds, with the paths of their lists; `NS` is the controller's namespace.
const LISTS: [(&str, &str); 5] = [
    ("Deployment", "/apis/apps/v1/namespaces/NS/deployments"),
    ("ConfigMap", "/api/v1/namespaces/NS/configmaps"),
    ("Job", "/apis/batch/v1/namespaces/NS/jobs"),
    ("Node", "/api/v1/nodes"),
    ("Plan", "/apis/upgrade.cattle.io/v1/namespaces/NS/plans"),
];
const DEFINITION: &str = "plans.upgrade.cattle.io";
/// Access reviews at a time.
const REVIEWS: usize = 8;

#[derive(Default)]
pub(super) struct ReadCluster {
    snapshot: Snapshot,
    deployments: Vec<Deployment>,
    config_maps: Vec<ConfigMap>,
    definition: Option<ObjectMeta>,
    /// What could not be read.
    pub(super) errors: Vec<String>,
}

impl ReadCluster {
    pub(super) fn of_file(file: &str, namespace: &str) -> anyhow::Result<Self> {
        let unreadable = || format!("{file} cannot be read");
        let size = std::fs::metadata(file).with_context(unreadable)?.len();
        ensure!(size <= MAX_TEXT, "{file} is larger than 1 GiB");
        let objects = parse(file, &std::fs::read_to_string(file).with_context(unreadable)?)?;
        ensure!(!objects.is_empty(), "{file}: there is no object in it");
        let mut read = Self::default();
        for object in objects {
            read.add(&object, namespace);
        }
        Ok(read)
    }

    pub(super) async fn of_cluster(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let mut read = Self::default();
        for (kind, path) in LISTS {
            match list(client, &path.replace("NS", namespace), kind).await {
                Ok(found) => found.iter().for_each(|object| read.add(object, namespace)),
                // Without the definition there are no Plans.
                Err(error) if kind == "Plan" && Answer::of(&error) == Answer::NotFound => {}
                Err(error @ kube::Error::Api(_)) => read.failed(&format!("{kind}s"), &brief(&error)),
                Err(error) => return Err(anyhow!("the cluster cannot be read: {}", brief(&error))),
            }
        }
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        match definitions.get_metadata_opt(DEFINITION).await {
            Ok(found) => read.definition = found.map(|found| found.metadata),
            Err(error) => read.failed("the definition of the Plan", &brief(&error)),
        }
        Ok(read)
    }

    fn failed(&mut self, what: &str, why: &str) {
        self.errors.push(format!("{what} cannot be read: {why}"));
    }

    fn add(&mut self, object: &Value, namespace: &str) {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
        let name = text(&metadata["name"]);
        let known = match kind.as_str() {
            "Node" => Some(ObjectKind::Node),
            "CustomResourceDefinition" if name == DEFINITION => None,
            _ if metadata["namespace"] != *namespace => return,
            "Plan" => Some(ObjectKind::Plan),
            "Job" => Some(ObjectKind::Job),
            _ => None,
        };
        let added = match (known, kind.as_str()) {
            (Some(known), _) => match serde_json::value::to_raw_value(object) {
                Ok(raw) => self.snapshot.put(known, &name, &raw),
                Err(error) => Err(error.to_string()),
            },
            (None, "Deployment") => push(&mut self.deployments, object),
            (None, "ConfigMap") => push(&mut self.config_maps, object),
            (None, "CustomResourceDefinition") => {
                self.definition = ObjectMeta::deserialize(metadata).ok();
                Ok(())
            }
            (None, _) => Ok(()),
        };
        self.errors
            .extend(added.err().map(|why| format!("{kind} {name}: {why}")));
    }

    pub(super) fn reading<'a>(&'a self, namespace: &'a str, controller: &'a str) -> Reading<'a> {
        let nodes = self.snapshot.nodes.iter().flat_map(|nodes| nodes.values());
        let jobs = self.snapshot.jobs.iter();
        Reading {
            namespace,
            controller,
            plans: self.snapshot.plans.iter().collect(),
            nodes: nodes.map(|node| &node.facts).collect(),
            jobs: jobs.map(|job| (job.controller.as_str(), &job.facts)).collect(),
            deployments: &self.deployments,
            config_maps: &self.config_maps,
            definition: self.definition.as_ref(),
            ..Reading::default()
        }
    }
}

fn push<'de, T: serde::Deserialize<'de>>(list: &mut Vec<T>, object: &'de Value) -> Result<(), String> {
    list.push(T::deserialize(object).map_err(|error| error.to_string())?);
    Ok(())
}

/// Those of the permissions that the API server denies.
pub(super) async fn denied(
    client: &Client,
    namespace: &str,
    needed: Vec<Permission>,
) -> Result<Vec<Permission>, kube::Error> {
    let reviews = futures::stream::iter(needed).map(|permission| async {
        let (account, attributes) = (&permission.account, permission.attributes.clone());
        let may = account_may(client, namespace, account, attributes).await;
        may.map(|may| (!may).then_some(permission))
    });
    let answers: Vec<_> = reviews.buffered(REVIEWS).collect().await;
    answers.into_iter().filter_map(Result::transpose).collect()
}
