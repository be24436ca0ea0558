mod command;
mod lifecycle;
mod refit_container;
mod steering;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::state::{Container, State};
use super::{
    ContainerAttempt, Defaults, Exit, Machine, PodBehaviour, PodLifecycle, Power, SyncResult, Write,
};

/// A pod, its machine and a manual clock.
struct PodFixture {
    pod: Pod,
    machine: Machine,
    lifecycle: PodLifecycle,
    start: Timestamp,
    now: Timestamp,
    has_task: &'static [&'static str],
    /// Milliseconds since the start, and the phase, of each written status.
    reported: Vec<(i64, &'static str)>,
    /// Milliseconds since the start, and the container, of each start.
    started: Vec<(i64, String)>,
    reboots: usize,
    gone: bool,
}

impl PodFixture {
    fn new(spec: &Value, steering: &[(&str, &str)]) -> Self {
        let annotations: serde_json::Map<String, Value> = steering
            .iter()
            .map(|(key, value)| (format!("fake-kubelet/{key}"), json!(value)))
            .collect();
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "UID", "annotations": annotations},
            "spec": spec,
            "status": {"phase": "Pending"},
        });
        let start = "2026-01-02T03:04:05.25Z".parse().unwrap();
        let pod: Pod = serde_json::from_value(pod).unwrap();
        Self {
            lifecycle: PodLifecycle::adopt(&pod),
            pod,
            machine: Machine {
                name: "n".into(),
                labels: [("zone".to_owned(), "z1".to_owned())].into(),
                taints: Vec::new(),
                power: Power::On,
                boot_id: "first-boot".into(),
                booted_at: start - SignedDuration::from_hours(1),
                sentinels: BTreeMap::new(),
                runs: BTreeMap::new(),
            },
            start,
            now: start,
            has_task: &[],
            reported: Vec::new(),
            started: Vec::new(),
            reboots: 0,
            gone: false,
        }
    }

    fn behaviour(&self) -> PodBehaviour {
        PodBehaviour::resolve(&self.pod, &[], &Defaults::default(), &|name| {
            self.has_task.contains(&name)
        })
        .unwrap()
    }

    fn step(&mut self) -> SyncResult {
        let behaviour = self.behaviour();
        let step = self
            .lifecycle
            .sync(&self.pod, &self.machine, &behaviour, self.now);
        for started in &step.started {
            self.started.push((self.millis(), started.container.clone()));
        }
        self.reboots += usize::from(step.reboots);
        step.apply(&mut self.machine);
        match step.write {
            Some(Write::Status) => self.reported.push((self.millis(), self.phase())),
            Some(Write::Remove) => self.gone = true,
            None => {}
        }
        step
    }

    /// Runs until nothing is due before `millis`.
    fn run_until(&mut self, millis: i64) -> &mut Self {
        let until = self.start + SignedDuration::from_millis(millis);
        for _ in 0..1_000 {
            let step = self.step();
            if self.gone || step.reboots {
                return self;
            }
            if step.write.is_some() {
                continue;
            }
            let Some(wake) = step.wake.filter(|wake| *wake <= until) else {
                self.now = until;
                return self;
            };
            assert!(wake > self.now, "a wake-up that is not later than now would spin");
            self.now = wake;
        }
        panic!("the pod's lifecycle does not come to rest: {:?}", self.reported);
    }

    fn delete(&mut self, grace: i64) {
        self.pod.metadata.deletion_timestamp = Some(Time(self.now + SignedDuration::from_secs(grace)));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
    }

    fn power_off(&mut self) {
        self.machine.power = Power::Off;
    }

    fn boot(&mut self) {
        self.machine.power = Power::On;
        self.machine.boot_id.push_str("-next");
        self.machine.booted_at = self.now;
    }

    fn millis(&self) -> i64 {
        i64::try_from(self.now.duration_since(self.start).as_millis()).unwrap()
    }

    fn phase(&self) -> &'static str {
        self.lifecycle.state.phase.as_str()
    }

    fn reason(&self) -> Option<&str> {
        self.lifecycle.state.reason.as_deref()
    }

    fn container(&self, name: &str) -> &Container {
        let mut containers = self.lifecycle.state.containers.iter();
        containers.find(|container| container.name == name).unwrap()
    }

    fn exit(&self, name: &str) -> Option<i32> {
        self.container(name).exit_code()
    }

    /// Continues with a new kubelet that only knows the stored status, to the second.
    fn forget(&mut self) {
        let status = serde_json::to_value(self.lifecycle.status()).unwrap();
        self.pod.status = serde_json::from_value(status).unwrap();
        self.lifecycle = PodLifecycle::adopt(&self.pod);
    }

    fn report(&mut self, container: &str, code: i32, message: &str) {
        let exit = Exit {
            code,
            message: Some(message.to_owned()),
        };
        self.lifecycle.report_exit(
            ContainerAttempt {
                container: container.to_owned(),
                attempt: 0,
            },
            exit,
        );
    }
}

/// A pod that runs once: init containers `prepare` and `drain`, then `upgrade`.
fn job() -> Value {
    json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "prepare", "image": "i"}, {"name": "drain", "image": "i"}],
        "containers": [{"name": "upgrade", "image": "i"}],
    })
}

fn single(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]})
}
