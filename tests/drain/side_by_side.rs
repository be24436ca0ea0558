//! The same situation on two nodes, drained by kubectl and by refit: the same pods go and stay, the exit code is the same, and
//! the same pods are named. Where refit differs on purpose, the situation says so, and `docs/drain.md` says why.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{A_WHILE, Bench, Said, Tool};
use crate::support::faults::Rule;
use crate::support::wait;
use crate::support::world::cluster::create;

/// How many situations are played at a time.
const AT_A_TIME: usize = 6;

/// What is on a node, what is asked, and what comes of it.
#[derive(Clone)]
struct Case {
    name: &'static str,
    /// Name, wishes ([`Bench::pod`]) and the phase to wait for.
    pods: Vec<(&'static str, Value, &'static str)>,
    /// Name, spec and how many healthy pods it is to count, for the pods whose `app` is the name of the case.
    budgets: Vec<(&'static str, Value, i32)>,
    flags: Vec<&'static str>,
    code: i32,
    /// Pods that stay, and of those, the ones that are told to go.
    left: Vec<&'static str>,
    leaving: Vec<&'static str>,
    /// What is done before and after the pods are there.
    with: Vec<With>,
    /// refit leaves the node as it was, because it looks before it cordons.
    looks_first: bool,
    cordoned: bool,
    /// refit does not wait for these, which kubectl does although the drain has failed by then.
    not_awaited: Vec<&'static str>,
    /// Which pods are named need not be the same.
    words_differ: bool,
    /// What both say.
    say: Vec<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
enum With {
    DaemonSet,
    Cordon,
    PowerOff,
    /// The pod of that name is told to go by somebody else.
    Deleted(&'static str),
    /// The pod of that name says that it is not ready.
    Unready(&'static str),
    NoNode,
    BySelector,
    BySlash,
}

fn case(name: &'static str) -> Case {
    Case {
        name,
        pods: Vec::new(),
        budgets: Vec::new(),
        flags: Vec::new(),
        code: 0,
        left: Vec::new(),
        leaving: Vec::new(),
        with: Vec::new(),
        looks_first: false,
        cordoned: true,
        not_awaited: Vec::new(),
        words_differ: false,
        say: Vec::new(),
    }
}

impl Case {
    fn pod(mut self, name: &'static str, more: Value) -> Self {
        self.pods.push((name, more, "Running"));
        self
    }

    fn ended(mut self, name: &'static str, phase: &'static str, more: Value) -> Self {
        let mut more = more;
        more["restartPolicy"] = json!("Never");
        let code = if phase == "Failed" { "1" } else { "0" };
        more["steer"] = json!({ "run-delay": "0s", "exit-code": code });
        self.pods.push((name, more, phase));
        self
    }

    /// A pod that a budget may be for.
    fn guarded(self, name: &'static str) -> Self {
        let app = self.name;
        self.pod(name, json!({ "app": app }))
    }

    fn budget(mut self, name: &'static str, spec: Value, healthy: i32) -> Self {
        self.budgets.push((name, spec, healthy));
        self
    }

    fn flags(mut self, flags: &[&'static str]) -> Self {
        self.flags = flags.to_vec();
        self
    }

    /// It fails, and these pods stay.
    fn fails(mut self, left: &[&'static str]) -> Self {
        self.code = 1;
        self.left = left.to_vec();
        self
    }

    fn leaves(mut self, left: &[&'static str]) -> Self {
        self.left = left.to_vec();
        self
    }

    /// These pods stay although they are told to go.
    fn leaving(mut self, leaving: &[&'static str]) -> Self {
        self.leaving = leaving.to_vec();
        self
    }

    fn with(mut self, with: With) -> Self {
        self.with.push(with);
        self
    }

    fn looks_first(mut self) -> Self {
        self.looks_first = true;
        self
    }

    fn not_cordoned(mut self) -> Self {
        self.cordoned = false;
        self
    }

    fn not_awaited(mut self, pods: &[&'static str]) -> Self {
        self.not_awaited = pods.to_vec();
        self
    }

    fn words_differ(mut self) -> Self {
        self.words_differ = true;
        self
    }

    fn say(mut self, say: &[&'static str]) -> Self {
        self.say = say.to_vec();
        self
    }
}

const IGNORE: &str = "--ignore-daemonsets";
const DATA: &str = "--delete-emptydir-data";
const FORCE: &str = "--force";

/// Enough for one more try after the first, and for no third.
const SHORT: &str = "--timeout=8s";

fn cases() -> Vec<Case> {
    let plain = || json!({});
    let alone = || json!({ "alone": true });
    let data = || json!({ "data": true });
    let both = || json!({ "alone": true, "data": true });
    let never = || json!({ "minAvailable": 9 });
    vec![
        // Which pods go.
        case("empty").say(&["cordoned", "drained"]),
        case("plain")
            .pod("a", plain())
            .pod("b", plain())
            .say(&["evicting pod", "evicted", "drained"]),
        case("alone-no")
            .pod("a", alone())
            .pod("b", plain())
            .fails(&["a", "b"])
            .looks_first()
            .say(&["cannot delete Pods that declare no controller (use --force to override): "]),
        case("alone-yes")
            .pod("a", alone())
            .pod("b", plain())
            .flags(&[FORCE])
            .say(&["Warning: deleting Pods that declare no controller: "]),
        case("data-no")
            .pod("a", data())
            .fails(&["a"])
            .looks_first()
            .say(&["cannot delete Pods with local storage (use --delete-emptydir-data to override): "]),
        case("data-yes").pod("a", data()).flags(&[DATA]),
        case("both-force")
            .pod("a", both())
            .flags(&[FORCE])
            .fails(&["a"])
            .looks_first(),
        case("both-data")
            .pod("a", both())
            .flags(&[DATA])
            .fails(&["a"])
            .looks_first(),
        case("both-yes").pod("a", both()).flags(&[DATA, FORCE]),
        case("two-errors")
            .pod("a", alone())
            .pod("b", data())
            .fails(&["a", "b"])
            .looks_first(),
        case("daemon-no")
            .with(With::DaemonSet)
            .pod("a", plain())
            .flags(&[FORCE, DATA])
            .fails(&["a", "daemon"])
            .looks_first()
            .say(&["cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): "]),
        case("daemon-yes")
            .with(With::DaemonSet)
            .pod("a", plain())
            .flags(&[IGNORE])
            .leaves(&["daemon"])
            .say(&["Warning: ignoring DaemonSet-managed Pods: "]),
        case("daemon-alone")
            .with(With::DaemonSet)
            .pod("a", alone())
            .flags(&[IGNORE, FORCE])
            .leaves(&["daemon"]),
        case("mirror")
            .pod("a", json!({ "mirror": true }))
            .pod("b", plain())
            .leaves(&["a"]),
        case("succeeded").ended("a", "Succeeded", both()),
        case("failed").ended("a", "Failed", both()).pod("b", plain()),
        case("selected")
            .pod("a", json!({ "app": "x" }))
            .pod("b", plain())
            .flags(&["--pod-selector", "app=x"])
            .leaves(&["b"]),
        case("selected-not")
            .pod("a", alone())
            .pod("b", plain())
            .flags(&["--pod-selector=!app,app notin (sonobuoy)"])
            .leaves(&["a", "b"]),
        case("selected-suc")
            .pod("a", json!({ "app": "sonobuoy", "alone": true }))
            .pod("b", plain())
            .flags(&[
                "--pod-selector",
                "app notin (sonobuoy),!upgrade.cattle.io/controller",
                IGNORE,
                DATA,
            ])
            .leaves(&["a"]),
        case("deleted")
            .pod("a", json!({ "steer": { "delete-delay": "1s" } }))
            .with(With::Deleted("a")),
        // Budgets.
        case("allowed")
            .guarded("a")
            .budget("one", json!({ "minAvailable": 0 }), 1),
        case("refused")
            .guarded("a")
            .budget("one", json!({ "minAvailable": 1 }), 1)
            .flags(&[SHORT])
            .fails(&["a"])
            .say(&["(will retry after 5s)", "global timeout reached: 8s"]),
        case("some-refused")
            .guarded("a")
            .guarded("b")
            .pod("c", plain())
            .budget("one", json!({ "minAvailable": 2 }), 2)
            .flags(&[SHORT])
            .fails(&["a", "b"]),
        case("not-asked")
            .guarded("a")
            .budget("one", never(), 1)
            .flags(&["--disable-eviction"])
            .say(&["deleted", "drained"]),
        case("unready-budget-kept")
            .guarded("a")
            .guarded("b")
            .with(With::Unready("a"))
            .budget("one", json!({ "minAvailable": 1 }), 1)
            .flags(&[SHORT])
            .fails(&["b"]),
        case("unready-budget-broken")
            .guarded("a")
            .guarded("b")
            .with(With::Unready("a"))
            .budget("one", json!({ "minAvailable": 2 }), 1)
            .flags(&[SHORT])
            .fails(&["a", "b"]),
        case("unready-always")
            .guarded("a")
            .guarded("b")
            .with(With::Unready("a"))
            .budget(
                "one",
                json!({ "minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow" }),
                1,
            )
            .flags(&[SHORT])
            .fails(&["b"]),
        case("two-budgets")
            .guarded("a")
            .pod("b", plain())
            .budget("one", json!({ "minAvailable": 0 }), 1)
            .budget("two", json!({ "minAvailable": 0 }), 1)
            .fails(&["a"])
            .not_awaited(&["b"])
            .say(&["This pod has more than one PodDisruptionBudget"]),
        // How they go.
        case("stuck")
            .pod("a", json!({ "finalizer": true }))
            .pod("b", plain())
            .flags(&["--timeout=5s"])
            .fails(&["a"])
            .leaving(&["a"]),
        case("stuck-skipped")
            .pod("a", json!({ "finalizer": true }))
            .flags(&["--skip-wait-for-delete-timeout", "1"])
            .leaves(&["a"])
            .leaving(&["a"])
            .say(&["has DeletionTimestamp older than 1 seconds, skipping"]),
        case("slow").pod("a", json!({ "steer": { "delete-delay": "1500ms" } })),
        case("grace-0")
            .pod(
                "a",
                json!({ "steer": { "delete-delay": "never" }, "terminationGracePeriodSeconds": 600 }),
            )
            .flags(&["--grace-period", "0"]),
        case("grace-1")
            .pod(
                "a",
                json!({ "steer": { "delete-delay": "never" }, "terminationGracePeriodSeconds": 600 }),
            )
            .flags(&["--grace-period=1"]),
        case("grace-own")
            .pod("a", json!({ "steer": { "delete-delay": "never" } }))
            .flags(&["--grace-period", "-1"]),
        case("off")
            .pod("a", plain())
            .with(With::PowerOff)
            .flags(&["--timeout=5s"])
            .fails(&["a"])
            .leaving(&["a"]),
        case("off-skipped")
            .pod("a", plain())
            .with(With::PowerOff)
            .flags(&["--skip-wait-for-delete-timeout=1"])
            .leaves(&["a"])
            .leaving(&["a"]),
        case("no-time")
            .pod("a", plain())
            .flags(&["--timeout", "60ns"])
            .fails(&["a"])
            .words_differ(),
        // What is only told.
        case("dry-client")
            .pod("a", plain())
            .flags(&["--dry-run=client"])
            .leaves(&["a"])
            .not_cordoned()
            .say(&["cordoned (dry run)", "evicting pod", "drained (dry run)"]),
        case("dry-server")
            .pod("a", plain())
            .flags(&["--dry-run=server"])
            .leaves(&["a"])
            .not_cordoned()
            .say(&[
                "cordoned (server dry run)",
                "(server dry run)",
                "drained (server dry run)",
            ]),
        case("dry-error")
            .pod("a", alone())
            .flags(&["--dry-run=client"])
            .fails(&["a"])
            .not_cordoned(),
        // Nodes.
        case("already")
            .pod("a", plain())
            .with(With::Cordon)
            .say(&["already cordoned", "drained"]),
        case("by-selector").pod("a", plain()).with(With::BySelector),
        case("by-slash").pod("a", plain()).with(With::BySlash),
        case("chunks")
            .pod("a", plain())
            .pod("b", plain())
            .pod("c", plain())
            .flags(&["--chunk-size=1"]),
        case("no-node")
            .with(With::NoNode)
            .fails(&[])
            .not_cordoned()
            .say(&["not found"]),
    ]
}

/// A DaemonSet that has one pod, on that node, and it runs.
pub(super) async fn daemon_set(bench: &Bench, node: &str, name: &str) {
    let labels = json!({ "daemon": name });
    let daemon_set = json!({
        "metadata": { "name": name, "namespace": bench.world.namespace() },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": bench.node(node) },
                    "containers": [{ "name": "main", "image": "example.com/main" }],
                },
            },
        },
    });
    let api = Api::<DaemonSet>::namespaced(bench.world.client.clone(), bench.world.namespace());
    create(&api, daemon_set).await;
    wait::object(api, name, "runs", A_WHILE, |it: &DaemonSet| {
        it.status.as_ref().is_some_and(|status| status.number_ready == 1)
    })
    .await;
}

/// One side of a situation.
struct Side<'a> {
    bench: &'a Bench,
    case: &'a Case,
    tool: Tool,
}

/// What came of it, in names that are the same on both sides.
#[derive(Debug, PartialEq)]
struct Outcome {
    code: Option<i32>,
    left: BTreeSet<String>,
    leaving: BTreeSet<String>,
    named: BTreeSet<String>,
}

impl Side<'_> {
    /// Name of a node, without the id of the world.
    fn node(&self) -> String {
        format!("{}-{}", self.case.name, self.letter())
    }

    fn letter(&self) -> &'static str {
        match self.tool {
            Tool::Kubectl => "k",
            Tool::Refit => "r",
        }
    }

    fn own(&self, name: &str) -> String {
        format!("{}-{name}", self.node())
    }

    async fn prepare(&self) {
        let (bench, case, node) = (self.bench, self.case, self.node());
        for (name, more, _) in &case.pods {
            let mut more = more.clone();
            if more["app"] == case.name {
                more["app"] = json!(node);
            }
            bench.pod(&node, &self.own(name), more).await;
        }
        if case.with.contains(&With::DaemonSet) {
            daemon_set(bench, &node, &self.own("daemon")).await;
        }
        for (name, _, phase) in &case.pods {
            bench.phase(&self.own(name), phase).await;
        }
        for with in &case.with {
            match with {
                With::Cordon => drop(bench.world.cordon(&bench.node(&node)).await),
                With::PowerOff => bench.kubelet.power_off(&bench.node(&node)).await,
                With::Deleted(pod) => {
                    bench
                        .world
                        .pods()
                        .delete(&self.own(pod), &DeleteParams::default())
                        .await
                        .unwrap();
                }
                With::Unready(pod) => {
                    let ready =
                        json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
                    let patch = Patch::Strategic(ready);
                    bench
                        .world
                        .pods()
                        .patch_status(&self.own(pod), &PatchParams::default(), &patch)
                        .await
                        .unwrap();
                }
                With::BySelector => {
                    bench
                        .world
                        .label_node(&bench.node(&node), "drain", Some(&node))
                        .await;
                }
                With::DaemonSet | With::NoNode | With::BySlash => {}
            }
        }
        for (name, spec, healthy) in &case.budgets {
            bench.budget(&self.own(name), &node, spec.clone(), *healthy).await;
        }
    }

    async fn drain(&self) -> Said {
        let node = self.bench.node(&self.node());
        let with = |with| self.case.with.contains(&with);
        let which = if with(With::NoNode) {
            format!("{node}-nobody")
        } else if with(With::BySelector) {
            format!("--selector=drain={}", self.node())
        } else if with(With::BySlash) {
            format!("node/{node}")
        } else {
            node
        };
        let mut args = vec!["drain", &which];
        args.extend(&self.case.flags);
        self.bench.run(self.tool, &args).await
    }

    /// The name of a pod as the case has it. Pods of DaemonSets have a random end.
    fn short(&self, name: &str) -> Option<String> {
        let name = name.strip_prefix(&self.own(""))?;
        Some(if name.starts_with("daemon-") {
            "daemon".to_owned()
        } else {
            name.to_owned()
        })
    }

    async fn outcome(&self, said: &Said) -> Outcome {
        let on_node = self.bench.on_node(&self.node()).await;
        let short = |name: &String| {
            self.short(name)
                .unwrap_or_else(|| panic!("{name} on {}", self.node()))
        };
        let all = said.all();
        // Only refit names budgets.
        let budget = |name: &String| self.case.budgets.iter().any(|(budget, ..)| budget == name);
        let words = all.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        Outcome {
            code: said.code,
            left: on_node.keys().map(short).collect(),
            leaving: on_node
                .iter()
                .filter(|(_, leaving)| **leaving)
                .map(|(name, _)| short(name))
                .collect(),
            named: words
                .filter_map(|word| self.short(word))
                .filter(|name| !budget(name))
                .collect(),
        }
    }

    async fn play(&self) -> (Said, Outcome) {
        self.prepare().await;
        let said = self.drain().await;
        let outcome = self.outcome(&said).await;
        (said, outcome)
    }
}

#[tokio::test]
async fn the_same_pods_go_and_stay_as_with_kubectl() {
    let cases = cases();
    assert!(cases.len() >= 40);
    let nodes: Vec<_> = cases
        .iter()
        .flat_map(|case| ["k", "r"].map(|letter| format!("{}-{letter}", case.name)))
        .collect();
    let bench = Bench::new(&nodes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let bench = &bench;
    let wrong: Vec<String> = stream::iter(&cases)
        .map(|case| compare(bench, case))
        .buffer_unordered(AT_A_TIME)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

/// What is wrong with a situation.
async fn compare(bench: &Bench, case: &Case) -> Option<String> {
    let side = |tool| Side { bench, case, tool };
    let (kubectl, refit) = (side(Tool::Kubectl), side(Tool::Refit));
    let ((k_said, k), (r_said, r)) = tokio::join!(kubectl.play(), refit.play());
    let mut wrong = Vec::new();
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let expected = Outcome {
        code: Some(case.code),
        left: names(&case.left),
        leaving: names(&case.leaving),
        named: k.named.clone(),
    };
    if k != expected {
        wrong.push(format!("kubectl: {k:?}, expected {expected:?}"));
    }
    let named = if case.words_differ { &r.named } else { &k.named };
    let expected = Outcome {
        named: named.clone(),
        ..expected
    };
    let mut r = r;
    for pod in &case.not_awaited {
        if r.leaving.remove(*pod) {
            r.left.remove(*pod);
        }
    }
    if r != expected {
        wrong.push(format!("refit: {r:?}, expected {expected:?}"));
    }
    for (tool, said) in [("kubectl", &k_said), ("refit", &r_said)] {
        for text in case.say.iter().filter(|text| !said.all().contains(**text)) {
            wrong.push(format!("{tool} does not say {text:?}"));
        }
    }
    for (side, cordoned) in [
        (&kubectl, case.cordoned),
        (&refit, case.cordoned && !case.looks_first),
    ] {
        if bench.is_cordoned(&side.node()).await != cordoned {
            wrong.push(format!("{:?}: cordoned should be {cordoned}", side.tool));
        }
    }
    (!wrong.is_empty()).then(|| format!("{}: {}\n{k_said:#?}\n{r_said:#?}", case.name, wrong.join("\n  ")))
}

#[tokio::test]
async fn cordon_and_uncordon_say_what_kubectl_says() {
    let bench = Bench::new(&["k", "r", "s"]).await;
    for (command, cordoned) in [
        ("cordon --dry-run=client", false),
        ("cordon --dry-run=server", false),
        ("cordon", true),
        ("cordon", true),
        ("uncordon --dry-run=server", true),
        ("uncordon", false),
        ("uncordon", false),
    ] {
        let mut said = Vec::new();
        for (tool, node) in [(Tool::Kubectl, "k"), (Tool::Refit, "r")] {
            let name = bench.node(node);
            let args: Vec<_> = command.split(' ').chain([name.as_str()]).collect();
            let out = bench.run(tool, &args).await;
            assert_eq!(bench.is_cordoned(node).await, cordoned, "{tool:?} {command}");
            said.push((out.code, out.stdout.replace(&name, "NODE"), out.stderr));
        }
        assert_eq!(said[0], said[1], "{command}");
    }
    // Several nodes, one of which is not there: nothing is changed.
    let (one, other, nobody) = (bench.node("r"), bench.node("s"), bench.node("nobody"));
    for tool in [Tool::Kubectl, Tool::Refit] {
        let out = bench.run(tool, &["cordon", &one, &nobody]).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(
            out.stderr.contains(&format!("nodes \"{nobody}\" not found")),
            "{out:?}"
        );
    }
    assert!(bench.run(Tool::Refit, &["cordon", &one, &other]).await.code == Some(0));
    assert!(bench.is_cordoned("r").await && bench.is_cordoned("s").await);
}

#[tokio::test]
async fn pods_of_a_namespace_that_is_being_deleted_are_waited_for() {
    let bench = Bench::new(&["k", "r"]).await;
    let namespaces = Api::<Namespace>::all(bench.world.client.clone());
    for (tool, node) in [(Tool::Kubectl, "k"), (Tool::Refit, "r")] {
        let name = format!("{}-{node}", bench.world.namespace());
        create(&namespaces, json!({ "metadata": { "name": name } })).await;
        let accounts = Api::<ServiceAccount>::namespaced(bench.world.client.clone(), &name);
        wait::object(accounts, "default", "exists", A_WHILE, |_| true).await;
        let pods = Api::<Pod>::namespaced(bench.world.client.clone(), &name);
        let pod = json!({
            "metadata": {
                "name": "slow", "namespace": name, "annotations": { "fake-kubelet/delete-delay": "6s" },
            },
            "spec": {
                "nodeName": bench.node(node),
                "terminationGracePeriodSeconds": 30,
                "containers": [{ "name": "main", "image": "example.com/main" }],
            },
        });
        create(&pods, pod).await;
        wait::object(pods.clone(), "slow", "runs", A_WHILE, super::is_ready).await;
        namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
        wait::object(pods.clone(), "slow", "is told to go", A_WHILE, |pod: &Pod| {
            pod.metadata.deletion_timestamp.is_some()
        })
        .await;
        let out = bench
            .run(tool, &["drain", &bench.node(node), "--force", "--timeout=60s"])
            .await;
        assert_eq!(out.code, Some(0), "{tool:?}: {out:?}");
        assert!(out.stdout.contains("pod/slow evicted"), "{tool:?}: {out:?}");
        assert!(
            pods.get_opt("slow").await.unwrap().is_none(),
            "{tool:?} did not wait"
        );
    }
}

/// Both tools as the account that Plans name, through a proxy of their own with these rules.
async fn through_proxies(bench: &Bench, rules: &[Rule], flags: &[&str]) -> [Said; 2] {
    let run = async |tool, node: &str| {
        let faults = bench.world.faults(1).await;
        for rule in rules {
            faults.add(rule.clone());
        }
        let node = bench.node(node);
        let args: Vec<_> = ["drain", node.as_str()].iter().chain(flags).copied().collect();
        let mut command = bench.command(tool, &args);
        command.env("KUBECONFIG", faults.kubeconfig_for(&bench.drainer));
        let out = super::finish(command).await;
        assert!(faults.faults() > 0, "{tool:?} met no fault: {out:?}");
        out
    };
    let (kubectl, refit) = tokio::join!(run(Tool::Kubectl, "k"), run(Tool::Refit, "r"));
    [kubectl, refit]
}

#[tokio::test]
async fn overload_beside_a_budget_keeps_neither_from_what_may_go() {
    let bench = Bench::new(&["k", "r"]).await;
    for node in ["k", "r"] {
        let own = |name: &str| format!("{node}-{name}");
        bench.pod(node, &own("guarded"), json!({ "app": node })).await;
        bench.pod(node, &own("free"), json!({})).await;
        for pod in ["guarded", "free"] {
            bench.phase(&own(pod), "Running").await;
        }
        bench
            .budget(&own("guard"), node, json!({ "minAvailable": 1 }), 1)
            .await;
    }
    let overload = [Rule::on("create", "pods/eviction").times(2).answer(429)];
    for (said, node) in through_proxies(&bench, &overload, &["--timeout=20s"])
        .await
        .iter()
        .zip(["k", "r"])
    {
        assert_eq!(said.code, Some(1), "{said:?}");
        let left: Vec<_> = bench.on_node(node).await.into_keys().collect();
        assert_eq!(left, [format!("{node}-guarded")], "{said:?}");
    }
}

#[tokio::test]
async fn a_pod_whose_daemon_set_is_gone_goes_by_force_only() {
    let bench = Bench::new(&["k", "r"]).await;
    for node in ["k", "r"] {
        daemon_set(&bench, node, &format!("{node}-daemon")).await;
    }
    // What garbage collection would soon do is not waited for: the API server says that there is no such DaemonSet.
    let gone = [Rule::on("get", "daemonsets").answer(404)];
    for said in through_proxies(&bench, &gone, &["--ignore-daemonsets"]).await {
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(!said.stdout.contains("evicting pod"), "{said:?}");
    }
    for (said, node) in through_proxies(&bench, &gone, &["--force"])
        .await
        .iter()
        .zip(["k", "r"])
    {
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stdout.contains(&format!("pod/{node}-daemon-")), "{said:?}");
        assert!(said.stdout.contains(" evicted"), "{said:?}");
    }
}
