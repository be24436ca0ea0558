//! What the controller would say in the condition `Validated`. The controller's own validation is called here; the path of
//! each error leads to the line.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::json;

use super::controller::{expression_hint, selector_error};
use super::definitions::of_field;
use super::images::RANGE_HINT;
use super::path::{is_within, no_indices};
use super::schema::ANY_LIMIT;
use super::subject::Subject;
use super::value::{Unit, duration, node_limit, time_of_day, yaml_text};
use super::versions::release_of;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::Rule;
use refit_api::schema::about;
use refit_api::validate::validate;
use refit_api::{Invalid, Plan, PlanSpec};
use refit_base::go::GoDuration;
use refit_base::nearest::nearest;
use refit_base::version::{Range, Version};

/// Rules that are checked before. Of a field that one of them refused, the validation finds the same mistake, or what
/// follows from it.
const CHECKED_BEFORE: [Rule; 6] = [
    Rule::MissingField,
    Rule::UnknownField,
    Rule::WrongType,
    Rule::NotAllowed,
    Rule::BadName,
    Rule::Placeholder,
];

/// Seconds of the longest window.
const WEEK: i64 = 604_800;

impl Subject<'_> {
    pub(super) fn check_validity(&mut self, plan: &Plan) {
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        for invalid in validate(name, &plan.spec).err().into_iter().flatten() {
            self.report_invalid(&invalid);
        }
    }

    fn report_invalid(&mut self, invalid: &Invalid) {
        let path = invalid.path.as_str();
        if let Some(text) = self.text(path).filter(|text| is_placeholder(text)) {
            self.report_placeholder_text(path, text);
            return;
        }
        let before = self.found.iter().filter(|one| CHECKED_BEFORE.contains(&one.rule));
        let refused = || before.clone().filter_map(|one| one.field.as_deref());
        // A field may miss another one of the same window, check or item that was refused, or has another name.
        let item = path.rsplit_once(']').map(|(item, _)| format!("{item}]"));
        let is_missed = |field: &str| {
            let name = field.rsplit('.').next().unwrap_or_default();
            item.as_ref().is_some_and(|item| is_within(field, item)) && invalid.message.contains(name)
        };
        let mut renamed = self.renamed.iter().map(String::as_str);
        if refused().any(|field| is_within(field, path) || is_missed(field)) || renamed.any(is_missed) {
            return;
        }
        let operator = match path {
            "spec.drain.podSelector" => self.pod_selector_operator(),
            _ => None,
        };
        let hint = || {
            let own = invalid.hint.clone().map(Into::into);
            own.or_else(|| self.invalid_hint(path))
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

    /// What to write instead, as far as the text of the field shows what is meant; else what the field is for.
    fn invalid_hint(&self, path: &str) -> Option<String> {
        let text = self.text(path).unwrap_or_default();
        let field = no_indices(path);
        let unit = Unit::of(path);
        let value = match (field.as_str(), unit) {
            ("spec.version", _) if is_range(text) && release_of(text).is_none() => {
                return Some(RANGE_HINT.to_owned());
            }
            ("spec.version", _) => version(text),
            ("spec.maxConcurrent" | "spec.maxUnavailable" | "spec.waves.nodes", _) => {
                return Some(
                    node_limit(text).map_or_else(|| ANY_LIMIT.to_owned(), |limit| format!("write `{limit}`")),
                );
            }
            ("spec.failure.budget", _) => node_limit(text),
            (_, Unit::Time) if !self.has(path) => return of_field(path).and_then(about),
            (_, Unit::Time) if text.starts_with("24:") => Some("\"23:59:59\"".to_owned()),
            (_, Unit::Time) => time_of_day(text).map(|time| format!("\"{time}\"")),
            // 72 may be hours or days.
            (_, Unit::Duration) if text.trim().parse::<f64>().is_ok() && !has_seconds(&field) => None,
            (field, Unit::Duration) => {
                let is_short = |duration: &String| {
                    let duration = duration.parse::<GoDuration>().unwrap_or_default();
                    field != "spec.windows.duration" || duration.as_secs() <= WEEK
                };
                duration(text).filter(|duration| duration != text && is_short(duration))
            }
            (field, _) if field.ends_with(".timeZone") => return Some(zone_hint(text)),
            _ => None,
        };
        let value = value.map(|value| format!("write `{value}`"));
        let example = || unit.example().map(str::to_owned);
        let about = || of_field(path).and_then(about);
        value.or_else(example).or_else(about)
    }
}

/// Whether a plain number of the field is probably one of seconds.
fn has_seconds(field: &str) -> bool {
    !matches!(
        field,
        "spec.versionPolicy.minimumAge" | "spec.windows.duration" | "spec.repeat.every"
    )
}

fn is_range(text: &str) -> bool {
    text.parse::<Range>().is_ok() && text.parse::<Version>().is_err()
}

fn version(text: &str) -> Option<String> {
    let version = text.trim().trim_start_matches('=');
    if let Some(release) = release_of(version) {
        return Some(release);
    }
    let spec = PlanSpec {
        version: Some(version.to_owned()),
        ..PlanSpec::default()
    };
    validate("plan", &spec).ok()?;
    Some(yaml_text(version))
}

/// The zone whose name or city is near.
fn zone_hint(zone: &str) -> String {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let names: Vec<_> = database.available().map(|name| name.to_string()).collect();
    let plain = zone.trim().replace(' ', "_");
    // `GMT+2` is not `Etc/GMT+2`, which is west of Greenwich.
    let is_offset = !zone.contains('/') && zone.contains(|c: char| c.is_ascii_digit());
    let same = names.iter().find(|name| {
        let city = name.rsplit('/').next().unwrap_or_default();
        name.eq_ignore_ascii_case(&plain) || city.eq_ignore_ascii_case(&plain)
    });
    // Three letters are near to many zones.
    let near = || nearest(zone, names.iter().map(String::as_str)).filter(|_| zone.contains('/'));
    match same.map(String::as_str).or_else(near).filter(|_| !is_offset) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write an IANA name such as `Europe/Berlin`; an abbreviation or an offset is not a zone"
            .to_owned(),
    }
}
