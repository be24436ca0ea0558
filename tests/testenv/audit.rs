//! All requests to the API server, from its audit log.
//!
//! A request is counted once, by its first line; a watch has two. The API server may write a line shortly after its
//! response. [`AuditLog::settle`] sends a request and waits for its line, so that all earlier lines have been written.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::Api;
use refit_api::names::{
    ANNOTATION_NODE_NAME, ANNOTATION_NODE_UID, ANNOTATION_RECORDED, LABEL_NODE, LABEL_PLAN, plan_label,
};
use serde::Deserialize;
use serde_json::Value;

use super::names;
use super::wait::SOON;

/// The user of tests and their users' actions. The User-Agent names the test.
pub const ADMIN: &str = "refit-test-admin";
/// Creates the pods of Jobs.
const JOB_CONTROLLER: &str = "system:serviceaccount:kube-system:job-controller";
/// The user of fake kubelets and of the test environment itself. Not in the audit log.
pub const TEST_ENV_USER: &str = "refit-testenv";

/// The log has the requests of service accounts and of the administrator, with bodies where tests need them, and of
/// Kubernetes' own controllers only the ends of Jobs and the pods that Jobs create.
pub const POLICY: &str = r"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
  - level: Request
    users: ['system:serviceaccount:kube-system:job-controller']
    verbs: [update, patch]
    resources: [{ group: batch, resources: [jobs/status] }]
  - level: RequestResponse
    users: ['system:serviceaccount:kube-system:job-controller']
    verbs: [create]
    resources: [{ group: '', resources: [pods] }]
  - level: None
    userGroups: ['system:serviceaccounts:kube-system', 'system:nodes']
  - level: RequestResponse
    userGroups: ['system:serviceaccounts']
    verbs: [create]
    resources: [{ group: batch, resources: [jobs] }]
  - level: Request
    userGroups: ['system:serviceaccounts']
    verbs: [create, update, patch, delete]
    resources:
      - { group: '', resources: [nodes, pods, pods/eviction] }
      - { group: batch, resources: [jobs] }
      - { group: upgrade.cattle.io, resources: [plans, plans/status] }
  - level: Metadata
    userGroups: ['system:serviceaccounts']
  - level: Metadata
    users: [refit-test-admin]
  - level: None
";

/// The log of an API server from a moment on.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    from: u64,
}

/// A request and its response.
#[derive(Clone, Debug)]
pub struct Request {
    pub user: String,
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    pub group: String,
    /// With the subresource, as RBAC writes it: `plans/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub code: u16,
    /// When the API server received it.
    pub received: Timestamp,
    /// When the API server responded.
    pub at: Timestamp,
    /// The body, if [`POLICY`] includes it.
    pub sent: Value,
    /// The body of the response, if [`POLICY`] includes it.
    pub answered: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCreated {
    pub uid: String,
    pub name: String,
    pub plan: String,
    /// The node's name: refit's annotation, or SUC's label.
    pub node: String,
    /// Empty on a Job of SUC.
    pub node_uid: String,
    pub hash: String,
    pub at: Timestamp,
}

impl AuditLog {
    /// The log from now on.
    pub fn from_now(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            from: std::fs::metadata(path).map_or(0, |file| file.len()),
        }
    }

    /// All requests by a test or in its namespace, in the order of their responses. `test` is its id, which is in the
    /// names of its service accounts and in the User-Agent of its administrator, and is its namespace.
    pub fn requests(&self, test: &str) -> Requests {
        let lines = self
            .read()
            .unwrap_or_else(|error| panic!("cannot read the audit log {}: {error}", self.path.display()));
        let mut seen = HashSet::new();
        let requests = lines
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n') && line.contains(test))
            .map(|line| {
                serde_json::from_str::<Line>(line)
                    .unwrap_or_else(|error| panic!("audit log: {error}: {line}"))
            })
            .filter(|line| {
                line.user.username.contains(test)
                    || line.user_agent.contains(test)
                    || line.object_ref.namespace == test
            })
            .filter(|line| seen.insert(line.audit_id.clone()))
            .map(Request::from)
            .collect();
        Requests(requests)
    }

    /// Waits until all requests with a response are in the log.
    pub async fn settle(&self, client: &Client) {
        // The marker is after this point, however much others write.
        let here = Self::from_now(&self.path);
        let marker = format!("settle-{}", names::random());
        let answer = Api::<Namespace>::all(client.clone()).get_opt(&marker).await;
        assert!(
            matches!(answer, Ok(None)),
            "the API server does not answer: {answer:?}"
        );
        let started = Instant::now();
        while !here.mentions(&marker) {
            assert!(started.elapsed() < SOON, "the audit log does not grow");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn mentions(&self, marker: &str) -> bool {
        self.read().is_ok_and(|lines| lines.contains(marker))
    }

    fn read(&self) -> std::io::Result<String> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Requests in the order of their responses.
#[derive(Clone, Debug, Default)]
pub struct Requests(pub Vec<Request>);

impl Requests {
    /// Requests whose user or User-Agent contains `text`.
    pub fn by(&self, text: &str) -> Self {
        let by = |request: &&Request| request.user.contains(text) || request.user_agent.contains(text);
        Self(self.0.iter().filter(by).cloned().collect())
    }

    /// Number of requests with this verb and resource in RBAC's notation (`plans/status`), refused ones included.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        self.0
            .iter()
            .filter(|request| request.verb == verb && request.resource == resource)
            .count()
    }

    /// Number of requests by verb, resource and code.
    pub fn tally(&self) -> BTreeMap<(&str, &str, u16), usize> {
        let mut tally = BTreeMap::new();
        for request in &self.0 {
            *tally
                .entry((request.verb.as_str(), request.resource.as_str(), request.code))
                .or_default() += 1;
        }
        tally
    }

    /// Requests that RBAC refused.
    pub fn forbidden(&self) -> Vec<&Request> {
        let refused = self.0.iter().filter(|request| request.code == 403);
        refused.filter(|request| request.user != JOB_CONTROLLER).collect()
    }

    /// How many creations of a pod for this Job had a response.
    pub fn pods_created_for(&self, job: &str) -> usize {
        let of_job = |request: &&Request| {
            let owner = &request.answered["metadata"]["ownerReferences"][0]["name"];
            request.user == JOB_CONTROLLER && request.code == 201 && owner == job
        };
        self.0.iter().filter(of_job).count()
    }

    /// Requests that change something, refused ones included, but not those for the pods of Jobs.
    pub fn writes(&self) -> impl Iterator<Item = &Request> {
        let is_write = |it: &&Request| !matches!(it.verb.as_str(), "get" | "list" | "watch");
        let is_of_job = |it: &Request| it.user == JOB_CONTROLLER && it.resource == "pods";
        self.0.iter().filter(is_write).filter(move |it| !is_of_job(it))
    }

    pub fn jobs_created(&self) -> Vec<JobCreated> {
        self.0
            .iter()
            .filter(|request| request.verb == "create" && request.resource == "jobs" && request.code == 201)
            .map(|request| JobCreated::of(&request.answered, request.at))
            .collect()
    }

    /// UIDs of the created Jobs by UID of the node and hash.
    pub fn jobs_by_node_and_hash(&self) -> BTreeMap<(String, String), BTreeSet<String>> {
        let mut jobs = BTreeMap::<_, BTreeSet<_>>::new();
        for job in self.jobs_created() {
            jobs.entry((job.node_uid, job.hash)).or_default().insert(job.uid);
        }
        jobs
    }

    /// The length of the longest `status.applying` ever written for a Plan.
    pub fn most_applying(&self, plan: &str) -> usize {
        self.0
            .iter()
            .filter(|request| {
                request.resource == "plans/status" && request.name == plan && request.code < 300
            })
            .filter_map(|request| {
                let mut operations = request.sent.as_array()?.iter();
                let status = operations.find(|operation| operation["path"] == "/status")?;
                status["value"]["applying"].as_array().map(Vec::len)
            })
            .max()
            .unwrap_or(0)
    }

    /// The requests in the order of their arrival. A client may see the effect of a request in a watch, and get the
    /// response to a later request, before the response to the first.
    pub fn by_arrival(&self) -> Self {
        let mut requests = self.0.clone();
        requests.sort_by_key(|request| request.received);
        Self(requests)
    }

    /// Maximum number of unfinished Jobs of a Plan at a time.
    pub fn most_jobs_at_once(&self, plan: &str) -> usize {
        self.most_open_jobs(|job| job.plan == plan)
    }

    /// Maximum number of these unfinished Jobs at a time. A Job ends when the Job controller says so, when it is deleted,
    /// or when its result is recorded: the log of a killed API server may lack its last requests.
    pub fn most_open_jobs(&self, counts: impl Fn(&JobCreated) -> bool) -> usize {
        let mut open = BTreeSet::new();
        let mut most = 0;
        let created: BTreeMap<_, _> = self
            .jobs_created()
            .into_iter()
            .map(|job| (job.uid.clone(), job))
            .collect();
        let uid_of = |request: &Request| text(&request.sent["metadata"]["uid"]);
        let ends = |request: &&Request| request.resource == "jobs/status" && finished(&request.sent);
        let ended: BTreeSet<_> = self.0.iter().filter(ends).map(uid_of).collect();
        for request in &self.by_arrival().0 {
            match (request.verb.as_str(), request.resource.as_str()) {
                ("create", "jobs") if request.code == 201 => {
                    let uid = text(&request.answered["metadata"]["uid"]);
                    if created.get(&uid).is_some_and(&counts) {
                        open.insert((request.name_of_object(), uid));
                    }
                }
                ("delete", "jobs") if request.code < 300 => open.retain(|(name, _)| *name != request.name),
                ("deletecollection", "jobs") if request.code < 300 => open.clear(),
                (_, "jobs/status") if finished(&request.sent) => {
                    let uid = uid_of(request);
                    open.retain(|(_, open)| *open != uid);
                }
                ("patch", "jobs") if request.code < 300 && records(&request.sent) => {
                    let uid = uid_of(request);
                    open.retain(|(_, open)| *open != uid || ended.contains(open));
                }
                _ => {}
            }
            most = most.max(open.len());
        }
        most
    }
}

impl Request {
    fn name_of_object(&self) -> String {
        text(&self.answered["metadata"]["name"])
    }
}

impl JobCreated {
    fn of(job: &Value, at: Timestamp) -> Self {
        let metadata = &job["metadata"];
        let (labels, annotations) = (&metadata["labels"], &metadata["annotations"]);
        let plan = text(&labels[LABEL_PLAN]);
        let node = match &annotations[ANNOTATION_NODE_NAME] {
            Value::String(name) => name.clone(),
            _ => text(&labels[LABEL_NODE]),
        };
        Self {
            uid: text(&metadata["uid"]),
            name: text(&metadata["name"]),
            node,
            node_uid: text(&annotations[ANNOTATION_NODE_UID]),
            hash: text(&labels[plan_label(&plan)]),
            plan,
            at,
        }
    }
}

pub(super) fn finished(job: &Value) -> bool {
    job["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| {
            matches!(condition["type"].as_str(), Some("Complete" | "Failed")) && condition["status"] == "True"
        })
}

/// refit records the result of a Job after its end.
fn records(job: &Value) -> bool {
    job["metadata"]["annotations"][ANNOTATION_RECORDED].is_string()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A line of the log (`audit.k8s.io/v1` Event).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    #[serde(default)]
    request_object: Value,
    #[serde(default)]
    response_object: Value,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Line> for Request {
    fn from(line: Line) -> Self {
        let reference = line.object_ref;
        Self {
            user: line.user.username,
            user_agent: line.user_agent,
            verb: line.verb,
            group: reference.api_group,
            resource: match reference.subresource.as_str() {
                "" => reference.resource,
                subresource => format!("{}/{subresource}", reference.resource),
            },
            namespace: reference.namespace,
            name: reference.name,
            code: line.response_status.code,
            received: line.request_received_timestamp,
            at: line.stage_timestamp,
            sent: line.request_object,
            answered: line.response_object,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    /// A log with these lines: verb, resource, name, body and response.
    fn log(lines: &[(&str, &str, &str, Value, Value)]) -> Requests {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut text = String::new();
        for (number, (verb, resource, name, sent, answered)) in lines.iter().enumerate() {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let line = json!({
                "auditID": number.to_string(), "stage": "ResponseComplete", "verb": verb,
                "user": { "username": "somebody" },
                "objectRef": { "resource": resource, "subresource": subresource, "namespace": "n", "name": name },
                "responseStatus": { "code": if *verb == "create" { 201 } else { 200 } },
                "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
                "stageTimestamp": "2026-01-01T00:00:00.000000Z", "requestObject": sent, "responseObject": answered,
            });
            let _ = writeln!(text, "{line}");
        }
        std::fs::write(&path, text).unwrap();
        AuditLog { path, from: 0 }.requests("n")
    }

    fn job(name: &str, plan: &str) -> Value {
        json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": { "upgrade.cattle.io/plan": plan } } })
    }

    fn made<'a>(name: &'a str, plan: &str) -> (&'static str, &'static str, &'a str, Value, Value) {
        ("create", "jobs", name, json!({}), job(name, plan))
    }

    fn ended<'a>(name: &'a str, condition: &str) -> (&'static str, &'static str, &'a str, Value, Value) {
        let mut sent = job(name, "p");
        sent["status"] = json!({ "conditions": [{ "type": condition, "status": "True" }] });
        ("update", "jobs/status", name, sent, Value::Null)
    }

    #[test]
    fn jobs_count_until_they_have_ended() {
        let one_after_the_other = [
            made("a", "p"),
            ended("a", "Complete"),
            made("b", "p"),
            ended("b", "Failed"),
            made("c", "p"),
        ];
        assert_eq!(log(&one_after_the_other).most_jobs_at_once("p"), 1);
        let ending_is_not_ended = [made("a", "p"), ended("a", "FailureTarget"), made("b", "p")];
        assert_eq!(log(&ending_is_not_ended).most_jobs_at_once("p"), 2);
        let deleted = [
            made("a", "p"),
            ("delete", "jobs", "a", Value::Null, Value::Null),
            made("b", "p"),
        ];
        assert_eq!(log(&deleted).most_jobs_at_once("p"), 1);
        let of_two_plans = [made("a", "p"), made("b", "other"), made("c", "other")];
        assert_eq!(log(&of_two_plans).most_jobs_at_once("p"), 1);
        assert_eq!(log(&of_two_plans).most_jobs_at_once("other"), 2);
    }

    #[test]
    fn the_longest_list_of_applying_nodes_counts() {
        let applying = |nodes: Value| {
            (
                "patch",
                "plans/status",
                "p",
                json!([{ "op": "add", "path": "/status", "value": { "applying": nodes } }]),
                Value::Null,
            )
        };
        let requests = log(&[
            applying(json!(["a"])),
            applying(json!(["a", "b", "c"])),
            applying(Value::Null),
        ]);
        assert_eq!(requests.most_applying("p"), 3);
        assert_eq!(requests.most_applying("other"), 0);
    }
}
