//! Shared by the tests of the controller as a process: a roll-out to disturb, and what holds after any disturbance. The
//! invariants are those of the simulation; the audit log shows refused requests, the kubelets what ran, and the logs
//! that no secret is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod, ServiceAccount};
use kube::api::{Api, ListParams};
use refit_api::names::{ANNOTATION_NODE_UID, ANNOTATION_RECORDED, ANNOTATION_VERIFIES};
use refit_api::{NodeMark, Plan};
use refit_rehearse::Kind;
use refit_rehearse::journal::{CLUSTER, Entry, JournalEvent};
use refit_testkit::invariants::Invariants;
use serde_json::{Value, json};

use crate::testenv::audit::Request;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::controller::Setup;
use crate::testenv::journal::Journal;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::manifest::{self, TEST_LABEL};
use crate::testenv::wait::{self, SOON};

/// The only Plan of these roll-outs.
pub(crate) const PLAN: &str = "upgrade";

/// Content of the Secret that these Plans name, which must not be in a log.
pub(crate) const SECRET: &str = "correct-horse-battery-staple";

/// The size of a roll-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    pub(crate) concurrency: usize,
    /// Duration of an upgrade.
    pub(crate) run: Duration,
}

/// A Plan and its nodes.
pub(crate) struct RollOut {
    pub(crate) ctx: TestContext,
    pub(crate) shape: Shape,
    /// Spec of the Plan, which a test may change before the start. It cordons, and names a Secret so that one is read.
    pub(crate) spec: Value,
    /// The API server may refuse allowed requests, so Warning events may be correct.
    pub(crate) rough: bool,
    /// The API server is down for a while, so `cordon` on a node may fail, and the Job may create another pod.
    pub(crate) outage: bool,
    /// Maximum time.
    pub(crate) limit: Duration,
    pub(crate) kubelet: FakeKubelet,
    journal: Journal,
}

async fn kubelets(ctx: &TestContext, shape: Shape) -> FakeKubelet {
    let nodes = NodeSet::numbered(&ctx.node_name("n"), shape.nodes)
        .labels(ctx.node_labels())
        .steer("run-delay", &format!("{}ms", shape.run.as_millis()));
    FakeKubelet::start(&ctx.test_env.kubelet_config().await, nodes).await
}

impl RollOut {
    /// Creates the nodes without the Plan.
    pub(crate) async fn prepare(ctx: TestContext, shape: Shape) -> Self {
        let kubelet = kubelets(&ctx, shape).await;
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
            journal: Journal::start(&ctx),
            ctx,
            shape,
            spec,
            rough: false,
            outage: false,
            limit: SOON,
            kubelet,
        }
    }

    /// Starts the kubelets anew. Pods continue from their statuses.
    pub(crate) async fn restart_kubelets(&mut self) {
        self.kubelet.leave();
        self.kubelet = kubelets(&self.ctx, self.shape).await;
    }

    /// A controller with the defaults of tests, in the namespace of this roll-out.
    pub(crate) fn controller(&self) -> Setup {
        self.ctx.controller()
    }

    /// Applies the Plan and its Secret.
    pub(crate) async fn begin(&self) {
        let secret = json!({
            "metadata": { "name": PLAN, "namespace": self.ctx.namespace() },
            "stringData": { "password": SECRET },
        });
        create(&self.ctx.secrets(), secret).await;
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": PLAN }, "spec": self.spec,
        });
        self.ctx
            .try_apply(plan)
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Waits until so many nodes are done, and others are in progress.
    pub(crate) async fn under_way(&self, done: i64) -> Plan {
        self.ctx
            .plan_until(PLAN, "is under way", SOON, |plan| {
                let counts = plan
                    .status
                    .as_ref()
                    .and_then(|status| status.nodes)
                    .unwrap_or_default();
                counts.done >= done && counts.applying > 0
            })
            .await
    }

    /// Waits until the Plan is Complete, and checks all invariants.
    pub(crate) async fn check_success(&self) -> Plan {
        let plan = self.ends().await;
        self.check(&plan).await;
        plan
    }

    /// Waits until the Plan is Complete and nothing is left to do.
    pub(crate) async fn ends(&self) -> Plan {
        let all = i64::try_from(self.shape.nodes).expect("a number of nodes");
        let plan = self
            .ctx
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
            let jobs = self.ctx.jobs_of(PLAN).await;
            match jobs.iter().filter(|job| open(job)).count() {
                0 => Ok(()),
                some => Err(format!("{some} are not")),
            }
        })
        .await;
        if self.outage {
            self.taints_are_gone().await;
        }
        plan
    }

    /// Waits until the node lifecycle controller has removed its taint from nodes that are uncordoned. It does not try again
    /// if its patch has failed (`doNodeProcessingPassWorker` in node_lifecycle_controller.go), but looks at a node at each
    /// change, such as a report of a kubelet.
    async fn taints_are_gone(&self) {
        let mut reports = 0;
        wait::eventually(
            "uncordoned nodes have no taint of a cordon",
            self.limit,
            async || {
                let nodes = self.ctx.my_nodes().await;
                let tainted = nodes.iter().find(|node| {
                    let spec = node.spec.clone().unwrap_or_default();
                    let mut taints = spec.taints.iter().flatten();
                    spec.unschedulable != Some(true)
                        && taints.any(|taint| taint.key == NodeMark::Unschedulable.key())
                });
                let Some(name) = tainted.and_then(|node| node.metadata.name.as_deref()) else {
                    return Ok(());
                };
                reports += 1;
                let report = format!("{reports}");
                self.ctx
                    .annotate_node(name, "example.com/report", Some(&report))
                    .await;
                Err(format!("{name} has it after {report} reports"))
            },
        )
        .await;
    }

    /// Checks all invariants after a roll-out without failures.
    pub(crate) async fn check(&self, plan: &Plan) {
        self.check_but_events(plan).await;
        self.check_events().await;
    }

    /// Like [`Self::check`], if events could not be written.
    pub(crate) async fn check_but_events(&self, plan: &Plan) {
        self.check_status(plan);
        // The node controller takes this taint off after the uncordon, and on a busy machine not at once.
        let tainted = async || {
            let nodes = self.ctx.my_nodes().await;
            let specs = nodes.into_iter().filter_map(|node| node.spec);
            let uncordoned = specs.filter(|spec| spec.unschedulable != Some(true));
            let taints = uncordoned.filter_map(|spec| spec.taints).flatten();
            taints
                .filter(|taint| taint.key == "node.kubernetes.io/unschedulable")
                .count()
        };
        wait::until("no node has the taint of a cordon", tainted, |left| *left == 0).await;
        let nodes = self.ctx.my_nodes().await;
        assert_eq!(nodes.len(), self.shape.nodes);
        let requests = self.ctx.requests().await;
        let refused: Vec<_> = requests.forbidden().into_iter().map(line).collect();
        // A restarted API server refuses requests until it has read the roles.
        assert!(
            refused.is_empty() || self.rough,
            "requests were refused: {refused:#?}"
        );
        self.check_journal(&nodes).await;
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

    /// All changes of the nodes, Plans, Jobs and pods so far.
    pub(crate) async fn journal(&self) -> Vec<Entry> {
        self.journal.caught_up().await;
        self.journal.entries(&self.ctx.requests().await)
    }

    /// The invariants held at each change, and each node had one Job.
    async fn check_journal(&self, nodes: &[Node]) {
        let entries = self.journal().await;
        // The invariants of refit's own writes apply only to changes whose client is known.
        let unknown = entries.iter().filter(|entry| match &entry.what {
            JournalEvent::Change(Kind::Plan, change) => *entry.who == *CLUSTER && !change.gone,
            JournalEvent::Change(Kind::Job, change) => *entry.who == *CLUSTER && change.old.is_none(),
            _ => false,
        });
        let unknown: Vec<_> = unknown.collect();
        assert!(unknown.is_empty() || self.outage, "by whom? {unknown:#?}");
        let mut invariants = Invariants::default();
        let observed = entries.iter().try_for_each(|entry| invariants.observe(entry));
        if let Err(broken) = observed.and_then(|()| invariants.check_final_state()) {
            panic!("{}\n{broken}", invariants.take_log().join("\n"));
        }
        let created = entries.iter().filter_map(|entry| match &entry.what {
            JournalEvent::Change(Kind::Job, change) if change.old.is_none() && !change.gone => {
                let annotations = &change.new.value["metadata"]["annotations"];
                // Those that verify nodes come in addition.
                let verifies = annotations[ANNOTATION_VERIFIES].is_string();
                annotations[ANNOTATION_NODE_UID]
                    .as_str()
                    .filter(|_| !verifies)
                    .map(str::to_owned)
            }
            _ => None,
        });
        let mut created: Vec<String> = created.collect();
        let mut expected: Vec<_> = nodes
            .iter()
            .filter_map(|node| node.metadata.uid.clone())
            .collect();
        created.sort_unstable();
        expected.sort_unstable();
        assert_eq!(created, expected, "UIDs of the nodes for which Jobs were created");
    }

    /// Each node ran one pod and one upgrade. In an outage it may be more: the Job controller may create a pod without
    /// learning of it, and Kubernetes promises no more.
    async fn check_pods(&self, nodes: &[Node]) {
        let mut twice = BTreeSet::new();
        let pods = self.ctx.pods().list(&ListParams::default()).await;
        let mut by_node = BTreeMap::<_, Vec<_>>::new();
        let verifies = |pod: &Pod| {
            pod.spec
                .iter()
                .flat_map(|spec| &spec.containers)
                .any(|it| it.name == "verify")
        };
        for pod in pods.expect("pods can be listed").items {
            if verifies(&pod) {
                continue;
            }
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
                if let ([first, _], Some(job)) = (&pods[..], pods.first().and_then(job)) {
                    self.pod_creation_was_reported_as_failed(&job, first).await;
                    twice.insert(node);
                    continue;
                }
            }
            let found: Vec<_> = pods.iter().map(|pod| (&pod.metadata.name, &pod.status)).collect();
            assert_eq!(pods.len(), 1, "pods of {node}: {found:#?}");
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

    /// The Job controller may have created a pod without learning of it: its request had no response, by the audit log,
    /// or the response did not arrive, by an event of the Job controller. During an outage that is written with a
    /// delay, or not at all (client-go, tools/record/event.go).
    async fn pod_creation_was_reported_as_failed(&self, job: &str, pod: &Pod) {
        let title = format!(
            "the Job {job} explains its second pod beside {:?}",
            pod.metadata.name
        );
        wait::eventually(&title, SOON, async || {
            if self.ctx.requests().await.pods_created_for(job) < 2 {
                return Ok(());
            }
            let failed = self.ctx.events_with("FailedCreate").await;
            let of_job = |event: &&Event| event.involved_object.name.as_deref() == Some(job);
            let messages: Vec<_> = failed
                .iter()
                .filter(of_job)
                .filter_map(|event| event.message.clone())
                .collect();
            // Go's HTTP client names the request in its errors, and `dial` if there was no connection to send it on. An
            // answer of which only the beginning came is client-go's own error (rest/request.go).
            let may_have_succeeded = |message: &String| {
                let unanswered = message.contains("Post \"") && !message.contains("dial tcp");
                unanswered || message.contains("Please retry. Original error:")
            };
            messages
                .iter()
                .any(may_have_succeeded)
                .then_some(())
                .ok_or_else(|| format!("{messages:#?}"))
        })
        .await;
    }

    /// Each result has one event. Those that could not be written at once come later.
    async fn check_events(&self) {
        let nodes = self.ctx.my_nodes().await;
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        let expected: Vec<_> = nodes
            .iter()
            .map(|node| format!("Job completed on Node {}", name(node)))
            .collect();
        let messages = async || {
            let events = self.ctx.events_with("JobComplete").await;
            let mut messages: Vec<_> = events
                .into_iter()
                .map(|event| event.message.unwrap_or_default())
                .collect();
            messages.sort();
            messages
        };
        let messages = wait::until("each Job has its event", messages, |messages| {
            messages.len() >= expected.len()
        })
        .await;
        assert_eq!(messages, expected);
        for reason in ["Resolved", "Validated", "Complete"] {
            let events = wait::until(
                "the event is written",
                async || self.ctx.events_with(reason).await,
                |events| !events.is_empty(),
            )
            .await;
            assert_eq!(events.len(), 1, "{reason}: {events:?}");
        }
        let all: Vec<Event> = self
            .ctx
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

    /// No log has a token, the content of a Secret, or a panic.
    async fn check_logs(&self) {
        let token = bearer(self.ctx.kubeconfig());
        for (path, text) in logs(&self.ctx) {
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

/// The logs of the controllers of a test.
pub(crate) fn logs(ctx: &TestContext) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(ctx.dir())
        .expect("the folder of the test context")
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
    let file: Value = serde_json::from_str(&text).expect("a kubeconfig of the test environment is JSON");
    let token = file["users"][0]["user"]["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    assert!(token.len() > 100);
    token
}

/// The pod failed before its upgrade because `cordon` found no API server. The Job controller then creates another pod,
/// as long as `backoffLimit` allows.
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

/// A request in one line, for error messages.
pub(crate) fn line(request: &Request) -> String {
    format!(
        "{} {} {} {}: {}",
        request.at, request.verb, request.resource, request.name, request.code
    )
}

/// Another ServiceAccount with the controller's permissions, so that the audit log distinguishes two replicas. Returns
/// its kubeconfig.
pub(crate) async fn account(ctx: &TestContext, name: &str) -> PathBuf {
    let account = json!({ "metadata": { "name": name, "namespace": ctx.namespace() } });
    create(
        &Api::<ServiceAccount>::namespaced(ctx.client.clone(), ctx.namespace()),
        account,
    )
    .await;
    let role = "system-upgrade-controller";
    let bindings = [
        ("RoleBinding", ctx.namespace(), "Role", role.to_owned()),
        (
            "RoleBinding",
            "default",
            "Role",
            ctx.local_name("system-upgrade-controller-events"),
        ),
        ("ClusterRoleBinding", "", "ClusterRole", ctx.local_name(role)),
    ];
    let mut objects = Vec::new();
    for (kind, namespace, role_kind, role) in bindings {
        let mut binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": ctx.local_name(name), "labels": { TEST_LABEL: ctx.id } },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": ctx.namespace() }],
        });
        if !namespace.is_empty() {
            binding["metadata"]["namespace"] = json!(namespace);
        }
        manifest::apply(&ctx.client, &binding)
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
        objects.push(binding);
    }
    ctx.in_force(&objects).await;
    ctx.write_kubeconfig(name, &ctx.token(name).await)
}
