//! Recording finished Jobs while nodes come and go, and what a successor does when the controller dies before it has
//! finished.

use std::collections::{BTreeMap, BTreeSet};

use super::rollout::{DONE, NAMESPACE, control, is_complete, node, options, plan};
use refit_api::crd;
use refit_api::names::ANNOTATION_LABELLED_JOBS;
use refit_rehearse::json::{Value, json};
use refit_rehearse::write::merge;
use refit_rehearse::{Cluster, Kind, State, in_virtual_time};

/// Nodes that finish at once, so that their Jobs are recorded one after another.
const NODES: usize = 8;
/// The node whose Job is recorded last.
const LAST: &str = "node-0007";

fn cluster(nodes: usize, concurrency: usize) -> Cluster {
    let cluster = Cluster::new(options(1));
    cluster.put(serde_json::to_value(crd::plans()).unwrap()).unwrap();
    for number in 0..nodes {
        cluster.put(node(&format!("node-{number:04}"))).unwrap();
    }
    cluster.put(plan(concurrency, &json!({}))).unwrap();
    cluster
}

fn jobs<'a>(state: &'a State, node: &'a str) -> impl Iterator<Item = &'a Value> {
    state
        .all(Kind::Job)
        .filter(move |job| job["metadata"]["labels"]["upgrade.cattle.io/node"] == node)
}

fn uid_of_job(cluster: &Cluster, node: &str) -> String {
    cluster.with(|state| {
        let uids: Vec<_> = jobs(state, node)
            .map(|job| job["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(uids.len(), 1, "{uids:?}");
        uids[0].clone()
    })
}

fn check_job_marked(job: &Value) -> bool {
    !job["spec"]["ttlSecondsAfterFinished"].is_null()
}

fn has_succeeded(job: &Value) -> bool {
    job["status"]["succeeded"] == 1
        && job["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Complete")
}

fn is_labelled(state: &State, node: &str) -> bool {
    let node = state.get(Kind::Node, "", node).unwrap();
    node["metadata"]["labels"][DONE].is_string()
}

/// Nodes with a slot in stored status.
fn slots(state: &State) -> BTreeSet<String> {
    let plan = state.get(Kind::Plan, NAMESPACE, "upgrade").unwrap();
    let active = plan["status"]["active"].as_array().into_iter().flatten();
    let slots = active.filter(|node| node["phase"] != "Waiting" && node["uid"].is_string());
    slots
        .map(|node| node["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Values of the annotation `refit.rs/labelled-jobs`, by node.
fn labelled_jobs(state: &State) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let nodes = state.all(Kind::Node);
    let values = nodes.filter_map(|node| {
        let value = &node["metadata"]["annotations"][ANNOTATION_LABELLED_JOBS];
        Some((text(&node["metadata"]["name"])?, text(value)?))
    });
    values.collect()
}

fn all_marked(state: &State) -> bool {
    state.all(Kind::Job).all(check_job_marked)
}

/// Number of events for the finished Job of this node.
fn completions(cluster: &Cluster, node: &str) -> usize {
    let text = format!("Job completed on Node {node}");
    cluster.with(|state| {
        state
            .all(Kind::Event)
            .filter(|event| event["message"] == text.as_str())
            .count()
    })
}

/// Kills the controller when all nodes are done in status, and the last Job is not recorded.
async fn dies_before_the_last_mark(cluster: &Cluster) -> String {
    Box::pin(control(cluster, |state| {
        is_complete(state) && jobs(state, LAST).any(|job| !check_job_marked(job))
    }))
    .await;
    cluster.with(|state| {
        assert!(is_labelled(state, LAST) && slots(state).is_empty());
    });
    uid_of_job(cluster, LAST)
}

fn take_label(cluster: &Cluster) {
    let patch = json!({ "metadata": { "labels": { DONE: null } } });
    cluster.patch(Kind::Node, "", LAST, patch).unwrap();
}

#[test]
fn a_label_that_is_removed_after_a_crash_has_the_node_upgraded_again_once_though_its_job_is_not_marked() {
    in_virtual_time(async {
        let cluster = cluster(NODES, NODES);
        let first = dies_before_the_last_mark(&cluster).await;
        take_label(&cluster);
        Box::pin(control(&cluster, |state| {
            is_labelled(state, LAST) && is_complete(state) && all_marked(state)
        }))
        .await;
        let second = uid_of_job(&cluster, LAST);
        assert_ne!(first, second, "labelled without a run");
        cluster.with(|state| {
            assert!(jobs(state, LAST).all(has_succeeded));
            assert_eq!(state.all(Kind::Job).count(), NODES, "the other nodes ran once");
        });
        assert_eq!(completions(&cluster, LAST), 2, "each run has its event");
    })
    .unwrap();
}

#[test]
fn a_label_that_is_removed_after_a_crash_has_the_node_upgraded_again_though_its_slot_is_still_stored() {
    in_virtual_time(async {
        let cluster = cluster(NODES, NODES);
        Box::pin(control(&cluster, |state| is_labelled(state, LAST))).await;
        cluster.with(|state| assert!(slots(state).contains(LAST), "killed between the two writes"));
        let first = uid_of_job(&cluster, LAST);
        take_label(&cluster);
        Box::pin(control(&cluster, |state| {
            is_labelled(state, LAST) && is_complete(state) && all_marked(state)
        }))
        .await;
        assert_ne!(first, uid_of_job(&cluster, LAST), "labelled without a run");
        cluster.with(|state| {
            assert_eq!(state.all(Kind::Job).count(), NODES, "the other nodes ran once");
        });
        assert_eq!(completions(&cluster, LAST), 2, "each run has its event");
    })
    .unwrap();
}

#[test]
fn a_deleted_plan_leaves_the_annotations_of_all_nodes_and_the_entries_of_others_stay() {
    in_virtual_time(async {
        const ELSEWHERE: &str = "elsewhere/upgrade/4be45c3c-7d4e-4c0c-9a37-0a1f3a2d9a55";
        let cluster = cluster(40, 40);
        let annotations = json!({ ANNOTATION_LABELLED_JOBS: ELSEWHERE });
        let patch = json!({ "metadata": { "annotations": annotations } });
        cluster.patch(Kind::Node, "", LAST, patch).unwrap();
        Box::pin(control(&cluster, |state| is_complete(state) && all_marked(state))).await;
        let annotated = cluster.with(|state| labelled_jobs(state));
        assert_eq!(annotated.len(), 40);
        let uid = uid_of_job(&cluster, LAST);
        assert_eq!(annotated[LAST], format!("{NAMESPACE}/upgrade/{uid},{ELSEWHERE}"));

        let mut other = plan(1, &json!({ "nodeSelector": { "matchLabels": { "no": "node" } } }));
        merge(&mut other, &json!({ "metadata": { "name": "other" } }));
        cluster.put(other).unwrap();
        cluster.delete(Kind::Plan, NAMESPACE, "upgrade").unwrap();
        Box::pin(control(&cluster, |state| labelled_jobs(state).len() == 1)).await;
        cluster.with(|state| assert_eq!(labelled_jobs(state)[LAST], ELSEWHERE));
    })
    .unwrap();
}

#[test]
fn a_successor_marks_what_is_left_and_upgrades_nothing_again() {
    in_virtual_time(async {
        let cluster = cluster(NODES, NODES);
        let first = dies_before_the_last_mark(&cluster).await;
        Box::pin(control(&cluster, all_marked)).await;
        assert_eq!(uid_of_job(&cluster, LAST), first);
        assert_eq!(completions(&cluster, LAST), 1);
    })
    .unwrap();
}

#[test]
fn a_crash_between_the_success_of_a_job_and_the_label_of_its_node_loses_no_result() {
    in_virtual_time(async {
        let cluster = cluster(NODES, NODES);
        Box::pin(control(&cluster, |state| {
            jobs(state, LAST).any(has_succeeded) && !is_labelled(state, LAST)
        }))
        .await;
        let first = uid_of_job(&cluster, LAST);
        cluster.with(|state| assert!(slots(state).contains(LAST)));
        Box::pin(control(&cluster, |state| is_complete(state) && all_marked(state))).await;
        assert_eq!(uid_of_job(&cluster, LAST), first, "upgraded again");
        assert_eq!(completions(&cluster, LAST), 1);
    })
    .unwrap();
}

#[test]
fn stored_status_names_each_node_before_its_job_is_there() {
    in_virtual_time(async {
        let cluster = cluster(60, 20);
        let mut seen = BTreeSet::new();
        let mut held = BTreeSet::new();
        Box::pin(control(&cluster, |state| {
            let slots = slots(state);
            for job in state.all(Kind::Job) {
                let uid = job["metadata"]["uid"].as_str().unwrap();
                if seen.insert(uid.to_owned()) {
                    let node = job["metadata"]["labels"]["upgrade.cattle.io/node"]
                        .as_str()
                        .unwrap();
                    assert!(slots.contains(node), "{slots:?}: {node}");
                }
            }
            held.insert(slots.len());
            is_complete(state) && all_marked(state)
        }))
        .await;
        assert_eq!((seen.len(), held.last()), (60, Some(&20)));
    })
    .unwrap();
}
