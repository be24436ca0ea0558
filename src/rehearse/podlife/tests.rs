mod admission;
mod command;
mod errand;
mod facts;
mod life;
mod steering;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{Behaviour, Defaults, Exit, Life, Machine, Power, Started, Step, Write};

/// A pod, its machine and a clock that goes where it is told.
struct Stage {
    pod: Pod,
    machine: Machine,
    defaults: Defaults,
    life: Life,
    start: Timestamp,
    now: Timestamp,
    acted: &'static [&'static str],
    /// What was written, with the milliseconds since the beginning.
    told: Vec<(i64, PodStatus)>,
    started: Vec<Started>,
    reboots: usize,
    gone: bool,
}

impl Stage {
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
            life: Life::adopt(&pod),
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
            acted: &[],
            told: Vec::new(),
            started: Vec::new(),
            reboots: 0,
            gone: false,
        }
    }

    fn behaviour(&self) -> Behaviour {
        Behaviour::resolve(&self.pod, &[], &self.defaults, &|name| self.acted.contains(&name)).unwrap()
    }

    fn step(&mut self) -> Step {
        let behaviour = self.behaviour();
        let step = self.life.step(&self.pod, &self.machine, &behaviour, self.now);
        self.started.extend(step.started.iter().cloned());
        self.reboots += usize::from(step.reboots);
        step.keep_sentinels(&mut self.machine);
        match &step.write {
            Some(Write::Status(status)) => {
                self.told.push((self.millis(), (**status).clone()));
                self.pod.status = Some((**status).clone());
            }
            Some(Write::Remove) => self.gone = true,
            None => {}
        }
        step
    }

    /// Lives until nothing more is due before `millis` after the beginning.
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
        panic!("the pod's life does not come to rest: {:?}", self.told.last());
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
        self.life.status()
    }

    fn phase(&self) -> &str {
        self.status().phase.as_deref().unwrap_or_default()
    }

    /// Exit code and reason of a container that has ended.
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

    /// The same, from a kubelet that knows nothing but what the API server has, to the second.
    fn forget(&mut self) {
        let told = serde_json::to_vec(&self.pod).unwrap();
        self.pod = serde_json::from_slice(&told).unwrap();
        self.life = Life::adopt(&self.pod);
    }

    fn report(&mut self, container: &str, code: i32, message: &str) {
        let exit = Exit {
            code,
            message: Some(message.to_owned()),
        };
        self.life.report(
            Started {
                container: container.to_owned(),
                attempt: 0,
            },
            exit,
        );
    }
}

/// A pod that is run once: init containers `prepare` and `drain`, then `upgrade`.
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
