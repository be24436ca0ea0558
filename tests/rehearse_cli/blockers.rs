//! A rehearsal of each field that holds nodes back: what the text says, and what the JSON has.

use std::fmt::Write as _;

use serde_json::Value;

use super::plan;
use crate::workdir::Workdir;

struct Case {
    reason: &'static str,
    /// The files of the Plans and of the limits for all Plans.
    files: String,
    /// The cluster; four workers and a server if empty.
    snapshot: String,
    arguments: &'static str,
    /// What the text has, beside the message of the JSON.
    says: &'static str,
    /// Whether the roll-out completes nevertheless.
    ends: bool,
}

/// A Plan that waits for some time.
fn waits(reason: &'static str, more: &str, says: &'static str) -> Case {
    Case {
        reason,
        files: plan("p", more),
        snapshot: String::new(),
        arguments: "",
        says,
        ends: true,
    }
}

/// A Plan that waits forever.
fn stalls(reason: &'static str, more: &str, says: &'static str) -> Case {
    Case {
        ends: false,
        ..waits(reason, more, says)
    }
}

/// A pod that may not be disturbed.
const TRAINING: &str = "---
apiVersion: v1
kind: Pod
metadata: {name: epoch-7, namespace: science, uid: uid-epoch-7, labels: {job: training}}
spec: {nodeName: a, containers: [{name: c, image: i}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
";

fn limits(data: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: refit, namespace: system-upgrade}}\ndata: {data}\n"
    )
}

/// A cluster of these nodes: name, more of its metadata, and whether it is Ready.
fn cluster(nodes: &[(&str, &str, bool)]) -> String {
    let mut text = String::new();
    for (name, more, ready) in nodes {
        let ready = if *ready { "True" } else { "False" };
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, uid: uid-{name}, {more}}}\n\
             status: {{conditions: [{{type: Ready, status: '{ready}'}}], nodeInfo: {{kubeletVersion: v1.33.0, bootID: b-{name}}}}}\n"
        );
    }
    text
}

/// Three servers, of which one is not Ready.
fn servers() -> String {
    let labels = "labels: {kubernetes.io/hostname: x, node-role.kubernetes.io/control-plane: ''}";
    cluster(&[("s1", labels, true), ("s2", labels, true), ("s3", labels, false)])
}

/// The Plan for all nodes.
fn of_all(more: &str) -> String {
    let text = plan("p", more);
    let (before, selector) = text.split_once("nodeSelector: ").unwrap();
    let (_, after) = selector.split_once('\n').unwrap();
    format!("{before}nodeSelector: {{}}\n{after}")
}

fn cases() -> Vec<Case> {
    let with = |case: Case, arguments| Case { arguments, ..case };
    let of_files = |case: Case, files: String| Case { files, ..case };
    let on = |case: Case, files: String, snapshot: String| Case {
        files,
        snapshot,
        ..case
    };
    let labels = "labels: {kubernetes.io/hostname: x}";
    let skipped = format!("annotations: {{refit.rs/skip: 'p@v1.34.1 preflight: no room'}}, {labels}");
    vec![
        stalls(
            "Suspended",
            "  suspend: true\n",
            "would stall: Plan p starts no node: Suspended",
        ),
        of_files(
            stalls("Aborted", "", "set by user"),
            plan("p", "").replace("{name: p,", "{name: p, annotations: {refit.rs/abort: by user},"),
        ),
        of_files(
            stalls("ConcurrencyZero", "", "set it, or spec.maxConcurrent"),
            plan("p", "").replace("concurrency: 2", "concurrency: 0"),
        ),
        of_files(
            stalls("Frozen", "", "no node starts, by ConfigMap refit: audit"),
            plan("p", "") + &limits("{freeze: audit}"),
        ),
        // The ConfigMap of the cluster counts, too.
        on(
            stalls("Frozen", "", "no node starts, by ConfigMap refit: audit"),
            of_all(""),
            cluster(&[("a", labels, true)]) + &limits("{freeze: audit}"),
        ),
        of_files(
            stalls("Frozen", "", "maxUnavailable"),
            plan("p", "") + &limits("{maxUnavailable: many}"),
        ),
        of_files(
            waits("ClusterLimit", "", "maxConcurrent of ConfigMap refit is 1"),
            plan("p", "") + &limits("{maxConcurrent: '1'}"),
        ),
        waits(
            "WindowClosed",
            "  windows: [{days: [mon], startTime: '22:00', endTime: '23:30', timeZone: UTC}]\n",
            "spec.windows is closed and opens at 2026-01-05T22:00:00Z",
        ),
        waits(
            "Blackout",
            "  blackouts: [{start: 2026-01-01, end: 2026-01-05, reason: sale, timeZone: UTC}]\n",
            "lasts until 2026-01-06T00:00:00Z: sale",
        ),
        of_files(
            waits(
                "Blackout",
                "",
                "a blackout of ConfigMap refit lasts until 2026-01-06T00:00:00Z: sale",
            ),
            plan("p", "")
                + &limits(
                    "{blackouts: '[{start: 2026-01-01, end: 2026-01-05, reason: sale, timeZone: UTC}]'}",
                ),
        ),
        stalls(
            "WindowTooShort",
            "  jobActiveDeadlineSecs: 3600\n  windows: [{cron: '0 9 * * *', duration: 10m, timeZone: UTC}]\n",
            "its time limit is 1h, and the longest time",
        ),
        waits(
            "WaveInProgress",
            "  waves: [{name: first, nodes: 1, soak: 1h}]\n",
            "wave first comes first, and is not over",
        ),
        waits(
            "WaveSoaking",
            "  waves: [{name: first, nodes: 1, soak: 1h}]\n",
            "no node starts while wave first soaks, until ",
        ),
        waits(
            "WaveNotApproved",
            "  waves: [{name: first, nodes: 1, approval: true}]\n",
            "assumed: Plan p: someone approves first as soon as it is over",
        ),
        of_files(
            waits(
                "EarlierNodes",
                "",
                "spec.order: control-1 is left (control plane)",
            ),
            of_all("  order: [{controlPlane: First}]\n"),
        ),
        on(
            stalls(
                "MaxUnavailable",
                "",
                "no further node starts while s3 is unavailable",
            ),
            of_all("  maxUnavailable: 1\n"),
            servers(),
        ),
        on(
            stalls(
                "ControlPlaneQuorum",
                "",
                "1 of 3 control-plane nodes would be available, and 2 are needed: s3 is",
            ),
            of_all("  cordon: true\n"),
            servers(),
        ),
        stalls(
            "DependencyUnknown",
            "  dependsOn: [{name: servers}]\n",
            "Plan servers does not exist in this namespace",
        ),
        of_files(
            stalls("DependencyCycle", "", "p waits for q waits for p"),
            plan("p", "  dependsOn: [{name: q}]\n") + "---\n" + &plan("q", "  dependsOn: [{name: p}]\n"),
        ),
        of_files(
            waits("DependencyNotComplete", "", "all nodes of p for Plan q"),
            plan("p", "  dependsOn: [{name: q}]\n") + "---\n" + &plan("q", ""),
        ),
        with(
            waits(
                "CheckFailing",
                "  checks: [{name: alerts, http: {url: 'https://a.example.com'}}]\n",
                "because check alerts fails, since ",
            ),
            "--fail-check alerts=2h",
        ),
        with(
            of_files(
                stalls("FailureBudget", "", "and spec.failure.budget is 1"),
                plan("p", "  failure: {policy: Stop, budget: 1}\n")
                    .replace("concurrency: 2", "concurrency: 1"),
            ),
            "--fail node-1,node-2,node-3,node-4",
        ),
        // What `preflight` has said to the real controller holds in a rehearsal, too.
        on(
            waits("Skipped", "", "preflight skips the node at v1.34.1"),
            of_all(""),
            cluster(&[("a", &skipped, true), ("b", labels, true)]),
        ),
        on(
            stalls("PodBlocks", "", "pod science/epoch-7 runs on the node"),
            of_all("  drain: {force: true, blockedBy: [{selector: {matchLabels: {job: training}}}]}\n"),
            cluster(&[("a", labels, true), ("b", labels, true)]) + TRAINING,
        ),
        on(
            waits("PodsRunning", "", "waits for science/epoch-7 to end since "),
            of_all(
                "  drain: {force: true, waitFor: [{podSelector: {matchLabels: {job: training}}, timeout: 20m}]}\n",
            ),
            cluster(&[("a", labels, true), ("b", labels, true)]) + TRAINING,
        ),
        on(
            stalls("DrainSkipped", "", "science/epoch-7 had not ended within 20m0s"),
            of_all(
                "  drain: {force: true, waitFor: [{podSelector: {matchLabels: {job: training}}, timeout: 20m, afterTimeout: Skip}]}\n",
            ),
            cluster(&[("a", labels, true), ("b", labels, true)]) + TRAINING,
        ),
        on(
            stalls(
                "DrainWouldBlock",
                "",
                "pod science/epoch-7: cannot delete Pods that declare no controller",
            ),
            of_all("  drain: {checkFirst: true}\n"),
            cluster(&[("a", labels, true), ("b", labels, true)]) + TRAINING,
        ),
        on(
            stalls("NodeNotReady", "", "the node is not Ready"),
            of_all(""),
            cluster(&[("a", labels, true), ("b", labels, false)]),
        ),
    ]
}

#[test]
fn nodes_that_each_field_holds_back_are_in_the_text_and_the_json_of_a_rehearsal() {
    for case in cases() {
        let folder = Workdir::new([
            ("plan.yaml", case.files.as_str()),
            ("cluster.yaml", case.snapshot.trim_start_matches("---\n")),
        ]);
        let cluster = if case.snapshot.is_empty() {
            "--nodes 5"
        } else {
            "--snapshot cluster.yaml"
        };
        let command = format!("rehearse plan.yaml {cluster} {}", case.arguments);
        let code = u8::from(!case.ends);
        let ran = folder.run(&command).ends(code.into());
        let text = format!("{}{}", ran.out, ran.err);
        assert!(text.contains(case.says), "{}: {text}", case.reason);
        let json = folder.run(&format!("{command} -o json")).ends(code.into()).json();
        let waits = json["waits"].as_array().unwrap();
        let found: Vec<&Value> = waits
            .iter()
            .filter(|wait| wait["reason"] == case.reason)
            .collect();
        assert!(!found.is_empty(), "{}: {json:#}", case.reason);
        for wait in found {
            let is_over = !wait["end"].is_null();
            assert!(
                wait["message"].is_string() && wait["start"].is_string(),
                "{wait:#}"
            );
            // A node that is skipped waits without end, and nobody waits for it. A window that is too short also closes, and
            // then that is why nodes wait. A node that was released has its turn again.
            assert!(
                is_over == case.ends || ["Skipped", "WindowTooShort", "DrainSkipped"].contains(&case.reason),
                "{}: {wait:#}",
                case.reason
            );
        }
    }
}

#[test]
fn a_rehearsal_honours_a_start_in_spite_of_limits() {
    let closed = "  windows: [{days: [mon], startTime: '22:00', endTime: '23:30', timeZone: UTC}]\n";
    let of = |text: &str, command: &str| Workdir::new([("plan.yaml", text)]).run(command);
    let plan = plan("p", closed);
    let job = of(&plan, "render plan.yaml --node a -o json").ends(0).json();
    let hash = job["metadata"]["labels"]["plan.upgrade.cattle.io/p"].as_str();
    let hash = hash.unwrap_or_else(|| panic!("{job:#}"));
    let named = |hash: &str| {
        let despite = format!("{{name: p, annotations: {{refit.rs/despite: window@{hash} by alice}},");
        plan.replace("{name: p,", &despite)
    };
    let waits = |text: &str| {
        let json = of(text, "rehearse plan.yaml --nodes 5 -o json").ends(0).json();
        let waits = json["waits"].as_array().unwrap().clone();
        waits.iter().any(|wait| wait["reason"] == "WindowClosed")
    };
    assert!(!waits(&named(&hash[..12])));
    assert!(waits(&named("aaaaaaaaaaaa")), "that of another roll-out");
}
