use jiff::SignedDuration;

use super::*;
use crate::fixture::{cluster, observe_node};
use refit_api::CardState;
use refit_fixtures::{morning, node, plan_with};
use refit_rollout::decide;

struct Follower {
    cluster: ClusterState,
    reports: BTreeMap<PlanName, Report>,
    timeline: Timeline,
    now: Timestamp,
}

impl Follower {
    fn new(nodes: &[&str]) -> Self {
        let nodes = nodes
            .iter()
            .zip(1..)
            .map(|(name, uid)| node(name, &uid.to_string()));
        let plan = plan_with("p", |spec| spec.concurrency = Some(3));
        let mut cluster = cluster(nodes, vec![plan]);
        cluster.refresh(morning());
        let reports = decide(&cluster, morning()).reports;
        Self {
            cluster,
            reports,
            timeline: Timeline::new(morning()),
            now: morning(),
        }
    }

    /// Some seconds later, these nodes have a slot.
    fn follow(&mut self, seconds: i64, slots: &[(&str, NodePhase, Option<Reason>)]) {
        self.now += SignedDuration::from_secs(seconds);
        let slots = slots.iter().map(|(node, phase, reason)| {
            let slot = Slot {
                phase: *phase,
                reason: reason.map(OpenEnum::from),
                since: None,
            };
            (NodeName::from(*node), slot)
        });
        self.reports.get_mut("p").unwrap().slots = slots.collect();
        self.timeline.follow(&self.cluster, &self.reports, self.now);
    }

    fn live(&mut self) -> Live {
        self.timeline.live(&self.cluster, &self.reports, self.now)
    }

    fn row(&mut self, node: &str) -> Arc<Row> {
        let rows = self.live().rows;
        rows.into_iter()
            .find(|row| row.node == node)
            .unwrap_or_else(|| panic!("no row of {node}"))
    }
}

/// Phase and seconds of each span.
fn spans(row: &Row) -> Vec<(String, Option<i64>)> {
    let span = |span: &Span| (span.phase.to_string(), span.to.map(|to| to - span.from));
    row.spans.iter().map(span).collect()
}

#[test]
fn a_node_has_a_span_for_each_phase_and_ends_as_done_released_or_failed() {
    let mut follower = Follower::new(&["a", "b", "c"]);
    let draining = |node| (node, NodePhase::Draining, Some(Reason::DrainWaiting));
    let upgrading = |node| (node, NodePhase::Upgrading, None);
    let failed = ("b", NodePhase::Failed, Some(Reason::BackoffLimitExceeded));
    follower.follow(0, &[draining("a"), draining("b"), upgrading("c")]);
    follower.follow(30, &[draining("a"), upgrading("b"), upgrading("c")]);
    follower.follow(60, &[upgrading("a"), failed]);
    let hash = follower.cluster.target("p").unwrap().1.to_owned();
    let mut done = node("a", "1");
    let label = format!("{}p", refit_api::names::LABEL_PLAN_PREFIX);
    done.labels = refit_fixtures::labels([(refit_api::names::LABEL_HOSTNAME, "a"), (&label, &hash)]);
    observe_node(&mut follower.cluster, 2, done);
    follower.cluster.refresh(follower.now);
    follower.follow(120, &[failed]);

    let a = follower.row("a");
    assert_eq!(a.state, RowState::Done);
    assert_eq!(
        spans(&a),
        [
            ("Draining".to_owned(), Some(90)),
            ("Upgrading".to_owned(), Some(120))
        ]
    );
    assert_eq!(follower.row("c").state, RowState::Released, "it has no label");
    let b = follower.row("b");
    assert_eq!(
        (b.state, b.reason.as_ref()),
        (RowState::Failed, Some(&Reason::BackoffLimitExceeded.into()))
    );
    let card = &follower.live().document.plans[0];
    assert_eq!(
        (card.state, card.failed, card.applying),
        (CardState::Failed, 1, 0)
    );
    assert!(card.held.as_ref().unwrap().message.starts_with("b: "));
}

#[test]
fn a_row_changes_its_revision_only_when_it_changes() {
    let mut follower = Follower::new(&["a", "b"]);
    let upgrading = |node| (node, NodePhase::Upgrading, None);
    follower.follow(0, &[upgrading("a"), upgrading("b")]);
    let [a, b] = ["a", "b"].map(|node| follower.row(node).revision);
    follower.follow(10, &[upgrading("a"), upgrading("b")]);
    assert_eq!([a, b], ["a", "b"].map(|node| follower.row(node).revision));
    follower.follow(10, &[upgrading("a"), ("b", NodePhase::Settling, None)]);
    assert_eq!(follower.row("a").revision, a);
    assert!(follower.row("b").revision > a.max(b));
}

#[test]
fn a_phase_that_began_before_this_process_led_begins_when_status_says() {
    let mut follower = Follower::new(&["a"]);
    let since = morning() - SignedDuration::from_mins(5);
    let slot = Slot {
        phase: NodePhase::Upgrading,
        reason: None,
        since: Some(since),
    };
    follower.reports.get_mut("p").unwrap().slots = BTreeMap::from([("a".into(), slot)]);
    follower
        .timeline
        .follow(&follower.cluster, &follower.reports, morning());
    assert_eq!(follower.row("a").spans[0].from, since.as_second());
}

#[test]
fn rows_of_another_roll_out_and_of_deleted_plans_go_away() {
    let mut follower = Follower::new(&["a"]);
    follower.follow(0, &[("a", NodePhase::Upgrading, None)]);
    let generation = follower.live().generation;
    follower.reports.clear();
    follower
        .timeline
        .follow(&follower.cluster, &follower.reports, morning());
    let live = follower.live();
    assert!(live.rows.is_empty() && live.generation > generation);
}

#[test]
fn spans_of_a_row_have_a_limit() {
    let mut follower = Follower::new(&["a"]);
    for _ in 0..MAX_SPANS {
        follower.follow(1, &[("a", NodePhase::Upgrading, None)]);
        follower.follow(1, &[("a", NodePhase::Settling, None)]);
    }
    assert_eq!(follower.row("a").spans.len(), MAX_SPANS);
}

/// Reason, seconds, number of nodes and whether it is over, of each wait on the card.
fn waits(follower: &mut Follower) -> Vec<(String, i64, Option<usize>, bool, String)> {
    let mut live = follower.live();
    let card = live.document.plans.remove(0);
    let wait = |wait: refit_formats::page::WaitCard| {
        (
            wait.reason.to_string(),
            wait.seconds,
            wait.nodes,
            wait.is_over,
            wait.message,
        )
    };
    card.waits.into_iter().map(wait).collect()
}

#[test]
fn the_card_lists_what_nodes_wait_for_with_the_message_of_now() {
    let mut follower = Follower::new(&["a", "b", "c"]);
    let report = follower.reports.get_mut("p").unwrap();
    report.blocker = None;
    report.nodes = BTreeMap::from([("a".into(), Blocker::NodeNotReady)]);
    report.waiting = 1;
    follower.follow(0, &[]);
    follower.follow(30, &[]);
    let listed = waits(&mut follower);
    assert_eq!(listed.len(), 1, "{listed:#?}");
    assert_eq!(
        (&*listed[0].0, listed[0].1, listed[0].2, listed[0].3),
        ("NodeNotReady", 30, Some(1), false)
    );

    // The same reason with another text.
    let of = |reason: &str| Blocker::Frozen {
        reason: reason.to_owned(),
        invalid: false,
    };
    let report = follower.reports.get_mut("p").unwrap();
    report.nodes = BTreeMap::from([("a".into(), of("first"))]);
    follower.follow(10, &[]);
    assert!(follower.row("a").message.as_ref().unwrap().contains("first"));
    let report = follower.reports.get_mut("p").unwrap();
    report.nodes = BTreeMap::from([("a".into(), of("second"))]);
    report.blocker = Some(of("all"));
    report.waiting = 3;
    follower.follow(10, &[]);
    let row = follower.row("a");
    assert!(row.message.as_ref().unwrap().contains("second"), "{row:#?}");
    let revision = row.revision;
    assert_eq!(follower.row("a").revision, revision, "nothing has changed");
    follower.follow(5, &[]);
    let listed = waits(&mut follower);
    let short: Vec<_> = listed.iter().map(|it| (&*it.0, it.1, it.2, it.3)).collect();
    assert_eq!(
        short,
        [
            ("Frozen", 15, Some(1), false),
            ("Frozen", 5, Some(2), false),
            ("NodeNotReady", 40, Some(1), true),
        ]
    );
    assert!(listed[0].4.contains("second") && listed[1].4.contains("all"));
}
