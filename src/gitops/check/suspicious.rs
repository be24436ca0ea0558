//! What is taken, and hardly what is meant.

use super::schema::digest_problem;
use super::{Subject, is_placeholder};
use crate::api::duration::GoDuration;
use crate::api::names::ANNOTATION_DIGEST;
use crate::api::{DrainTimeout, Plan, PlanSpec};
use crate::gitops::Rule;
use crate::gitops::yaml::Kind;

/// Versions that mean another thing from time to time.
const MOVING: [&str; 8] = [
    "latest", "stable", "testing", "edge", "nightly", "main", "master", "dev",
];
const SECOND: i64 = 1_000_000_000;

impl Subject<'_> {
    pub(super) fn check_suspicious(&mut self, plan: &Plan) {
        let spec = &plan.spec;
        self.check_concurrency(spec);
        self.check_disruption(spec);
        self.check_drain_timeout(spec);
        self.check_prepare_volumes(spec);
        self.check_digest(plan);
        if let Some(version) = &spec.version {
            if is_placeholder(version) {
                // Told where the version is judged.
            } else if MOVING.contains(&version.as_str()) {
                let message = format!("spec.version is {version:?}, whatever that is at the time");
                let hint =
                    "write the version itself; a node that is done is not run again when it moves".to_owned();
                self.tell(Rule::MovingVersion, "spec.version", message, Some(hint));
            }
            if !version.is_empty() && self.has("spec.channel") {
                let message = "spec.channel is not asked, since there is spec.version".to_owned();
                let hint =
                    "keep both for `refit pin`, which writes the version that the channel gives".to_owned();
                self.tell(Rule::VersionAndChannel, "spec.channel", message, Some(hint));
            }
        }
        if spec.suspend == Some(true) {
            let message = "spec.suspend is true: no node is started".to_owned();
            self.tell(Rule::Suspended, "spec.suspend", message, None);
        }
    }

    fn check_concurrency(&mut self, spec: &PlanSpec) {
        let replaced = self.has("spec.maxConcurrent");
        if replaced && self.has("spec.concurrency") {
            let message = "spec.concurrency has no effect, since there is spec.maxConcurrent".to_owned();
            let hint = "keep it for the way back to system-upgrade-controller only".to_owned();
            self.tell(Rule::ConcurrencyReplaced, "spec.concurrency", message, Some(hint));
        } else if !replaced {
            let found = match spec.concurrency {
                Some(1..) => return,
                Some(number) => number.to_string(),
                None if self.has("spec.concurrency") => return, // told for its type
                None => "absent".to_owned(),
            };
            let message = format!("spec.concurrency is {found}: no node is ever started");
            let hint = "write `concurrency: 1`, or `suspend: true` where no node is to start".to_owned();
            self.tell(Rule::NoConcurrency, "spec.concurrency", message, Some(hint));
        }
    }

    fn check_disruption(&mut self, spec: &PlanSpec) {
        let cordon = spec.cordon == Some(true);
        let word = if spec.drain.is_some() { "drain" } else { "cordon" };
        if cordon && spec.drain.is_some() {
            let message = "spec.cordon has no effect beside spec.drain, which cordons too".to_owned();
            self.tell(Rule::CordonBesideDrain, "spec.cordon", message, None);
        }
        let account = self.has("spec.serviceAccountName") && spec.service_account_name.as_deref() != Some("");
        if (cordon || spec.drain.is_some()) && !account {
            let field = format!("spec.{word}");
            let message = format!("{field} runs as the account `default`, which is not allowed to {word}");
            let hint =
                "write `serviceAccountName: system-upgrade`, or another account with those rights".to_owned();
            self.tell(Rule::DrainWithoutServiceAccount, &field, message, Some(hint));
        }
        if self.has("spec.drain.deleteLocalData") && !self.has("spec.drain.deleteEmptydirData") {
            let field = "spec.drain.deleteLocalData";
            let message = format!("{field} is the old name of deleteEmptydirData");
            self.tell(Rule::OldFieldName, field, message, None);
        }
    }

    fn check_drain_timeout(&mut self, spec: &PlanSpec) {
        let timeout = spec.drain.as_ref().and_then(|drain| drain.timeout.as_ref());
        let (nanos, is_number) = match timeout {
            Some(DrainTimeout::Nanoseconds(nanos)) => (*nanos, true),
            Some(DrainTimeout::Text(text)) => match text.parse::<GoDuration>() {
                Ok(duration) => (duration.as_nanos(), false),
                Err(_) => return,
            },
            None => return,
        };
        if nanos == 0 || nanos >= SECOND {
            return;
        }
        let field = "spec.drain.timeout";
        let message = format!(
            "{field} is {}: every drain that has to wait fails",
            GoDuration::from_nanos(nanos)
        );
        let hint = if is_number && nanos > 0 {
            format!("a number is nanoseconds; write `{nanos}s` for seconds")
        } else {
            "write a duration such as `5m`".to_owned()
        };
        self.tell(Rule::DrainTimeoutTooShort, field, message, Some(hint));
    }

    fn check_prepare_volumes(&mut self, spec: &PlanSpec) {
        let prepare = spec
            .prepare
            .iter()
            .flat_map(|prepare| prepare.volumes.iter().flatten());
        let upgrade = spec.upgrade.volumes.as_deref().unwrap_or_default();
        for (index, volume) in prepare.enumerate() {
            if upgrade.iter().any(|other| other.name == volume.name) {
                continue;
            }
            let field = format!("spec.prepare.volumes[{index}]");
            let message = format!(
                "{field} ({:?}) is not among the volumes of upgrade: refit mounts it, and system-upgrade-controller makes Jobs \
                 that are refused",
                volume.name
            );
            let hint = "declare it in `upgrade.volumes` too".to_owned();
            self.tell(Rule::PrepareVolume, &field, message, Some(hint));
        }
    }

    fn check_digest(&mut self, plan: &Plan) {
        let annotations = plan.metadata.annotations.as_ref();
        let Some(paths) = annotations.and_then(|all| all.get(ANNOTATION_DIGEST)) else {
            return;
        };
        let annotations = self.node("metadata.annotations").and_then(|node| node.object());
        let Some(entry) = annotations.and_then(|all| all.entry(ANNOTATION_DIGEST)) else {
            return;
        };
        let offset = match entry.value.kind {
            Kind::Text(_) => entry.value.offset(),
            _ => entry.key.span.start,
        };
        for path in paths
            .split(',')
            .filter(|_| !paths.is_empty() && !is_placeholder(paths))
        {
            if let Some((problem, hint)) = digest_problem(path) {
                let message = format!("{ANNOTATION_DIGEST} names {path:?}: {problem}");
                self.tell_at(
                    Rule::DigestField,
                    offset,
                    Some("metadata.annotations"),
                    message,
                    Some(hint),
                );
            }
        }
    }
}
