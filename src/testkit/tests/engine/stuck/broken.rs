//! Fifteen clusters that are broken as real ones are: the cause is in what `refit status` prints, and, if a controller runs, in
//! what kubectl shows of the Plan: the columns of `kubectl get plans`, its conditions and its events.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use refit_api::crd;
use refit_api::plan::SecretSpec;
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::table::Look;
use refit_view::{PlanOverview, table};

use super::{NAMESPACE, draining};
use crate::tests::engine::scenario::{Scenario, Setup};

/// Another namespace than the controller's.
const ELSEWHERE: &str = "apps";
const CHANNEL: &str = "https://update.k3s.io/v1-release/channels/stable";

/// A cluster: what is broken, how to break it, and what names the cause.
struct Broken {
    what: &'static str,
    make: fn() -> Scenario,
    /// The namespace of the Plan `p`.
    namespace: &'static str,
    /// Parts of what `refit status` prints.
    status: &'static [&'static str],
    /// Parts of what kubectl shows; empty if it cannot show the cause.
    kubectl: &'static [&'static str],
}

impl Broken {
    const fn new(
        what: &'static str,
        make: fn() -> Scenario,
        status: &'static [&'static str],
        kubectl: &'static [&'static str],
    ) -> Self {
        Self {
            what,
            make,
            namespace: NAMESPACE,
            status,
            kubectl,
        }
    }
}

const CLUSTERS: [Broken; 15] = [
    Broken {
        namespace: ELSEWHERE,
        ..Broken::new(
            "Plan in another namespace",
            another_namespace,
            &["create the Plan in namespace system-upgrade"],
            &[],
        )
    },
    Broken::new(
        "no controller",
        no_controller,
        &["no controller has processed the Plan", "kubectl get deployments"],
        &[],
    ),
    Broken::new(
        "image missing",
        no_image,
        &["Node a", "example.com/upgrade:v1", "correct the image"],
        &["a: ", "ImagePullBackOff", "example.com/upgrade:v1"],
    ),
    Broken::new(
        "PodDisruptionBudget",
        budget,
        &["shop/guarded", "kubectl edit pdb -n shop guarded"],
        &["a: ", "PodDisruptionBudget guarded"],
    ),
    Broken::new(
        "someone cordoned a node",
        cordoned,
        &["Node a: is cordoned, and not by refit", "kubectl uncordon a"],
        &["a is unavailable"],
    ),
    Broken::new(
        "window closed",
        || window("4h"),
        &["WindowClosed", "opens in 2d12h"],
        &["2026-01-03T22:00:00Z"],
    ),
    Broken::new(
        "window too short",
        || window("10m"),
        &["WindowTooShort", "10m", "lengthen"],
        &["10m"],
    ),
    Broken::new(
        "wrong selector",
        selector,
        &["NoNodes", "spec.nodeSelector matches no node"],
        &["spec.nodeSelector matches no node"],
    ),
    Broken::new(
        "Secret missing",
        secret,
        &[
            "Secret keys",
            "does not exist",
            "kubectl create secret generic -n system-upgrade keys",
        ],
        &["Secret keys"],
    ),
    Broken::new(
        "channel unreachable",
        channel,
        &["connection refused", CHANNEL, "refit resolve"],
        &["connection refused (channel https://update.k3s.io/"],
    ),
    Broken::new(
        "ServiceAccount missing",
        account,
        &[
            "serviceaccount \"upgrader\" not found",
            "kubectl create serviceaccount -n system-upgrade upgrader",
        ],
        &["a: ", "serviceaccount \"upgrader\" not found"],
    ),
    Broken::new(
        "majority of the control plane",
        quorum,
        &[
            "ControlPlaneQuorum",
            "s2 is unavailable",
            "kubectl describe node s2",
        ],
        &["s1: ", "s2 is unavailable"],
    ),
    Broken::new(
        "taint not tolerated",
        taint,
        &[
            "taint example.com/full:NoSchedule",
            "spec.tolerations",
            "kubectl edit plan",
        ],
        &["a: the node has the taint example.com/full:NoSchedule"],
    ),
    Broken::new(
        "concurrency missing",
        || Scenario::with(&["a"], plan_with("p", |spec| spec.concurrency = None)),
        &["ConcurrencyZero", "set one of them"],
        &["concurrency"],
    ),
    Broken::new(
        "container exits 3",
        exits,
        &["container upgrade exited with 3", "kubectl logs"],
        &["a: container upgrade exited with 3"],
    ),
];

fn another_namespace() -> Scenario {
    let mut scenario = Scenario::with(&["a"], plan("other"));
    scenario.roll_out();
    let mut stray = plan("p");
    stray.metadata.namespace = Some(ELSEWHERE.to_owned());
    scenario.apply_and_settle(stray);
    scenario
}

fn no_controller() -> Scenario {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.add_nodes(&["a"]);
    scenario.apply_and_settle(plan("p"));
    scenario
}

fn no_image() -> Scenario {
    let mut scenario = super::without_image();
    scenario.pass_secs(60);
    scenario
}

fn budget() -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.guard("a");
    scenario.apply(draining("p"));
    scenario.comes_to("a", PodStage::Drain);
    scenario.pass_secs(60);
    scenario
}

fn cordoned() -> Scenario {
    let one = Some(IntOrString::Int(1));
    let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.max_unavailable = one));
    scenario.roll_out();
    scenario.kubectl_cordons("a");
    scenario.add_nodes(&["b"]);
    scenario.settle();
    scenario
}

/// Saturdays from ten in the evening.
fn window(duration: &str) -> Scenario {
    let windows = serde_json::json!([{ "cron": "0 22 * * 6", "duration": duration, "timeZone": "UTC" }]);
    let windows = serde_json::from_value(windows).unwrap();
    let plan = plan_with("p", |spec| {
        (spec.windows, spec.job_active_deadline_secs) = (Some(windows), Some(1_800));
    });
    Scenario::with(&["a"], plan)
}

fn selector() -> Scenario {
    let none = serde_json::json!({ "matchLabels": { "node-role.kubernetes.io/control-plan": "true" } });
    let none = serde_json::from_value(none).unwrap();
    Scenario::with(&["a"], plan_with("p", |spec| spec.node_selector = none))
}

fn secret() -> Scenario {
    let keys = SecretSpec {
        name: "keys".to_owned(),
        path: "/keys".to_owned(),
        ..SecretSpec::default()
    };
    Scenario::with(&["a"], plan_with("p", |spec| spec.secrets = Some(vec![keys])))
}

fn channel() -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.break_channel(CHANNEL, "connection refused");
    scenario.apply_and_settle(plan_with("p", |spec| {
        (spec.version, spec.channel) = (None, Some(CHANNEL.to_owned()));
    }));
    scenario
}

fn account() -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let why = "pods \"x\" is forbidden: error looking up service account system-upgrade/upgrader: serviceaccount \"upgrader\" not found";
    scenario.cluster.with(|state| state.refuses_pods = Some(why));
    scenario.apply(plan("p"));
    scenario.pass_secs(60);
    scenario
}

fn quorum() -> Scenario {
    let mut scenario = Scenario::empty();
    for name in ["s1", "s2", "s3"] {
        let labels = json!({ "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "true" } } });
        scenario.add_node(name, &labels);
    }
    scenario.ready("s2", false);
    scenario.apply_and_settle(plan("p"));
    scenario
}

fn taint() -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply_and_taint("a", plan("p"));
    scenario.pass_secs(60);
    scenario
}

fn exits() -> Scenario {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.steer("a", "upgrade.exit-code", Some("3"));
    scenario.steer("a", "upgrade.run-delay", Some("0s"));
    scenario.pass_secs(60);
    scenario
}

#[test]
fn the_cause_is_in_refit_status_alone_and_in_kubectl_alone_unless_no_controller_has_seen_the_plan() {
    let mut missing = Vec::new();
    for Broken {
        what,
        make,
        namespace,
        status,
        kubectl,
    } in CLUSTERS
    {
        let mut scenario = make();
        let shown = [refit_status(&mut scenario), by_kubectl(&scenario, namespace)];
        for (parts, shown) in [status, kubectl].iter().zip(&shown) {
            let absent = parts.iter().filter(|part| !shown.contains(**part));
            missing.extend(absent.map(|part| format!("{what}: {part:?} is not in\n{shown}\n")));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let with_kubectl = CLUSTERS.iter().filter(|cluster| !cluster.kubectl.is_empty());
    assert_eq!(with_kubectl.count(), 13);
}

/// What `refit status -A` prints on a terminal of 80 columns, without its line breaks.
fn refit_status(scenario: &mut Scenario) -> String {
    let snapshot = scenario.snapshot();
    let views: Vec<_> = snapshot
        .plans
        .iter()
        .map(|plan| PlanOverview::new(&snapshot, plan))
        .collect();
    let look = Look {
        columns: Some(80),
        ..Look::default()
    };
    let text = table::status(&views, Some(&snapshot), &snapshot.gaps, &look);
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with("kubectl "))
    {
        assert!(
            line.chars().count() <= 80 || !line.trim().contains(' '),
            "{line:?} is too long:\n{text}"
        );
    }
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ")
}

/// The cells of `kubectl get plans`, and the conditions and events of the Plan.
fn by_kubectl(scenario: &Scenario, namespace: &str) -> String {
    let plan = scenario.cluster.get(Kind::Plan, namespace, "p").unwrap();
    let definition = crd::plans();
    let columns = definition.spec.versions[0]
        .additional_printer_columns
        .iter()
        .flatten();
    let cells = columns.map(|column| cell(&plan, &column.json_path));
    let conditions = plan["status"]["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.map(|one| one["message"].as_str().unwrap_or_default().to_owned());
    let all: Vec<_> = cells.chain(conditions).chain(scenario.events()).collect();
    all.join("\n")
}

/// What a path of the definition gives: fields, and one element of a list by its `type`.
fn cell(object: &Value, path: &str) -> String {
    let path = path.replace("[?(@.type=='", ".").replace("')]", "");
    let mut fields = path.split('.').filter(|field| !field.is_empty());
    let found = fields.try_fold(object, |value, field| match value.as_array() {
        Some(items) => items.iter().find(|item| item["type"] == field),
        None => Some(&value[field]),
    });
    found.and_then(Value::as_str).unwrap_or_default().to_owned()
}
