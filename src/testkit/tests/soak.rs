//! A day in a large cluster, in virtual time: reports of kubelets that change nothing must not cost memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::rollout::{DONE, NAMESPACE, cluster_with, control_during, options, plan};
use refit_base::version::Offer;
use refit_channel::ChannelClient;
use refit_rehearse::json::{Value, json};
use refit_rehearse::{Cluster, Kind, in_virtual_time};

const NODES: usize = 5_000;
const HOURS: u64 = 24;
/// After so many hours there is another version, and the roll-out of the last one is over, with its Jobs and Events.
const HOURS_PER_VERSION: u64 = 6;
/// Changes of a kind that the simulated API server keeps. More, with the long statuses of Plans, would hide what the
/// controller keeps.
const HISTORY: usize = 200;
/// `nodeStatusReportFrequency` of the kubelet.
const REPORT: Duration = Duration::from_secs(5 * 60);
/// Nodes that report at the same time.
const AT_ONCE: usize = 100;

/// What the kubelet reports although nothing has changed.
fn heartbeat(now: Timestamp) -> Value {
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastHeartbeatTime": format!("{now:.0}") });
    json!({ "status": { "conditions": [
        condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False"),
        condition("Ready", "True"),
    ] } })
}

/// All nodes report once.
async fn report(cluster: &Cluster, names: &[String]) {
    let groups = names.chunks(AT_ONCE);
    let pause = REPORT / u32::try_from(groups.len()).unwrap();
    for group in groups {
        let heartbeat = heartbeat(cluster.clock().now());
        for name in group {
            cluster
                .patch_status(Kind::Node, "", name, heartbeat.clone())
                .unwrap();
        }
        sleep(pause).await;
    }
}

/// Nodes that have the present version.
fn done(cluster: &Cluster) -> usize {
    cluster.with(|state| {
        let plan = state.get(Kind::Plan, NAMESPACE, "upgrade").unwrap();
        let hash = plan["status"]["latestHash"].as_str().unwrap_or_default();
        let is_done = |node: &&Value| node["metadata"]["labels"][DONE] == *hash;
        state.all(Kind::Node).filter(is_done).count()
    })
}

/// Resident memory of this process, of which most is the simulated cluster's.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
#[ignore = "takes minutes: just soak"]
fn a_day_of_heartbeats_and_four_roll_outs_with_five_thousand_nodes_leave_memory_as_it_was() {
    let version = Arc::new(AtomicU64::new(0));
    in_virtual_time(async {
        let mut options = options(1);
        (options.traced, options.economical, options.history) = (false, true, HISTORY);
        let cluster = cluster_with(options, NODES);
        let names: Vec<String> = (0..NODES).map(|number| format!("node-{number:04}")).collect();
        let channel = json!({ "version": null, "channel": "https://example.com/channel" });
        cluster.put(plan(NODES / 10, &channel)).unwrap();
        let offered = Arc::clone(&version);
        let channels = ChannelClient::with_answers(move |_, _| {
            let number = offered.load(Ordering::Relaxed);
            Ok(Offer::one(format!("v1.{number}.0")))
        });
        let day = async {
            let mut measured = Vec::new();
            for hour in 1..=HOURS {
                for _ in 0..12 {
                    report(&cluster, &names).await;
                }
                eprintln!(
                    "hour {hour:>2}: {:>5} nodes done, {} MiB resident",
                    done(&cluster),
                    resident()
                );
                if hour % HOURS_PER_VERSION == 0 {
                    assert_eq!(done(&cluster), NODES);
                    measured.push(resident());
                    version.fetch_add(1, Ordering::Relaxed);
                }
            }
            measured
        };
        let measured = Box::pin(control_during(&cluster, channels, day)).await;
        // Only from the second roll-out on, all nodes have been upgraded before, as in every later one.
        let (second, last) = (measured[1], measured[measured.len() - 1]);
        assert!(last <= second + second / 25, "memory grows: {measured:?} MiB");
    })
    .unwrap();
}
