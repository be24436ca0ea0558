//! A kubelet looks at a pod, and what follows is written.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PodStatus;

use super::Kubelets;
use super::act::Errand;
use super::pod::Act;
use crate::rehearse::agenda::Work;
use crate::rehearse::deletion::Deletion;
use crate::rehearse::journal::What;
use crate::rehearse::json::{self, Value, json};
use crate::rehearse::podlife::{Boot, ComesBack, ContainerStart, Exit, Power, Started, Write};
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
        step.keep_sentinels(&mut node.machine);
        let boot = (step.reboots && node.rebooting.is_none()).then(|| pod.behaviour.boot());
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
        if let Some(boot) = boot {
            self.note(What::Reboot {
                node: node.clone(),
                pod: key,
            });
            self.go_down(&node, boot);
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
        let Ok(mut status) = json::to_value(status) else {
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
    fn go_down(&mut self, name: &str, boot: Boot) {
        self.darken(name);
        if let Some(node) = self.kubelets.nodes.get_mut(name) {
            node.rebooting = Some(boot);
        }
        if boot.comes_back != ComesBack::Never {
            self.later(boot.off, Work::Boot(name.to_owned()));
        }
    }

    /// Nothing happens on a machine any more, and nothing is heard of it.
    fn darken(&mut self, name: &str) {
        let Kubelets { nodes, pods, .. } = &mut self.kubelets;
        if let Some(node) = nodes.get_mut(name) {
            node.machine.power = Power::Off;
            node.silent_since = self.clock.now();
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
        let node = self.kubelets.nodes.get(name);
        let Some(node) = node.filter(|node| node.machine.power == Power::Off) else {
            return;
        };
        let left = MONITOR_GRACE - self.now().duration_since(node.silent_since);
        if left.is_positive() {
            self.later(left, Work::Miss(name.to_owned()));
        } else {
            let message = "Kubelet stopped posting node status.";
            self.say(name, "Unknown", "NodeStatusUnknown", message);
        }
    }

    /// A machine that was told to reboot is up again.
    pub(in crate::rehearse) fn boot(&mut self, name: &str) {
        let node = self.kubelets.nodes.get_mut(name);
        let Some(boot) = node.and_then(|node| node.rebooting.take()) else {
            return;
        };
        self.start(name);
        if boot.comes_back == ComesBack::NotReady || boot.not_ready.is_positive() {
            self.say(name, "False", "KubeletNotReady", "container runtime is down");
        } else {
            self.is_ready(name);
        }
        if boot.comes_back == ComesBack::Ready && boot.not_ready.is_positive() {
            self.later(boot.not_ready, Work::Ready(name.to_owned()));
        }
    }

    /// A machine starts anew: nothing of what ran before runs, and nothing is below `/run`.
    fn start(&mut self, name: &str) {
        let (boot_id, now) = (self.ids.uuid(), self.now());
        let Some(node) = self.kubelets.nodes.get_mut(name) else {
            return;
        };
        node.rebooting = None;
        node.machine.power = Power::On;
        node.machine.boot_id.clone_from(&boot_id);
        node.machine.booted_at = now;
        node.machine.sentinels.clear();
        let pods: Vec<String> = node.pods.iter().cloned().collect();
        let _ = self.update(Kind::Node, &Key::new("", name), Part::Status, false, |old| {
            let mut new = old.clone();
            new["status"]["nodeInfo"]["bootID"] = boot_id.into();
            Ok(new)
        });
        for uid in pods {
            self.soon(Work::Pod(uid));
        }
    }

    /// A kubelet says that its node is Ready.
    pub(in crate::rehearse) fn is_ready(&mut self, name: &str) {
        let node = self.kubelets.nodes.get(name);
        if node.is_some_and(|node| node.machine.power == Power::On) {
            self.say(name, "True", "KubeletReady", "kubelet is posting ready status");
        }
    }

    /// The Ready condition of a node changes.
    fn say(&mut self, name: &str, status: &str, reason: &str, message: &str) {
        let now = seconds(self.now());
        let _ = self.update(Kind::Node, &Key::new("", name), Part::Status, false, |old| {
            let mut new = old.clone();
            let mut conditions = new["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let known = conditions.iter().position(|one| one["type"] == "Ready");
            let known = known.map(|at| conditions.remove(at));
            let since = match known {
                Some(known) if known["status"] == status => known["lastTransitionTime"].clone(),
                _ => now.clone().into(),
            };
            conditions.push(json!({
                "type": "Ready", "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since,
            }));
            new["status"]["conditions"] = conditions.into();
            Ok(new)
        });
    }

    /// Turns a machine off, or on again in a new boot.
    pub fn power(&mut self, node: &str, on: bool) {
        if on {
            self.start(node);
            self.is_ready(node);
        } else {
            self.darken(node);
        }
    }
}
