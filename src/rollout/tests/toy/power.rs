//! Boots: power that fails, nodes that reboot because they were asked to, and what pods of refit's do about it.

use super::objects::ToyPod;
use super::requests::{Reply, Wrong, news, told, wrong};
use super::wire::News;
use super::{Stored, Toy};
use crate::api::RebootWhen;
use crate::rollout::facts::Text;
use crate::rollout::{Found, Stage};

impl Toy {
    /// A machine reboots, for whatever reason. Its API object shows nothing of that yet, except that it may become not Ready.
    pub(in super::super) fn power_cycle(&mut self, node: &str) {
        let boot = self.next_uid("boot");
        self.note(|| format!("{node} boots: {boot}"));
        let node = self.nodes.get_mut(node).unwrap();
        (node.it.boot, node.it.is_away, node.it.goes_down) = (boot, true, false);
        node.it.sentinels.clear();
    }

    /// The kubelet of a node is back after a boot: what ran has ended, but for what is started again.
    pub(in super::super) fn kubelet_returns(&mut self, name: &str) {
        self.comes_back(name, true);
    }

    /// The kubelet is back, and its node Ready or not.
    pub(in super::super) fn comes_back(&mut self, name: &str, ready: bool) {
        self.change_node(name, |node| {
            node.is_away = false;
            node.facts.ready = ready;
            node.facts.boot_id = node.boot.as_str().into();
        });
        let ran = |pod: &ToyPod| pod.target == name && pod.is_at_work();
        let pods: Vec<_> = self
            .pods
            .iter()
            .filter(|(_, pod)| ran(&pod.it))
            .map(|(name, _)| name.clone())
            .collect();
        for pod in pods {
            if self.pods[&pod].it.facts.reboot.is_some() {
                self.change_pod(&pod, |pod| {
                    pod.facts.stage = Stage::Starting;
                    pod.sleeps = false;
                });
            } else if self.pods[&pod].it.facts.stage != Stage::Starting {
                self.pod_ends(&pod, false);
            }
        }
    }

    /// A payload that reboots its node itself. True when it does.
    pub(super) fn reboots_by_itself(&mut self, node: &str) -> bool {
        let Some(left) = self.restless.get_mut(node).filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        self.power_cycle(node);
        true
    }

    /// What `refit sentinel` does.
    pub(super) fn leaves_a_sentinel(&mut self, pod: &str) {
        let pod = self.pods[pod].it.clone();
        let Some(hash) = pod.sentinel.clone() else { return };
        let plan = self.plans.values().find(|plan| plan.it.uid == pod.plan_uid);
        let always =
            plan.is_none_or(|plan| plan.it.object.spec.reboot_or_default().when() != RebootWhen::IfRequired);
        let required = always || !self.content.contains(&pod.target);
        let node = &mut self.nodes.get_mut(&pod.target).unwrap().it;
        node.sentinels
            .insert((pod.plan_uid.clone(), hash.clone()), required);
        let found = Found::Success {
            boot_id: node.boot.as_str().into(),
            required,
        };
        let name = pod.facts.name.to_string();
        self.sentinel_is_left(&pod, &hash, required);
        self.pods.get_mut(&name).unwrap().it.facts.found = Some(found);
    }

    /// What `refit reboot` does.
    pub(super) fn reboot_pod_goes_on(&mut self, name: &str) {
        let pod = self.pods[name].it.clone();
        let it = pod.facts.reboot.as_deref().unwrap().clone();
        let node = self.nodes[&pod.target].it.clone();
        let sentinel = node
            .sentinels
            .get(&(it.plan_uid.clone(), it.hash.clone()))
            .copied();
        let nothing = || {
            Some(Found::Nothing {
                boot_id: Some(node.boot.as_str().into()),
            })
        };
        match (&it.boot_id, sentinel) {
            (Some(boot_id), _) if **boot_id != *node.boot => self.pod_ends(name, true),
            (Some(_), None) => {
                // It fails, and is started again and again.
                self.change_pod(name, |pod| {
                    pod.facts.stage = Stage::Upgrade;
                    pod.facts.found = nothing();
                    pod.sleeps = true;
                });
            }
            (Some(_), Some(_)) => {
                self.reboot_is_requested(&pod, &it);
                let deaf = self.deaf.contains(&pod.target);
                self.nodes.get_mut(&pod.target).unwrap().it.goes_down |= !deaf;
                self.change_pod(name, |pod| {
                    pod.facts.stage = Stage::Upgrade;
                    pod.sleeps = true;
                });
            }
            (None, Some(required)) => {
                let boot_id = node.boot.as_str().into();
                self.pods.get_mut(name).unwrap().it.facts.found = Some(Found::Success { boot_id, required });
                self.pod_ends(name, true);
            }
            (None, None) => {
                self.pods.get_mut(name).unwrap().it.facts.found = nothing();
                self.pod_ends(name, false);
            }
        }
    }

    /// A pod is told to go.
    pub(in super::super) fn pod_is_told_to_go(&mut self, name: &str) {
        self.change_pod(name, |pod| {
            pod.terminating = true;
            pod.facts.deleting = true;
        });
    }

    /// The kubelet ends a pod: eviction, shutdown, no room.
    pub(in super::super) fn pod_is_evicted(&mut self, name: &str) {
        self.note(|| format!("{name} is evicted"));
        self.pod_ends(name, false);
    }
}

/// How the API server takes what the controller wants of such pods.
impl Toy {
    pub(super) fn look_at_pod(&self, name: &Text, uid: &Text, kind: Wrong) -> Reply {
        let gone = news(News::PodGone(name.clone(), uid.clone()));
        let seen = |pod: &Stored<ToyPod>| news(News::Pod(pod.version, pod.it.facts.clone()));
        match self.pods.get(&**name) {
            Some(pod) if pod.it.facts.uid == *uid => wrong(vec![seen(pod)], kind, "conflict"),
            Some(pod) => told(vec![gone, seen(pod)]),
            None => told(vec![gone]),
        }
    }

    pub(super) fn create_pod_request(&mut self, pod: &ToyPod) -> Reply {
        let name = pod.facts.name.clone();
        if !self.pods.contains_key(&*name) {
            let mut pod = pod.clone();
            pod.facts.uid = self.next_uid("pod").as_str().into();
            self.create_pod(pod);
        }
        let known = &self.pods[&*name];
        told(vec![news(News::Pod(known.version, known.it.facts.clone()))])
    }
}

/// What tests ask, and what they do by hand.
impl Toy {
    /// How often a node has booted since it is there.
    pub(in super::super) fn boots(&self, node: &str) -> usize {
        let text = format!(" {node} boots: ");
        self.trace.iter().filter(|line| line.contains(&text)).count()
    }

    /// Names of the pods that are to reboot nodes.
    pub(in super::super) fn reboot_pods(&self) -> Vec<String> {
        let pods = self.pods.iter().filter(|(_, pod)| pod.it.facts.reboot.is_some());
        pods.map(|(name, _)| name.clone()).collect()
    }

    /// A node reboots, and is Ready again.
    pub(in super::super) fn reboots(&mut self, node: &str) {
        self.power_cycle(node);
        self.comes_back(node, true);
    }

    /// One thing happens that may happen.
    pub(in super::super) fn one_move(&mut self) {
        if let Some(next) = self.moves().first().cloned() {
            self.play(&next);
        }
    }
}
