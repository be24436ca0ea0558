//! Reads how many pods of a controller are wanted and ready, whatever its kind: any object with a scale whose fields have
//! the names that Kubernetes' own controllers use.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{GetParams, Request};
use kube::{Client, Error};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::kube::Answer;
use crate::kube::permissions::may_get;
use refit_api::Workload;
use refit_api::ledger::limit_workloads;

/// How long an answer holds about a kind: whether it has a scale, and whether this process may read it.
const KIND_CHECKED: Duration = Duration::from_secs(600);
/// Maximum number of concurrent reads of a drain.
const MAX_READS: usize = 8;

/// The fields that are read. Most of the rest is the template of the pods.
#[derive(Deserialize)]
struct Scalable {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Default, Deserialize)]
struct Spec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    ready_replicas: Option<i32>,
}

/// What a controller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Of {
        ready: i32,
        wanted: i32,
    },
    /// It does not exist.
    Gone,
    /// It has no scale, or this process may not read it.
    Hidden,
}

impl Scalable {
    fn scale(&self) -> Scale {
        Scale::Of {
            // The API server omits `status.readyReplicas` if it is zero.
            ready: self.status.ready_replicas.unwrap_or(0),
            // `spec.replicas` defaults to one.
            wanted: self.spec.replicas.unwrap_or(1),
        }
    }
}

/// A kind in a namespace.
type Place = (String, String, String);

pub struct ScaleReader {
    client: Client,
    /// Client for permission checks.
    reviewer: Client,
    /// Whether this process may read ReplicaSets and `StatefulSets` for certain.
    reads_basic_kinds: bool,
    /// The plurals of kinds that have a scale and may be read.
    known: Mutex<BTreeMap<Place, (Instant, Option<String>)>>,
}

impl ScaleReader {
    /// For a controller, which starts no node without the permission to read the basic kinds.
    pub fn new(client: Client, reviewer: Client) -> Self {
        Self {
            client,
            reviewer,
            reads_basic_kinds: true,
            known: Mutex::default(),
        }
    }

    /// For a drain.
    pub fn of_drain(client: Client) -> Self {
        Self {
            reads_basic_kinds: false,
            ..Self::new(client.clone(), client)
        }
    }

    /// # Errors
    /// Fails if a request does.
    pub async fn read(&self, workload: &Workload<'_>) -> Result<Scale, Error> {
        let Some(object) = self.get(workload).await? else {
            return Ok(Scale::Hidden);
        };
        let Some(object) = object else {
            return Ok(Scale::Gone);
        };
        // A ReplicaSet of a Deployment, or of something like it, is replaced by another one when its template changes.
        let owners = object.metadata.owner_references.iter();
        let mut owners = owners.filter(|owner| owner.controller == Some(true));
        let entry = owners.next().and_then(|owner| {
            Workload::entry(&owner.api_version, &owner.kind, workload.namespace, &owner.name)
        });
        if let Some(entry) = entry.filter(|_| workload.kind == "ReplicaSet")
            && let Some(owner) = Workload::parse(&entry)
            && let Some(Some(owner)) = self.get(&owner).await?
        {
            return Ok(owner.scale());
        }
        Ok(object.scale())
    }

    /// These controllers, with the number of their ready pods. A drain needs that of no kind: what it may not read has none,
    /// and custom kinds that it may not read are left out.
    pub async fn noted(&self, workloads: &[String]) -> Vec<String> {
        let mut workloads = workloads.to_vec();
        limit_workloads(&mut workloads);
        let each = workloads.into_iter().map(async |text| {
            let workload = Workload::parse(&text)?;
            match self.read(&workload).await {
                Ok(Scale::Of { ready, .. }) => {
                    let ready = u16::try_from(ready.max(0)).unwrap_or(u16::MAX);
                    Some(format!("{text}={ready}"))
                }
                _ => workload.is_basic().then_some(text),
            }
        });
        let noted = stream::iter(each).buffered(MAX_READS).collect::<Vec<_>>();
        noted.await.into_iter().flatten().collect()
    }

    /// An object, if it exists; the outer `None` if its kind has no scale or may not be read.
    async fn get(&self, workload: &Workload<'_>) -> Result<Option<Option<Scalable>>, Error> {
        let (api_version, namespace) = (workload.api_version(), workload.namespace);
        let plural = match builtin(&api_version, workload.kind) {
            Some(plural) if workload.is_basic() && self.reads_basic_kinds => Some(plural.to_owned()),
            _ => self.plural(&api_version, workload.kind, namespace).await?,
        };
        let Some(plural) = plural else {
            return Ok(None);
        };
        let prefix = if api_version.contains('/') { "apis" } else { "api" };
        let path = format!("/{prefix}/{api_version}/namespaces/{namespace}/{plural}");
        let request = Request::new(path)
            .get(workload.name, &GetParams::default())
            .map_err(Error::BuildRequest)?;
        match self.client.request::<Scalable>(request).await {
            Ok(object) => Ok(Some(Some(object))),
            Err(error) if Answer::of(&error) == Answer::NotFound => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }

    /// The plural of a kind with a scale that this process may read.
    async fn plural(&self, api_version: &str, kind: &str, namespace: &str) -> Result<Option<String>, Error> {
        let place = (api_version.to_owned(), kind.to_owned(), namespace.to_owned());
        // Held during the requests, so that each kind is looked up once.
        let mut known = self.known.lock().await;
        let is_new = |(at, _): &(Instant, Option<String>)| at.elapsed() < KIND_CHECKED;
        known.retain(|_, answer| is_new(answer));
        if let Some((_, plural)) = known.get(&place) {
            return Ok(plural.clone());
        }
        let answer = self.look_up(api_version, kind, namespace).await?;
        known.insert(place, (Instant::now(), answer.clone()));
        Ok(answer)
    }

    async fn look_up(&self, api_version: &str, kind: &str, namespace: &str) -> Result<Option<String>, Error> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let plural = match builtin(api_version, kind) {
            Some(plural) => plural.to_owned(),
            None if !group.contains('.') => return Ok(None),
            None => {
                let list = match self.client.list_api_group_resources(api_version).await {
                    Ok(list) => list.resources,
                    Err(error) if Answer::of(&error) == Answer::NotFound => return Ok(None),
                    Err(error) => return Err(error),
                };
                let is_kind = |name: &str| !name.contains('/');
                let found = list.iter().find(|it| it.kind == kind && is_kind(&it.name));
                let has_scale = |plural: &String| {
                    let scale = format!("{plural}/scale");
                    list.iter().any(|it| it.name == scale)
                };
                match found.map(|it| it.name.clone()).filter(has_scale) {
                    Some(plural) => plural,
                    None => return Ok(None),
                }
            }
        };
        let allowed = may_get(&self.reviewer, None, group, &plural).await?
            || may_get(&self.reviewer, Some(namespace), group, &plural).await?;
        Ok(allowed.then_some(plural))
    }
}

/// The plural of a kind of Kubernetes with a scale.
fn builtin(api_version: &str, kind: &str) -> Option<&'static str> {
    Some(match (api_version, kind) {
        ("apps/v1", "ReplicaSet") => "replicasets",
        ("apps/v1", "StatefulSet") => "statefulsets",
        ("apps/v1", "Deployment") => "deployments",
        ("v1", "ReplicationController") => "replicationcontrollers",
        _ => return None,
    })
}
