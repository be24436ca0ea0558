//! What a drain does for load balancers, autoscalers and the pods that it evicts; and images that are there before it.

use super::scenario::{NAMESPACE, Scenario};
use refit_api::{DrainSpec, MarkForm, NodeMark, Plan};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};

const PENDING: &str = "pending.refit.rs/p";

fn draining(change: impl FnOnce(&mut DrainSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = None;
        change(spec.drain.get_or_insert_default());
    })
}

fn stored(scenario: &Scenario, name: &str) -> Value {
    scenario
        .cluster
        .with(|state| state.get(Kind::Node, "", name).unwrap().clone())
}

fn marking() -> Plan {
    draining(|drain| {
        drain.exclude_from_load_balancers = Some(true);
        drain.prevent_scale_down = Some(true);
    })
}

/// The values of a node's marks, in the order of [`NodeMark::OF_DRAIN`].
fn marks(scenario: &Scenario, node: &str) -> [Option<String>; 3] {
    let node = stored(scenario, node);
    NodeMark::OF_DRAIN.map(|mark| {
        let of_kind = if mark.form() == MarkForm::Label {
            "labels"
        } else {
            "annotations"
        };
        node["metadata"][of_kind][mark.key()].as_str().map(str::to_owned)
    })
}

fn all(value: &str) -> [Option<String>; 3] {
    NodeMark::OF_DRAIN.map(|_| Some(value.to_owned()))
}

/// The nodes that have the taint of nodes that are still to be upgraded.
fn pending(scenario: &Scenario) -> Vec<String> {
    scenario.cluster.with(|state| {
        let has_taint = |node: &&Value| {
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            taints.into_iter().any(|taint| {
                taint["key"] == PENDING
                    && taint["effect"] == "PreferNoSchedule"
                    && taint["value"] == NAMESPACE
            })
        };
        let nodes = state.all(Kind::Node).filter(has_taint);
        nodes
            .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    })
}

#[test]
fn marks_for_other_programs_are_there_from_the_cordon_until_the_node_is_uncordoned() {
    let mut scenario = Scenario::with(&["a", "b"], marking());
    scenario.settle();
    assert!(scenario.is_cordoned("a"));
    assert_eq!(
        (marks(&scenario, "a"), marks(&scenario, "b")),
        (all("true"), [None, None, None])
    );
    scenario.restart();
    scenario.succeed("a");
    scenario.settle();
    assert_eq!(
        (marks(&scenario, "a"), marks(&scenario, "b")),
        ([None, None, None], all("true"))
    );
    scenario.roll_out();
    assert_eq!(marks(&scenario, "b"), [None, None, None]);
    scenario.assert_over();
}

#[test]
fn a_mark_that_somebody_has_made_stays() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.label("a", NodeMark::ExcludeFromLoadBalancers.key(), Some("mine"));
    scenario.annotate(Kind::Node, "a", NodeMark::DoNotDisrupt.key(), Some("mine"));
    scenario.apply_and_settle(marking());
    let mine = Some("mine".to_owned());
    assert_eq!(
        marks(&scenario, "a"),
        [mine.clone(), Some("true".to_owned()), mine.clone()]
    );
    scenario.roll_out();
    assert_eq!(marks(&scenario, "a"), [mine.clone(), None, mine]);
    scenario.assert_over();
}

#[test]
fn a_node_that_a_person_uncordons_and_one_whose_plan_is_deleted_lose_their_marks() {
    for deletes in [false, true] {
        let mut scenario = Scenario::with(&["a"], marking());
        scenario.settle();
        assert_eq!(marks(&scenario, "a"), all("true"));
        if deletes {
            scenario.delete(Kind::Plan, "p");
        } else {
            scenario.cordon("a", false);
        }
        scenario.settle();
        scenario.rest();
        assert_eq!(marks(&scenario, "a"), [None, None, None], "deleted: {deletes}");
    }
}

#[test]
fn a_failed_node_keeps_its_marks_with_its_cordon() {
    let mut scenario = Scenario::with(&["a"], marking());
    scenario.fail("a");
    scenario.settle();
    assert!(scenario.is_cordoned("a"));
    assert_eq!(marks(&scenario, "a"), all("true"));
    scenario.retry("a", "p");
    scenario.roll_out();
    assert_eq!(marks(&scenario, "a"), [None, None, None]);
    scenario.assert_over();
}

#[test]
fn nodes_that_are_still_to_be_upgraded_have_a_taint_from_the_first_start_until_they_are_done() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    let theirs = json!([{ "key": "theirs", "value": "x", "effect": "PreferNoSchedule", "timeAdded": "2026-01-01T09:00:00Z" }]);
    scenario.patch(Kind::Node, "c", &json!({ "spec": { "taints": theirs } }));
    let avoiding = draining(|drain| drain.avoid_pending_nodes = Some(true));
    scenario.apply(Plan {
        spec: refit_api::PlanSpec {
            suspend: Some(true),
            ..avoiding.spec.clone()
        },
        ..avoiding.clone()
    });
    scenario.pass_secs(10);
    assert_eq!(
        pending(&scenario),
        Vec::<String>::new(),
        "no node is better than another"
    );
    scenario.edit("p", |spec| spec.suspend = None);
    scenario.pass_secs(10);
    assert_eq!(pending(&scenario), ["a", "b", "c"]);
    let first = scenario.slots("p")[0].clone();
    let others: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .filter(|name| *name != first)
        .collect();
    scenario.succeed(&first);
    scenario.pass_secs(10);
    assert_eq!(pending(&scenario), others);
    scenario.edit("p", |spec| spec.suspend = Some(true));
    scenario.pass_secs(10);
    assert_eq!(pending(&scenario), Vec::<String>::new());
    scenario.edit("p", |spec| spec.suspend = None);
    scenario.restart();
    scenario.pass_secs(10);
    assert_eq!(pending(&scenario), others);
    scenario.roll_out();
    scenario.pass_secs(30);
    assert_eq!(pending(&scenario), Vec::<String>::new());
    assert_eq!(stored(&scenario, "c")["spec"]["taints"], theirs);
    scenario.assert_over();
}

#[test]
fn the_taint_goes_with_the_plan_or_the_field_and_that_of_another_namespace_stays() {
    for deletes in [false, true] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        let theirs = json!([{ "key": PENDING, "value": "elsewhere", "effect": "PreferNoSchedule" }]);
        scenario.patch(Kind::Node, "b", &json!({ "spec": { "taints": theirs } }));
        scenario.apply(draining(|drain| drain.avoid_pending_nodes = Some(true)));
        scenario.pass_secs(10);
        // The key is taken on `b`; a node has one taint of a key and effect.
        assert_eq!(pending(&scenario), ["a"]);
        if deletes {
            scenario.delete(Kind::Plan, "p");
        } else {
            scenario.edit("p", |spec| spec.drain = Some(DrainSpec::default()));
        }
        scenario.pass_secs(30);
        assert_eq!(pending(&scenario), Vec::<String>::new(), "deleted: {deletes}");
        assert_eq!(stored(&scenario, "b")["spec"]["taints"], theirs);
    }
}

#[test]
fn the_next_nodes_pull_the_image_while_others_are_in_progress_and_no_other_node_does() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c", "d"]);
    scenario.apply(plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.prepull = Some(true);
    }));
    scenario.pass_secs(10);
    let pulled = |scenario: &Scenario| {
        let jobs = scenario.cluster.with(|state| {
            let is_pull = |job: &&Value| job["metadata"]["labels"]["refit.rs/prepull"] == "true";
            let jobs = state.all(Kind::Job).filter(is_pull);
            jobs.map(|job| {
                let terms = &job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
                    ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
                terms[0]["matchFields"][0]["values"][0].as_str().unwrap().to_owned()
            })
            .collect::<Vec<_>>()
        });
        let mut jobs = jobs;
        jobs.sort();
        jobs
    };
    assert_eq!(scenario.slots("p").len(), 1);
    let first = pulled(&scenario);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_ne!(first, scenario.slots("p"));
    scenario.restart();
    scenario.pass_secs(10);
    assert_eq!(pulled(&scenario), first, "a restart asks for no second one");
    let node = scenario.slots("p")[0].clone();
    scenario.succeed(&node);
    scenario.pass_secs(10);
    assert_eq!(scenario.slots("p"), first, "the node that has the image is next");
    assert_eq!(pulled(&scenario).len(), 2);
    scenario.finish();
}

#[test]
fn a_windows_node_for_which_no_image_is_pulled_does_not_stop_the_controller() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    for name in ["w", "x"] {
        let labels = json!({ "labels": { "kubernetes.io/os": "windows" } });
        scenario.add_node(name, &json!({ "metadata": labels }));
    }
    scenario.apply(plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.prepull = Some(true);
    }));
    scenario.pass_secs(10);
    scenario.finish();
}

#[test]
fn a_pod_rather_goes_to_a_node_that_is_done_although_that_has_more_pods() {
    let mut scenario = Scenario::with(
        &["a", "b", "c"],
        draining(|drain| {
            (drain.force, drain.avoid_pending_nodes) = (Some(true), Some(true));
        }),
    );
    let done = scenario.slots("p")[0].clone();
    scenario.succeed(&done);
    scenario.pass_secs(10);
    let pod = |name: &str, node: Option<&str>| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "shop" },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        })
    };
    for name in ["one", "two"] {
        scenario.cluster.put(pod(name, Some(&done))).unwrap();
    }
    scenario.cluster.put(pod("new", None)).unwrap();
    scenario.settle();
    let node = scenario.cluster.with(|state| {
        let pod = state.get(Kind::Pod, "shop", "new").unwrap();
        pod["spec"]["nodeName"].as_str().map(str::to_owned)
    });
    assert_eq!(node, Some(done));
}
