//! Values that are accepted, and with which no node starts, every drain fails, or nothing happens.

use super::subject::Subject;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Kind, Node};
use refit_api::names::ANNOTATION_DIGEST;
use refit_api::prepare::Prepare;
use refit_api::{ApiAccess, DrainTimeout, Plan, PlanSpec};
use refit_base::go::GoDuration;
use refit_job::digest::check_fields;

const SECOND: i64 = 1_000_000_000;
/// Seconds of a day.
const DAY: i64 = 86_400;

impl Subject<'_> {
    pub(super) fn check_suspicious(&mut self, plan: &Plan) {
        self.check_concurrency(&plan.spec);
        self.check_account(&plan.spec);
        self.check_access_of_prepare(&plan.spec);
        self.check_drain_timeout(&plan.spec);
        self.check_digest(plan);
        self.check_new_nodes(&plan.spec);
        self.check_empty_lists();
        self.check_effects(&plan.spec);
    }

    fn check_effects(&mut self, spec: &PlanSpec) {
        let settle = spec.settle.as_ref();
        let workloads = settle.and_then(|settle| settle.workloads) == Some(true);
        let cordons = spec.cordon == Some(true) || spec.drain.is_some();
        let idle = [
            (
                "spec.settle.workloads",
                workloads && spec.drain.is_none(),
                "spec.drain",
            ),
            (
                "spec.prepull",
                spec.prepull == Some(true) && !cordons,
                "spec.cordon or spec.drain",
            ),
        ];
        for (field, is_idle, other) in idle {
            if is_idle {
                let message = format!("{field} has no effect without {other}");
                let hint = format!("remove it, or add {other}");
                self.report(Rule::NoEffect, field, message, Some(hint));
            }
        }
    }

    fn check_new_nodes(&mut self, spec: &PlanSpec) {
        const FIELD: &str = "spec.taintNewNodes";
        if spec.taint_new_nodes == Some(true) && spec.suspend == Some(true) {
            let message = format!(
                "{FIELD} and spec.suspend are true: nodes that join take no pods until the Plan is resumed"
            );
            let hint = "set taintNewNodes when you resume the Plan".to_owned();
            self.report(Rule::TaintWhileSuspended, FIELD, message, Some(hint));
        }
    }

    fn check_empty_lists(&mut self) {
        for field in [
            "spec.drain.waitFor",
            "spec.settle.conditions",
            "spec.settle.taintsGone",
        ] {
            if self
                .node(field)
                .is_some_and(|node| matches!(&node.kind, Kind::List(items) if items.is_empty()))
            {
                let message = format!("{field} is empty, which is the same as leaving it out");
                let hint = "remove it, or give it an entry".to_owned();
                self.report(Rule::NullField, field, message, Some(hint));
            }
        }
    }

    fn check_concurrency(&mut self, spec: &PlanSpec) {
        const FIELD: &str = "spec.concurrency";
        let found = match spec.concurrency {
            _ if self.has("spec.maxConcurrent") => return,
            Some(1..) => return,
            Some(number) => number.to_string(),
            None if self.has(FIELD) => return, // reported by the schema check
            None => "missing".to_owned(),
        };
        let message = format!("{FIELD} is {found}: the controller never starts a node");
        let hint = "write `1`; to start no node, say `suspend: true`".to_owned();
        let hint = if spec.concurrency.is_some() {
            hint
        } else {
            "add `concurrency: 1`; to start no node, say `suspend: true`".to_owned()
        };
        self.report(Rule::NoConcurrency, FIELD, message, Some(hint));
    }

    fn check_account(&mut self, spec: &PlanSpec) {
        const ACCOUNT: &str = "spec.serviceAccountName";
        let word = if spec.drain.is_some() { "drain" } else { "cordon" };
        let disrupts = spec.cordon == Some(true) || spec.drain.is_some();
        let is_empty = spec.service_account_name.as_deref() == Some("");
        if !disrupts || self.has(ACCOUNT) && !is_empty {
            return;
        }
        let field = if is_empty {
            ACCOUNT.to_owned()
        } else {
            format!("spec.{word}")
        };
        let message =
            format!("spec.{word} runs as the service account \"default\", which may not {word} nodes");
        let hint = if is_empty {
            "write `system-upgrade`, or another account with those rights"
        } else {
            "add `serviceAccountName: system-upgrade`, or another account with those rights"
        };
        self.report(
            Rule::DrainWithoutServiceAccount,
            &field,
            message,
            Some(hint.to_owned()),
        );
    }

    /// `prepare` of the images of K3s and RKE2 reads Plans and nodes with kubectl, and tries that again for ever.
    fn check_access_of_prepare(&mut self, spec: &PlanSpec) {
        const ACCOUNT: &str = "spec.serviceAccountName";
        let prepare = spec.prepare.as_deref().and_then(Prepare::of);
        if !matches!(prepare, Some(Prepare::WaitsFor(_))) {
            return;
        }
        let account = spec.service_account_name.as_deref().unwrap_or_default();
        // A misspelt name of the field has a finding of its own.
        let has_account = self.has(ACCOUNT) || self.renamed.contains(ACCOUNT);
        let (why, hint) = if spec.api_access == Some(ApiAccess::None) {
            (
                "has no token of the API server, because spec.apiAccess is None",
                "set `apiAccess: PrepareOnly`",
            )
        } else if account.is_empty() && (!has_account || spec.service_account_name.is_some()) {
            (
                "runs as the service account \"default\", which may not read Plans and nodes",
                if has_account {
                    "set `serviceAccountName: system-upgrade`, or another account with those rights"
                } else {
                    "add `serviceAccountName: system-upgrade`, or another account with those rights"
                },
            )
        } else {
            return;
        };
        let message = format!("spec.prepare {why}: no Job ever gets past prepare");
        self.report(Rule::PreparePlan, "spec.prepare", message, Some(hint.to_owned()));
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
        // 0 means no limit, as for `kubectl drain --timeout`.
        if nanos == 0 || nanos >= SECOND {
            return;
        }
        let field = "spec.drain.timeout";
        let message = format!(
            "{field} is {}, so every drain that has to wait for a pod fails",
            GoDuration::from_nanos(nanos)
        );
        // 3600000 are probably milliseconds.
        let hint = if is_number && (1..=DAY).contains(&nanos) {
            format!("write `{nanos}s` for seconds; a plain number is nanoseconds")
        } else {
            "write a duration such as `5m`; a plain number is nanoseconds".to_owned()
        };
        self.report(Rule::DrainTimeout, field, message, Some(hint));
    }

    fn check_digest(&mut self, plan: &Plan) {
        let annotations = self.node("metadata.annotations").and_then(Node::object);
        let Some(entry) = annotations.and_then(|all| all.entry(ANNOTATION_DIGEST)) else {
            return;
        };
        let Err(error) = check_fields(plan) else { return };
        let offset = match entry.value.kind {
            Kind::Text(_) => entry.value.offset(),
            _ => entry.key.span.start,
        };
        let hint = Some("name fields of the Plan, such as spec.upgrade.args".to_owned());
        let field = Some("metadata.annotations");
        self.report_at(Rule::InvalidPlan, offset, field, error.to_string(), hint);
    }
}
