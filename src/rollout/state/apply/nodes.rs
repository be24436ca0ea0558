//! Nodes.

use crate::state::ClusterState;
use crate::state::table::Put;
use refit_api::names::ControlPlaneRole;
use refit_facts::{NodeFacts, Text};

impl ClusterState {
    pub(super) fn apply_node(&mut self, version: u64, facts: NodeFacts) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        let was_unreadable = self.forget_unreadable(&name);
        match self.nodes.put(&name, &uid, version, facts) {
            Put::Unchanged => return was_unreadable,
            Put::Inserted => {}
            Put::Replaced(old) => self.unindex_node(&old),
        }
        if let Some(hostname) = self.nodes.get(&name).map(|node| Text::from(node.hostname())) {
            self.add_hostname(&hostname, &name);
        }
        if let Some(new) = self.nodes.get(&name) {
            for plan in new.records.keys() {
                self.recorded_on.add(plan, &name);
            }
            for plan in new.labelled_for(&self.defaults.namespace) {
                self.labelled_on.add(&plan.into(), &name);
            }
            if new.ledger.is_some() {
                self.ledgers.insert(name.clone());
            }
            if new.pending_for(&self.defaults.namespace).next().is_some() {
                self.pending.insert(name.clone());
            }
            if new.unschedulable || !new.is_ready_and_untainted() {
                self.unavailable.insert(name.clone());
            }
            // It has registered again, so its conditions count from now on.
            for members in self.departed.values_mut() {
                members.remove(&name);
            }
            for role in roles(new) {
                self.control_plane.entry(role).or_default().insert(name.clone());
            }
            for plan_state in self.plans.values_mut() {
                plan_state.node_changed(new);
            }
            if !new.is_ready_and_untainted() {
                self.reset_ready_timers(&name);
            }
        }
        self.file_jobs_on(&name);
        true
    }

    pub(super) fn remove_node(&mut self, name: &str, uid: &str) -> bool {
        let was_unreadable =
            self.unreadable_nodes.get(name).is_some_and(|it| *it.uid == *uid) && self.forget_unreadable(name);
        let Some(old) = self.nodes.remove(name, uid, |n| &n.uid) else {
            return was_unreadable;
        };
        self.unindex_node(&old);
        for role in roles(&old) {
            self.departed.entry(role).or_default().insert(old.name.clone());
        }
        for plan_state in self.plans.values_mut() {
            plan_state.remove_node(&old.name);
        }
        self.file_jobs_on(name);
        true
    }

    fn unindex_node(&mut self, old: &NodeFacts) {
        self.nodes_by_hostname.drop(&old.hostname().into(), &old.name);
        for plan in old.records.keys() {
            self.recorded_on.drop(plan, &old.name);
        }
        for plan in old.labelled_for(&self.defaults.namespace) {
            self.labelled_on.drop(&plan.into(), &old.name);
        }
        self.ledgers.remove(&old.name);
        self.pending.remove(&old.name);
        self.unavailable.remove(&old.name);
        for members in self.control_plane.values_mut() {
            members.remove(&old.name);
        }
    }
}

fn roles(node: &NodeFacts) -> impl Iterator<Item = ControlPlaneRole> {
    let roles = ControlPlaneRole::ALL.into_iter();
    roles.filter(|role| node.has_role(*role))
}
