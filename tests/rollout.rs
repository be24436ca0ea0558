//! What the tests of the controller as a process share: a roll-out that they disturb, and the promises that hold however much
//! it was disturbed. The promises are read from the API server's audit log, from the objects that are there at the end, and from
//! the logs of the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod, ServiceAccount};
use kube::api::{Api, ListParams};
use refit::api::Plan;
use refit::api::names::{ANNOTATION_RECORDED, LABEL_PLAN_PREFIX};
use serde_json::{Value, json};

use crate::support::audit::{Request, Requests};
use crate::support::controller::Setup;
use crate::support::kubelet::{FakeKubelet, NodeSet};
use crate::support::manifest::{self, TEST_LABEL};
use crate::support::wait;
use crate::support::world::World;
use crate::support::world::cluster::{create, done};

/// The only Plan of these roll-outs.
pub(crate) const PLAN: &str = "upgrade";

/// In the Secret that these Plans name: no log may have it.
pub(crate) const SECRET: &str = "correct-horse-battery-staple";

/// For a roll-out of a few nodes that was disturbed, on a machine that does much else.
pub(crate) const DISTURBED: Duration = Duration::from_secs(180);

/// How big a roll-out is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    pub(crate) concurrency: usize,
    /// How long an upgrade takes.
    pub(crate) run: Duration,
}

/// A Plan and its nodes, in a world of their own.
pub(crate) struct RollOut {
    pub(crate) world: World,
    pub(crate) shape: Shape,
    /// Spec of the Plan, to be changed before the beginning. It cordons, and names a Secret, so that one is read.
    pub(crate) spec: Value,
    /// The API server is so bad that it may refuse requests that are allowed, and that Warning events may be right.
    pub(crate) rough: bool,
    /// The API server is away for a while, so that `cordon` on a node may fail, and with it a pod whose Job makes another one.
    pub(crate) outage: bool,
    /// How long it may take at most.
    pub(crate) limit: Duration,
    pub(crate) kubelet: FakeKubelet,
}

impl RollOut {
    /// The nodes are there, the Plan is not.
    pub(crate) async fn prepare(world: World, shape: Shape) -> Self {
        let nodes = NodeSet::numbered(&world.node_name("n"), shape.nodes)
            .labels(world.node_labels())
            .steer("run-delay", &format!("{}ms", shape.run.as_millis()));
        let kubelet = FakeKubelet::start(&world.bed.kubelet_config().await, nodes).await;
        let spec = json!({
            "concurrency": shape.concurrency,
            "version": "v1.2.3",
            "nodeSelector": {},
            "serviceAccountName": "system-upgrade",
            "cordon": true,
            "secrets": [{ "name": PLAN, "path": "/run/secret" }],
            "upgrade": { "image": "example.com/upgrade" },
        });
        Self {
            world,
            shape,
            spec,
            rough: false,
            outage: false,
            limit: DISTURBED,
            kubelet,
        }
    }

    /// Its controller, with a Lease that a busy machine does not lose. A process that is started after one that was killed has
    /// the same identity, and leads at once.
    pub(crate) fn controller(&self) -> Setup {
        self.world
            .controller()
            .env("CATTLE_ELECTION_LEASE_DURATION", "90s")
            .env("CATTLE_ELECTION_RENEW_DEADLINE", "60s")
            .env("CATTLE_ELECTION_RETRY_PERIOD", "1s")
    }

    /// Applies the Plan and its Secret.
    pub(crate) async fn begin(&self) {
        let secret = json!({
            "metadata": { "name": PLAN, "namespace": self.world.namespace() },
            "stringData": { "password": SECRET },
        });
        create(&self.world.secrets(), secret).await;
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": PLAN }, "spec": self.spec,
        });
        self.world
            .try_apply(plan)
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Waits until at least so many nodes are done, and others are worked on.
    pub(crate) async fn under_way(&self, done: i64) -> Plan {
        self.world
            .plan_until(PLAN, "is under way", DISTURBED, |plan| {
                let counts = plan
                    .status
                    .as_ref()
                    .and_then(|status| status.nodes)
                    .unwrap_or_default();
                counts.done >= done && counts.applying > 0
            })
            .await
    }

    /// Waits until the Plan is Complete, and checks every promise.
    pub(crate) async fn ends_well(&self) -> Plan {
        let plan = self.ends().await;
        self.check(&plan).await;
        plan
    }

    /// Waits until the Plan is Complete and nothing is left to be done.
    pub(crate) async fn ends(&self) -> Plan {
        let all = i64::try_from(self.shape.nodes).expect("a number of nodes");
        let plan = self
            .world
            .plan_until(PLAN, "is Complete, with all nodes", self.limit, |plan| {
                let status = plan.status.clone().unwrap_or_default();
                let counts = status.nodes.unwrap_or_default();
                let complete = status
                    .conditions
                    .iter()
                    .any(|it| it.type_ == "Complete" && it.status == "True");
                complete && counts.done == all && counts.selected == all
            })
            .await;
        wait::eventually("the result of every Job is recorded", self.limit, async || {
            let open = |job: &k8s_openapi::api::batch::v1::Job| {
                let recorded = job
                    .metadata
                    .annotations
                    .as_ref()
                    .is_some_and(|it| it.contains_key(ANNOTATION_RECORDED));
                !recorded && job.metadata.deletion_timestamp.is_none()
            };
            let jobs = self.world.jobs_of(PLAN).await;
            match jobs.iter().filter(|job| open(job)).count() {
                0 => Ok(()),
                some => Err(format!("{some} are not")),
            }
        })
        .await;
        plan
    }

    /// Every promise, at the end of a roll-out in which nothing failed and every node was done once.
    pub(crate) async fn check(&self, plan: &Plan) {
        self.check_but_events(plan).await;
        self.check_events().await;
    }

    /// As [`Self::check`], where events could not be written.
    pub(crate) async fn check_but_events(&self, plan: &Plan) {
        self.check_status(plan);
        let hash = plan
            .status
            .as_ref()
            .and_then(|status| status.latest_hash.clone())
            .expect("a hash");
        let nodes = self.world.my_nodes().await;
        assert_eq!(nodes.len(), self.shape.nodes);
        for node in &nodes {
            check_node(node, &hash);
        }
        let requests = self.world.requests().await;
        self.check_requests(&requests, &nodes, &hash).await;
        self.check_pods(&nodes).await;
        self.check_logs().await;
    }

    fn check_status(&self, plan: &Plan) {
        let status = plan.status.clone().expect("a status");
        let counts = status.nodes.unwrap_or_default();
        assert_eq!(
            (counts.applying, counts.waiting, counts.failed, counts.disabled),
            (0, 0, 0, 0),
            "{status:?}"
        );
        assert_eq!(status.applying, None, "{status:?}");
        assert_eq!(status.observed_generation, plan.metadata.generation);
        assert_eq!(status.progress, Some(format!("{0}/{0}", self.shape.nodes)));
    }

    async fn check_requests(&self, requests: &Requests, nodes: &[Node], hash: &str) {
        let refused: Vec<_> = requests.forbidden().into_iter().map(line).collect();
        // An API server that has just been started refuses what it has not read the roles for.
        assert!(
            refused.is_empty() || self.rough,
            "requests were refused: {refused:#?}"
        );

        // What was created, what ended, and what is there: a creation whose client was killed may be in the log as one that
        // failed.
        let mut jobs = requests.jobs_by_node_and_hash();
        let ended = requests
            .0
            .iter()
            .filter(|request| request.resource == "jobs/status");
        // Nothing is known of what was sent in a request that was refused unread.
        let ended = ended.map(|request| request.sent.clone()).filter(Value::is_object);
        let there = self.world.jobs_of(PLAN).await.into_iter();
        let there = there.map(|job| serde_json::to_value(job).expect("a Job is JSON"));
        for job in ended.chain(there) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let node = text(&job["metadata"]["annotations"]["refit.rs/node-uid"]);
            let hash = text(&job["metadata"]["labels"][format!("{LABEL_PLAN_PREFIX}{PLAN}")]);
            jobs.entry((node, hash))
                .or_default()
                .insert(text(&job["metadata"]["uid"]));
        }
        let expected: BTreeSet<_> = nodes
            .iter()
            .map(|node| (node.metadata.uid.clone().unwrap_or_default(), hash.to_owned()))
            .collect();
        assert_eq!(
            jobs.keys().cloned().collect::<BTreeSet<_>>(),
            expected,
            "(node, hash) with a Job"
        );
        for (target, uids) in &jobs {
            assert_eq!(uids.len(), 1, "Jobs of {target:?}: {uids:?}");
        }

        for (job, told) in told_before(requests) {
            assert!(told.is_some(), "made before status named its node: {job}");
        }

        let limit = self.shape.concurrency;
        assert!(
            requests.most_jobs_at_once(PLAN) <= limit,
            "{} Jobs at once",
            requests.most_jobs_at_once(PLAN)
        );
        assert!(
            requests.most_applying(PLAN) <= limit,
            "{} nodes applying",
            requests.most_applying(PLAN)
        );
        let most = most_nodes_at_once(requests);
        assert!(
            most <= limit,
            "{most} nodes at once that had a Job and not the label"
        );
    }

    /// Each node ran one pod, and its upgrade once; in an outage, as often as the Job controller made a pod without hearing that
    /// it had, and made another: Kubernetes promises no more.
    async fn check_pods(&self, nodes: &[Node]) {
        let unheard = self.pods_unheard_of().await;
        let mut twice = BTreeSet::new();
        let pods = self.world.pods().list(&ListParams::default()).await;
        let mut by_node = BTreeMap::<_, Vec<_>>::new();
        for pod in pods.expect("pods can be listed").items {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            by_node.entry(node.unwrap_or_default()).or_default().push(pod);
        }
        for (node, mut pods) in by_node {
            if self.outage {
                let owners: Vec<_> = pods.iter().map(|pod| &pod.metadata.owner_references).collect();
                assert!(
                    owners.windows(2).all(|pair| pair[0] == pair[1]),
                    "pods of {node} are not of one Job: {owners:#?}"
                );
                pods.retain(|pod| !lost_the_api_server(pod));
                let job = |pod: &Pod| Some(pod.metadata.owner_references.as_ref()?.first()?.name.clone());
                if pods.len() == 2 && job(&pods[0]).is_some_and(|job| unheard.contains(&job)) {
                    twice.insert(node);
                    continue;
                }
            }
            let told: Vec<_> = pods.iter().map(|pod| (&pod.metadata.name, &pod.status)).collect();
            assert_eq!(pods.len(), 1, "pods of {node}: {told:#?}");
        }
        for node in nodes.iter().filter_map(|node| node.metadata.name.as_deref()) {
            let runs = self.kubelet.runs(node, "upgrade").await;
            let most = if twice.contains(node) { 2 } else { 1 };
            assert!(
                (1..=most).contains(&runs),
                "{runs} upgrades were started on {node}"
            );
        }
    }

    /// Jobs of which the Job controller says that a pod was not made, in words that leave open whether it was.
    async fn pods_unheard_of(&self) -> BTreeSet<String> {
        let failed = self.world.events_with("FailedCreate").await;
        let unheard = failed.into_iter().filter(|event| {
            let why = event.message.as_deref().unwrap_or_default();
            why.contains("connection reset") || why.contains("EOF")
        });
        unheard.filter_map(|event| event.involved_object.name).collect()
    }

    /// Each result was told once.
    async fn check_events(&self) {
        let nodes = self.world.my_nodes().await;
        let told = self.world.events_with("JobComplete").await;
        let mut told: Vec<_> = told
            .into_iter()
            .map(|event| event.message.unwrap_or_default())
            .collect();
        told.sort();
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        let expected: Vec<_> = nodes
            .iter()
            .map(|node| format!("Job completed on Node {}", name(node)))
            .collect();
        assert_eq!(told, expected);
        for reason in ["Resolved", "Validated", "Complete"] {
            let told = self.world.events_with(reason).await;
            assert_eq!(told.len(), 1, "{reason}: {told:?}");
        }
        let all: Vec<Event> = self
            .world
            .events()
            .list(&ListParams::default())
            .await
            .expect("events")
            .items;
        let ours = all
            .iter()
            .filter(|event| event.involved_object.kind.as_deref() == Some("Plan"));
        assert!(
            ours.clone().all(|event| event.count == Some(1)),
            "an event was counted up"
        );
        let warnings = ours.filter(|event| event.type_.as_deref() == Some("Warning"));
        let fair =
            |event: &&Event| matches!(event.reason.as_deref(), Some("JobRefused" | "MissingPermission"));
        let warnings: Vec<_> = warnings.filter(|event| !(self.rough && fair(event))).collect();
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    /// No token and no content of a Secret is in a log, and nothing panicked.
    async fn check_logs(&self) {
        let token = bearer(self.world.kubeconfig());
        for (path, text) in logs(&self.world) {
            assert!(
                !text.contains(SECRET),
                "the content of a Secret is in {}",
                path.display()
            );
            assert!(!text.contains(&token), "the token is in {}", path.display());
            assert!(!text.contains("panicked"), "a panic is in {}", path.display());
        }
    }
}

/// The logs of the controllers of a world.
pub(crate) fn logs(world: &World) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(world.dir())
        .expect("the folder of the world")
        .flatten();
    let mut logs = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("controller") && name.ends_with(".log") {
            let text = std::fs::read(&path).expect("a log can be read");
            logs.push((path, String::from_utf8_lossy(&text).into_owned()));
        }
    }
    assert!(!logs.is_empty(), "no controller has a log");
    logs
}

fn bearer(kubeconfig: &std::path::Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).expect("the kubeconfig");
    let file: Value = serde_json::from_str(&text).expect("a kubeconfig of the test bed is JSON");
    let token = file["users"][0]["user"]["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    assert!(token.len() > 100);
    token
}

fn check_node(node: &Node, hash: &str) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    assert_eq!(done(node, PLAN).as_deref(), Some(hash), "label of {name}");
    let left: Vec<_> = node
        .metadata
        .annotations
        .iter()
        .flatten()
        .filter(|(key, _)| key.contains("refit.rs/"))
        .collect();
    assert!(left.is_empty(), "left on {name}: {left:?}");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    assert_eq!(cordoned, None, "{name} is cordoned");
}

/// The pod failed before its upgrade began, because its `cordon` found no API server. The Job controller makes another one of the
/// same Job then, as long as `backoffLimit` allows.
fn lost_the_api_server(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let cordon_failed = |it: &ContainerStatus| {
        let end = it.state.as_ref().and_then(|state| state.terminated.as_ref());
        it.name == "cordon" && end.is_some_and(|end| end.exit_code == 1)
    };
    let never_began = |it: &ContainerStatus| {
        let state = it.state.as_ref();
        state.is_none_or(|state| state.running.is_none() && state.terminated.is_none())
    };
    status.phase.as_deref() == Some("Failed")
        && status.init_container_statuses.iter().flatten().any(cordon_failed)
        && status.container_statuses.iter().flatten().all(never_began)
}

/// How many nodes had a Job and not yet the label that says done, at most at the same time.
fn most_nodes_at_once(requests: &Requests) -> usize {
    let label = format!("{LABEL_PLAN_PREFIX}{PLAN}");
    let requests = requests.by_arrival();
    let mut made = requests.jobs_created().into_iter();
    let mut open = BTreeSet::new();
    let mut most = 0;
    // A write whose client was killed may be in the log as one that failed: it counts as if it had not.
    for request in requests
        .0
        .iter()
        .filter(|request| !(300..500).contains(&request.code))
    {
        match (request.verb.as_str(), request.resource.as_str()) {
            ("create", "jobs") if request.code == 201 => {
                let job = made.next().expect("each creation once");
                open.insert(job.node);
            }
            ("patch", "nodes") if request.sent["metadata"]["labels"][&label].is_string() => {
                open.remove(&request.name);
            }
            _ => {}
        }
        most = most.max(open.len());
    }
    most
}

/// What status had said of its node, with the node's UID, when each Job was asked for: that it is `Waiting` and next, or that it
/// holds a slot. Nothing where it had not named it.
pub(crate) fn told_before(requests: &Requests) -> Vec<(String, Option<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let statuses = requests.0.iter().filter(|request| {
        let is_status = request.verb == "patch" && request.resource == "plans/status";
        // One whose client was killed may be in the log as one that failed.
        is_status && !(300..500).contains(&request.code) && request.sent["status"]["active"].is_array()
    });
    let statuses: Vec<_> = statuses.collect();
    let jobs = requests.0.iter();
    let jobs =
        jobs.filter(|request| request.verb == "create" && request.resource == "jobs" && request.code == 201);
    jobs.map(|job| {
        let node = text(&job.answered["metadata"]["annotations"]["refit.rs/node-uid"]);
        // The last one that was answered, and those after it that may have been stored before they were.
        let last = statuses
            .iter()
            .rposition(|it| it.code < 300 && it.at <= job.received);
        let known = statuses.iter().skip(last.unwrap_or_default());
        let mut known = known.filter(|it| it.received <= job.received);
        let told = known.find_map(|status| {
            let mut nodes = status.sent["status"]["active"].as_array()?.iter();
            nodes.find(|it| text(&it["uid"]) == node)
        });
        (line(job), told.map(|told| text(&told["phase"])))
    })
    .collect()
}

/// A request in one line, for a failed test.
pub(crate) fn line(request: &Request) -> String {
    format!(
        "{} {} {} {}: {}",
        request.at, request.verb, request.resource, request.name, request.code
    )
}

/// Another ServiceAccount with the rights of the controller's, so that the audit log tells two replicas apart. Returns its
/// kubeconfig; its requests are those `by` its name.
pub(crate) async fn account(world: &World, name: &str) -> PathBuf {
    let account = json!({ "metadata": { "name": name, "namespace": world.namespace() } });
    create(
        &Api::<ServiceAccount>::namespaced(world.client.clone(), world.namespace()),
        account,
    )
    .await;
    let role = "system-upgrade-controller";
    let bindings = [
        ("RoleBinding", world.namespace(), "Role", role.to_owned()),
        ("RoleBinding", "default", "Role", world.local_name(role)),
        ("ClusterRoleBinding", "", "ClusterRole", world.local_name(role)),
    ];
    for (kind, namespace, role_kind, role) in bindings {
        let mut binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": world.local_name(name), "labels": { TEST_LABEL: world.id } },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": world.namespace() }],
        });
        if !namespace.is_empty() {
            binding["metadata"]["namespace"] = json!(namespace);
        }
        manifest::apply(&world.client, &binding)
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
    }
    world.write_kubeconfig(name, &world.token(name).await)
}
