mod admission;
mod command;
mod lifecycle;
mod recordings;
mod refit_container;
mod steering;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    ContainerAttempt, Defaults, Exit, Machine, PodBehaviour, PodLifecycle, Power, SyncResult, Write,
};

/// A pod, its machine and a manual clock.
struct PodFixture {
    pod: Pod,
    machine: Machine,
    defaults: Defaults,
    lifecycle: PodLifecycle,
    start: Timestamp,
    now: Timestamp,
    has_task: &'static [&'static str],
    /// Written statuses, with milliseconds since the start.
    reported: Vec<(i64, PodStatus)>,
    started: Vec<ContainerAttempt>,
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
            "metadata": {"name": "p", "namespace": "ns", "uid": "UID", "generation": 1, "annotations": annotations},
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
                labels: [("kubernetes.io/hostname".to_owned(), "n".to_owned())].into(),
                taints: Vec::new(),
                ip: "192.0.2.1".into(),
                power: Power::On,
                boot_id: "first-boot".into(),
                booted_at: start - SignedDuration::from_hours(1),
                sentinels: BTreeMap::new(),
            },
            defaults: Defaults::default(),
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
        PodBehaviour::resolve(&self.pod, &[], &self.defaults, &|name| {
            self.has_task.contains(&name)
        })
        .unwrap()
    }

    fn step(&mut self) -> SyncResult {
        let behaviour = self.behaviour();
        let step = self
            .lifecycle
            .sync(&self.pod, &self.machine, &behaviour, self.now);
        self.started.extend(step.started.iter().cloned());
        self.reboots += usize::from(step.reboots);
        step.keep_sentinels(&mut self.machine);
        match &step.write {
            Some(Write::Status(status)) => {
                self.reported.push((self.millis(), (**status).clone()));
                self.pod.status = Some((**status).clone());
            }
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
            if step.write.is_some() || !step.started.is_empty() {
                continue;
            }
            let Some(wake) = step.wake.filter(|wake| *wake <= until) else {
                self.now = until;
                return self;
            };
            assert!(wake > self.now, "a wake-up that is not later than now would spin");
            self.now = wake;
        }
        panic!(
            "the pod's lifecycle does not come to rest: {:?}",
            self.reported.last()
        );
    }

    fn delete(&mut self, grace: i64) {
        self.pod.metadata.deletion_timestamp = Some(Time(self.now + SignedDuration::from_secs(grace)));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.pod.metadata.generation = Some(2);
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

    fn status(&self) -> &PodStatus {
        self.lifecycle.status()
    }

    fn phase(&self) -> &str {
        self.status().phase.as_deref().unwrap_or_default()
    }

    /// State of the first regular container.
    fn state(&self) -> ContainerState {
        let containers = self.status().container_statuses.as_ref().unwrap();
        containers[0].state.clone().unwrap()
    }

    fn exit(&self, name: &str) -> Option<(i32, &str)> {
        let statuses = self.status().init_container_statuses.iter().flatten();
        let mut statuses = statuses.chain(self.status().container_statuses.iter().flatten());
        let status = statuses.find(|status| status.name == name).unwrap();
        let terminated = super::containers::terminated(status)?;
        Some((
            terminated.exit_code,
            terminated.reason.as_deref().unwrap_or_default(),
        ))
    }

    /// Continues with a new kubelet that only knows the stored status, to the second.
    fn forget(&mut self) {
        let reported = serde_json::to_vec(&self.pod).unwrap();
        self.pod = serde_json::from_slice(&reported).unwrap();
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
