//! The sync of a kubelet with a pod, and the writes that follow.

use jiff::SignedDuration;

use super::Kubelets;
use super::pod::{ContainerTask, RunningTask};
use crate::delete::DeleteOptions;
use crate::journal::JournalEvent;
use crate::json::{Value, json};
use crate::pod_lifecycle::{Boot, ComesBack, ContainerAttempt, ContainerStart, Exit, Power, Write};
use crate::pods::{condition, set_condition};
use crate::resources::Kind;
use crate::state::{State, seconds};
use crate::store::Key;
use crate::work_queue::Work;
use crate::write::WriteTarget;

/// Time without a heartbeat after which a node is marked as lost (`--node-monitor-grace-period`).
const MONITOR_GRACE: SignedDuration = SignedDuration::from_secs(50);

impl State {
    pub(crate) fn sync_pod(&mut self, uid: &str) {
        let now = self.now();
        let Some(pod) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        let Some(node) = self.kubelets.nodes.get_mut(&pod.node) else {
            return;
        };
        let step = pod
            .lifecycle
            .sync(&pod.object, &node.machine, &pod.behaviour, now);
        step.apply(&mut node.machine);
        let boot = (step.reboots && node.rebooting.is_none()).then(|| pod.behaviour.boot());
        let (key, node) = (pod.key.clone(), pod.node.clone());
        self.sync_tasks(uid);
        match step.write {
            Some(Write::Status) => {
                self.write_pod_status(&key, uid);
                // The next sync, after the write, computes the wake-up time again.
                self.enqueue(Work::SyncPod(uid.to_owned()));
            }
            Some(Write::Remove) => {
                let deletion = DeleteOptions {
                    // A newer pod may have the same name, as of a StatefulSet (pkg/kubelet/status/status_manager.go).
                    uid: Some(uid.to_owned()),
                    grace: Some(0),
                    ..DeleteOptions::default()
                };
                let _ = self.delete(Kind::Pod, &key, &deletion);
            }
            None => {
                if let Some(wake) = step.wake {
                    self.enqueue_at(wake, Work::SyncPod(uid.to_owned()));
                }
            }
        }
        if let Some(boot) = boot {
            self.append_journal(JournalEvent::Reboot {
                node: node.clone(),
                pod: key,
            });
            self.reboot_node(&node, boot);
        }
    }

    /// Starts the tasks of running containers with a real effect, and aborts those of containers that no longer run.
    fn sync_tasks(&mut self, uid: &str) {
        let Some(pod) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        let wanted: Vec<ContainerAttempt> = pod
            .lifecycle
            .running()
            .filter(|running| pod.behaviour.has_task(&running.container))
            .collect();
        pod.running_tasks.retain(|act| wanted.contains(&act.started));
        for started in wanted {
            if pod.running_task(&started).is_some() {
                continue;
            }
            let Some(start) = ContainerStart::render(&pod.object, &started.container, started.attempt) else {
                continue;
            };
            pod.running_tasks.push(RunningTask {
                started: started.clone(),
                abort: None,
            });
            self.kubelets.new_tasks.push(ContainerTask {
                node: pod.node.clone(),
                pod_uid: uid.to_owned(),
                started,
                start,
            });
        }
    }

    /// Handles the end of a container with a real effect.
    pub(crate) fn finish_task(&mut self, uid: &str, started: ContainerAttempt, exit: Exit) {
        let Some(pod) = self.kubelets.pods.get_mut(uid) else {
            return;
        };
        if let Some(act) = pod.running_task(&started) {
            act.abort = None; // the task itself reported its end
        }
        pod.lifecycle.report_exit(started, exit);
        self.enqueue(Work::SyncPod(uid.to_owned()));
    }

    /// Writes the kubelet's status. Conditions of other writers stay: the eviction subresource and the pod garbage collector
    /// write `DisruptionTarget`, and the Job controller reads it for `podFailurePolicy` (KEP-3329).
    fn write_pod_status(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.kubelets.pods.get(uid) else {
            return;
        };
        let mut status = pod.lifecycle.status();
        let _ = self.change(Kind::Pod, key, WriteTarget::Status, |new| {
            // The status is that of an earlier pod with this name.
            if new["metadata"]["uid"] != uid {
                return;
            }
            let mine = status["conditions"].as_array().cloned().unwrap_or_default();
            let others = new["status"]["conditions"].as_array().into_iter().flatten();
            let mut all: Vec<Value> = others
                .filter(|other| !mine.iter().any(|one| one["type"] == other["type"]))
                .cloned()
                .collect();
            all.extend(mine);
            status["conditions"] = all.into();
            // The API server sets it at creation, and restores it if a kubelet drops it (`podStatusStrategy`).
            status["qosClass"] = new["status"]["qosClass"].clone();
            new["status"] = status;
        });
    }

    /// Reboots a machine.
    fn reboot_node(&mut self, name: &str, boot: Boot) {
        self.power_off_node(name);
        if let Some(node) = self.kubelets.nodes.get_mut(name) {
            node.rebooting = Some(boot);
        }
        if boot.comes_back != ComesBack::Never {
            self.enqueue_after(boot.off, Work::BootNode(name.to_owned()));
        }
    }

    /// Turns a machine off, so that its kubelet sends nothing.
    fn power_off_node(&mut self, name: &str) {
        let Kubelets { nodes, pods, .. } = &mut self.kubelets;
        if let Some(node) = nodes.get_mut(name) {
            node.machine.power = Power::Off;
            node.silent_since = self.clock.now();
            for uid in &node.pods {
                if let Some(pod) = pods.get_mut(uid) {
                    pod.running_tasks.clear();
                }
            }
        }
        // A machine that is off reports nothing. The node lifecycle controller finds out by the missing heartbeats only.
        self.enqueue_after(MONITOR_GRACE, Work::CheckHeartbeat(name.to_owned()));
    }

    /// Marks a node as lost if its heartbeat is overdue.
    pub(crate) fn check_heartbeat(&mut self, name: &str) {
        let node = self.kubelets.nodes.get(name);
        let Some(node) = node.filter(|node| node.machine.power == Power::Off) else {
            return;
        };
        // The machine may have come back and gone off again since this check was queued.
        let left = MONITOR_GRACE - self.now().duration_since(node.silent_since);
        if left.is_positive() {
            self.enqueue_after(left, Work::CheckHeartbeat(name.to_owned()));
        } else {
            let message = "Kubelet stopped posting node status.";
            self.set_ready_condition(name, "Unknown", "NodeStatusUnknown", message);
        }
    }

    /// Boots a machine after a reboot.
    pub(crate) fn boot_node(&mut self, name: &str) {
        let node = self.kubelets.nodes.get_mut(name);
        let Some(boot) = node.and_then(|node| node.rebooting.take()) else {
            return;
        };
        self.start_node(name);
        if boot.comes_back == ComesBack::NotReady || boot.not_ready.is_positive() {
            self.set_ready_condition(name, "False", "KubeletNotReady", "container runtime is down");
        } else {
            self.mark_ready(name);
        }
        if boot.comes_back == ComesBack::Ready && boot.not_ready.is_positive() {
            self.enqueue_after(boot.not_ready, Work::MarkReady(name.to_owned()));
        }
    }

    /// Starts a machine: no container runs, and `/run` is empty.
    fn start_node(&mut self, name: &str) {
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
        let _ = self.change(Kind::Node, &Key::new("", name), WriteTarget::Status, |new| {
            new["status"]["nodeInfo"]["bootID"] = boot_id.into();
        });
        for uid in pods {
            self.enqueue(Work::SyncPod(uid));
        }
    }

    /// Marks a node as Ready.
    pub(crate) fn mark_ready(&mut self, name: &str) {
        let node = self.kubelets.nodes.get(name);
        // It may have gone off again before it became Ready.
        if node.is_some_and(|node| node.machine.power == Power::On) {
            self.set_ready_condition(name, "True", "KubeletReady", "kubelet is posting ready status");
        }
    }

    fn set_ready_condition(&mut self, name: &str, status: &str, reason: &str, message: &str) {
        let now = seconds(self.now());
        let _ = self.change(Kind::Node, &Key::new("", name), WriteTarget::Status, |new| {
            let since = match condition(new, "Ready") {
                Some(known) if known["status"] == status => known["lastTransitionTime"].clone(),
                _ => now.clone().into(),
            };
            let ready = json!({
                "type": "Ready", "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since,
            });
            set_condition(new, ready);
        });
    }

    /// Empties `/run/refit` of a machine.
    pub fn lose_sentinels(&mut self, node: &str) {
        self.kubelets.forget_sentinels(node);
    }

    /// Turns a machine off, or on again in a new boot.
    pub fn set_power(&mut self, node: &str, on: bool) {
        if on {
            self.start_node(node);
            self.mark_ready(node);
        } else {
            self.power_off_node(node);
        }
    }
}
