//! The life of pods.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use refit_rehearse::pod_lifecycle::{ContainerAttempt, ContainerStart, Write};

use super::{Hub, Timer, WriteRequest};
use crate::testenv::kubelet::container_task::ContainerTask;
use crate::testenv::kubelet::pod::{Change, Pod};
use crate::testenv::kubelet::remote::{Command, Remote, reboot};
use crate::testenv::kubelet::watch::WatchEvent;

impl Hub {
    pub(super) fn handle_pod_event(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Listing => self.listed.clear(),
            WatchEvent::Listed => {
                let listed = std::mem::take(&mut self.listed);
                let lost: Vec<String> = self
                    .pods
                    .keys()
                    .filter(|uid| !listed.contains(*uid))
                    .cloned()
                    .collect();
                for uid in lost {
                    self.forget(&uid);
                }
            }
            WatchEvent::Item(_) | WatchEvent::Event(_) => self.update_pod(event),
        }
    }

    fn update_pod(&mut self, event: &WatchEvent) {
        let Some((head, gone)) = event.head() else { return };
        let Some(node) = head
            .spec
            .node_name
            .as_deref()
            .and_then(|name| self.nodes.get_mut(name))
        else {
            return;
        };
        let uid = head.metadata.uid.as_ref();
        if gone {
            let uid = uid.to_owned();
            self.forget(&uid);
            return;
        }
        if matches!(event, WatchEvent::Item(_)) {
            self.listed.insert(uid.to_owned());
        }
        let Some(set) = self.sets.get(&node.set) else {
            return;
        };
        let Some(pod) = self.pods.get_mut(uid) else {
            let Some(object) = event.object() else { return };
            node.pods.insert(uid.to_owned());
            let pod = Pod::new(object, node, &set.set);
            self.pods.insert(uid.to_owned(), pod);
            return self.step(uid);
        };
        match pod.update(&head) {
            Change::NoTasks => return,
            Change::Steering => {}
            Change::Spec => {
                let Some(object) = event.object() else { return };
                pod.replace(object);
            }
        }
        pod.steer(node, &set.set);
        self.step(uid);
    }

    fn forget(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid)
            && let Some(node) = self.nodes.get_mut(&pod.node)
        {
            node.pods.remove(uid);
        }
    }

    /// Synchronises all pods after a change of the machine or the steering.
    pub(super) fn steer_pods(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let uids: Vec<String> = node.pods.iter().cloned().collect();
        if let Some(set) = self.sets.get(&node.set) {
            for uid in &uids {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.steer(node, &set.set);
                }
            }
        }
        for uid in uids {
            self.step(&uid);
        }
    }

    /// Synchronises a pod, unless a write of it is in flight.
    pub(super) fn step(&mut self, uid: &str) {
        let now = self.clock.now();
        let Some(pod) = self.pods.get_mut(uid).filter(|pod| !pod.busy) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&pod.node) else {
            return;
        };
        let step = pod
            .lifecycle
            .sync(&pod.object, &node.machine, &pod.behaviour, now);
        step.apply(&mut node.machine);
        if step.reboots && !node.rebooting {
            node.rebooting = true;
            let (own, name, boot) = (self.own.clone(), node.spec.name.clone(), pod.behaviour.boot());
            tokio::task::spawn_local(async move {
                if let Some(commands) = own.upgrade() {
                    let remote = Remote(commands);
                    reboot(boot, async |change| remote.change(&name, change).await).await;
                }
            });
        }
        match step.write {
            Some(Write::Status) => {
                pod.busy = true;
                self.writes.push_back(WriteRequest::Status(uid.to_owned()));
            }
            Some(Write::Remove) => {
                pod.busy = true;
                self.writes.push_back(WriteRequest::Remove(uid.to_owned()));
            }
            None => {
                if let Some(at) = step.wake {
                    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    self.wake_pod(uid, Instant::now() + wait);
                }
            }
        }
        self.sync_tasks(uid);
    }

    fn wake_pod(&mut self, uid: &str, at: Instant) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.wake = Some(at);
            self.timers.push(Reverse((at, Timer::Pod(uid.to_owned()))));
        }
    }

    /// Starts and ends the tasks of containers.
    fn sync_tasks(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let Some(node) = self.nodes.get(&pod.node) else {
            return;
        };
        let Some(set) = self.sets.get(&node.set) else {
            return;
        };
        let acted = |running: &ContainerAttempt| pod.behaviour.has_task(&running.container);
        let wanted: Vec<ContainerAttempt> = pod
            .lifecycle
            .running()
            .filter(|running| !node.dead && acted(running))
            .collect();
        pod.running_tasks.retain(|(started, act)| {
            let runs = wanted.contains(started);
            if !runs {
                act.abort();
            }
            runs
        });
        for started in wanted {
            if pod.running_tasks.iter().any(|(known, _)| *known == started) {
                continue;
            }
            let Some(start) = ContainerStart::render(&pod.object, &started.container, started.attempt) else {
                continue;
            };
            let running = set.set.task_runner.run(ContainerTask {
                node: pod.node.clone(),
                namespace: pod.namespace().to_owned(),
                start,
                client: self.requests.client.clone(),
            });
            let (own, uid, ended) = (self.own.clone(), uid.to_owned(), started.clone());
            let task = tokio::task::spawn_local(async move {
                let exit = running.await;
                if let Some(commands) = own.upgrade() {
                    let _ = commands.send(Command::Acted {
                        pod: uid,
                        started: ended,
                        exit,
                    });
                }
            });
            pod.running_tasks.push((started, task.abort_handle()));
        }
    }
}
