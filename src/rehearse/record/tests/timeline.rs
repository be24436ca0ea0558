//! Waves, what decides the length, evictions and boots.

use std::collections::BTreeSet;

use super::*;
use refit_formats::page::BandKind;

/// A status in a wave.
fn in_wave(name: &str, phase: &str, entries: &[(&str, &str, &str)]) -> Value {
    let mut status = active(entries);
    status["wave"] = json!({ "name": name, "phase": phase, "hash": "h" });
    status
}

impl RecorderFixture {
    fn done(&mut self, second: i64, node: &str) {
        let labelled = |labels: Value| json!({ "metadata": { "name": node, "labels": labels } });
        let after = labelled(json!({ "plan.upgrade.cattle.io/p": "h" }));
        self.observe(second, Kind::Node, Some(labelled(json!({}))), after);
    }

    /// A canary, its soak of ten minutes, and two nodes after it, of which a budget holds the second.
    fn two_waves() -> Self {
        let mut fixture = Self::new();
        fixture.plan(0, &in_wave("canary", "Progressing", &[("one", "Upgrading", "")]));
        fixture.done(100, "one");
        let mut soak = in_wave("canary", "Soaking", &[("two", "Waiting", "WaveSoaking")]);
        soak["wave"]["until"] = json!("2026-01-05T09:11:40Z");
        fixture.plan(100, &soak);
        fixture.plan(700, &in_wave("rest", "Progressing", &[("two", "Upgrading", "")]));
        fixture.done(760, "two");
        fixture.plan(761, &in_wave("rest", "Progressing", &[("three", "Draining", "")]));
        fixture.plan(
            770,
            &in_wave("rest", "Progressing", &[("three", "Draining", "JobRefused")]),
        );
        fixture.plan(
            900,
            &in_wave("rest", "Progressing", &[("three", "Upgrading", "")]),
        );
        fixture.done(1_000, "three");
        fixture
    }
}

#[test]
fn waves_soaks_and_waits_are_bands_with_names() {
    let fixture = RecorderFixture::two_waves();
    let bands = fixture.recorder.bands("p", at(1_000));
    let bands: Vec<_> = bands
        .iter()
        .map(|band| {
            let until = band.to.map(|to| to - at(0).as_second());
            (
                band.kind,
                band.label.as_str(),
                band.from - at(0).as_second(),
                until,
            )
        })
        .collect();
    assert_eq!(
        bands,
        [
            (BandKind::Work, "canary", 0, Some(100)),
            (BandKind::Wait, "canary · soak 10m", 100, Some(700)),
            (BandKind::Work, "rest", 700, None),
        ]
    );
    let waves = fixture.recorder.rows("p", at(1_000));
    let waves: Vec<_> = waves.values().map(|row| row.wave.as_deref().unwrap()).collect();
    assert_eq!(waves, ["canary", "rest", "rest"], "by name: one, three, two");
}

#[test]
fn the_chain_goes_from_the_start_over_the_soak_to_the_last_node() {
    let fixture = RecorderFixture::two_waves();
    let chain = fixture.recorder.chain(&["p"], at(1_000));
    let links: Vec<_> = chain.iter().map(|link| link.text.as_str()).collect();
    assert_eq!(
        links,
        [
            "node one of wave canary takes 1m40s",
            "the soak of wave canary takes 10m",
            "2 nodes of wave rest take 5m, one after the other; three waits 2m10s of it: JobRefused",
        ]
    );
    assert_eq!(chain[2].nodes, ["two", "three"]);
    assert!(
        chain.windows(2).all(|pair| pair[0].to <= pair[1].from + 10),
        "{chain:?}"
    );
}

#[test]
fn a_plan_that_waits_for_good_ends_the_chain() {
    let mut fixture = RecorderFixture::new();
    fixture.plan(0, &active(&[("one", "Upgrading", "")]));
    fixture.done(60, "one");
    fixture.plan(61, &active(&[("two", "Waiting", "WindowClosed")]));
    let chain = fixture.recorder.chain(&["p"], at(3_661));
    let links: Vec<_> = chain.iter().map(|link| link.text.as_str()).collect();
    assert_eq!(
        links,
        ["node one of Plan p takes 1m", "Plan p waits 1h: WindowClosed"]
    );
}

#[test]
fn a_row_has_the_evictions_of_its_drain_and_the_boots_of_its_node() {
    let mut fixture = RecorderFixture::new();
    fixture.plan(0, &active(&[("one", "Draining", "")]));
    let progress = json!({ "plan": "p", "pod": "u", "evicted": 3, "total": 5 });
    let node = |boot: &str, annotations: Value| json!({ "metadata": { "name": "one", "annotations": annotations }, "status": { "nodeInfo": { "bootID": boot } } });
    let drained = node("1", json!({ ANNOTATION_DRAIN: progress.to_string() }));
    fixture.observe(5, Kind::Node, Some(node("1", json!({}))), drained.clone());
    assert_eq!(fixture.recorder.rows("p", at(9))["one"].evicted, 3);
    fixture.observe(6, Kind::Node, Some(drained), node("1", json!({})));
    fixture.plan(7, &active(&[("one", "Upgrading", "")]));
    fixture.observe(8, Kind::Node, Some(node("1", json!({}))), node("2", json!({})));
    let row = &fixture.recorder.rows("p", at(9))["one"];
    assert_eq!(
        (row.evicted, row.boots),
        (5, 1),
        "the last note is from before the end of the drain"
    );
}

#[test]
fn the_peak_counts_nodes_that_were_down_together() {
    let mut fixture = RecorderFixture::new();
    fixture.plan(0, &active(&[("one", "Upgrading", ""), ("two", "Pending", "")]));
    fixture.plan(5, &active(&[("one", "Rebooting", ""), ("two", "Upgrading", "")]));
    fixture.done(9, "one");
    let outages = || fixture.recorder.outages("p", TAKEN_DOWN, at(20));
    let found = peak(outages(), &BTreeSet::new()).unwrap();
    assert_eq!((found.at, found.down.len()), (at(5), 2));
    let lost = BTreeSet::from(["elsewhere"]);
    assert_eq!(peak(outages(), &lost).unwrap().down.len(), 3);
}
