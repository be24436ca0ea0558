//! The cost of rehearsals of many nodes.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::memory;
use super::table::Table;
use crate::testenv::controller::binary;
use crate::testenv::process;

/// A measured rehearsal.
struct Rehearsed {
    took: Duration,
    /// Processor time of the process.
    processor: Duration,
    peak: Option<u64>,
}

/// Rehearses a Plan for all agents, 50 at a time, with more lines in its spec and more arguments.
async fn rehearse(nodes: usize, more: &str, arguments: &[&str]) -> Rehearsed {
    let plan = format!(
        "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: all}}\nspec:\n  concurrency: 50\n  nodeSelector: \
         {{matchExpressions: [{{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}}]}}\n  version: \
         v1.34.1\n  serviceAccountName: system-upgrade\n  upgrade: {{image: example.com/upgrade}}\n{more}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.yaml");
    std::fs::write(&file, plan).unwrap();
    let began = Instant::now();
    let mut rehearsal = Command::new(binary())
        .arg("rehearse")
        .arg(&file)
        .args(["--nodes", &nodes.to_string(), "--quiet"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = rehearsal.id().unwrap();
    let mut output = rehearsal.stdout.take().unwrap();
    let mut said = String::new();
    let (mut peak, mut processor) = (None, None);
    let ended = {
        let mut reading = std::pin::pin!(output.read_to_string(&mut said));
        loop {
            tokio::select! {
                read = &mut reading => {
                    read.unwrap();
                    break rehearsal.wait().await.unwrap();
                }
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    peak = process::memory(pid, "VmHWM:").or(peak);
                    processor = process::cpu_time(pid).or(processor);
                }
            }
        }
    };
    let took = began.elapsed();
    assert!(ended.success() && said.contains("complete: 1 Plan"), "{said}");
    Rehearsed {
        took,
        processor: processor.unwrap_or(took),
        peak,
    }
}

/// Upgrades that all take as long end together, so that one status tells of fifty nodes.
#[tokio::test]
#[ignore = "measures the release and wants the machine for itself: just bench"]
async fn five_thousand_nodes_are_rehearsed_within_seconds() {
    let mut table = Table::default();
    let one = rehearse(5_000, "  cordon: true\n", &["--upgrade", "10m"]).await;
    let title = "5000 nodes rehearsed, 50 at a time, each for ten minutes";
    let optimized = !cfg!(debug_assertions);
    let budget = optimized.then_some(15.0);
    table.row(&format!("{title}: time"), one.took.as_secs_f64(), "s", budget);
    let budget = optimized.then_some(600.0);
    memory(&mut table, title, "peak resident memory", one.peak, budget);
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}

/// The cost per node must not depend on their number. A drain should cost half as much again as the rest; a quarter more
/// than that is accepted, because most of it is the simulated cluster's own work for evicted pods.
#[tokio::test]
#[ignore = "measures the release and wants the machine for itself: just bench"]
async fn rehearsals_of_many_nodes_take_seconds_and_their_time_grows_with_the_nodes() {
    const SIZES: [usize; 3] = [2_000, 5_000, 15_000];
    let mut table = Table::default();
    let mut each = BTreeMap::new();
    for nodes in SIZES {
        let plain = rehearse(nodes, "", &[]).await;
        let drained = rehearse(nodes, "  drain: {force: true}\n", &[]).await;
        for (form, one) in [("plain", &plain), ("drained", &drained)] {
            let title = format!("{nodes} nodes rehearsed, 50 at a time, {form}");
            table.row(&format!("{title}: time"), one.took.as_secs_f64(), "s", None);
            let processor = one.processor.as_secs_f64() * 1e3 / f64::from(u32::try_from(nodes).unwrap());
            table.row(&format!("{title}: processor time a node"), processor, "ms", None);
            memory(&mut table, &title, "peak resident memory", one.peak, None);
            let growth = processor / *each.entry(form).or_insert(processor);
            let what = format!("{title}: processor time a node against {} nodes", SIZES[0]);
            table.row(&what, growth, "x", Some(1.25));
        }
        let what = format!("{nodes} nodes rehearsed: processor time, drained against plain");
        let ratio = drained.processor.as_secs_f64() / plain.processor.as_secs_f64();
        table.row(&what, ratio, "x", Some(1.5 * 1.25));
    }
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}
