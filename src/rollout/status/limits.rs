//! Keeps a status storable. An object may have 1.5 MiB in etcd, and everything in a status that others write would grow it:
//! kubelets, payloads, admission webhooks. A status that cannot be stored stops the Plan, because a node starts only
//! once the stored status names it.

use crate::node::state::{NodeState, PlanNodes};
use crate::plan::DerivedPlan;
use crate::state::ClusterState;
use refit_api::text::{MAX_CONDITION_MESSAGE, MAX_MESSAGE, MAX_NAME, shorten_in_place};
use refit_api::{NodePhase, NodeProgress, ObjectRef, OpenEnum, PlanStatus};
use refit_facts::record::Phase;

/// Bytes of `status.active` for what only informs.
pub(super) const MAX_ACTIVE_BYTES: usize = 512 * 1_024;
/// The part of it that is left for messages when entries are omitted.
const MESSAGE_BYTES: usize = 64 * 1_024;
/// Bytes of `status.active` and `status.applying` for slots that only they hold. No node starts beyond. What is left of
/// the 1.5 MiB is for the spec and the other fields.
const MAX_SLOT_BYTES: usize = 1_200 * 1_024;
/// Bytes of an entry besides its texts: names of fields, quotes, a time, a phase, a number.
const ENTRY_BYTES: usize = 140;
/// Bytes that the name of a Job adds to an entry: at most 63, and its field.
const JOB_BYTES: usize = 72;

/// Shortens every text of a status that someone else can write, and cuts `active` to its budget. An entry is omitted only
/// if `is_recorded` says that the record on its Node holds the slot.
pub(super) fn truncate_to_budget(status: &mut PlanStatus, is_recorded: impl Fn(&NodeProgress) -> bool) {
    for condition in &mut status.conditions {
        shorten_opt(condition.message.as_mut(), MAX_CONDITION_MESSAGE);
        shorten_word(&mut condition.reason);
    }
    if let Some(channel) = &mut status.channel {
        shorten_opt(channel.last_error.as_mut(), MAX_MESSAGE);
        shorten_opt(channel.message.as_mut(), MAX_MESSAGE);
        shorten_word(&mut channel.reason);
    }
    for check in status.checks.iter_mut().flatten() {
        shorten_opt(check.message.as_mut(), MAX_MESSAGE);
    }
    let Some(active) = &mut status.active else { return };
    for entry in active.iter_mut() {
        shorten_opt(entry.message.as_mut(), MAX_MESSAGE);
        shorten_word(&mut entry.reason);
    }
    let omitted = cut(active, is_recorded);
    status.active_omitted = (omitted > 0).then(|| i64::try_from(omitted).unwrap_or(i64::MAX));
}

fn shorten_opt(text: Option<&mut String>, limit: usize) {
    if let Some(text) = text {
        shorten_in_place(text, limit);
    }
}

fn shorten_word<T>(word: &mut Option<OpenEnum<T>>) {
    if let Some(OpenEnum::Other(word)) = word {
        shorten_in_place(word, MAX_NAME);
    }
}

/// Cuts the list to its budget: messages go first, then entries of nodes that wait or whose slot a record holds, then the
/// reasons of the rest. Returns the number of omitted slots.
fn cut(active: &mut Vec<NodeProgress>, is_recorded: impl Fn(&NodeProgress) -> bool) -> usize {
    let total: usize = active
        .iter()
        .map(|entry| bytes(entry) + message_bytes(entry))
        .sum();
    if total <= MAX_ACTIVE_BYTES {
        return 0;
    }
    let mut size: usize = active.iter().map(bytes).sum();
    let mut omitted = 0;
    let mut kept = Vec::with_capacity(active.len());
    // From the end, where the nodes are that wait.
    for entry in std::mem::take(active).into_iter().rev() {
        let waits = entry.phase == NodePhase::Waiting;
        if size > MAX_ACTIVE_BYTES - MESSAGE_BYTES && (waits || is_recorded(&entry)) {
            size -= bytes(&entry);
            omitted += usize::from(!waits);
        } else {
            kept.push(entry);
        }
    }
    kept.reverse();
    if size > MAX_ACTIVE_BYTES {
        for entry in &mut kept {
            (entry.reason, entry.since) = (None, None);
        }
    }
    let mut room = MAX_ACTIVE_BYTES.saturating_sub(size);
    for entry in &mut kept {
        let bytes = message_bytes(entry);
        if bytes > room {
            (entry.message, entry.about) = (None, Vec::new());
        } else {
            room -= bytes;
        }
    }
    *active = kept;
    omitted
}

/// Bytes of an entry in JSON without its message, at most.
fn bytes(entry: &NodeProgress) -> usize {
    let opt = |text: &Option<String>| text.as_deref().map_or(0, json_bytes);
    let reason = entry
        .reason
        .as_ref()
        .map_or(0, |reason| json_bytes(reason.as_str()));
    ENTRY_BYTES + json_bytes(&entry.name) + opt(&entry.uid) + opt(&entry.job) + opt(&entry.boot_id) + reason
}

fn message_bytes(entry: &NodeProgress) -> usize {
    let message = entry.message.as_deref().map_or(0, |text| json_bytes(text) + 13);
    let about = entry.about.iter().map(object_bytes).sum::<usize>();
    message + about + 10
}

fn object_bytes(object: &ObjectRef) -> usize {
    let namespace = object
        .namespace
        .as_deref()
        .map_or(0, |text| json_bytes(text) + 15);
    json_bytes(&object.kind) + json_bytes(&object.name) + namespace + 24
}

/// Bytes of a text in JSON as an API server stores it: Go also escapes `<`, `>` and `&`.
fn json_bytes(text: &str) -> usize {
    let of = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 | b'<' | b'>' | b'&' | 0x7f => 6,
        _ => 1,
    };
    text.bytes().map(of).sum()
}

/// How many more bytes of slots a status may have.
#[derive(Debug)]
pub(crate) struct SlotRoom(usize);

impl SlotRoom {
    pub(crate) fn of(nodes: &PlanNodes) -> Self {
        let used: usize = nodes.values().map(|state| slot_bytes(state) + JOB_BYTES).sum();
        // The keys of the map are the names of the entries.
        let names: usize = nodes.keys().map(|name| name.len()).sum();
        Self(MAX_SLOT_BYTES.saturating_sub(used + names))
    }

    /// Takes the room for a node. Returns false if there is none.
    pub(crate) fn take(&mut self, name: &str, state: &NodeState) -> bool {
        // Status gets the name of the Job after the slot, and must have room for it.
        let bytes = slot_bytes(state) + JOB_BYTES + name.len();
        let has_room = bytes <= self.0;
        if has_room {
            self.0 -= bytes;
        }
        has_room
    }
}

/// Bytes of what must be stored of a slot: the entry without reason, time and message, and its hostname in `applying`.
fn slot_bytes(state: &NodeState) -> usize {
    const FIELDS: usize = 60;
    let boot = state.boot.as_deref().map_or(0, |boot| json_bytes(boot) + 12);
    FIELDS + state.uid.len() + boot + state.hostname.len() + 3
}

/// Whether a record on the Node holds the slot of a failed node, so that its entry in status is not needed.
pub(super) fn is_recorded(cluster: &ClusterState, plan: &DerivedPlan, entry: &NodeProgress) -> bool {
    let failed = |node| {
        plan.current_record(node)
            .is_some_and(|record| record.phase == Phase::Failed)
    };
    entry.phase == NodePhase::Failed
        && !cluster.world.nodes.is_unreadable(&entry.name)
        && cluster.world.nodes.get(&entry.name).is_some_and(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: usize, message: &str) -> NodeProgress {
        NodeProgress {
            name: format!("node-{number:05}"),
            uid: Some("8b7f5d3c-5f0e-4a57-9d8c-1f5f5a6b7c8d".to_owned()),
            phase: NodePhase::Failed.into(),
            since: Some("2026-01-01T09:00:00Z".to_owned()),
            job: Some("j".repeat(63)),
            attempt: Some(1),
            boot_id: Some("8b7f5d3c-5f0e-4a57-9d8c-1f5f5a6b7c8d".to_owned()),
            message: Some(message.to_owned()),
            ..NodeProgress::default()
        }
    }

    fn status(count: usize, message: &str) -> PlanStatus {
        PlanStatus {
            active: Some((0..count).map(|number| entry(number, message)).collect()),
            ..PlanStatus::default()
        }
    }

    fn active(status: &PlanStatus) -> &[NodeProgress] {
        status.active.as_deref().unwrap_or_default()
    }

    #[test]
    fn the_estimated_size_is_never_less_than_that_in_json() {
        for message in ["", "plain", "\"quoted\" \\ \u{1}\n<&>", "→ä"] {
            let mut entry = entry(7, message);
            entry.about = vec![ObjectRef::plan("p"); 9];
            let json = serde_json::to_string(&entry).unwrap();
            assert!(bytes(&entry) + message_bytes(&entry) >= json.len(), "{json}");
        }
    }

    #[test]
    fn a_short_list_stays_as_it_is_but_for_long_messages() {
        let mut status = status(100, &"x".repeat(32 * 1_024));
        truncate_to_budget(&mut status, |_| true);
        assert_eq!((active(&status).len(), status.active_omitted), (100, None));
        assert!(
            active(&status)
                .iter()
                .all(|entry| entry.message.as_ref().is_some_and(|it| it.len() == MAX_MESSAGE))
        );
    }

    #[test]
    fn a_list_that_just_fits_stays_as_it_is() {
        let mut status = status(9_000, "");
        let entries = status.active.as_mut().unwrap();
        for entry in entries.iter_mut() {
            entry.message = None;
        }
        let room = MAX_ACTIVE_BYTES / (bytes(&entries[0]) + message_bytes(&entries[0]));
        entries.truncate(room);
        truncate_to_budget(&mut status, |_| true);
        assert_eq!((active(&status).len(), status.active_omitted), (room, None));
    }

    #[test]
    fn messages_go_first_then_entries_that_a_record_replaces() {
        let mut many = status(1_500, &"x".repeat(32 * 1_024));
        truncate_to_budget(&mut many, |_| true);
        let used = MAX_ACTIVE_BYTES - 2 * MAX_MESSAGE..=MAX_ACTIVE_BYTES;
        let message = |it: &NodeProgress| it.message.as_ref().map_or(0, |_| message_bytes(it));
        let size = active(&many).iter().map(|it| bytes(it) + message(it)).sum();
        assert!(used.contains(&size), "{size}");
        assert_eq!((active(&many).len(), many.active_omitted), (1_500, None));
        assert!(active(&many)[0].message.is_some() && active(&many)[1_499].message.is_none());

        let mut all = status(5_000, &"x".repeat(32 * 1_024));
        truncate_to_budget(&mut all, |_| true);
        let left = active(&all).len();
        assert_eq!(all.active_omitted, Some(i64::try_from(5_000 - left).unwrap()));
        assert!((1_000..5_000).contains(&left), "{left}");
        assert!(serde_json::to_string(&all).unwrap().len() <= MAX_ACTIVE_BYTES + 1_024);
        assert!(active(&all)[0].message.is_some(), "some messages stay");

        // The same status gives the same list, so that nothing is written again and again.
        let mut again = status(5_000, &"x".repeat(32 * 1_024));
        truncate_to_budget(&mut again, |_| true);
        assert_eq!(all, again);
    }

    #[test]
    fn an_entry_that_alone_holds_a_slot_is_never_omitted() {
        let mut status = status(4_000, "m");
        truncate_to_budget(&mut status, |_| false);
        assert_eq!((active(&status).len(), status.active_omitted), (4_000, None));
        assert!(
            active(&status)
                .iter()
                .all(|it| it.uid.is_some() && it.job.is_some() && it.boot_id.is_some())
        );
        assert!(serde_json::to_string(&status).unwrap().len() <= MAX_SLOT_BYTES);
    }
}
