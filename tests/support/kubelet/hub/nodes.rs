//! Nodes come and go, and change.

use std::cmp::Reverse;
use std::time::Instant;

use k8s_openapi::api::core::v1::Node as Object;
use refit::rehearse::podlife::Power;
use tokio::sync::oneshot;

use super::{Errand, Hub, Set, Timer};
use crate::support::kubelet::api::Answer;
use crate::support::kubelet::machine::{Health, Node};
use crate::support::kubelet::nodeset::NodeSet;
use crate::support::kubelet::remote::{Done, NodeChange, tell};
use crate::support::kubelet::watch::{self, Head, News};

impl Hub {
    pub(super) fn register(&mut self, set: NodeSet, done: oneshot::Sender<u64>) {
        if let Some(known) = set.nodes.iter().find(|spec| self.nodes.contains_key(&spec.name)) {
            return eprintln!("fake kubelet: node {} is played already", known.name);
        }
        let id = self.next_set;
        self.next_set += 1;
        let now = self.clock.now();
        for (number, spec) in set.nodes.iter().enumerate() {
            let node = Node::new(id, spec.clone(), number, now);
            self.nodes.insert(spec.name.clone(), node);
            self.writes.last(Errand::Register(spec.name.clone(), None));
        }
        let done = Some(done);
        self.sets.insert(id, Set { set, done });
        self.tell_if_registered(id);
    }

    fn tell_if_registered(&mut self, id: u64) {
        let Some(Set { set, done }) = self.sets.get_mut(&id) else {
            return;
        };
        let there = |node: &Node| node.uid.is_some() && (node.is_schedulable() || !set.until_schedulable);
        let mut nodes = set.nodes.iter().map(|spec| self.nodes.get(&spec.name));
        if done.is_some() && nodes.all(|node| node.is_some_and(there)) {
            let _ = done.take().map(|done| done.send(id));
        }
    }

    pub(super) fn leave(&mut self, id: u64, remove: bool, done: Done) {
        self.sets.remove(&id);
        let mine = self.nodes.extract_if(|_, node| node.set == id);
        let nodes: Vec<Node> = mine.map(|(_, node)| node).collect();
        let mut waiting = Vec::new();
        for node in nodes {
            let pods: Vec<_> = node.pods.iter().filter_map(|uid| self.pods.remove(uid)).collect();
            if remove {
                for pod in pods {
                    self.writes.last(Errand::PodDelete(pod.path()));
                }
                let (tell, gone) = oneshot::channel();
                waiting.push(gone);
                self.writes.last(Errand::NodeDelete(node.spec.name, Some(tell)));
            }
        }
        tokio::task::spawn_local(async move {
            for gone in waiting {
                let _ = gone.await;
            }
            tell(done);
        });
    }

    pub(super) fn change(&mut self, name: &str, change: NodeChange, done: oneshot::Sender<()>) {
        let now = self.clock.now();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let (name, mut done) = (name.to_owned(), Some(done));
        match change {
            NodeChange::PowerOff => node.power_off(),
            NodeChange::Disconnect => node.machine.power = Power::Off,
            NodeChange::Reconnect => node.machine.power = Power::On,
            NodeChange::ShutDown => node.machine.power = Power::ShuttingDown,
            NodeChange::LoseSentinels => node.machine.sentinels.clear(),
            NodeChange::Steer(overrides) => node.overrides = overrides,
            NodeChange::Boot => {
                node.boot(now);
                let told = Errand::NodeStatus(name.clone(), done.take());
                self.writes.first(told);
            }
            NodeChange::Say(health) => {
                node.say(health, now);
                let told = Errand::NodeStatus(name.clone(), done.take());
                self.writes.first(told);
            }
            NodeChange::KubeletVersion(version) => {
                node.spec.kubelet_version = version;
                let told = Errand::NodeStatus(name.clone(), done.take());
                self.writes.first(told);
            }
            NodeChange::Delete => {
                node.power_off();
                node.leased = false;
                let told = Errand::NodeDelete(name.clone(), done.take());
                self.writes.first(told);
            }
            NodeChange::Recreate => {
                node.uid = None;
                node.leased = false;
                node.say(Health::Ready, now);
                node.boot(now);
                let told = Errand::Register(name.clone(), done.take());
                self.writes.first(told);
            }
        }
        self.steer_pods(&name);
        tell(done);
    }

    pub(super) fn node_news(&mut self, news: &News) {
        let Some((head, gone)) = news.head() else { return };
        let name = head.metadata.name.as_ref().to_owned();
        let Some(node) = self.nodes.get_mut(&name) else {
            return;
        };
        if gone {
            if node.uid.as_deref() == Some(head.metadata.uid.as_ref()) {
                node.uid = None;
                node.leased = false;
            }
            return;
        }
        let id = node.set;
        let was_given_up = node.is_given_up();
        let steered = node.learn(head);
        // The node controller had not heard of the kubelet for too long, as while the API server was down. It is there.
        if !was_given_up && node.is_given_up() && node.is_heard() {
            self.writes.last(Errand::NodeStatus(name.clone(), None));
        }
        if steered {
            self.steer_pods(&name);
        }
        self.tell_if_registered(id);
    }

    /// Renews a Lease, and does so again after the interval.
    pub(super) fn lease_due(&mut self, name: String, at: Instant) {
        let Some(node) = self.nodes.get(&name) else { return };
        let Some(set) = self.sets.get(&node.set) else {
            return;
        };
        if node.uid.is_some() && node.machine.power != Power::Off {
            self.writes.last(Errand::Lease(name.clone()));
        }
        let next = at + set.set.lease_interval;
        self.timers.push(Reverse((next, Timer::Lease(name))));
    }

    pub(super) fn registered(&mut self, name: &str, answer: &Answer) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let Some(set) = self.sets.get_mut(&node.set) else {
            return;
        };
        let Answer::Done(object) = answer else {
            // Whoever waits for the set is told that it will not come.
            set.done = None;
            return;
        };
        let Ok(head) = serde_json::from_slice::<Head<'_>>(object) else {
            return;
        };
        node.uid = Some(head.metadata.uid.to_string());
        node.learn(head);
        if !std::mem::replace(&mut node.renews, true) {
            // The Leases of a set are renewed evenly over the interval.
            let nodes = u32::try_from(set.set.nodes.len()).unwrap_or(u32::MAX).max(1);
            let place = u32::try_from(node.number).unwrap_or(u32::MAX) + 1;
            let first = Instant::now() + set.set.lease_interval / nodes * place;
            self.timers.push(Reverse((first, Timer::Lease(name.to_owned()))));
        }
        let id = node.set;
        self.tell_if_registered(id);
    }

    pub(super) fn adopted(&mut self, name: &str, answer: &Answer) {
        self.registered(name, answer);
        let (Some(node), Answer::Done(object)) = (self.nodes.get_mut(name), answer) else {
            return;
        };
        let Ok(found) = serde_json::from_slice::<Object>(object) else {
            return;
        };
        let info = found.status.and_then(|status| status.node_info);
        if let Some(info) = info.filter(|info| !info.boot_id.is_empty()) {
            node.machine.boot_id = info.boot_id;
        }
        let (requests, news) = (self.requests.clone(), self.tell_pods.clone());
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}");
        tokio::task::spawn_local(async move {
            if let Err(error) = watch::tell_list(&requests, &path, &news).await {
                eprintln!("fake kubelet: {error:#}");
            }
        });
    }
}
