//! What the controller would say in the condition `Validated`. The controller's own validation is called here; the path of
//! each error leads to the line.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::json;

use super::Subject;
use super::controller::{expression_hint, selector_error};
use super::instead::{self, Unit, yaml};
use super::path::is_within;
use super::schema::no_indices;
use super::versions::release_of;
use crate::gitops::Rule;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::yaml::Node;
use refit_api::validate::validate;
use refit_api::{Invalid, Plan, PlanSpec};
use refit_base::version::{Range, Version};

/// Rules that are checked before. Of a field that one of them refused, the validation finds the same mistake, or what
/// follows from it.
const CHECKED_BEFORE: [Rule; 7] = [
    Rule::MissingField,
    Rule::UnknownField,
    Rule::WrongType,
    Rule::NotAllowed,
    Rule::BadName,
    Rule::BadLabel,
    Rule::Placeholder,
];

impl Subject<'_> {
    pub(super) fn check_validity(&mut self, plan: &Plan) {
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        for invalid in validate(name, &plan.spec).err().into_iter().flatten() {
            self.report_invalid(&invalid, &plan.spec);
        }
    }

    fn report_invalid(&mut self, invalid: &Invalid, spec: &PlanSpec) {
        let path = invalid.path.as_str();
        let node = self.node(path);
        if let Some(node) = node.filter(|node| node.text().is_some_and(is_placeholder)) {
            self.report_placeholder(path, node);
            return;
        }
        let is_reported = self.found.iter().any(|one| {
            CHECKED_BEFORE.contains(&one.rule)
                && one.field.as_ref().is_some_and(|field| is_within(field, path))
        });
        if is_reported || self.lacks_refused_cron(path, spec) {
            return;
        }
        let operator = match path {
            "spec.drain.podSelector" => self.pod_selector_operator(),
            _ => None,
        };
        let hint = || {
            invalid
                .hint
                .clone()
                .map(Into::into)
                .or_else(|| self.invalid_hint(path))
        };
        let (field, hint) = operator.unwrap_or_else(|| (path.to_owned(), hint()));
        // Of an absent time the controller shows nothing.
        let message = if Unit::of(path) == Unit::Time && !self.has(path) {
            format!("{path} is missing")
        } else {
            invalid.message.clone()
        };
        self.report(Rule::InvalidPlan, &field, message, hint);
    }

    /// The requirement of `spec.drain.podSelector` that is wrong, and what was meant.
    fn pod_selector_operator(&self) -> Option<(String, Option<String>)> {
        let list = "spec.drain.podSelector.matchExpressions";
        let requirements = self.node(list)?.items().iter().enumerate();
        requirements
            .filter_map(|(index, node)| Some((index, serde_json::from_value(node.to_json()).ok()?)))
            .find(|(_, requirement): &(usize, LabelSelectorRequirement)| {
                selector_error(json!({ "matchExpressions": [requirement] })).is_some()
            })
            .map(|(index, requirement)| expression_hint(&format!("{list}[{index}]"), &requirement))
    }

    /// What to write instead, as far as the text of the field shows what is meant.
    fn invalid_hint(&self, path: &str) -> Option<String> {
        let text = self.node(path).and_then(Node::text).unwrap_or_default();
        let write = |yaml: &str| format!("write `{yaml}`");
        Some(match no_indices(path).as_str() {
            "spec.version" => return self.version_hint(text),
            "spec.maxConcurrent" | "spec.maxUnavailable" | "spec.waves.nodes" => {
                instead::node_limit(text).map_or_else(|| instead::ANY_LIMIT.to_owned(), |limit| write(&limit))
            }
            "spec.failure.budget" => match instead::node_limit(text) {
                Some(limit) => write(&limit),
                None => "write a number of nodes such as `1`, or a share such as `10%`".to_owned(),
            },
            "spec.reboot.requiredFiles" | "spec.reboot.command" => write(&yaml(&clean_path(text)?.into())),
            "spec.versionPolicy.range" | "spec.nodeInfo.kubeletVersion" => write(&yaml(&range(text)?.into())),
            "spec.checks.name" => check_name(text),
            // 72 may be hours or days.
            "spec.versionPolicy.minimumAge" if text.trim().parse::<f64>().is_ok() => {
                "write a duration such as `72h`".to_owned()
            }
            field => match self.schedule_hint(path, field, text) {
                Some(hint) => hint,
                None if Unit::of(path) == Unit::Duration => match instead::duration(text) {
                    Some(duration) if duration != text => write(&duration),
                    _ => "write a duration such as `30s` or `15m`".to_owned(),
                },
                None => return None,
            },
        })
    }

    fn version_hint(&self, text: &str) -> Option<String> {
        let version = text.trim().trim_start_matches('=');
        if let Some(release) = release_of(version) {
            return Some(format!("write `{release}`"));
        }
        if version.parse::<Range>().is_ok() && version.parse::<Version>().is_err() {
            return Some(self.range_hint());
        }
        let spec = PlanSpec {
            version: Some(version.to_owned()),
            ..PlanSpec::default()
        };
        validate("plan", &spec).ok()?;
        Some(format!("write `{}`", yaml(&version.into())))
    }
}

fn check_name(text: &str) -> String {
    let name = text.to_lowercase().replace([' ', '_', '.'], "-");
    let name = name.trim_matches('-');
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_plain) {
        return "write a name such as `errors`".to_owned();
    }
    format!("write `{name}`")
}

/// A range with its conditions apart: `>1.33 <1.35` of `>1.33<1.35`.
fn range(text: &str) -> Option<String> {
    let mut apart = String::new();
    for c in text.chars() {
        if matches!(c, '<' | '>') && !apart.ends_with([' ', ',', '|']) && !apart.is_empty() {
            apart.push(' ');
        }
        apart.push(c);
    }
    apart.parse::<Range>().is_ok().then_some(apart)
}

/// An absolute path that says the same plainly.
fn clean_path(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.trim().split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part if part.contains('\0') => return None,
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| format!("/{}", parts.join("/")))
}
