//! Containers whose effect is real.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use refit::rehearse::podlife::Exit;
use refit::rollout::{Holder, Ledger};
use serde_json::json;

use super::{bind, exit, in_phase, with_nodes};
use crate::support::kubelet::{Act, ContainerAct};
use crate::support::wait::{self, SOON};

/// Notes what it was started with, and ends as the first argument says.
#[derive(Clone, Default)]
struct Scripted {
    started: Arc<Mutex<Vec<Act>>>,
    killed: Arc<AtomicUsize>,
}

/// Counts when it is dropped before it is told that all is well.
struct Alarm(Option<Arc<AtomicUsize>>);

impl Alarm {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl ContainerAct for Scripted {
    fn acts(&self, container: &str) -> bool {
        container == "act"
    }

    fn run(&self, act: Act) -> BoxFuture<'static, Exit> {
        let mut alarm = Alarm(Some(self.killed.clone()));
        let first = act.start.args.first().cloned();
        self.started.lock().unwrap().push(act);
        Box::pin(async move {
            let Some(code) = first.and_then(|first| first.parse().ok()) else {
                return std::future::pending().await;
            };
            alarm.disarm();
            Exit {
                code,
                message: Some(format!("ended with {code}")),
            }
        })
    }
}

fn init(args: &[&str]) -> serde_json::Value {
    json!({"initContainers": [{
        "name": "act",
        "image": "example.com/act:1",
        "args": args,
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "WHERE", "value": "on $(NODE)"},
        ],
    }]})
}

#[tokio::test]
async fn a_container_ends_as_its_act_does() {
    let act = Scripted::default();
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.act(act.clone())).await;
    for (name, code, phase) in [("good", "0", "Succeeded"), ("bad", "42", "Failed")] {
        bind(&world, &names[0], name, &[], init(&[code, "$(WHERE)"])).await;
        let status = in_phase(&world, name, phase).await;
        assert_eq!(exit(&status, "act").0.to_string(), code);
        let container = &status.init_container_statuses.unwrap()[0];
        let message = container
            .state
            .as_ref()
            .unwrap()
            .terminated
            .as_ref()
            .unwrap()
            .message
            .clone();
        assert_eq!(message, Some(format!("ended with {code}")));
    }
    assert_eq!(kubelets.runs(&names[0], "act").await, 2);
    let started = act.started.lock().unwrap().clone();
    let starts: Vec<_> = started
        .iter()
        .map(|act| (act.pod.as_str(), act.start.args[1].clone()))
        .collect();
    let place = format!("on {}", names[0]);
    assert_eq!(starts, [("good", place.clone()), ("bad", place)]);
    assert_eq!(
        (started[0].node.as_str(), act.killed.load(Ordering::SeqCst)),
        (names[0].as_str(), 0)
    );
}

#[tokio::test]
async fn an_act_is_killed_with_its_container() {
    let act = Scripted::default();
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.act(act.clone())).await;
    let killed = async |count| {
        wait::eventually("the act is killed", SOON, async || {
            match act.killed.load(Ordering::SeqCst) {
                seen if seen == count => Ok(()),
                seen => Err(seen.to_string()),
            }
        })
        .await;
    };
    let begun = async |count| {
        wait::eventually("the act has begun", SOON, async || {
            match act.started.lock().unwrap().len() {
                seen if seen == count => Ok(()),
                seen => Err(seen.to_string()),
            }
        })
        .await;
    };
    bind(&world, &names[0], "deleted", &[("delete-delay", "0")], init(&[])).await;
    begun(1).await;
    world
        .pods()
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    wait::gone(world.pods(), "deleted", SOON).await;
    killed(1).await;

    bind(&world, &names[0], "unplugged", &[], init(&[])).await;
    begun(2).await;
    kubelets.power_off(&names[0]).await;
    killed(2).await;
    kubelets.power_on(&names[0]).await;
    in_phase(&world, "unplugged", "Failed").await;

    bind(&world, &names[0], "rebooted", &[], init(&[])).await;
    begun(3).await;
    kubelets.reboot(&names[0]).await;
    assert_eq!(
        exit(&in_phase(&world, "rebooted", "Failed").await, "act"),
        (255, "Unknown".to_owned())
    );
    killed(3).await;
}

#[tokio::test]
async fn a_steered_exit_code_takes_the_place_of_the_act() {
    let act = Scripted::default();
    let (world, _kubelets, names) = with_nodes(&["n"], |nodes| nodes.act(act.clone())).await;
    bind(&world, &names[0], "p", &[("act.exit-code", "3")], init(&["0"])).await;
    assert_eq!(exit(&in_phase(&world, "p", "Failed").await, "act").0, 3);
    assert_eq!(act.started.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_holder_that_the_controller_has_cancelled_is_not_let_through() {
    let (world, _kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    let holder = |cancelled| Holder {
        namespace: world.namespace().to_owned(),
        controller: "controller".to_owned(),
        plan: "plan".to_owned(),
        plan_uid: "uid".to_owned(),
        cancelled,
        passed: false,
        evicted: Vec::new(),
    };
    let ledger = Ledger {
        before: true,
        holders: vec![holder(true)],
    }
    .to_text();
    world
        .annotate_node(&names[0], "refit.rs/cordon", Some(&ledger))
        .await;
    let spec = json!({"initContainers": [{"name": "drain", "image": "example.com/refit:1", "env": [
        {"name": "REFIT_PLAN_NAMESPACE", "value": world.namespace()},
        {"name": "REFIT_CONTROLLER_NAME", "value": "controller"},
        {"name": "REFIT_PLAN_UID", "value": "uid"}]}]});
    bind(&world, &names[0], "p", &[], spec).await;
    assert_eq!(exit(&in_phase(&world, "p", "Failed").await, "drain").0, 1);
    let node: Node = world.node(&names[0]).await;
    assert_eq!(node.spec.unwrap().unschedulable, None, "it was not cordoned");
}

#[tokio::test]
async fn whoever_keeps_no_ledger_cordons_all_the_same() {
    let (world, _kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    bind(
        &world,
        &names[0],
        "p",
        &[],
        json!({"initContainers": [{"name": "cordon", "image": "example.com/kubectl:1"}]}),
    )
    .await;
    in_phase(&world, "p", "Succeeded").await;
    let node = world.node(&names[0]).await;
    assert_eq!(node.spec.unwrap().unschedulable, Some(true));
    assert!(
        !node
            .metadata
            .annotations
            .unwrap_or_default()
            .contains_key("refit.rs/cordon")
    );
}
