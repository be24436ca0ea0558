//! The same situation on two nodes, drained by kubectl and by refit: the same pods are evicted, the exit code is the
//! same, and the same pods are named. Deliberate differences are marked, and `docs/drain.md` explains them.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CommandOutput, DrainHarness, Tool};
use crate::testenv::context::cluster::create;
use crate::testenv::faults::Rule;
use crate::testenv::wait::{self, SOON};

/// Number of situations at a time.
const AT_A_TIME: usize = 6;

/// A situation of `cases.yaml`: pods and budgets on a node, flags, and the expected result.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Case {
    name: String,
    /// Options of pods ([`DrainHarness::pod`]) by name. Budgets select a pod that is `guarded`; `phase` is the phase to
    /// wait for instead of Running.
    pods: BTreeMap<String, Value>,
    /// Specs of budgets by name. `healthy` is the number of pods that the budget must have counted before the drain.
    budgets: BTreeMap<String, Value>,
    flags: Vec<String>,
    /// The drain fails, and these pods stay.
    fails: Option<BTreeSet<String>>,
    /// Pods that stay although the drain succeeds.
    left: BTreeSet<String>,
    /// Pods that stay although they are being deleted.
    leaving: BTreeSet<String>,
    with: Vec<With>,
    /// refit leaves the node unchanged, because it checks before it cordons.
    looks_first: bool,
    not_cordoned: bool,
    /// refit does not wait for these pods, unlike kubectl, whose drain has failed by then.
    not_awaited: Vec<String>,
    /// The named pods may differ.
    words_differ: bool,
    /// Texts in both outputs.
    says: Vec<String>,
}

/// Actions before and after the pods are created, and how the node is named.
#[derive(Deserialize, PartialEq)]
enum With {
    DaemonSet,
    Cordon,
    PowerOff,
    Deleted(String),
    Unready(String),
    NoNode,
    BySelector,
    BySlash,
}

/// Creates a DaemonSet with one running pod, on that node.
pub(super) async fn daemon_set(harness: &DrainHarness, node: &str, name: &str) {
    let labels = json!({ "daemon": name });
    let daemon_set = json!({
        "metadata": { "name": name, "namespace": harness.ctx.namespace() },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": harness.node(node) },
                    "containers": [{ "name": "main", "image": "example.com/main" }],
                },
            },
        },
    });
    let api = Api::<DaemonSet>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    create(&api, daemon_set).await;
    wait::object(api, name, "runs", SOON, |it: &DaemonSet| {
        it.status.as_ref().is_some_and(|status| status.number_ready == 1)
    })
    .await;
}

/// One of the two tools in a situation.
struct Side<'a> {
    harness: &'a DrainHarness,
    case: &'a Case,
    tool: Tool,
}

/// The result, with names that are the same for both.
#[derive(Debug, PartialEq)]
struct Outcome {
    code: Option<i32>,
    left: BTreeSet<String>,
    leaving: BTreeSet<String>,
    named: BTreeSet<String>,
}

impl Side<'_> {
    /// Name of a node, without the id of the test.
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
        let (harness, case, node) = (self.harness, self.case, self.node());
        for (name, options) in &case.pods {
            let mut options = options.clone();
            let fields = options.as_object_mut().unwrap();
            if fields.remove("guarded").is_some() {
                fields.insert("app".to_owned(), json!(node));
            }
            if let Some(phase) = fields.remove("phase") {
                let code = if phase == "Failed" { "1" } else { "0" };
                fields.insert("restartPolicy".to_owned(), json!("Never"));
                fields.insert(
                    "steer".to_owned(),
                    json!({ "run-delay": "0s", "exit-code": code }),
                );
            }
            harness.pod(&node, &self.own(name), options).await;
        }
        if case.with.contains(&With::DaemonSet) {
            daemon_set(harness, &node, &self.own("daemon")).await;
        }
        for (name, options) in &case.pods {
            let phase = options["phase"].as_str().unwrap_or("Running");
            harness.phase(&self.own(name), phase).await;
        }
        for with in &case.with {
            match with {
                With::Cordon => drop(harness.ctx.cordon(&harness.node(&node)).await),
                With::PowerOff => harness.kubelet.power_off(&harness.node(&node)).await,
                With::Deleted(pod) => {
                    let pods = harness.ctx.pods();
                    pods.delete(&self.own(pod), &DeleteParams::default())
                        .await
                        .unwrap();
                }
                With::Unready(pod) => {
                    let ready = json!([{ "type": "Ready", "status": "False" }]);
                    let patch = Patch::Strategic(json!({ "status": { "conditions": ready } }));
                    let params = PatchParams::default();
                    let pods = harness.ctx.pods();
                    pods.patch_status(&self.own(pod), &params, &patch).await.unwrap();
                }
                With::BySelector => {
                    harness
                        .ctx
                        .label_node(&harness.node(&node), "drain", Some(&node))
                        .await;
                }
                With::DaemonSet | With::NoNode | With::BySlash => {}
            }
        }
        for (name, spec) in &case.budgets {
            let mut spec = spec.clone();
            let healthy = spec.as_object_mut().unwrap().remove("healthy").unwrap();
            let healthy = i32::try_from(healthy.as_i64().unwrap()).unwrap();
            harness.budget(&self.own(name), &node, spec, healthy).await;
        }
    }

    async fn drain(&self) -> CommandOutput {
        let node = self.harness.node(&self.node());
        let with = |with: With| self.case.with.contains(&with);
        let which = if with(With::NoNode) {
            format!("{node}-unknown")
        } else if with(With::BySelector) {
            format!("--selector=drain={}", self.node())
        } else if with(With::BySlash) {
            format!("node/{node}")
        } else {
            node
        };
        let mut args = vec!["drain", &which];
        args.extend(self.case.flags.iter().map(String::as_str));
        self.harness.run(self.tool, &args).await
    }

    /// The name of a pod in the case. Pods of DaemonSets have a random suffix.
    fn short(&self, name: &str) -> Option<String> {
        let name = name.strip_prefix(&self.own(""))?;
        Some(if name.starts_with("daemon-") {
            "daemon".to_owned()
        } else {
            name.to_owned()
        })
    }

    async fn outcome(&self, said: &CommandOutput) -> Outcome {
        let on_node = self.harness.on_node(&self.node()).await;
        let short = |name: &String| {
            self.short(name)
                .unwrap_or_else(|| panic!("{name} on {}", self.node()))
        };
        let all = said.all();
        // Only refit names budgets.
        let budget = |name: &String| self.case.budgets.contains_key(name);
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

    async fn play(&self) -> (CommandOutput, Outcome) {
        self.prepare().await;
        let said = self.drain().await;
        let outcome = self.outcome(&said).await;
        (said, outcome)
    }
}

#[tokio::test]
async fn the_same_pods_are_evicted_as_by_kubectl() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("cases.yaml")).unwrap();
    assert!(cases.len() >= 40);
    let nodes: Vec<_> = cases
        .iter()
        .flat_map(|case| ["k", "r"].map(|letter| format!("{}-{letter}", case.name)))
        .collect();
    let harness = DrainHarness::new(&nodes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let harness = &harness;
    let wrong: Vec<String> = stream::iter(&cases)
        .map(|case| compare(harness, case))
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

/// The differences in a situation.
async fn compare(harness: &DrainHarness, case: &Case) -> Option<String> {
    let side = |tool| Side { harness, case, tool };
    let (kubectl, refit) = (side(Tool::Kubectl), side(Tool::Refit));
    let ((k_said, k), (r_said, r)) = tokio::join!(kubectl.play(), refit.play());
    let mut wrong = Vec::new();
    let expected = Outcome {
        code: Some(i32::from(case.fails.is_some())),
        left: case.fails.as_ref().unwrap_or(&case.left).clone(),
        leaving: case.leaving.clone(),
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
        if r.leaving.remove(pod) {
            r.left.remove(pod);
        }
    }
    if r != expected {
        wrong.push(format!("refit: {r:?}, expected {expected:?}"));
    }
    for (tool, said) in [("kubectl", &k_said), ("refit", &r_said)] {
        for text in case.says.iter().filter(|text| !said.all().contains(*text)) {
            wrong.push(format!("{tool} does not say {text:?}"));
        }
    }
    for (side, cordoned) in [
        (&kubectl, !case.not_cordoned),
        (&refit, !case.not_cordoned && !case.looks_first),
    ] {
        if harness.is_cordoned(&side.node()).await != cordoned {
            wrong.push(format!("{:?}: cordoned should be {cordoned}", side.tool));
        }
    }
    (!wrong.is_empty()).then(|| format!("{}: {}\n{k_said:#?}\n{r_said:#?}", case.name, wrong.join("\n  ")))
}

#[tokio::test]
async fn cordon_and_uncordon_say_what_kubectl_says() {
    let harness = DrainHarness::new(&["k", "r", "s"]).await;
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
            let name = harness.node(node);
            let args: Vec<_> = command.split(' ').chain([name.as_str()]).collect();
            let out = harness.run(tool, &args).await;
            assert_eq!(harness.is_cordoned(node).await, cordoned, "{tool:?} {command}");
            said.push((out.code, out.stdout.replace(&name, "NODE"), out.stderr));
        }
        assert_eq!(said[0], said[1], "{command}");
    }
    // Several nodes, one of which does not exist: nothing is changed.
    let (one, other, unknown) = (harness.node("r"), harness.node("s"), harness.node("unknown"));
    for tool in [Tool::Kubectl, Tool::Refit] {
        let out = harness.run(tool, &["cordon", &one, &unknown]).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(
            out.stderr.contains(&format!("nodes \"{unknown}\" not found")),
            "{out:?}"
        );
    }
    assert!(harness.run(Tool::Refit, &["cordon", &one, &other]).await.code == Some(0));
    assert!(harness.is_cordoned("r").await && harness.is_cordoned("s").await);
}

#[tokio::test]
async fn pods_of_a_namespace_that_is_being_deleted_are_waited_for() {
    let harness = DrainHarness::new(&["k", "r"]).await;
    let namespaces = Api::<Namespace>::all(harness.ctx.client.clone());
    for (tool, node) in [(Tool::Kubectl, "k"), (Tool::Refit, "r")] {
        let name = format!("{}-{node}", harness.ctx.namespace());
        create(&namespaces, json!({ "metadata": { "name": name } })).await;
        let accounts = Api::<ServiceAccount>::namespaced(harness.ctx.client.clone(), &name);
        wait::object(accounts, "default", "exists", SOON, |_| true).await;
        let pods = Api::<Pod>::namespaced(harness.ctx.client.clone(), &name);
        let pod = json!({
            "metadata": {
                "name": "slow", "namespace": name, "annotations": { "fake-kubelet/delete-delay": "6s" },
            },
            "spec": {
                "nodeName": harness.node(node),
                "terminationGracePeriodSeconds": 30,
                "containers": [{ "name": "main", "image": "example.com/main" }],
            },
        });
        create(&pods, pod).await;
        wait::object(pods.clone(), "slow", "runs", SOON, super::is_ready).await;
        namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
        wait::object(pods.clone(), "slow", "is being deleted", SOON, |pod: &Pod| {
            pod.metadata.deletion_timestamp.is_some()
        })
        .await;
        let out = harness
            .run(tool, &["drain", &harness.node(node), "--force", "--timeout=180s"])
            .await;
        assert_eq!(out.code, Some(0), "{tool:?}: {out:?}");
        assert!(out.stdout.contains("pod/slow evicted"), "{tool:?}: {out:?}");
        assert!(
            pods.get_opt("slow").await.unwrap().is_none(),
            "{tool:?} did not wait"
        );
    }
}

/// Both tools as the Plans' service account, each through a proxy with these rules.
async fn through_proxies(harness: &DrainHarness, rules: &[Rule], flags: &[&str]) -> [CommandOutput; 2] {
    let run = async |tool, node: &str| {
        let faults = harness.ctx.faults(1).await;
        for rule in rules {
            faults.add(rule.clone());
        }
        let node = harness.node(node);
        let args = [&["drain", node.as_str()], flags].concat();
        let out = harness
            .run_as(tool, &faults.kubeconfig_for(&harness.drainer), &args)
            .await;
        assert!(faults.faults() > 0, "{tool:?} met no fault: {out:?}");
        out
    };
    let (kubectl, refit) = tokio::join!(run(Tool::Kubectl, "k"), run(Tool::Refit, "r"));
    [kubectl, refit]
}

#[tokio::test]
async fn overload_and_a_budget_do_not_keep_other_pods_from_being_evicted() {
    let harness = DrainHarness::new(&["k", "r"]).await;
    for node in ["k", "r"] {
        let own = |name: &str| format!("{node}-{name}");
        harness.pod(node, &own("guarded"), json!({ "app": node })).await;
        harness.pod(node, &own("free"), json!({})).await;
        for pod in ["guarded", "free"] {
            harness.phase(&own(pod), "Running").await;
        }
        harness
            .budget(&own("guard"), node, json!({ "minAvailable": 1 }), 1)
            .await;
    }
    let overload = [Rule::on("create", "pods/eviction").times(2).answer(429)];
    for (said, node) in through_proxies(&harness, &overload, &["--timeout=45s"])
        .await
        .iter()
        .zip(["k", "r"])
    {
        assert_eq!(said.code, Some(1), "{said:?}");
        let left: Vec<_> = harness.on_node(node).await.into_keys().collect();
        assert_eq!(left, [format!("{node}-guarded")], "{said:?}");
    }
}

#[tokio::test]
async fn a_pod_whose_daemon_set_is_gone_is_evicted_by_force_only() {
    let harness = DrainHarness::new(&["k", "r"]).await;
    for node in ["k", "r"] {
        daemon_set(&harness, node, &format!("{node}-daemon")).await;
    }
    // The API server reports at once that the DaemonSet is gone, which the garbage collector would make true later.
    let gone = [Rule::on("get", "daemonsets").answer(404)];
    for said in through_proxies(&harness, &gone, &["--ignore-daemonsets"]).await {
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(!said.stdout.contains("evicting pod"), "{said:?}");
    }
    for (said, node) in through_proxies(&harness, &gone, &["--force"])
        .await
        .iter()
        .zip(["k", "r"])
    {
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stdout.contains(&format!("pod/{node}-daemon-")), "{said:?}");
        assert!(said.stdout.contains(" evicted"), "{said:?}");
    }
}
