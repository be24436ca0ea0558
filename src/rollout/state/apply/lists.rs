//! Lists: which objects they no longer contain, and which responses they have overtaken.

use std::borrow::Borrow;

use super::{jobs, nodes, plans};
use crate::observation::Kind;
use crate::state::ClusterState;
use crate::world::nodes::UnreadableNode;
use refit_facts::{PlanName, Text};

/// Number of lists of each kind that had begun and ended at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCounts([u64; 4]);

pub(super) fn start(cluster: &mut ClusterState, kind: Kind) {
    match kind {
        Kind::Node => cluster.world.nodes.start_list(),
        Kind::Job => cluster.world.jobs.table.start_list(),
        Kind::Pod => cluster.world.pods.table.start_list(),
        Kind::Plan => cluster.plan_listing.start(),
    }
}

/// A list or a watch has returned this object.
pub(super) fn mark_listed(cluster: &mut ClusterState, kind: Kind, name: &str) {
    match kind {
        Kind::Node => cluster.world.nodes.mark_listed(name),
        Kind::Job => cluster.world.jobs.table.mark_listed(name),
        Kind::Pod => cluster.world.pods.table.mark_listed(name),
        Kind::Plan => {
            if let Some((name, _)) = cluster.plans.get_key_value(name) {
                cluster.plan_listing.mark(name);
            }
        }
    }
}

/// A list ends. Returns whether that matters: an object was removed, or what was unknown is known now.
pub(super) fn finish(cluster: &mut ClusterState, kind: Kind) -> bool {
    match kind {
        Kind::Node => {
            let (gone, unreadable_gone) = cluster.world.nodes.finish_list();
            remove_all(cluster, &gone, nodes::remove) || unreadable_gone
        }
        Kind::Job => {
            let gone = cluster.world.jobs.table.finish_list();
            // The list may show whether a requested Job exists.
            remove_all(cluster, &gone, jobs::remove) || !cluster.memory.pending_creates.is_empty()
        }
        Kind::Pod => {
            let gone = cluster.world.pods.table.finish_list();
            remove_all(cluster, &gone, jobs::remove_pod)
        }
        Kind::Plan => {
            let read_again = cluster.world.definition.relist_finished();
            let gone = cluster.plan_listing.finish(cluster.plans.keys());
            let uid = |name: PlanName| {
                let uid = cluster.plans.get(&name)?.facts.uid.clone();
                Some((name, uid))
            };
            let gone: Vec<_> = gone.into_iter().filter_map(uid).collect();
            remove_all(cluster, &gone, plans::remove) || read_again
        }
    }
}

fn remove_all<N: Borrow<str>, U: Borrow<str>>(
    cluster: &mut ClusterState,
    gone: &[(N, U)],
    remove: fn(&mut ClusterState, &str, &str) -> bool,
) -> bool {
    for (name, uid) in gone {
        remove(cluster, name.borrow(), uid.borrow());
    }
    !gone.is_empty()
}

/// Number of lists of each kind that have begun and ended. Note it when a request is sent, for
/// [`ClusterState::apply_effect`].
pub(super) fn counts(cluster: &ClusterState) -> ListCounts {
    ListCounts([
        cluster.world.nodes.table().lists(),
        cluster.world.jobs.table.lists(),
        cluster.world.pods.table.lists(),
        cluster.plan_listing.count(),
    ])
}

/// Whether the response to a request sent at `sent` may describe a deleted object: the object is not known, and a
/// list that has run since need not have contained it before its deletion. If the object exists after all, the
/// watch reports it.
pub(super) fn is_answer_stale(cluster: &ClusterState, kind: Kind, name: &str, sent: ListCounts) -> bool {
    let known = match kind {
        Kind::Node => cluster.world.nodes.get(name).is_some(),
        Kind::Job => cluster.world.jobs.get(name).is_some(),
        Kind::Pod => cluster.world.pods.get(name).is_some(),
        Kind::Plan => cluster.plans.contains_key(name),
    };
    let lists = counts(cluster).0[kind as usize];
    !known && (lists != sent.0[kind as usize] || !lists.is_multiple_of(2))
}

/// An object cannot be read. What was known of it stays: a Node that cannot be read must not lose its slot, nor a Job its
/// result. A Job or a pod that was never read is as if it were not there, and its name stays taken.
pub(super) fn unreadable(cluster: &mut ClusterState, kind: Kind, name: &str, uid: Text, why: String) -> bool {
    let known = match kind {
        Kind::Node => cluster.world.nodes.get(name).map(|it| it.uid.text().clone()),
        Kind::Job => cluster.world.jobs.get(name).map(|it| it.uid.text().clone()),
        Kind::Pod => cluster.world.pods.get(name).map(|it| it.uid.text().clone()),
        Kind::Plan => cluster.plans.get(name).map(|it| it.facts.uid.text().clone()),
    };
    // Another object had the name, and is gone.
    let is_gone = known.filter(|known| *known != uid);
    let mut changed = is_gone.is_some_and(|gone| match kind {
        Kind::Node => nodes::remove(cluster, name, &gone),
        Kind::Job => jobs::remove(cluster, name, &gone),
        Kind::Pod => jobs::remove_pod(cluster, name, &gone),
        Kind::Plan => plans::remove(cluster, name, &gone),
    });
    if kind == Kind::Node {
        let node = UnreadableNode { uid: uid.into(), why };
        changed |= cluster.world.nodes.put_unreadable(name, node);
    }
    changed
}
