//! What a change of status means, in system-upgrade-controller's words (S63).

use crate::api::{PlanCondition, PlanStatus};
use crate::rollout::conditions::{
    COMPLETE, LATEST_RESOLVED, NO_JOB_FOR_NODE, SELECT_NODES_FAILED, UP_TO_DATE, VALIDATED, find,
};
use crate::rollout::event::{Event, EventType};
use crate::rollout::plan::PlanView;
use crate::rollout::resolve::{Resolution, Source, UNRESOLVABLE};

/// How long the list of nodes in an event may be, in bytes; a message is at most 1,024 long (core/v1 Event).
const NODES_IN_EVENT: usize = 800;

struct Telling<'a> {
    plan: &'a PlanView,
    stored: &'a PlanStatus,
    status: &'a PlanStatus,
    told: Vec<(EventType, &'static str, String)>,
}

/// The events that go with a new status.
pub(super) fn events(plan: &PlanView, stored: &PlanStatus, status: &PlanStatus) -> Vec<Event> {
    let mut telling = Telling {
        plan,
        stored,
        status,
        told: Vec::new(),
    };
    telling.validated();
    telling.resolved();
    telling.synced();
    telling.up_to_date();
    telling.complete();
    if telling.told.is_empty() {
        return Vec::new();
    }
    // The status that is replaced tells one time from another: its conditions say, to the second, since when they hold.
    let occurrence = serde_json::to_string(stored).unwrap_or_default();
    let (name, uid) = (&plan.facts.name, &plan.facts.uid);
    let event = |(type_, reason, text)| Event::plan(name, uid, type_, reason, text, &occurrence);
    telling.told.into_iter().map(event).collect()
}

impl Telling<'_> {
    fn tell(&mut self, type_: EventType, reason: &'static str, text: String) {
        self.told.push((type_, reason, text));
    }

    fn changed(&self, type_: &str) -> Option<&PlanCondition> {
        let now = find(&self.status.conditions, type_)?;
        let same = find(&self.stored.conditions, type_)
            .is_some_and(|k| k.status == now.status && k.message == now.message && k.reason == now.reason);
        (!same).then_some(now)
    }

    fn version(&self) -> &str {
        self.status.latest_version.as_deref().unwrap_or_default()
    }

    fn hash(&self) -> &str {
        self.status.latest_hash.as_deref().unwrap_or_default()
    }

    fn validated(&mut self) {
        let Some(now) = self.changed(VALIDATED) else {
            return;
        };
        match now.message.clone() {
            Some(why) if now.status == "False" => {
                self.tell(
                    EventType::Warning,
                    "ValidateFailed",
                    format!("Failed to validate plan: {why}"),
                );
            }
            _ => self.tell(EventType::Normal, "Validated", "Plan is valid".to_owned()),
        }
    }

    fn resolved(&mut self) {
        let news = self.changed(LATEST_RESOLVED).is_some();
        match &self.plan.resolution {
            Resolution::Failed(why) if news && why == UNRESOLVABLE => {
                self.tell(EventType::Warning, "ResolveFailed", why.clone());
            }
            Resolution::Failed(why) if news => self.unresolved(why),
            Resolution::Resolved(resolved) => {
                let error = |s: &PlanStatus| s.channel.as_ref().and_then(|c| c.last_error.clone());
                if let Some(why) = error(self.status).filter(|why| error(self.stored).as_ref() != Some(why)) {
                    self.unresolved(&why);
                }
                if news || self.stored.latest_version != self.status.latest_version {
                    let field = match resolved.source {
                        Source::Version => "Version",
                        Source::Channel => "Channel",
                    };
                    let text = format!("Resolved latest version from Spec.{field}: {}", self.version());
                    self.tell(EventType::Normal, "Resolved", text);
                }
            }
            _ => {}
        }
    }

    fn unresolved(&mut self, why: &str) {
        let text = format!("Failed to resolve latest version from Spec.Channel: {why}");
        self.tell(EventType::Warning, "ResolveFailed", text);
    }

    /// What the policy of the Plan holds back, and when it lets go.
    fn up_to_date(&mut self) {
        let Some(now) = self.changed(UP_TO_DATE).filter(|now| now.status == "False") else {
            return;
        };
        let (type_, reason) = match now.reason.as_deref() {
            Some("NotApproved") => (EventType::Normal, "VersionProposed"),
            Some("TooYoung") => (EventType::Normal, "VersionHeld"),
            _ => (EventType::Warning, "VersionHeld"),
        };
        let at = match &self.status.latest_version {
            Some(version) => format!("; the Plan stays at {version}"),
            None => String::new(),
        };
        let text = format!("{}{at}", now.message.clone().unwrap_or_default());
        self.tell(type_, reason, text);
    }

    fn synced(&mut self) {
        let Some(nodes) = self
            .status
            .applying
            .as_ref()
            .filter(|_| self.status.applying != self.stored.applying)
        else {
            return;
        };
        let (version, hash) = (self.version(), self.hash());
        let text = format!(
            "Jobs synced for version {version} on Nodes {}. Hash: {hash}",
            join(nodes)
        );
        self.tell(EventType::Normal, "SyncJob", text);
    }

    fn complete(&mut self) {
        let Some(now) = self.changed(COMPLETE) else { return };
        let message = now.message.clone().unwrap_or_default();
        let reason = now.reason.clone().unwrap_or_default();
        let was_complete = find(&self.stored.conditions, COMPLETE).is_some_and(|c| c.status == "True");
        let (version, hash) = (self.version(), self.hash());
        match reason.as_str() {
            "Complete" if !was_complete => {
                let text = format!("Jobs complete for version {version}. Hash: {hash}");
                self.tell(EventType::Normal, "Complete", text);
            }
            "Waiting" => {
                let text = format!(
                    "Waiting for start of Spec.Window to sync Jobs for version {version}. Hash: {hash}"
                );
                self.tell(EventType::Normal, "Waiting", text);
            }
            // Told otherwise: with the Job, with validation, with SyncJob.
            "Complete" | "JobFailed" | "NotReady" | "Resolved" | "DigestPending" => {}
            "SyncJob" if message.is_empty() => {}
            "SyncJob" if message.starts_with(NO_JOB_FOR_NODE) => {
                self.tell(EventType::Warning, "ValidationFailed", message);
            }
            "SyncJob" => self.tell(EventType::Warning, "JobRefused", message),
            SELECT_NODES_FAILED => self.tell(EventType::Warning, SELECT_NODES_FAILED, message),
            "Suspended" => self.tell(EventType::Normal, "Suspended", message),
            reason => {
                let reason = BLOCKED
                    .into_iter()
                    .find(|known| *known == reason)
                    .unwrap_or("Blocked");
                self.tell(EventType::Warning, reason, message);
            }
        }
    }
}

/// Blockers that `Complete` may name: the reason of the event is theirs.
const BLOCKED: [&str; 14] = [
    "ChannelWithdrawn",
    "ConcurrencyZero",
    "DigestUnknown",
    "ImageInvalid",
    "JobLeaving",
    "JobRefused",
    "MinorSkip",
    "MissingPermission",
    "NodeBusy",
    "NodeNotReady",
    "PodLeaving",
    "SettingMissing",
    "SpecPruned",
    "VersionOutOfRange",
];

fn join(nodes: &[String]) -> String {
    let mut out = String::new();
    for (at, node) in nodes.iter().enumerate() {
        if out.len() + node.len() > NODES_IN_EVENT {
            return format!("{out} and {} more", nodes.len() - at);
        }
        if at > 0 {
            out.push(',');
        }
        out.push_str(node);
    }
    out
}
