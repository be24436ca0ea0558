//! What a thousand nodes cost. Run by hand: `cargo test --test main -- --ignored --nocapture bench`.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams, PostParams};
use refit::rehearse::podlife::{Defaults, Delay};
use serde_json::json;

use crate::support::kubelet::{FakeKubelet, NodeSet};
use crate::support::wait::eventually;
use crate::support::world::World;

/// User and system time of the thread of the fake kubelets, in seconds.
fn cpu() -> f64 {
    let mut ticks = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        if std::fs::read_to_string(task.join("comm")).unwrap().trim() != "fake-kubelets" {
            continue;
        }
        let stat = std::fs::read_to_string(task.join("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        ticks += fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    }
    ticks / 100.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn a_thousand_nodes_run_a_thousand_jobs() {
    let count: usize = std::env::var("NODES").map_or(1_000, |count| count.parse().unwrap());
    let world = World::new().await;
    let began = Instant::now();
    let defaults = Defaults {
        start: Delay::millis(100),
        run: Delay::millis(1_000),
        ..Defaults::default()
    };
    let nodes = NodeSet::numbered(
        &std::env::var("BENCH_PREFIX").unwrap_or_else(|_| world.node_name("n")),
        count,
    )
    .labels(world.node_labels())
    .zones(3)
    .pods(defaults);
    let kubelets = FakeKubelet::start(&world.bed.kubelet_config().await, nodes).await;
    eprintln!(
        "{count} nodes after {:.1} s, {:.1} s of CPU",
        began.elapsed().as_secs_f64(),
        cpu()
    );

    if let Ok(command) = std::env::var("BENCH_RUN") {
        let before = cpu();
        let status = tokio::process::Command::new("sh")
            .args(["-c", &command])
            .status()
            .await
            .unwrap();
        eprintln!("{command}: {status}, {:.2} s of CPU", cpu() - before);
        return;
    }
    let (before, began) = (cpu(), Instant::now());
    let jobs: Api<Job> = world.jobs();
    let slots = std::sync::Arc::new(tokio::sync::Semaphore::new(100));
    let mut tasks = tokio::task::JoinSet::new();
    let job = |node: &str| -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": format!("j-{node}")},
            "spec": {"backoffLimit": 0, "template": {"spec": {
                "restartPolicy": "Never",
                "tolerations": [{"operator": "Exists"}],
                "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [{"name": "upgrade", "image": "x"}],
            }}},
        }))
        .unwrap()
    };
    for index in 0..count {
        let node = world.node_name(&format!("n{index:04}"));
        let (jobs, job, slots) = (jobs.clone(), job(&node), slots.clone());
        tasks.spawn(async move {
            let _slot = slots.acquire().await.unwrap();
            jobs.create(&PostParams::default(), &job).await.unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
        });
    }
    while tasks.join_next().await.is_some() {}
    eventually("all Jobs have succeeded", Duration::from_secs(300), async || {
        let list = jobs.list(&ListParams::default()).await.unwrap();
        let done = list
            .items
            .iter()
            .filter(|job| job.status.as_ref().unwrap().succeeded == Some(1))
            .count();
        if done == count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        Err(format!("{done}"))
    })
    .await;
    eprintln!(
        "{count} pods after {:.1} s, {:.2} s of CPU",
        began.elapsed().as_secs_f64(),
        cpu() - before
    );
    let (before, idle) = (cpu(), Duration::from_secs(10));
    tokio::time::sleep(idle).await;
    eprintln!(
        "{count} idle nodes: {:.2} s of CPU in {} s",
        cpu() - before,
        idle.as_secs()
    );
    for index in [0, count - 1] {
        assert_eq!(
            kubelets
                .runs(&world.node_name(&format!("n{index:04}")), "upgrade")
                .await,
            1
        );
    }
}
