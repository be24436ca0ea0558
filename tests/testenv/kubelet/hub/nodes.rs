//! Registration and changes of nodes.

use std::cmp::Reverse;
use std::time::Instant;

use k8s_openapi::api::core::v1::Node as Object;
use refit_rehearse::pod_lifecycle::Power;
use tokio::sync::oneshot;

use super::{Hub, Set, Timer, WriteRequest};
use crate::testenv::kubelet::api::Answer;
use crate::testenv::kubelet::machine::{Health, Node};
use crate::testenv::kubelet::nodeset::NodeSet;
use crate::testenv::kubelet::remote::{Done, NodeChange, notify};
use crate::testenv::kubelet::watch::{self, Head, WatchEvent};

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
            self.writes
                .push_back(WriteRequest::Register(spec.name.clone(), None));
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
                    self.writes.push_back(WriteRequest::PodDelete(pod.path()));
                }
                let (deleted, gone) = oneshot::channel();
                waiting.push(gone);
                self.writes
                    .push_back(WriteRequest::NodeDelete(node.spec.name, Some(deleted)));
            }
        }
        tokio::task::spawn_local(async move {
            for gone in waiting {
                let _ = gone.await;
            }
            notify(done);
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
            NodeChange::LoseSentinels => node.machine.sentinels.clear(),
            NodeChange::Steer(overrides) => node.overrides = overrides,
            NodeChange::Boot => {
                node.boot(now);
                let write = WriteRequest::NodeStatus(name.clone(), done.take());
                self.writes.push_front(write);
            }
            NodeChange::SetHealth(health) => {
                node.set_health(health, now);
                let write = WriteRequest::NodeStatus(name.clone(), done.take());
                self.writes.push_front(write);
            }
            NodeChange::KubeletVersion(version) => {
                node.spec.kubelet_version = version;
                let write = WriteRequest::NodeStatus(name.clone(), done.take());
                self.writes.push_front(write);
            }
            NodeChange::Delete => {
                node.power_off();
                node.leased = false;
                let write = WriteRequest::NodeDelete(name.clone(), done.take());
                self.writes.push_front(write);
            }
            NodeChange::Recreate => {
                node.uid = None;
                node.leased = false;
                node.set_health(Health::Ready, now);
                node.boot(now);
                let write = WriteRequest::Register(name.clone(), done.take());
                self.writes.push_front(write);
            }
        }
        self.steer_pods(&name);
        notify(done);
    }

    pub(super) fn handle_node_event(&mut self, event: &WatchEvent) {
        let Some((head, gone)) = event.head() else { return };
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
        let was_given_up = node.is_lost();
        let steered = node.observe(head);
        // The node controller declared the node lost, for example while the API server was down.
        if !was_given_up && node.is_lost() && node.is_reporting() {
            self.writes
                .push_back(WriteRequest::NodeStatus(name.clone(), None));
        }
        if steered {
            self.steer_pods(&name);
        }
        self.tell_if_registered(id);
    }

    /// Renews a Lease, and schedules the next renewal.
    pub(super) fn lease_due(&mut self, name: String, at: Instant) {
        let Some(node) = self.nodes.get(&name) else { return };
        let Some(set) = self.sets.get(&node.set) else {
            return;
        };
        if node.uid.is_some() && node.machine.power != Power::Off {
            self.writes.push_back(WriteRequest::Lease(name.clone()));
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
            // Notifies the waiting test that the set is incomplete.
            set.done = None;
            return;
        };
        let Ok(head) = serde_json::from_slice::<Head<'_>>(object) else {
            return;
        };
        node.uid = Some(head.metadata.uid.to_string());
        node.observe(head);
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
        let (requests, pod_events) = (self.requests.clone(), self.pod_events.clone());
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}");
        tokio::task::spawn_local(async move {
            if let Err(error) = watch::send_list(&requests, &path, &pod_events).await {
                eprintln!("fake kubelet: {error:#}");
            }
        });
    }
}
