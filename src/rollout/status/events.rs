//! Events for a change of status, with system-upgrade-controller's reasons and texts (S63).

use super::origin::suffix;
use crate::event::Event;
use crate::plan::DerivedPlan;
use crate::resolve::{Resolution, UNRESOLVABLE};
use refit_api::reason::ReportedIn;
use refit_api::{ConditionType, DespiteStatus, OpenEnum, PlanCondition, PlanStatus, Reason, Severity};

/// Maximum length of the list of nodes in an event, in bytes. A message has at most 1,024 (core/v1 Event).
const NODES_IN_EVENT: usize = 800;

struct EventBuilder<'a> {
    plan: &'a DerivedPlan,
    stored: &'a PlanStatus,
    status: &'a PlanStatus,
    events: Vec<(Severity, Reason, String)>,
}

pub(super) fn events(plan: &DerivedPlan, stored: &PlanStatus, status: &PlanStatus) -> Vec<Event> {
    let mut builder = EventBuilder {
        plan,
        stored,
        status,
        events: Vec::new(),
    };
    builder.emit_validated();
    builder.emit_resolved();
    builder.emit_repeats();
    builder.emit_despite();
    builder.emit_synced();
    builder.emit_up_to_date();
    builder.complete();
    if builder.events.is_empty() {
        return Vec::new();
    }
    // The replaced status identifies the occurrence: its conditions have timestamps.
    let occurrence = serde_json::to_string(stored).unwrap_or_default();
    let (name, uid) = (&plan.facts.name, &plan.facts.uid);
    let event = |(severity, reason, text)| Event {
        severity,
        ..Event::plan(name, uid, reason, text, &occurrence)
    };
    builder.events.into_iter().map(event).collect()
}

impl EventBuilder<'_> {
    fn emit(&mut self, reason: Reason, text: String) {
        self.events.push((reason.severity(), reason, text));
    }

    fn changed(&self, type_: ConditionType) -> Option<&PlanCondition> {
        let now = self.status.condition(type_)?;
        let same = self
            .stored
            .condition(type_)
            .is_some_and(|k| k.status == now.status && k.message == now.message && k.reason == now.reason);
        (!same).then_some(now)
    }

    fn version(&self) -> &str {
        self.status.latest_version.as_deref().unwrap_or_default()
    }

    fn hash(&self) -> &str {
        self.status.latest_hash.as_deref().unwrap_or_default()
    }

    fn emit_validated(&mut self) {
        let Some(now) = self.changed(ConditionType::Validated) else {
            return;
        };
        match now.message.clone() {
            Some(why) if now.status == "False" => {
                self.emit(Reason::ValidateFailed, format!("Failed to validate plan: {why}"));
            }
            _ => self.emit(Reason::Validated, "Plan is valid".to_owned()),
        }
    }

    fn emit_resolved(&mut self) {
        let is_new = self.changed(ConditionType::LatestResolved).is_some();
        match &self.plan.resolution {
            Resolution::Failed(why) if is_new && why == UNRESOLVABLE => {
                self.emit(Reason::ResolveFailed, why.clone());
            }
            Resolution::Failed(why) if is_new => self.emit_unresolved(why),
            Resolution::Resolved(resolved) => {
                let error = |s: &PlanStatus| s.channel.as_ref().and_then(|c| c.last_error.clone());
                if let Some(why) = error(self.status).filter(|why| error(self.stored).as_ref() != Some(why)) {
                    self.emit_unresolved(&why);
                }
                if is_new || self.stored.latest_version != self.status.latest_version {
                    let field = resolved.source;
                    let origin = suffix(self.status.origin.as_ref());
                    let text = format!(
                        "Resolved latest version from Spec.{field}: {}{origin}",
                        self.version()
                    );
                    self.emit(Reason::Resolved, text);
                }
            }
            _ => {}
        }
    }

    fn emit_unresolved(&mut self, why: &str) {
        let text = format!("Failed to resolve latest version from Spec.Channel: {why}");
        self.emit(Reason::ResolveFailed, text);
    }

    /// The version that the policy holds back, and what would let it through.
    fn emit_up_to_date(&mut self) {
        let Some(now) = self
            .changed(ConditionType::UpToDate)
            .filter(|now| now.status == "False")
        else {
            return;
        };
        let held = now.reason.as_ref().and_then(OpenEnum::known);
        let reason = match held {
            Some(Reason::NotApproved) => Reason::VersionProposed,
            _ => Reason::VersionHeld,
        };
        let severity = held.map_or(reason.severity(), Reason::severity);
        let at = match &self.status.latest_version {
            Some(version) => format!("; the Plan stays at {version}"),
            None => String::new(),
        };
        let text = format!("{}{at}", now.message.clone().unwrap_or_default());
        self.events.push((severity, reason, text));
    }

    fn emit_repeats(&mut self) {
        let since = |status: &PlanStatus| status.repeat.as_ref()?.since.clone();
        let Some(due) = since(self.status).filter(|due| since(self.stored).as_ref() != Some(due)) else {
            return;
        };
        let next = self.status.repeat.as_ref();
        let next = next.and_then(|repeat| repeat.next.as_deref());
        let next = next.map_or_else(String::new, |next| format!("; next at {next}"));
        let text = format!(
            "The Plan runs again at version {}, as was due at {due}{next}",
            self.version()
        );
        self.emit(Reason::Repeats, text);
    }

    /// The exemptions that are new.
    fn emit_despite(&mut self) {
        let known = |it: &DespiteStatus| {
            self.stored
                .despite
                .iter()
                .flatten()
                .any(|known| known.is_same(it))
        };
        let (all, version) = (self.status.despite.iter().flatten(), self.version());
        let event = |it: &DespiteStatus| {
            if let Some(why) = &it.invalid {
                let by = it.by.as_deref().map_or_else(String::new, |by| format!(" ({by})"));
                let text = format!("refit.rs/despite is ignored: {why}{by}");
                return (Reason::DespiteInvalid, text);
            }
            let text = format!(
                "Nodes start for version {version} in spite of limits: {}",
                it.describe()
            );
            (Reason::StartedDespite, text)
        };
        let events: Vec<_> = all
            .filter(|it| it.ended.is_none() && !known(it))
            .map(event)
            .collect();
        for (reason, text) in events {
            self.emit(reason, text);
        }
    }

    fn emit_synced(&mut self) {
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
        self.emit(Reason::SyncJob, text);
    }

    fn complete(&mut self) {
        let Some(now) = self.changed(ConditionType::Complete) else {
            return;
        };
        let message = now.message.clone().unwrap_or_default();
        let Some(reason) = now.reason.as_ref().and_then(OpenEnum::known) else {
            return;
        };
        let was_complete = self.stored.is_true(ConditionType::Complete);
        let (version, hash) = (self.version(), self.hash());
        match reason {
            Reason::Complete if !was_complete => {
                let text = format!("Jobs complete for version {version}. Hash: {hash}");
                self.emit(reason, text);
            }
            Reason::Waiting => {
                let text = format!(
                    "Waiting for start of Spec.Window to sync Jobs for version {version}. Hash: {hash}"
                );
                self.emit(reason, text);
            }
            // Other events report these: that of the Job, of validation, or SyncJob.
            Reason::Complete | Reason::JobFailed | Reason::Resolved | Reason::AtVersion => {}
            Reason::SyncJob => match self.refusal() {
                Some(Reason::SettingMissing) => self.emit(Reason::ValidationFailed, message),
                Some(_) => self.emit(Reason::JobRefused, message),
                None if !message.is_empty() => self.wait(message),
                None => {}
            },
            // Said while nodes were in progress.
            Reason::Aborted if self.has_said(&message) => {}
            // Reported unless the list says that it is in the condition only.
            _ if reason.appears_in(ReportedIn::Complete) && !reason.appears_in(ReportedIn::PlanEvent) => {}
            _ => self.emit(reason, message),
        }
    }

    /// Whether the stored condition `Complete` has this message.
    fn has_said(&self, message: &str) -> bool {
        let stored = self.stored.condition(ConditionType::Complete);
        stored.is_some_and(|it| it.message.as_deref() == Some(message))
    }

    /// Something holds the nodes in progress for some time. Its message may change while it lasts, and is reported once.
    fn wait(&mut self, message: String) {
        let of = |status: &PlanStatus| {
            let complete = status.condition(ConditionType::Complete)?;
            let says = complete
                .message
                .as_ref()
                .is_some_and(|message| !message.is_empty());
            let obstacle = status.obstacle.as_ref().filter(|_| says)?;
            Some((obstacle.reason.known()?, obstacle.node.clone()))
        };
        if let Some((reason, node)) = of(self.status)
            && of(self.stored) != Some((reason, node))
        {
            self.emit(reason, message);
        }
    }

    /// Why the first blocked node with a slot does not progress, for the condition `Complete`.
    fn refusal(&self) -> Option<Reason> {
        let mut reasons = self
            .status
            .slots()
            .filter_map(|node| node.reason.as_ref()?.known());
        reasons.find(|reason| reason.is_refusal())
    }
}

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
