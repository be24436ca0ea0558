//! What the controller would say in the Plan's conditions, in its own words: `validate` is asked, not copied.
//!
//! It names the first mistake only. So the field that it names is put right in a copy, and it is asked again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::{Value, json};

use super::instead::{self, Unit, yaml};
use super::schedule::is_end_of_day;
use super::versions::release_of;
use super::zone::zone_hint;
use super::{Subject, remove, replace};
use crate::gitops::Rule;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::yaml::{Entry, Node};
use refit_api::failure::MAX_RETRIES;
use refit_api::schedule::{BlackoutError, ScheduleError};
use refit_api::selector::Selector;
use refit_api::validate::{Invalid, validate};
use refit_api::window::WindowError;
use refit_api::{BadCheck, BadNodeInfo, BadOrder, BadWave, Plan, PlanSpec};
use refit_base::nearest::nearest;
use refit_base::version::{Range, Version};

/// S54's words for a Plan with neither `version` nor `channel`.
pub(super) const UNRESOLVABLE: &str = "cannot resolve plan: missing channel and version";
/// A name that is valid, in place of one that is not.
const ANY_NAME: &str = "plan";
/// More mistakes than this are not reported for one Plan. It also ends a round that finds no way on.
const MAX_ERRORS: usize = 100;

impl Subject<'_> {
    pub(super) fn check_as_controller(&mut self, plan: &Plan) {
        self.check_validity(plan);
        self.check_version(&plan.spec);
        self.check_node_selector(&plan.spec);
    }

    fn check_validity(&mut self, plan: &Plan) {
        let mut name = plan.metadata.name.clone().unwrap_or_default();
        let mut copy = json!({ "spec": plan.spec });
        for _ in 0..MAX_ERRORS {
            let spec: Result<PlanSpec, _> = serde_json::from_value(copy["spec"].clone());
            let Ok(spec) = spec else { return };
            let Err(invalid) = validate(&name, &spec) else {
                return;
            };
            let field = self.field_of(&invalid, &copy);
            self.report_invalid(&field, &invalid);
            if field.starts_with("metadata.") {
                ANY_NAME.clone_into(&mut name);
            } else if !fix(&mut copy, &field) {
                return;
            }
        }
    }

    fn report_invalid(&mut self, field: &str, invalid: &Invalid) {
        if let Some(node) = self
            .node(field)
            .filter(|node| node.text().is_some_and(is_placeholder))
        {
            self.report_placeholder(field, node);
            return;
        }
        // What the schema has refused within it, it has named more exactly.
        let is_reported = |rules: &[Rule]| {
            let mut found = self.found.iter();
            found.any(|one| {
                rules.contains(&one.rule) && one.field.as_ref().is_some_and(|one| one.starts_with(field))
            })
        };
        let schema = [
            Rule::MissingField,
            Rule::UnknownField,
            Rule::WrongType,
            Rule::NotAllowed,
        ];
        let is_of_fields = matches!(
            invalid,
            Invalid::PodSelector(_)
                | Invalid::Checks(_)
                | Invalid::NodeInfo(_)
                | Invalid::Order(BadOrder::Fields { .. })
                | Invalid::Repeat(_)
                | Invalid::Waves(BadWave::RestNotLast(_) | BadWave::Selector { .. })
        );
        let is_of_labels = matches!(
            invalid,
            Invalid::CompleteLabelKey { .. } | Invalid::CompleteLabelValue { .. }
        );
        if (is_of_fields && is_reported(&schema))
            || (matches!(invalid, Invalid::PlanName(_)) && is_reported(&[Rule::BadName]))
            || (is_of_labels && is_reported(&[Rule::BadLabel]))
        {
            return;
        }
        // A time that was refused for its type is absent here.
        let is_refused = self
            .node(field)
            .is_some_and(|node| !node.is_null() && node.text().is_none());
        let is_text = matches!(
            invalid,
            Invalid::Window(WindowError::Time(_))
                | Invalid::Windows {
                    error: ScheduleError::Window(WindowError::Time(_))
                        | ScheduleError::Cron { .. }
                        | ScheduleError::Duration(_),
                    ..
                }
                | Invalid::Blackouts {
                    error: BlackoutError::Bound { .. },
                    ..
                }
        );
        if is_refused && is_text || self.follows_from_another(field, invalid) {
            return;
        }
        let operator = match invalid {
            Invalid::PodSelector(_) => self.pod_selector_operator(),
            _ => None,
        };
        let (field, hint) = match &operator {
            Some((field, hint)) => (field.as_str(), hint.clone()),
            None => (field, self.invalid_hint(field, invalid)),
        };
        // Of an absent time the controller shows nothing.
        let message = match invalid {
            Invalid::Window(WindowError::Time(_)) if !self.has(field) => format!("{field} is missing"),
            _ => invalid.to_string(),
        };
        self.report(Rule::InvalidPlan, field, message, hint);
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

    fn invalid_hint(&self, field: &str, invalid: &Invalid) -> Option<String> {
        let text = self.node(field).and_then(Node::text).unwrap_or_default();
        let write = |yaml: &str| format!("write `{yaml}`");
        let hint = match invalid {
            Invalid::DeleteFlags => "remove it; deleteEmptydirData is the newer name".to_owned(),
            Invalid::Window(WindowError::Time(_)) => {
                let last = field.rsplit('.').next().unwrap_or_default();
                let example = if last == "endTime" { "04:00" } else { "22:00" };
                match instead::time_of_day(text) {
                    _ if !self.has(field) => format!("add `{last}: \"{example}\"`"),
                    Some(time) => write(&format!("\"{time}\"")),
                    None if last == "endTime" && is_end_of_day(text) => write("\"23:59:59\""),
                    None => format!("write a time such as `\"{example}\"`"),
                }
            }
            Invalid::Window(WindowError::Zone(zone)) => zone_hint(zone),
            Invalid::Window(WindowError::ZoneIsPath) => {
                let name = text.split_once("zoneinfo/").map_or(text, |(_, name)| name);
                zone_hint(name.trim_start_matches('/'))
            }
            Invalid::NoRequiredFiles
            | Invalid::NoCommand
            | Invalid::NoWindows
            | Invalid::RepeatWithTrigger
            | Invalid::RepeatWithSkipWhen
            | Invalid::NodeInfo(BadNodeInfo::NoPattern(_)) => "remove it".to_owned(),
            Invalid::Order(error) => order_hint(error)?,
            Invalid::Waves(BadWave::NegativeSoak(_)) => "write a duration such as `30m`".to_owned(),
            Invalid::Waves(BadWave::NotMore { .. }) => {
                "raise it: the nodes of earlier waves are included".to_owned()
            }
            Invalid::Waves(BadWave::RestNotLast(_)) => {
                "move the wave to the end, or give it nodes or a selector".to_owned()
            }
            Invalid::Checks(error) => check_hint(error, text)?,
            Invalid::DependsOnItself(_) | Invalid::DependencyTwice { .. } => "remove the item".to_owned(),
            Invalid::RequiredFile { path, .. } | Invalid::CommandProgram(path) => {
                write(&yaml(&clean_path(path)?.into()))
            }
            Invalid::PlanName(_) => "choose a shorter name".to_owned(),
            Invalid::NodeLimit { .. } | Invalid::Waves(BadWave::Nodes { .. }) => {
                match instead::node_limit(text) {
                    Some(limit) => write(&limit),
                    None => instead::ANY_LIMIT.to_owned(),
                }
            }
            Invalid::WindowAndWindows => "remove it, after you have moved it into spec.windows".to_owned(),
            Invalid::Windows { error, .. } => self.window_hint(error, field, text),
            Invalid::Blackouts { error, .. } => self.blackout_hint(error, field, text),
            Invalid::Repeat(error) => Self::repeat_hint(error, text),
            Invalid::FailureBudget(_) => match instead::node_limit(text) {
                Some(limit) => write(&limit),
                None => "write a number of nodes such as `1`, or a share such as `10%`".to_owned(),
            },
            Invalid::BudgetWithoutStop(_) => "remove it, or set spec.failure.policy to Stop".to_owned(),
            Invalid::Retries(retries) => write(&(*retries).clamp(0, MAX_RETRIES).to_string()),
            Invalid::BackoffWithoutRetries => "remove it, or set spec.failure.retries".to_owned(),
            Invalid::Version(version) => {
                let version = version.trim().trim_start_matches('=');
                if let Some(release) = release_of(version) {
                    return Some(write(&release));
                }
                if version.parse::<Range>().is_ok() && version.parse::<Version>().is_err() {
                    return Some(self.range_hint());
                }
                validate(
                    "plan",
                    &PlanSpec {
                        version: Some(version.to_owned()),
                        ..PlanSpec::default()
                    },
                )
                .ok()?;
                write(&yaml(&version.into()))
            }
            Invalid::NoTime { .. } | Invalid::NegativeMinReady | Invalid::NegativeDelay => {
                "write a duration such as `30s` or `15m`".to_owned()
            }
            Invalid::MinReady { field, .. } => format!("shorten spec.settle.minReady, or lengthen {field}"),
            _ if matches!(field, "spec.versionPolicy.range" | "spec.nodeInfo.kubeletVersion") => {
                write(&yaml(&range(text)?.into()))
            }
            // 72 may be hours or days.
            _ if field == "spec.versionPolicy.minimumAge" && text.trim().parse::<f64>().is_ok() => {
                "write a duration such as `72h`".to_owned()
            }
            _ if Unit::of(field) == Unit::Duration => match instead::duration(text) {
                Some(duration) => write(&duration),
                None => "write a duration such as `30s` or `15m`".to_owned(),
            },
            _ => return None,
        };
        Some(hint)
    }

    /// The field that is meant, as near as can be found.
    fn field_of(&self, invalid: &Invalid, copy: &Value) -> String {
        match invalid {
            Invalid::DeleteFlags => "spec.drain.deleteLocalData".to_owned(),
            Invalid::PodSelector(_) => "spec.drain.podSelector".to_owned(),
            Invalid::Window(error) => self.field_of_window(error, copy),
            Invalid::WindowAndWindows => "spec.window".to_owned(),
            Invalid::Windows { index, field, .. } => format!("spec.windows[{index}].{field}"),
            Invalid::Blackouts { index, error } => format!("spec.blackouts[{index}].{}", error.field()),
            // All others name their field.
            other => {
                let text = other.to_string();
                let field = text
                    .split([' ', ','])
                    .find(|word| word.starts_with("spec.") || word.starts_with("metadata."));
                field.unwrap_or("spec").to_owned()
            }
        }
    }

    fn field_of_window(&self, error: &WindowError, copy: &Value) -> String {
        match error {
            WindowError::Day(day) | WindowError::DayOutOfRange(day) => {
                let days = self.node("spec.window.days").map_or(&[][..], Node::items);
                let index = days.iter().position(|node| node.text() == Some(day));
                index.map_or("spec.window.days".to_owned(), |index| {
                    format!("spec.window.days[{index}]")
                })
            }
            WindowError::Zone(_) | WindowError::ZoneIsPath => "spec.window.timeZone".to_owned(),
            WindowError::Time(text) => {
                // Start is looked at first; once it was put right in the copy, the other one is meant.
                let is_start = copy["spec"]["window"]["startTime"].as_str().unwrap_or_default() == text;
                let field = if is_start {
                    "spec.window.startTime"
                } else {
                    "spec.window.endTime"
                };
                field.to_owned()
            }
        }
    }

    fn check_version(&mut self, spec: &PlanSpec) {
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        // One that was refused for its type is reported already.
        let refused = |field: &str, kept: &Option<String>| self.has(field) && kept.is_none();
        if refused("spec.version", &spec.version) || refused("spec.channel", &spec.channel) {
            return;
        }
        // A Plan with `trigger` may only reboot nodes, which needs no version.
        if !given(&spec.version) && !given(&spec.channel) && !spec.is_on_request() {
            let verb = if self.has("spec.version") { "write" } else { "add" };
            let is_channel = self.has("spec.channel") && !self.has("spec.version");
            let (field, hint) = if is_channel {
                let url = "https://update.k3s.io/v1-release/channels/stable";
                (
                    "spec.channel",
                    format!("write a URL such as `{url}`, or add a version"),
                )
            } else {
                let hint = format!("{verb} `version: v1.33.4+k3s1`, or a channel that gives one");
                ("spec.version", hint)
            };
            self.report(Rule::NoVersion, field, UNRESOLVABLE.to_owned(), Some(hint));
        }
        self.check_channel(spec);
    }

    /// Each part of the selector by itself, so that the mistake has its line.
    fn check_node_selector(&mut self, spec: &PlanSpec) {
        let Some(selector) = &spec.node_selector else {
            return;
        };
        let mut reported = false;
        let labels = self.node("spec.nodeSelector.matchLabels").and_then(Node::object);
        for Entry { key, value, .. } in labels.iter().flat_map(|labels| &labels.entries) {
            // A word stands for a placeholder in the Plan that was read.
            let Some(text) = value.text().filter(|text| !is_placeholder(text)) else {
                continue;
            };
            let one = json!({ "matchLabels": { key.name.clone(): text } });
            if let Some(error) = selector_error(one) {
                reported = true;
                let field = "spec.nodeSelector.matchLabels";
                self.report_at(
                    Rule::BadSelector,
                    key.span.start,
                    Some(field),
                    format!("{field}: {error}"),
                    None,
                );
            }
        }
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let values = format!("spec.nodeSelector.matchExpressions[{index}].values");
            let is_refused = expression.values.is_none() && self.has(&values);
            let operator = format!("spec.nodeSelector.matchExpressions[{index}].operator");
            let is_missing = expression.operator.is_empty() && !self.has(&operator);
            if expression.key.is_empty() || is_missing || is_refused {
                reported = true; // it is missing or has the wrong type, which the schema has said
            } else if let Some(error) = selector_error(json!({ "matchExpressions": [expression] })) {
                reported = true;
                let field = format!("spec.nodeSelector.matchExpressions[{index}]");
                let (place, hint) = expression_hint(&field, expression);
                let message = if place.ends_with(".values") {
                    format!("{place} {}", of_values(expression))
                } else {
                    format!("{field}: {error}")
                };
                self.report(Rule::BadSelector, &place, message, hint);
            }
        }
        if let Err(error) = Selector::new(Some(selector))
            && !reported
        {
            self.report(
                Rule::BadSelector,
                "spec.nodeSelector",
                format!("spec.nodeSelector: {error}"),
                None,
            );
        }
    }
}

fn selector_error(selector: Value) -> Option<String> {
    let selector = serde_json::from_value(selector).ok()?;
    Selector::new(Some(&selector))
        .err()
        .map(|error| error.to_string())
}

/// Takes the mistake out of the copy, so that the next one shows.
fn fix(copy: &mut Value, field: &str) -> bool {
    if let "spec.window.startTime" | "spec.window.endTime" = field
        && let Some(window) = copy["spec"]["window"].as_object_mut()
    {
        let time = field.rsplit('.').next().unwrap_or_default();
        window.insert(time.to_owned(), "00:00".into());
        return true;
    }
    // The rest of a window depends on its other fields.
    for list in ["spec.windows[", "spec.blackouts["] {
        if let Some((index, _)) = field.strip_prefix(list).and_then(|rest| rest.split_once(']')) {
            return replace_entry(copy, list, index);
        }
    }
    // Without one item the others would be taken for their neighbours.
    if field.starts_with("spec.reboot.requiredFiles[") {
        return replace(copy, field, "/file");
    }
    if field.starts_with("spec.reboot.command[") {
        return remove(copy, "spec.reboot.command");
    }
    if let Some((list, index, _)) = list_item(field)
        && let Some(valid) = valid_item(list, index)
        && let Some(item) = copy["spec"][list].get_mut(index)
    {
        let is_same = *item == valid;
        *item = valid;
        return !is_same;
    }
    remove(copy, field)
}

fn order_hint(error: &BadOrder) -> Option<String> {
    let hint = match error {
        BadOrder::Fields { fields: 0, .. } => {
            "add one of them, such as topologyKey: topology.kubernetes.io/zone"
        }
        BadOrder::Fields { .. } => "make it one item for each of them, the most significant first",
        BadOrder::Twice { .. } => "remove the item",
        BadOrder::Key { .. } | BadOrder::TooMany(_) => return None,
    };
    Some(hint.to_owned())
}

/// What to write instead of an invalid check. `text` is the value of the field.
fn check_hint(error: &BadCheck, text: &str) -> Option<String> {
    let write = |yaml: &str| format!("write `{yaml}`");
    Some(match error {
        BadCheck::TooMany(_) => "remove some: a query of Prometheus can combine others".to_owned(),
        BadCheck::Name { name, .. } => {
            let name = name.to_lowercase().replace([' ', '_', '.'], "-");
            let name = name.trim_matches('-');
            let is_valid = !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            if is_valid {
                write(name)
            } else {
                "write a name such as `errors`".to_owned()
            }
        }
        BadCheck::NameTwice { .. } => "choose another name".to_owned(),
        BadCheck::TwoRequests(_) => "write two checks".to_owned(),
        BadCheck::NoRequest(_) => "give it `prometheus` or `http`".to_owned(),
        BadCheck::Url { .. } if !text.is_empty() && !text.contains("://") => {
            write(&format!("https://{text}"))
        }
        BadCheck::Url { example, .. } => format!("write a URL such as `{example}`"),
        BadCheck::UrlCredentials { .. } => {
            let (scheme, rest) = text.split_once("://")?;
            let (_, host) = rest.split_once('@')?;
            write(&format!("{scheme}://{host}"))
        }
        BadCheck::UrlQuery { .. } => {
            let url = text.split(['?', '#']).next().unwrap_or_default();
            write(url.trim_end_matches("/api/v1/query"))
        }
        BadCheck::PlainHttp { .. } => write(&text.replacen("http://", "https://", 1)),
        BadCheck::NoQuery(_) => "add a query".to_owned(),
        BadCheck::NoLimit(_) => "give it `max` or `min`".to_owned(),
        BadCheck::NoRange(_) => "exchange the two, or remove one".to_owned(),
        BadCheck::EmptyText(_) => "remove it".to_owned(),
        BadCheck::Interval { .. } => "write a duration such as `30s` or `1m`".to_owned(),
        BadCheck::Timeout { .. } => "write a duration such as `10s`".to_owned(),
        // A longer one may be more than the field allows.
        BadCheck::Duration { .. } => "write a duration such as `30s`".to_owned(),
        BadCheck::TooLong { .. } | BadCheck::Secret { .. } | BadCheck::Passes { .. } => return None,
    })
}

/// The list of the spec, the index and the rest of a field such as `spec.order[1].topologyKey`.
fn list_item(field: &str) -> Option<(&str, usize, &str)> {
    let (list, rest) = field.strip_prefix("spec.")?.split_once('[')?;
    let (index, rest) = rest.split_once(']')?;
    Some((list, index.parse().ok()?, rest))
}

/// A valid item in place of one that is not, different from all others.
fn valid_item(list: &str, index: usize) -> Option<Value> {
    match list {
        "order" => Some(json!({ "labelNumber": format!("n{index}") })),
        "waves" => {
            let selector = json!({ "matchLabels": { "wave": index.to_string() } });
            Some(json!({ "name": format!("valid-{index}"), "selector": selector }))
        }
        "checks" => {
            let http = json!({ "url": "https://valid.example.com" });
            Some(json!({ "name": format!("valid-{index}"), "http": http }))
        }
        "dependsOn" => Some(json!({ "name": format!("plan-{index}") })),
        _ => None,
    }
}

fn of_values(expression: &LabelSelectorRequirement) -> String {
    let operator = &expression.operator;
    match expression.values.as_deref() {
        Some([_, ..]) => format!("has a value, and the operator {operator} takes none"),
        Some([]) => format!("is empty, and the operator {operator} needs at least one value"),
        None => format!("is missing, and the operator {operator} needs at least one value"),
    }
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

/// The field of a requirement that is wrong, and what was meant.
fn expression_hint(field: &str, expression: &LabelSelectorRequirement) -> (String, Option<String>) {
    const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
    let values = expression.values.as_deref().unwrap_or_default();
    match expression.operator.as_str() {
        "Exists" | "DoesNotExist" if !values.is_empty() => (
            format!("{field}.values"),
            Some("remove it; the operator takes no values".to_owned()),
        ),
        "In" | "NotIn" if values.is_empty() => {
            let hint = "add `values: [\"true\"]`, or the values that are meant".to_owned();
            (format!("{field}.values"), Some(hint))
        }
        operator if !OPERATORS.contains(&operator) => {
            let meant = match operator {
                "=" | "==" | "Equal" | "Equals" | "Is" => Some("In"),
                "!=" | "NotEqual" | "NotEquals" | "IsNot" => Some("NotIn"),
                "!" | "NotExists" | "NotExist" => Some("DoesNotExist"),
                _ => nearest(operator, OPERATORS),
            };
            let hint = meant.map_or_else(
                || "the operators are In, NotIn, Exists and DoesNotExist".to_owned(),
                |meant| format!("did you mean `{meant}`?"),
            );
            (format!("{field}.operator"), Some(hint))
        }
        _ => (field.to_owned(), None),
    }
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

/// Replaces an entry of windows or blackouts by a valid one, so that the others keep their places.
fn replace_entry(copy: &mut Value, list: &str, index: &str) -> bool {
    let valid = if list.contains("windows") {
        json!({ "cron": "0 22 * * *", "duration": "1h" })
    } else {
        json!({ "start": "12-24", "end": "12-24" })
    };
    let name = list.trim_start_matches("spec.").trim_end_matches('[');
    let entry = index
        .parse::<usize>()
        .ok()
        .and_then(|index| copy["spec"][name].get_mut(index));
    entry.is_some_and(|entry| {
        *entry = valid;
        true
    })
}
