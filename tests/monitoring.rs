//! Alerts and dashboard: promtool runs the tests of the rules, and a real Prometheus scrapes a real controller during a
//! roll-out and answers every query.

mod files;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, Patch, PatchParams};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use refit_rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::{Value, json};

use crate::drain::plans::DrainProcesses;
use crate::rehearse_real::application;
use crate::testenv::binaries::Binaries;
use crate::testenv::binaries::kubernetes_version;
use crate::testenv::channel::{Answer, ChannelServer};
use crate::testenv::context::TestContext;
use crate::testenv::kubelet::NodeSet;
use crate::testenv::process::{Process, Program};
use crate::testenv::wait::{self, SOON};
use crate::testenv::web::get;
use files::{alerts, dashboard_queries, file, selectors};

const LONG: Duration = Duration::from_secs(180);

#[test]
fn promtool_finds_that_each_alert_fires_when_it_should_and_not_before() {
    let programs = Binaries::for_monitoring().unwrap();
    let dir = tempfile::tempdir().unwrap();
    for path in ["deploy/monitoring/rules.yaml", "tests/monitoring/rules_test.yaml"] {
        let name = Path::new(path).file_name().unwrap();
        std::fs::copy(file(path), dir.path().join(name)).unwrap();
    }
    for arguments in [
        ["check", "rules", "rules.yaml"],
        ["test", "rules", "rules_test.yaml"],
    ] {
        let output = Command::new(programs.path("promtool"))
            .args(arguments)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    }
}

/// A Prometheus on a free port, which scrapes this address every second.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    async fn start(dir: &Path, scrapes: SocketAddr) -> Self {
        let folder = dir.join("prometheus");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(file("deploy/monitoring/rules.yaml"), folder.join("rules.yaml")).unwrap();
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                "job_name": "refit",
                "static_configs": [{
                    "targets": [scrapes.to_string()],
                    "labels": { "namespace": "system-upgrade", "pod": "controller-0" },
                }],
            }],
        });
        std::fs::write(folder.join("prometheus.yml"), config.to_string()).unwrap();
        let programs = tokio::task::spawn_blocking(Binaries::for_monitoring)
            .await
            .unwrap()
            .unwrap();
        // It takes no port 0. Somebody else may be faster to take a port that is free now, and then it ends.
        wait::eventually("Prometheus is ready", SOON, async || {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let process = Program::new("prometheus", programs.path("prometheus"), dir)
                .arg(format!(
                    "--config.file={}",
                    folder.join("prometheus.yml").display()
                ))
                .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .start()
                .unwrap();
            let started = Instant::now();
            while process.ended().is_none() && started.elapsed() < SOON {
                if matches!(get(address, "/-/ready").await, Ok((200, _))) {
                    return Ok(Self {
                        address,
                        _process: process,
                    });
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(process.log_tail(10))
        })
        .await
    }

    async fn ask(&self, path: &str) -> Value {
        let (_, text) = get(self.address, path).await.unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The number of series of a query.
    async fn series(&self, query: &str) -> usize {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let data = self.ask(&format!("/api/v1/query?query={query}")).await;
        data["result"].as_array().unwrap().len()
    }
}

/// A budget on one node that refuses, a node that fails, a Plan with a window, one with a channel.
fn plans(ctx: &TestContext, channel: &str) -> Vec<Value> {
    let plan = |name: &str, annotations: Value, more: Value| {
        let mut spec = json!({
            "concurrency": 1, "version": "v1.34.1", "serviceAccountName": "system-upgrade",
            "nodeSelector": { "matchLabels": ctx.node_labels() }, "upgrade": { "image": "example.com/upgrade" },
        });
        let fields = spec.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        fields.retain(|_, value| !value.is_null());
        let metadata = json!({ "name": name, "namespace": ctx.namespace(), "annotations": annotations });
        json!({ "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": metadata, "spec": spec })
    };
    vec![
        plan(
            "drains",
            json!({ "fake-kubelet/upgrade.run-delay": "2s" }),
            json!({ "drain": {}, "installs": "Kubernetes", "version": kubernetes_version() }),
        ),
        plan(
            "fails",
            json!({ "fake-kubelet/upgrade.exit-code": "1" }),
            json!({ "cordon": false }),
        ),
        plan(
            "windowed",
            json!({}),
            json!({ "window": { "days": ["monday"], "startTime": "03:00", "endTime": "04:00" } }),
        ),
        plan(
            "channelled",
            json!({}),
            json!({ "version": null, "channel": channel, "concurrency": 0 }),
        ),
    ]
}

#[tokio::test]
async fn prometheus_answers_every_query_of_dashboard_and_alerts_with_a_series() {
    let ctx = TestContext::new().await;
    let kubeconfig = ctx.write_kubeconfig("drains", &ctx.token("system-upgrade").await);
    let set = NodeSet::numbered(&ctx.node_name("n"), 4).task_runner(DrainProcesses { kubeconfig });
    let pods = Defaults {
        stop: Delay::millis(200),
        ..Defaults::default()
    };
    let _kubelet = ctx.run(set.pods(pods)).await;
    application(&ctx, "web", 4, json!({ "maxUnavailable": 4 })).await;
    application(&ctx, "db", 1, json!({ "maxUnavailable": 0 })).await;
    let channel = ChannelServer::start().await;
    let url = channel.url("/latest");
    channel.answers(
        "/latest",
        Answer::Redirect(302, channel.url("/releases/tag/v1.34.1")),
    );
    let controller = ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .with_metrics()
        .start();
    let address = controller.metrics_address().await;
    let prometheus = Prometheus::start(ctx.dir(), address).await;
    controller.leading().await;
    wait::eventually("the controller is ready", SOON, async || {
        match get(address, "/readyz").await {
            Ok((200, _)) => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
    for plan in plans(&ctx, &url) {
        ctx.plan(&plan.to_string()).await;
    }

    let of_alerts = alerts()
        .into_iter()
        .flat_map(|alert| selectors(alert["expr"].as_str().unwrap()));
    let mut open: BTreeSet<String> = dashboard_queries().into_iter().chain(of_alerts).collect();
    let all = open.len();
    let answered = async |open: &mut BTreeSet<String>| {
        let mut rest = BTreeSet::new();
        for query in std::mem::take(open) {
            if prometheus.series(&query).await == 0 {
                rest.insert(query);
            }
        }
        *open = rest;
    };
    // The budget refuses until it is seen to.
    wait::eventually("a drain waits for its budget", LONG, async || {
        answered(&mut open).await;
        match prometheus.series("refit_plan_pods_refusing_eviction > 0").await {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    let budgets = Api::<PodDisruptionBudget>::namespaced(ctx.client.clone(), ctx.namespace());
    let allow = json!({ "spec": { "maxUnavailable": 1 } });
    budgets
        .patch("db", &PatchParams::default(), &Patch::Merge(allow))
        .await
        .unwrap();
    wait::eventually("every query has had a series", LONG, async || {
        answered(&mut open).await;
        if open.is_empty() {
            Ok(())
        } else {
            Err(format!("{open:#?} of {all}"))
        }
    })
    .await;
    let done =
        "refit_plan_nodes{plan=\"drains\",phase=\"Done\"} == 4 and on (plan) refit_plan_evictions_total >= 1";
    wait::eventually(
        "the roll-out is complete, and evictions are counted",
        LONG,
        async || match prometheus.series(done).await {
            0 => Err(get(address, "/metrics").await.unwrap().1),
            _ => Ok(()),
        },
    )
    .await;

    // The first query is the state of each Plan.
    let state = dashboard_queries().swap_remove(0);
    for (plan, expected) in [("drains", 0), ("fails", 3)] {
        let query = format!("({state}) == {expected} and on (plan) refit_plan_slots{{plan=\"{plan}\"}}");
        wait::eventually(&format!("the state of {plan}"), LONG, async || {
            match prometheus.series(&query).await {
                1 => Ok(()),
                found => Err(format!("{found} of {query}")),
            }
        })
        .await;
    }

    let (status, text) = get(address, "/metrics").await.unwrap();
    assert!(status == 200 && text.ends_with("# EOF\n"), "{text}");
    // What Prometheus took in is what there was, in the form of OpenMetrics.
    let targets = prometheus.ask("/api/v1/targets?state=active").await;
    let target = &targets["activeTargets"][0];
    assert_eq!(
        (&target["health"], &target["lastError"]),
        (&json!("up"), &json!(""))
    );
    let metadata = prometheus
        .ask("/api/v1/metadata?metric=refit_plan_oldest_cordon_timestamp_seconds")
        .await;
    assert_eq!(
        metadata["refit_plan_oldest_cordon_timestamp_seconds"][0]["unit"], "seconds",
        "{metadata}"
    );
    let firing = prometheus.ask("/api/v1/rules?type=alert").await;
    let rules = firing["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), alerts().len());
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}

/// Followers serve probes and their own metrics; the leader says that it leads.
#[tokio::test]
async fn a_follower_is_ready_and_exactly_one_replica_leads() {
    let ctx = TestContext::new().await;
    let _kubelet = ctx.run_nodes(1).await;
    let replica = |name: &str| {
        let setup = ctx.controller().replica(name).with_metrics();
        setup.lease_times(["20s", "15s", "500ms"])
    };
    let leader = replica("one").start();
    leader.leading().await;
    let follower = replica("two").start();
    let (first, second) = (leader.metrics_address().await, follower.metrics_address().await);
    for address in [first, second] {
        for path in ["/livez", "/readyz"] {
            wait::eventually(&format!("{path} of {address} is ok"), SOON, async || {
                match get(address, path).await {
                    Ok((200, _)) => Ok(()),
                    answer => Err(format!("{answer:?}")),
                }
            })
            .await;
        }
    }
    let leads = async |address| {
        get(address, "/metrics")
            .await
            .unwrap()
            .1
            .contains("\nrefit_leader 1.0\n")
    };
    assert!(leads(first).await && !leads(second).await);
    leader.kill();
    wait::eventually("the follower leads and is ready", SOON, async || {
        let (code, _) = get(second, "/readyz").await?;
        if leads(second).await && code == 200 {
            Ok(())
        } else {
            Err(code.to_string())
        }
    })
    .await;
}

#[tokio::test]
async fn an_address_that_is_taken_ends_the_program_before_it_leads() {
    let ctx = TestContext::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let controller = ctx
        .controller()
        .env("REFIT_METRICS_BIND_ADDRESS", &address)
        .start();
    let status = controller.ended(SOON).await;
    assert_eq!(status.code(), Some(1));
    let log = controller.log();
    assert!(
        log.contains("cannot listen on") && log.contains(&address),
        "{log}"
    );
    assert!(!log.contains("leading"), "{log}");
}
