use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::SignedDuration;

use super::list::{GROUPS, Group, Kind, Metric};
use super::tracker::Tracker;
use super::*;

use crate::fixture::cluster;
use refit_api::{
    BlackoutSpec, NodePhase, OpenEnum, PlanCondition, PlanSpec, Reason, TimeWindowSpec, WindowSpec,
};
use refit_facts::{NodeFacts, PlanName};
use refit_fixtures::generated::{assert_committed, committed};
use refit_fixtures::{labels, morning, node, plan_with};
use refit_rollout::{ClusterState, GlobalLimits, NodeState, Observation, PlanPicture, decide};

fn metrics() -> Vec<&'static Metric> {
    GROUPS
        .iter()
        .flat_map(|(_, metrics)| metrics.iter().copied())
        .collect()
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    let mut names = BTreeSet::new();
    for metric in metrics() {
        let name = metric.name;
        assert!(names.insert(name), "{name} twice");
        assert!(
            name.starts_with("refit_") || name.starts_with("process_"),
            "{name}"
        );
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), metric.kind == Kind::Info, "{name}");
        // Base units only.
        for unit in ["_ms", "_millis", "_minutes", "_hours", "_kib", "_mib", "_percent"] {
            assert!(!name.contains(unit), "{name}");
        }
        assert!(
            !metric.help.ends_with('.') && !metric.help.contains('\n'),
            "{name}"
        );
        let labels = [
            "plan",
            "phase",
            "reason",
            "condition",
            "version",
            "result",
            "step",
            "lane",
            "resource",
            "verb",
            "code",
        ];
        assert!(metric.labels.iter().all(|label| labels.contains(label)), "{name}");
    }
}

/// The tables of docs/metrics.md.
fn tables() -> String {
    let mut text = String::new();
    for (group, metrics) in GROUPS {
        let title = match group {
            Group::Plan => "Of each Plan (leader only)",
            Group::Nodes => "Of all nodes (leader only)",
            Group::Process => "Of the process",
        };
        let _ = writeln!(text, "### {title}\n\n| metric | meaning |\n|---|---|");
        for metric in *metrics {
            let labels = match metric.labels {
                [] => String::new(),
                labels => format!("{{{}}}", labels.join(",")),
            };
            // The suffix of its name says which the others are.
            let kind = match metric.kind {
                Kind::Histogram => ", histogram",
                _ => "",
            };
            let _ = writeln!(text, "| `{}{labels}`{kind} | {} |", metric.name, metric.help);
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_committed_document_lists_the_metrics() {
    let file = "docs/metrics.md";
    let document = committed(file);
    let (begins, ends) = (
        "<!-- metrics: generated from src/controller/metrics/list.rs -->\n",
        "<!-- end of metrics -->\n",
    );
    let (before, rest) = document.split_once(begins).unwrap();
    let (_, after) = rest.split_once(ends).unwrap();
    assert_committed(file, &format!("{before}{begins}\n{}{ends}{after}", tables()));
}

/// The same alerts, for the Prometheus operator.
#[test]
fn the_committed_prometheus_rule_has_the_alerts_of_the_plain_rules() {
    let rules = committed("deploy/monitoring/rules.yaml");
    let (_, groups) = rules.split_once("\ngroups:\n").unwrap();
    let mut written = "# Made of rules.yaml: just generate\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  \
                       name: refit\n  namespace: system-upgrade\n  labels:\n    app.kubernetes.io/name: \
                       system-upgrade-controller\nspec:\n  groups:\n"
        .to_owned();
    for line in groups.lines() {
        let _ = writeln!(written, "{}{line}", if line.is_empty() { "" } else { "  " });
    }
    assert_committed("deploy/monitoring/prometheusrule.yaml", &written);
}

fn slot(phase: NodePhase, reason: Option<Reason>) -> NodeState {
    let mut state = NodeState::bare("".into(), String::new(), phase);
    state.reason = reason.map(OpenEnum::from);
    state
}

/// A cluster, and what a decision says of its Plans.
fn decided(
    nodes: Vec<NodeFacts>,
    plans: Vec<refit_api::Plan>,
) -> (ClusterState, BTreeMap<PlanName, PlanPicture>) {
    let mut cluster = cluster(nodes, plans);
    cluster.refresh(morning());
    let pictures = decide(&cluster, morning()).pictures;
    (cluster, pictures)
}

/// The value of the only series that contains all these words.
fn value(text: &str, words: &[&str]) -> f64 {
    let mut lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && words.iter().all(|word| line.contains(word)));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("no series with {words:?} in:\n{text}"));
    assert_eq!(lines.next(), None, "{words:?}");
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn text(samples: Samples) -> String {
    sample::text(samples).unwrap()
}

/// As much of everything as there can be: windows, channels, conditions, every phase, every reason, long versions.
#[test]
fn fifty_plans_on_five_thousand_nodes_have_at_most_two_thousand_series() {
    let nodes: Vec<_> = (0..5_000)
        .map(|number| node(&format!("node-{number:04}"), &format!("uid-{number}")))
        .collect();
    let plans: Vec<_> = (0..50)
        .map(|number| {
            let mut plan = plan_with(&format!("plan-{number:02}"), |spec| {
                spec.concurrency = Some(100);
                spec.version = None;
                spec.channel = Some(format!("https://channels.example.com/{number}"));
                spec.window = Some(TimeWindowSpec {
                    days: Some(vec!["monday".to_owned()]),
                    start_time: Some("01:00".to_owned()),
                    end_time: Some("05:00".to_owned()),
                    ..TimeWindowSpec::default()
                });
            });
            let condition = |type_: &str| PlanCondition {
                type_: type_.into(),
                status: "False".to_owned(),
                last_transition_time: Some(morning().to_string()),
                ..PlanCondition::default()
            };
            let status = plan.status.insert(refit_api::PlanStatus::default());
            status.conditions = ["Complete", "Validated", "LatestResolved", "UpToDate", "Foreign"]
                .map(condition)
                .into();
            status.latest_version = Some("v".repeat(300));
            status.latest_hash = Some("hash".to_owned());
            plan
        })
        .collect();
    let (cluster, mut pictures) = decided(nodes, plans);
    assert_eq!(pictures.len(), 50);
    let mut tracker = Tracker::default();
    tracker.follow(&cluster, &pictures, Instant::now(), morning());
    for (number, report) in pictures.values_mut().enumerate() {
        let phases = NodePhase::ALL.iter().cycle();
        let reasons = Reason::ALL.iter().cycle().skip(number);
        let names = (0..100).map(|one| format!("node-{:04}", number * 100 + one));
        report.slots = names
            .zip(phases.zip(reasons))
            .map(|(name, (phase, reason))| (name.as_str().into(), slot(*phase, Some(*reason))))
            .collect();
    }
    tracker.follow(&cluster, &pictures, Instant::now(), morning());
    let of_plans = plans::samples(&cluster, &pictures, &tracker, morning());
    for name in pictures.keys() {
        let series = of_plans
            .iter()
            .filter(|sample| sample.labels[0] == **name)
            .count();
        assert!(series <= plans::MAX_SERIES, "{name}: {series}");
    }
    let requests = Arc::default();
    let own = Metrics::new(requests, Progress::default()).own_samples();
    let reporter = reporter_samples(&cluster, &tracker);
    let all = of_plans.iter().chain(&own).chain(&reporter);
    let series: usize = all.map(Sample::series).sum();
    // A long run has some sixty series of requests to the API server, by verb, resource and status, and a dozen more.
    assert!(series <= 1_928, "{series}");
    let text = text(of_plans);
    assert!(!text.contains(&"v".repeat(200)), "a version is cut");
    assert!(!text.contains("Foreign"), "{text}");
}

fn reporter_samples(cluster: &ClusterState, tracker: &Tracker) -> Samples {
    let mut samples = tracker.samples();
    samples.push(Sample::count(&list::CLUSTER_NODES, cluster.node_count()));
    samples
}

#[test]
fn plans_beyond_the_first_two_hundred_have_no_series_of_their_own() {
    let plans = (0..300)
        .map(|number| plan_with(&format!("plan-{number:03}"), |_| {}))
        .collect();
    let (cluster, pictures) = decided(vec![node("a", "1")], plans);
    let tracker = Tracker::default();
    let samples = plans::samples(&cluster, &pictures, &tracker, morning());
    let named: BTreeSet<_> = samples.iter().map(|sample| &sample.labels[0]).collect();
    assert_eq!(named.len(), plans::MAX_PLANS);
}

#[tokio::test(start_paused = true)]
async fn steps_failures_and_nodes_that_are_done_are_measured_from_one_decision_to_the_next() {
    let (mut cluster, mut pictures) = decided(
        vec![node("a", "1"), node("b", "2"), node("c", "3")],
        vec![plan_with("p", |spec| spec.concurrency = Some(3))],
    );
    let mut tracker = Tracker::default();
    let plan: PlanName = "p".into();
    let now = std::cell::Cell::new(morning());
    let step = async |tracker: &mut Tracker,
                      cluster: &ClusterState,
                      pictures: &BTreeMap<_, PlanPicture>,
                      seconds: u64| {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        now.set(now.get() + SignedDuration::from_secs(i64::try_from(seconds).unwrap()));
        tracker.follow(cluster, pictures, Instant::now(), now.get());
    };
    let set = |pictures: &mut BTreeMap<PlanName, PlanPicture>, slots: Vec<(&str, NodeState)>| {
        let slots = slots.into_iter().map(|(node, slot)| (node.into(), slot));
        pictures.get_mut(&plan).unwrap().slots = slots.collect();
    };
    // `c` had its slot before this process led.
    set(&mut pictures, vec![("c", slot(NodePhase::Upgrading, None))]);
    step(&mut tracker, &cluster, &pictures, 0).await;
    let pending = || slot(NodePhase::Pending, None);
    set(
        &mut pictures,
        vec![
            ("a", pending()),
            ("b", pending()),
            ("c", slot(NodePhase::Settling, None)),
        ],
    );
    step(&mut tracker, &cluster, &pictures, 5).await;
    set(
        &mut pictures,
        vec![
            ("a", slot(NodePhase::Draining, Some(Reason::DrainWaiting))),
            ("b", slot(NodePhase::Upgrading, None)),
        ],
    );
    step(&mut tracker, &cluster, &pictures, 10).await;
    set(
        &mut pictures,
        vec![
            ("a", slot(NodePhase::Upgrading, None)),
            ("b", slot(NodePhase::Failed, Some(Reason::BackoffLimitExceeded))),
        ],
    );
    step(&mut tracker, &cluster, &pictures, 20).await;
    // `a` is done.
    let hash = cluster.job_input("p").unwrap().latest_hash.to_owned();
    let label = refit_api::names::plan_label("p");
    let done = NodeFacts {
        labels: labels([(refit_api::names::LABEL_HOSTNAME, "a"), (&label, &hash)]),
        ..node("a", "1")
    };
    crate::fixture::observe_node(&mut cluster, 2, done);
    cluster.refresh(now.get());
    let mut foreign = slot(NodePhase::Failed, None);
    foreign.reason = Some("PodFailurePolicy".into());
    set(
        &mut pictures,
        vec![
            ("b", slot(NodePhase::Failed, Some(Reason::BackoffLimitExceeded))),
            ("c", foreign),
        ],
    );
    step(&mut tracker, &cluster, &pictures, 40).await;
    pictures.get_mut(&plan).unwrap().counts.done = 1;

    let mut samples = tracker.samples();
    samples.extend(plans::samples(&cluster, &pictures, &tracker, now.get()));
    let text = text(samples);
    let sum = |step: &str| value(&text, &["refit_node_step_duration_seconds_sum", step]);
    let count = |step: &str| value(&text, &["refit_node_step_duration_seconds_count", step]);
    let is = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    is(sum("start"), 20.0);
    is(sum("drain"), 20.0);
    // Of `a` and `b`; that of `c` began before this process led.
    is(count("upgrade"), 2.0);
    is(sum("upgrade"), 60.0);
    is(value(&text, &["refit_node_upgrades_total", "Done"]), 1.0);
    is(value(&text, &["refit_node_upgrades_total", "Failed"]), 2.0);
    is(
        value(&text, &["refit_node_failures_total", "BackoffLimitExceeded"]),
        1.0,
    );
    // A reason of Kubernetes that refit does not know.
    is(value(&text, &["refit_node_failures_total", "Other"]), 1.0);
    is(value(&text, &["refit_node_upgrade_duration_seconds_sum"]), 70.0);
    is(value(&text, &["refit_plan_node_duration_seconds", "p"]), 70.0);
    is(value(&text, &["refit_plan_draining_seconds_total", "p"]), 20.0);
    is(value(&text, &["refit_plan_nodes", "Failed"]), 2.0);
    is(value(&text, &["refit_plan_nodes", "Done"]), 1.0);
    is(value(&text, &["refit_plan_stalled_nodes", "Other"]), 1.0);
    assert!(!text.contains("PodFailurePolicy"), "{text}");
}

#[test]
fn waiting_nodes_are_counted_by_the_reason_that_status_has_for_them() {
    let not_ready = NodeFacts {
        ready: false,
        ..node("c", "3")
    };
    let nodes = || vec![node("a", "1"), node("b", "2"), not_ready.clone()];
    let of = |change: fn(&mut refit_api::PlanSpec)| {
        let (cluster, pictures) = decided(nodes(), vec![plan_with("p", change)]);
        text(plans::samples(
            &cluster,
            &pictures,
            &Tracker::default(),
            morning(),
        ))
    };
    let suspended = of(|spec| spec.suspend = Some(true));
    assert!((value(&suspended, &["refit_plan_stalled_nodes", "Suspended"]) - 3.0).abs() < 1e-9);
    assert!(value(&suspended, &["refit_plan_slots"]).abs() < 1e-9);
    let one = of(|spec| spec.concurrency = Some(1));
    assert!((value(&one, &["refit_plan_stalled_nodes", "NoSlot"]) - 1.0).abs() < 1e-9);
    assert!((value(&one, &["refit_plan_stalled_nodes", "NodeNotReady"]) - 1.0).abs() < 1e-9);
    assert!((value(&one, &["refit_plan_nodes", "Pending"]) - 1.0).abs() < 1e-9);
}

#[test]
fn a_window_that_never_opens_has_no_length_and_one_that_never_closes_has_none_to_tell() {
    let of = |days: &[&str], start: &str, end: &str| {
        let window = TimeWindowSpec {
            days: Some(days.iter().map(|day| (*day).to_owned()).collect()),
            start_time: Some(start.to_owned()),
            end_time: Some(end.to_owned()),
            ..TimeWindowSpec::default()
        };
        let plan = plan_with("p", move |spec| spec.window = Some(window));
        let (cluster, pictures) = decided(vec![node("a", "1")], vec![plan]);
        text(plans::samples(
            &cluster,
            &pictures,
            &Tracker::default(),
            morning(),
        ))
    };
    let week = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let length = |text: &str| value(text, &["refit_plan_window_length_seconds"]);
    // Open now, on a Thursday at nine.
    let open = of(&["thu"], "08:00", "11:59:59");
    assert!((length(&open) - 4.0 * 3600.0).abs() < 1e-6);
    assert!((value(&open, &["refit_plan_window_open"]) - 1.0).abs() < 1e-9);
    let closed = of(&["mon"], "22:00", "01:59:59");
    assert!((length(&closed) - 4.0 * 3600.0).abs() < 1e-6);
    assert!(value(&closed, &["refit_plan_window_open"]).abs() < 1e-9);
    assert!(length(&of(&[], "08:00", "12:00")).abs() < 1e-9);
    assert!(!of(&week, "00:00", "23:59:59").contains("refit_plan_window_length_seconds"));
}

#[test]
fn several_windows_and_blackouts_are_one_opening() {
    let of = |spec: &dyn Fn(&mut PlanSpec)| {
        let (cluster, pictures) = decided(vec![node("a", "1")], vec![plan_with("p", spec)]);
        let text = text(plans::samples(
            &cluster,
            &pictures,
            &Tracker::default(),
            morning(),
        ));
        let length = text.contains("refit_plan_window_length_seconds{");
        (
            value(&text, &["refit_plan_window_open"]) > 0.5,
            length.then(|| value(&text, &["refit_plan_window_length_seconds"])),
        )
    };
    let window = |cron: &str, duration: &str| WindowSpec {
        cron: Some(cron.to_owned()),
        duration: Some(duration.to_owned()),
        ..WindowSpec::default()
    };
    let windows = vec![window("0 22 * * *", "30m"), window("0 8 * * thu", "4h")];
    let blackout = |start: &str, end: &str| BlackoutSpec {
        start: Some(start.to_owned()),
        end: Some(end.to_owned()),
        ..BlackoutSpec::default()
    };
    // On a Thursday at nine.
    let open = of(&|spec| spec.windows = Some(windows.clone()));
    assert_eq!(open, (true, Some(1800.0)));
    let held = of(&|spec| {
        spec.windows = Some(windows.clone());
        spec.blackouts = Some(vec![blackout("2026-01-01T00:00:00Z", "2026-01-01T10:00:00Z")]);
    });
    assert_eq!(held, (false, Some(7200.0)));
    let only_a_blackout =
        of(&|spec| spec.blackouts = Some(vec![blackout("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z")]));
    assert_eq!(only_a_blackout, (true, None), "nothing ends the opening after it");
}

#[test]
fn a_frozen_plan_has_no_slots() {
    let mut cluster = cluster(vec![node("a", "1")], vec![plan_with("p", |_| {})]);
    let slots = |cluster: &mut ClusterState| {
        cluster.refresh(morning());
        let pictures = decide(cluster, morning()).pictures;
        let text = text(plans::samples(cluster, &pictures, &Tracker::default(), morning()));
        value(&text, &["refit_plan_slots"])
    };
    assert!(slots(&mut cluster) > 0.5);
    let freeze = [("freeze".to_owned(), "audit".to_owned())].into();
    cluster.apply(Observation::Limits(GlobalLimits::Present(freeze)));
    assert!(slots(&mut cluster) < 0.5);
}

/// As after a fail-over: the new leader reads from the status that a roll-out is under way.
#[test]
fn a_roll_out_lasts_from_one_complete_condition_to_the_next() {
    let with = |status: &str, at: &str| {
        let mut plan = plan_with("p", |_| {});
        plan.status = Some(refit_api::PlanStatus {
            conditions: vec![PlanCondition {
                type_: "Complete".into(),
                status: status.to_owned(),
                last_transition_time: Some(at.to_owned()),
                ..PlanCondition::default()
            }],
            ..refit_api::PlanStatus::default()
        });
        decided(vec![node("a", "1")], vec![plan])
    };
    let mut tracker = Tracker::default();
    let mut follow = |(cluster, pictures): (ClusterState, BTreeMap<PlanName, PlanPicture>)| {
        tracker.follow(&cluster, &pictures, Instant::now(), morning());
        text(plans::samples(&cluster, &pictures, &tracker, morning()))
    };
    let under_way = follow(with("False", "2026-01-01T08:00:00Z"));
    let start = value(&under_way, &["refit_plan_rollout_start_timestamp_seconds"]);
    assert!((start - 1_767_254_400.0).abs() < 1e-6, "{start}");
    let complete = follow(with("True", "2026-01-01T08:30:00Z"));
    assert!((value(&complete, &["refit_plan_last_rollout_duration_seconds"]) - 1800.0).abs() < 1e-6);
    assert!(!complete.contains("refit_plan_rollout_start"));
}

#[test]
fn the_text_is_open_metrics_and_escapes_labels() {
    let version = "a\"b\\c\nd";
    let samples = vec![
        Sample::of(&list::BUILD_INFO, 1.0).with(version),
        Sample::total(&list::EVENTS_DROPPED, 3),
        Sample::of(&list::PROCESS_START, 1.5),
    ];
    let expected = [
        "# HELP refit_build The version of refit",
        "# TYPE refit_build info",
        "refit_build_info{version=\"a\\\"b\\\\c\\nd\"} 1",
        "# HELP refit_events_dropped Number of Events that were refused, or could not be written in time",
        "# TYPE refit_events_dropped counter",
        "refit_events_dropped_total 3.0",
        "# HELP process_start_time_seconds When the process started",
        "# TYPE process_start_time_seconds gauge",
        "# UNIT process_start_time_seconds seconds",
        "process_start_time_seconds 1.5",
        "# EOF",
    ];
    let text = text(samples);
    // By the order of the list.
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines, expected);
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn statuses_and_paths_that_no_api_server_has_add_no_series() {
    use refit_cluster::kube::client::Call;
    let requests = RequestCounts::default();
    let call = |resource: &str| Call {
        verb: "get",
        resource: resource.to_owned(),
    };
    for code in 100..600 {
        requests.add(call("nodes"), Outcome::Answered(code));
        requests.add(call(&format!("path-{code}")), Outcome::Answered(code));
    }
    requests.add(call("nodes"), Outcome::TimedOut);
    let samples = api_requests(&requests);
    assert!(samples.len() <= 2 * (CODES.len() + 1) + 1, "{}", samples.len());
    let text = text(samples);
    assert!((value(&text, &["\"nodes\"", "\"timeout\""]) - 1.0).abs() < 1e-9);
    assert!((value(&text, &["\"nodes\"", "\"404\""]) - 1.0).abs() < 1e-9);
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_knows_its_memory_processor_time_and_start() {
    let text = text(process::samples());
    assert!(value(&text, &["process_resident_memory_bytes "]) > 1e6, "{text}");
    assert!(
        value(&text, &["process_virtual_memory_bytes "]) > value(&text, &["process_resident_memory_bytes "])
    );
    assert!(value(&text, &["process_open_fds "]) >= 3.0);
    let start = value(&text, &["process_start_time_seconds "]);
    let now = refit_cluster::clock::Clock::system()
        .now()
        .as_duration()
        .as_secs_f64();
    assert!((start - now).abs() < 3_600.0, "{start} is long from {now}");
}
