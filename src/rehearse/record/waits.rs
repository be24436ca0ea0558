//! What nodes and Plans wait for, from when to when.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::live::make_room;
use super::{EventKind, OF_NODES, OF_SOME_NODES, Recorder, Wait, WaitKey};
use crate::upgrade_script::PrepareWait;
use refit_api::{DrainNote, OpenEnum, Reason};

impl Recorder {
    /// Records the note of a drain, or its end.
    pub(super) fn observe_drain(
        &mut self,
        plan: &str,
        node: &str,
        drain: Option<&DrainNote>,
        now: Timestamp,
    ) {
        let mut waited = BTreeSet::new();
        for wait in drain.into_iter().flat_map(|drain| &drain.waiting) {
            let namespace = wait.pod.split('/').next().unwrap_or_default();
            let blocker = match &wait.pdb {
                Some(pdb) => format!("PodDisruptionBudget {namespace}/{pdb}"),
                None => format!("Pod {}", wait.pod),
            };
            let message = format!("{blocker} holds {} ({})", wait.pod, wait.why);
            let key = self.record_wait(
                plan,
                Some(node),
                &Reason::DrainWaiting.into(),
                &blocker,
                &message,
                now,
            );
            if let Some(open) = self.open.get_mut(&key) {
                open.since = open.since.min(wait.since);
            }
            waited.insert(key);
        }
        self.close_waits(now, |key, wait| {
            key.0 == plan
                && key.1.as_deref() == Some(node)
                && wait.reason == Reason::DrainWaiting
                && !waited.contains(key)
        });
    }

    /// Records what `prepare` of a Plan waits for on a node.
    pub fn see_prepare(&mut self, plan: &str, node: &str, wait: Option<&PrepareWait>, now: Timestamp) {
        let key = wait.map(|wait| {
            let message = wait.to_string();
            let awaited = self.depends(plan).filter(|other| !self.is_complete(other));
            let blocker = match (wait, awaited) {
                // Between two of its nodes the awaited Plan applies to none; it is still the same wait.
                (PrepareWait::VersionDiffers { .. }, Some(other)) => format!("Plan {other}"),
                _ => wait.blocker(),
            };
            let key = self.record_wait(plan, Some(node), &Reason::Prepare.into(), &blocker, &message, now);
            if let Some(open) = self.open.get_mut(&key) {
                open.prepare = Some(wait.clone());
            }
            key
        });
        self.close_waits(now, |open, wait| {
            let is_of_node = open.0 == plan && open.1.as_deref() == Some(node);
            is_of_node && wait.reason == Reason::Prepare && Some(open) != key.as_ref()
        });
    }

    /// Waits for a reason that have not ended.
    pub fn open_waits(&self, plan: &str, reason: Reason) -> impl Iterator<Item = &Wait> {
        let is_it = move |wait: &&Wait| wait.plan == plan && wait.reason == reason;
        self.open.values().filter(is_it)
    }

    /// Records that a node waits for its start.
    pub(super) fn record_waiting(
        &mut self,
        plan: &str,
        node: &str,
        reason: &OpenEnum<Reason>,
        message: &str,
        now: Timestamp,
    ) -> WaitKey {
        let of = reason
            .known()
            .filter(|known| OF_NODES.contains(known))
            .map(|_| node);
        let awaited = self
            .depends(plan)
            .filter(|_| *reason == Reason::DependencyNotComplete);
        let blocker = awaited.map_or_else(|| reason.to_string(), |other| format!("Plan {other}"));
        let key = self.record_wait(plan, of, reason, &blocker, message, now);
        if let Some(known) = reason.known().filter(|known| OF_SOME_NODES.contains(known))
            && let Some(seen) = self.plans.get_mut(plan)
        {
            let nodes = seen.waiting.entry(known.name()).or_default();
            if !nodes.contains(node) {
                nodes.insert(node.to_owned());
            }
        }
        key
    }

    /// The nodes of a Plan that have shared the waits for a reason; `None` if the whole Plan has waited.
    pub fn sharing(&self, plan: &str, reason: &OpenEnum<Reason>) -> Option<&BTreeSet<String>> {
        self.plans.get(plan)?.waiting.get(reason.as_str())
    }

    /// Records a wait. Its key is needed to end it.
    pub(super) fn record_wait(
        &mut self,
        plan: &str,
        node: Option<&str>,
        reason: &OpenEnum<Reason>,
        blocker: &str,
        message: &str,
        now: Timestamp,
    ) -> WaitKey {
        let key = (plan.to_owned(), node.map(str::to_owned), blocker.to_owned());
        if let Some(open) = self.open.get_mut(&key) {
            if open.message != message {
                message.clone_into(&mut open.message);
            }
            return key;
        }
        let wait = Wait {
            plan: plan.to_owned(),
            node: node.map(str::to_owned),
            reason: reason.clone(),
            blocker: blocker.to_owned(),
            message: message.to_owned(),
            prepare: None,
            since: now,
            until: None,
        };
        self.open.insert(key.clone(), wait);
        let what = EventKind::Waits {
            reason: reason.clone(),
            message: message.to_owned(),
        };
        self.emit(now, plan, node, what);
        key
    }

    pub(super) fn close_waits(&mut self, now: Timestamp, which: impl Fn(&WaitKey, &Wait) -> bool) {
        let over: Vec<WaitKey> = self
            .open
            .iter()
            .filter(|(key, wait)| which(key, wait))
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            if let Some(mut wait) = self.open.remove(&key) {
                wait.until = Some(now);
                self.emit(now, &wait.plan, wait.node.as_deref(), EventKind::Resumed);
                self.closed.push(wait);
                if self.is_live {
                    make_room(&mut self.closed);
                }
            }
        }
    }
}
