//! A kubelet looks at a pod, and what follows is written.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

use super::act::Errand;
use super::pod::Act;
use super::{Kubelets, Node};
use crate::rehearse::agenda::Work;
use crate::rehearse::deletion::Deletion;
use crate::rehearse::podlife::{ContainerStart, Exit, Power, Started, Write};
use crate::rehearse::resources::Kind;
use crate::rehearse::state::{State, seconds};
use crate::rehearse::store::Key;
use crate::rehearse::write::Part;

/// After how long a node of which nothing is heard is said to be lost (`--node-monitor-grace-period`).
const MONITOR_GRACE: SignedDuration = SignedDuration::from_secs(50);

impl State {
    /// A kubelet looks at a pod.
    pub(in crate::rehearse) fn live(&mut self, uid: &str) {
        let now = self.now();
        let Some(pod) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        let Some(node) = self.kubelets.nodes.get_mut(&pod.node) else {
            return;
        };
        let step = pod.life.step(&pod.object, &node.machine, &pod.behaviour, now);
        if !step.started.is_empty() && !std::mem::replace(&mut pod.counted, true) {
            *node.pods_of_owners.entry(pod.owner().to_owned()).or_default() += 1;
        }
        for started in &step.started {
            *node.runs.entry(started.container.clone()).or_default() += 1;
        }
        let reboots = step.reboots && !std::mem::replace(&mut node.rebooting, step.reboots);
        let (key, node) = (pod.key.clone(), pod.node.clone());
        self.act(uid);
        match step.write {
            Some(Write::Status(status)) => {
                self.write_pod_status(&key, uid, &status);
                self.soon(Work::Pod(uid.to_owned()));
            }
            Some(Write::Remove) => {
                let deletion = Deletion {
                    uid: Some(uid.to_owned()),
                    grace: Some(0),
                    ..Deletion::default()
                };
                let _ = self.delete(Kind::Pod, &key, &deletion);
            }
            None => {
                if let Some(wake) = step.wake {
                    self.agenda.add(wake, Work::Pod(uid.to_owned()));
                }
            }
        }
        if reboots {
            self.go_down(&node);
        }
    }

    /// Starts what runs and has a real effect, and ends what does not run any more.
    fn act(&mut self, uid: &str) {
        let Some(pod) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        let wanted: Vec<Started> = pod
            .life
            .running()
            .filter(|running| pod.behaviour.is_acted(&pod.object, &running.container))
            .collect();
        pod.acts.retain(|act| wanted.contains(&act.started));
        for started in wanted {
            if pod.act(&started).is_some() {
                continue;
            }
            let mut object = pod.object.clone();
            object.status = Some(pod.life.status().clone());
            let Some(start) = ContainerStart::render(&object, &started.container, started.attempt) else {
                continue;
            };
            pod.acts.push(Act {
                started: started.clone(),
                task: None,
            });
            self.kubelets.errands.push(Errand {
                node: pod.node.clone(),
                pod_uid: uid.to_owned(),
                started,
                start,
            });
        }
    }

    /// A container whose effect is real has ended.
    pub(in crate::rehearse) fn acted(&mut self, uid: &str, started: Started, exit: Exit) {
        let Some(pod) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        if let Some(act) = pod.act(&started) {
            act.task = None; // it is the one that tells
        }
        pod.life.report(started, exit);
        self.soon(Work::Pod(uid.to_owned()));
    }

    /// The status as the kubelet has it; conditions of others stay as they are.
    fn write_pod_status(&mut self, key: &Key, uid: &str, status: &PodStatus) {
        let Ok(mut status) = serde_json::to_value(status) else {
            return;
        };
        let _ = self.update(Kind::Pod, key, Part::Status, false, |old| {
            let mut new = old.clone();
            if old["metadata"]["uid"] != uid {
                return Ok(new);
            }
            let mine = status["conditions"].as_array().cloned().unwrap_or_default();
            let others = old["status"]["conditions"].as_array().into_iter().flatten();
            let mut all: Vec<Value> = others
                .filter(|other| !mine.iter().any(|one| one["type"] == other["type"]))
                .cloned()
                .collect();
            all.extend(mine);
            status["conditions"] = all.into();
            status["qosClass"] = old["status"]["qosClass"].clone();
            new["status"] = status;
            Ok(new)
        });
    }

    /// A machine reboots.
    fn go_down(&mut self, name: &str) {
        let boot = self.kubelets.habits.reboot;
        self.darken(name);
        self.later(boot, Work::Boot(name.to_owned()));
    }

    /// Nothing happens on a machine any more, and nothing is heard of it.
    fn darken(&mut self, name: &str) {
        let Kubelets { nodes, pods, .. } = &mut self.kubelets;
        if let Some(node) = nodes.get_mut(name) {
            node.machine.power = Power::Off;
            for uid in &node.pods {
                if let Some(pod) = pods.get_mut(uid) {
                    pod.acts.clear();
                }
            }
        }
        self.later(MONITOR_GRACE, Work::Miss(name.to_owned()));
    }

    /// Nothing has been heard of a node for a while.
    pub(in crate::rehearse) fn miss(&mut self, name: &str) {
        let is_off = |node: &Node| node.machine.power == Power::Off;
        if self.kubelets.nodes.get(name).is_some_and(is_off) {
            let message = "Kubelet stopped posting node status.";
            self.say(name, "Unknown", "NodeStatusUnknown", message, None);
        }
    }

    /// A machine is up again.
    pub(in crate::rehearse) fn boot(&mut self, name: &str) {
        let (boot_id, now) = (self.ids.uuid(), self.now());
        let Some(node) = self.kubelets.nodes.get_mut(name) else {
            return;
        };
        node.machine.power = Power::On;
        node.machine.boot_id.clone_from(&boot_id);
        node.machine.booted_at = now;
        node.rebooting = false;
        let pods: Vec<String> = node.pods.iter().cloned().collect();
        self.say(
            name,
            "True",
            "KubeletReady",
            "kubelet is posting ready status",
            Some(&boot_id),
        );
        for uid in pods {
            self.soon(Work::Pod(uid));
        }
    }

    /// The Ready condition of a node changes.
    fn say(&mut self, name: &str, status: &str, reason: &str, message: &str, boot_id: Option<&str>) {
        let now = seconds(self.now());
        let _ = self.update(Kind::Node, &Key::new("", name), Part::Status, false, |old| {
            let mut new = old.clone();
            let mut conditions = new["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions.retain(|one| one["type"] != "Ready");
            conditions.push(json!({
                "type": "Ready", "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }));
            new["status"]["conditions"] = conditions.into();
            if let Some(boot_id) = boot_id {
                new["status"]["nodeInfo"]["bootID"] = boot_id.into();
            }
            Ok(new)
        });
    }

    /// Turns a machine off, or on again with a new boot.
    pub fn power(&mut self, node: &str, on: bool) {
        if on {
            self.boot(node);
        } else {
            self.darken(node);
        }
    }
}
