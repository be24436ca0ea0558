//! Pods come and go, and live.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use refit::rehearse::podlife::{ContainerStart, Started, Write};

use super::{Errand, Hub, Timer};
use crate::support::kubelet::act::Act;
use crate::support::kubelet::pod::{Change, Pod};
use crate::support::kubelet::remote::{Command, Remote};
use crate::support::kubelet::watch::News;

impl Hub {
    pub(super) fn pod_news(&mut self, news: &News) {
        match news {
            News::Listing => self.listed.clear(),
            News::Listed => {
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
            News::Item(_) | News::Event(_) => self.pod_told(news),
        }
    }

    fn pod_told(&mut self, news: &News) {
        let Some((head, gone)) = news.head() else { return };
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
        if matches!(news, News::Item(_)) {
            self.listed.insert(uid.to_owned());
        }
        let Some(set) = self.sets.get(&node.set) else {
            return;
        };
        let Some(pod) = self.pods.get_mut(uid) else {
            let Some(object) = news.object() else { return };
            node.pods.insert(uid.to_owned());
            let pod = Pod::new(object, node, &set.set);
            self.pods.insert(uid.to_owned(), pod);
            return self.step(uid);
        };
        match pod.update(&head) {
            Change::Nothing => return,
            Change::Steering => {}
            Change::Spec => {
                let Some(object) = news.object() else { return };
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

    /// The machine or the steering has changed: all pods are looked at.
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

    /// Looks at a pod, unless a write of it is under way.
    pub(super) fn step(&mut self, uid: &str) {
        let now = self.clock.now();
        let Some(pod) = self.pods.get_mut(uid).filter(|pod| !pod.busy) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&pod.node) else {
            return;
        };
        let step = pod.life.step(&pod.object, &node.machine, &pod.behaviour, now);
        if !step.started.is_empty() && !std::mem::replace(&mut pod.counted, true) {
            let owner = pod.owner().unwrap_or_default().to_owned();
            *node.pods_of_owners.entry(owner).or_default() += 1;
        }
        for started in &step.started {
            *node.runs.entry(started.container.clone()).or_default() += 1;
        }
        step.keep_sentinels(&mut node.machine);
        if step.reboots && !node.rebooting {
            node.rebooting = true;
            let (own, name, boot) = (self.own.clone(), node.spec.name.clone(), pod.behaviour.boot());
            tokio::task::spawn_local(async move {
                if let Some(commands) = own.upgrade() {
                    Remote(commands).reboot(&name, boot).await;
                }
            });
        }
        match step.write {
            Some(Write::Status(_)) => {
                pod.busy = true;
                self.writes.last(Errand::Status(uid.to_owned()));
            }
            Some(Write::Remove) => {
                pod.busy = true;
                self.writes.last(Errand::Remove(uid.to_owned()));
            }
            None => {
                if let Some(at) = step.wake {
                    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    self.wake_pod(uid, Instant::now() + wait);
                }
            }
        }
        self.act(uid);
    }

    fn wake_pod(&mut self, uid: &str, at: Instant) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.wake = Some(at);
            self.timers.push(Reverse((at, Timer::Pod(uid.to_owned()))));
        }
    }

    /// Starts what runs and has a real effect, and ends what does not run any more.
    fn act(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let Some(node) = self.nodes.get(&pod.node) else {
            return;
        };
        let Some(set) = self.sets.get(&node.set) else {
            return;
        };
        let acted = |running: &Started| pod.behaviour.is_acted(&pod.object, &running.container);
        let wanted: Vec<Started> = pod
            .life
            .running()
            .filter(|running| !node.dead && acted(running))
            .collect();
        pod.acts.retain(|(started, act)| {
            let runs = wanted.contains(started);
            if !runs {
                act.abort();
            }
            runs
        });
        for started in wanted {
            if pod.acts.iter().any(|(known, _)| *known == started) {
                continue;
            }
            let mut object = pod.object.clone();
            object.status = Some(pod.life.status().clone());
            let Some(start) = ContainerStart::render(&object, &started.container, started.attempt) else {
                continue;
            };
            let running = set.set.act.run(Act {
                node: pod.node.clone(),
                namespace: pod.namespace().to_owned(),
                pod: pod.name().to_owned(),
                pod_uid: uid.to_owned(),
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
            pod.acts.push((started, task.abort_handle()));
        }
    }
}
