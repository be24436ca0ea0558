//! The page of a simulated cluster, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use refit_formats::page::{Mood, Row, RowState};
use refit_rehearse::json::{Value, json};
use refit_rehearse::server::Transport;
use refit_rehearse::{Cluster, Kind, Options, in_virtual_time};
use refit_view::{PlanOverview, Scope, Snapshot};
use tokio::sync::watch;
use tower::{BoxError, ServiceExt as _};

use super::document::document;
use super::follow::Follower;
use super::server::Live;
use refit_api::PlanState;

const NAMESPACE: &str = "system-upgrade";

fn plan(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": name, "namespace": NAMESPACE, "generation": 1 },
        "spec": { "upgrade": { "image": "i" }, "nodeSelector": {} },
        "status": status,
    })
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "nodeInfo": { "kubeletVersion": "v1.33.4" } },
    })
}

/// A status with these entries of `active`, and why the others wait.
fn status(active: &Value, waits: &str) -> Value {
    json!({
        "observedGeneration": 1, "latestHash": "h", "latestVersion": "v1.34.1", "active": active,
        "nodes": { "selected": 3, "done": 0, "applying": 1, "waiting": 2, "failed": 0, "disabled": 0 },
        "conditions": [
            { "type": "Validated", "status": "True" }, { "type": "LatestResolved", "status": "True" },
            { "type": "Complete", "status": "False", "reason": waits, "message": "Node b: it is not Ready" },
        ],
        "about": [{ "kind": "Node", "name": "b" }],
    })
}

fn cluster() -> Cluster {
    let mut options = Options::new(1, "2026-01-05T09:00:00Z".parse().unwrap());
    options.history = 1_000;
    let cluster = Cluster::new(options);
    for name in ["a", "b", "c"] {
        cluster.put(node(name)).unwrap();
    }
    let active = json!([
        { "name": "a", "phase": "Upgrading", "since": "2026-01-05T08:55:00Z" },
        { "name": "b", "phase": "Waiting", "reason": "NodeNotReady", "message": "the node is not Ready" },
    ]);
    let status = status(&active, "ControlPlaneQuorum");
    cluster.put(plan("p", &status)).unwrap();
    cluster
}

/// A user, who reads what the controller does not.
fn viewer(cluster: &Cluster) -> Client {
    Client::new(Transport::of_user(cluster, "viewer"), "default")
}

async fn read(cluster: &Cluster, client: &Client) -> Snapshot {
    let scope = Scope {
        namespace: None,
        fallback_namespace: NAMESPACE.to_owned(),
    };
    Snapshot::read_plans(client, &scope, cluster.clock().now())
        .await
        .unwrap()
}

fn row<'l>(live: &'l Live, node: &str) -> &'l Row {
    let row = live.rows.iter().find(|row| row.node == node);
    row.unwrap_or_else(|| panic!("no row of {node}"))
}

/// Follows the cluster while `test` looks at what is published.
async fn follow<T>(
    cluster: &Cluster,
    client: Client,
    test: impl AsyncFnOnce(watch::Receiver<Arc<Live>>) -> T,
) -> T {
    let read = read(cluster, &client).await;
    let mut follower = Follower::new(client, cluster.clock(), read);
    let first = follower.first().await.unwrap();
    let (publish, live) = watch::channel(Arc::new(first));
    tokio::select! {
        () = follower.run(&publish) => unreachable!("it has no end"),
        tested = test(live) => tested,
    }
}

#[test]
fn the_page_has_the_reasons_and_remedies_of_refit_status() {
    in_virtual_time(async {
        let cluster = cluster();
        let client = viewer(&cluster);
        let snapshot = {
            let scope = Scope::default();
            Snapshot::read(&client, &scope, cluster.clock().now())
                .await
                .unwrap()
        };
        let document = document(&snapshot, &std::collections::BTreeMap::new(), None);
        let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
        let (card, obstacle) = (&document.plans[0], view.obstacle.as_ref().unwrap());
        let held = card.held.as_ref().unwrap();
        assert_eq!(held.reason, obstacle.reason);
        assert_eq!(held.message, obstacle.says());
        assert_eq!(held.remedy, view.remedy);
        assert_eq!(card.state, view.state());
        assert_eq!((card.selected, card.waiting, card.applying), (3, 2, 1));
        assert_eq!(document.rows.len(), view.nodes.len());
        for (row, node) in document.rows.iter().zip(&view.nodes) {
            assert_eq!(
                (&row.node, &row.reason, &row.message),
                (&node.name, &node.reason, &node.message)
            );
        }
        let from = document.rows[0].spans[0].from;
        assert_eq!(
            from,
            "2026-01-05T08:55:00Z"
                .parse::<jiff::Timestamp>()
                .unwrap()
                .as_second()
        );
        assert_eq!(document.versions[0].nodes, 3);
    })
    .unwrap();
}

#[test]
fn a_node_has_a_span_for_each_phase_and_ends_as_done_released_or_failed() {
    in_virtual_time(async {
        let cluster = cluster();
        let client = viewer(&cluster);
        follow(&cluster, client, async |mut live| {
            assert_eq!(row(&live.borrow(), "b").state, RowState::Waiting);
            let active = json!([
                { "name": "a", "phase": "Settling" }, { "name": "b", "phase": "Draining" }, { "name": "c", "phase": "Upgrading" },
            ]);
            let patch = |active: &Value| json!({ "status": status(active, "SyncJob") });
            cluster.patch_status(Kind::Plan, NAMESPACE, "p", patch(&active)).unwrap();
            live.changed().await.unwrap();
            assert_eq!(row(&live.borrow(), "b").state, RowState::Applying);
            let labels = json!({ "metadata": { "labels": { "plan.upgrade.cattle.io/p": "h" } } });
            cluster.patch(Kind::Node, "", "a", labels).unwrap();
            let active = json!([{ "name": "c", "phase": "Failed", "reason": "JobFailed", "message": "exit code 1" }]);
            cluster.patch_status(Kind::Plan, NAMESPACE, "p", patch(&active)).unwrap();
            live.changed().await.unwrap();

            let live = live.borrow();
            let a = row(&live, "a");
            let phases: Vec<_> = a.spans.iter().map(|span| (&*span.phase, span.to.is_some())).collect();
            assert_eq!((a.state, phases), (RowState::Done, vec![("Upgrading", true), ("Settling", true)]));
            assert_eq!(row(&live, "b").state, RowState::Released, "it has no label");
            let c = row(&live, "c");
            assert_eq!((c.state, c.message.as_deref()), (RowState::Failed, Some("exit code 1")));
        })
        .await;
    })
    .unwrap();
}

#[test]
fn the_card_lists_what_nodes_wait_for_and_for_how_long() {
    in_virtual_time(async {
        let cluster = cluster();
        follow(&cluster, viewer(&cluster), async |mut live| {
            tokio::time::sleep(Duration::from_millis(30_500)).await;
            let active =
                json!([{ "name": "a", "phase": "Draining", "reason": "PodWaiting", "message": "an image" }]);
            let status = json!({ "status": status(&active, "SyncJob") });
            cluster.patch_status(Kind::Plan, NAMESPACE, "p", status).unwrap();
            live.changed().await.unwrap();
            live.changed().await.unwrap();
            let live = live.borrow();
            let waits = live.document.plans[0].waits.iter();
            let waits: Vec<_> = waits
                .map(|wait| {
                    (
                        &*wait.reason,
                        wait.seconds,
                        wait.nodes,
                        wait.is_over,
                        &*wait.message,
                    )
                })
                .collect();
            assert_eq!(
                waits,
                [
                    ("PodWaiting", waits[0].1, Some(1), false, "an image"),
                    ("NodeNotReady", 30, Some(1), true, "the node is not Ready"),
                ]
            );
        })
        .await;
    })
    .unwrap();
}

#[test]
fn the_page_of_a_cluster_has_a_verdict_figures_waves_and_what_takes_long() {
    in_virtual_time(async {
        let cluster = cluster();
        let client = viewer(&cluster);
        follow(&cluster, client, async |mut live| {
            let active = json!([{ "name": "a", "phase": "Upgrading", "since": "2026-01-05T08:55:00Z" }]);
            let mut status = status(&active, "SyncJob");
            status["wave"] = json!({
                "index": 0, "name": "canary", "hash": "h", "phase": "Soaking", "since": "2026-01-05T08:30:00Z", "until": "2026-01-05T09:30:00Z",
            });
            cluster.patch_status(Kind::Plan, NAMESPACE, "p", json!({ "status": status })).unwrap();
            live.changed().await.unwrap();
            let live = live.borrow();
            let document = &live.document;
            let verdict = document.verdict.as_ref().unwrap();
            assert_eq!((verdict.mood, verdict.headline.as_str()), (Mood::Running, "Running: 0 of 3 nodes are done"));
            let bands: Vec<_> = document.bands.iter().map(|band| band.label.as_str()).collect();
            assert!(bands.contains(&"canary · soak 1h"), "{bands:?}");
            assert_eq!((document.figures.most_down, document.plans[0].allowed), (1, 0), "no concurrency");
            assert_eq!(document.figures.seconds, Some(live.document.now.as_second() - row(&live, "a").spans[0].from));
            assert_eq!(document.chain.last().unwrap().nodes, ["a"]);
            assert_eq!(row(&live, "a").wave.as_deref(), Some("canary"));
        })
        .await;
    })
    .unwrap();
}

#[test]
fn a_new_plan_is_shown_and_a_deleted_one_is_not() {
    in_virtual_time(async {
        let cluster = cluster();
        let client = viewer(&cluster);
        follow(&cluster, client, async |mut live| {
            let other = status(&json!([{ "name": "a", "phase": "Pending" }]), "SyncJob");
            cluster.put(plan("q", &other)).unwrap();
            cluster.delete(Kind::Plan, NAMESPACE, "p").unwrap();
            live.changed().await.unwrap();
            let live = live.borrow();
            let plans: Vec<_> = live
                .document
                .plans
                .iter()
                .map(|plan| (&*plan.name, plan.state))
                .collect();
            assert_eq!(plans, [("q", PlanState::Running)]);
            let rows: Vec<_> = live.rows.iter().map(|row| (&*row.plan, &*row.node)).collect();
            assert_eq!(rows, [("q", "a")]);
        })
        .await;
    })
    .unwrap();
}

/// A client that reaches the cluster while `is_up`.
fn unsteady(cluster: &Cluster, is_up: &Arc<AtomicBool>) -> Client {
    let (inner, is_up) = (viewer(cluster), Arc::clone(is_up));
    let transport = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, is_up) = (inner.clone(), Arc::clone(&is_up));
        async move {
            if !is_up.load(Ordering::Relaxed) {
                return Err::<_, BoxError>("nobody is there".into());
            }
            Ok(inner.send(request).await?)
        }
    });
    Client::new(transport.map_err(BoxError::from), "default")
}

#[test]
fn a_page_that_may_be_old_says_so_until_the_watches_are_back() {
    in_virtual_time(async {
        let cluster = cluster();
        let is_up = Arc::new(AtomicBool::new(true));
        let client = unsteady(&cluster, &is_up);
        follow(&cluster, client, async |mut live| {
            assert_eq!(live.borrow().document.stale, None);
            is_up.store(false, Ordering::Relaxed);
            // The server ends each watch after some minutes.
            tokio::time::sleep(Duration::from_secs(330)).await;
            let stale = live.borrow().document.stale.clone().unwrap();
            assert!(
                stale.contains("may be old") && stale.contains("nobody is there"),
                "{stale}"
            );
            let missed = status(&json!([{ "name": "c", "phase": "Draining" }]), "SyncJob");
            cluster
                .patch_status(Kind::Plan, NAMESPACE, "p", json!({ "status": missed }))
                .unwrap();
            is_up.store(true, Ordering::Relaxed);
            let healed = |live: &Arc<Live>| live.document.stale.is_none();
            let live = live.wait_for(healed).await.unwrap();
            assert_eq!(row(&live, "c").state, RowState::Applying);
            assert_eq!(row(&live, "a").state, RowState::Released);
        })
        .await;
    })
    .unwrap();
}

/// A client that may only read some kinds.
fn restricted(cluster: &Cluster, refused: &'static [&'static str]) -> Client {
    let inner = viewer(cluster);
    let transport = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let inner = inner.clone();
        async move {
            let uri = request.uri().to_string();
            let Some(what) = refused.iter().find(|what| uri.contains(*what)) else {
                return Ok::<_, BoxError>(inner.send(request).await?);
            };
            let message = format!("{what} is forbidden: User \"u\" cannot do that");
            let status = json!({ "kind": "Status", "status": "Failure", "message": message.as_str(), "reason": "Forbidden", "code": 403 });
            let body = kube::client::Body::from(status.to_string().into_bytes());
            Ok(http::Response::builder().status(403).body(body)?)
        }
    });
    Client::new(transport, "default")
}

#[test]
fn what_may_not_be_read_is_a_note_and_the_rest_is_shown() {
    in_virtual_time(async {
        let cluster = cluster();
        let client = restricted(&cluster, &["/nodes", "/pods"]);
        follow(&cluster, client, async |live| {
            let live = live.borrow();
            let notes = live.document.notes.join("\n");
            assert!(
                notes.contains("Not shown: Nodes cannot be read: /nodes is forbidden"),
                "{notes}"
            );
            assert!(
                notes.contains("pods in namespace system-upgrade cannot be read"),
                "{notes}"
            );
            assert_eq!(live.document.stale, None, "nothing is shown that may be old");
            assert_eq!(live.rows.len(), 2);
        })
        .await;
    })
    .unwrap();
}

#[test]
fn plans_that_may_be_listed_and_not_watched_are_an_error() {
    in_virtual_time(async {
        let cluster = cluster();
        let read = read(&cluster, &viewer(&cluster)).await;
        let client = restricted(&cluster, &["watch=true"]);
        let mut follower = Follower::new(client, cluster.clock(), read);
        let Err(error) = follower.first().await else {
            panic!("no error")
        };
        assert!(
            error
                .to_string()
                .contains("Plans cannot be watched: watch=true is forbidden"),
            "{error}"
        );
    })
    .unwrap();
}
