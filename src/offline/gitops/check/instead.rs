//! Suggested YAML for a value that its field does not accept, if the intention is clear.
//!
//! People paste hints unread. So suggested YAML must be accepted by the field, in the unit of the field. If the
//! intention is ambiguous, there is no suggestion.

mod command;
mod object;
mod time;
mod yaml;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::{Value, json};

use super::schedule::is_day;
use command::arguments;
pub(super) use command::{Runs, is_script_flag, is_shell, words};
pub(super) use object::volume;
use object::{
    flags, item_of_text, labels, labels_of_items, selector, selector_of_items, switch, switches, variable,
    window,
};
use time::seconds;
pub(super) use time::{duration, time_of_day};
use yaml::quoted;
pub(super) use yaml::yaml;

use crate::gitops::yaml::{Kind, Node};
use refit_api::window::DAYS;
use refit_base::go::GoDuration;
use refit_base::nearest::nearest;

/// The unit of a field, beyond its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A Go duration, as text.
    Duration,
    Seconds,
    /// A time of day, as text.
    Time,
    /// A file mode, which people write in octal.
    Mode,
    None,
}

impl Unit {
    pub(super) fn of(field: &str) -> Self {
        let field = super::schema::no_indices(field);
        match field.strip_prefix("spec.").unwrap_or_default() {
            "postCompleteDelay"
            | "reboot.timeout"
            | "settle.timeout"
            | "settle.minReady"
            | "drain.timeout"
            | "versionPolicy.minimumAge"
            | "waves.soak" => Self::Duration,
            "jobActiveDeadlineSecs"
            | "drain.gracePeriod"
            | "drain.skipWaitForDeleteTimeout"
            | "tolerations.tolerationSeconds" => Self::Seconds,
            "window.startTime" | "window.endTime" | "windows.startTime" | "windows.endTime" => Self::Time,
            "secrets.defaultMode" => Self::Mode,
            // Fields of lists, such as the windows of a Plan.
            field => match field.rsplit('.').next() {
                Some("timeout" | "duration" | "soak" | "backoff" | "interval") => Self::Duration,
                _ => Self::None,
            },
        }
    }
}

/// What to say of a limit of nodes whose meaning is unclear.
pub(super) const ANY_LIMIT: &str = "write a number from 1 on, or a share such as `25%`";

/// The value that the author of `node` meant, as YAML, or the whole entry (`maxConcurrent: 10%`) if another field
/// accepts it. `written` is the source text of a scalar.
pub(super) fn instead(
    field: &str,
    schema: &JSONSchemaProps,
    node: &Node,
    written: &str,
    runs: Runs,
) -> Option<String> {
    // A list with one item where a single value is expected.
    if let Kind::List(items) = &node.kind
        && schema.type_.as_deref() != Some("array")
        && let [item] = items.as_slice()
        && fits(schema, &item.to_json())
        && !is_map(schema)
    {
        let mut item = item.to_json();
        // As in the containers of a pod, each of which has a name.
        if let Some(item) = item
            .as_object_mut()
            .filter(|_| !has(schema, "name") && has(schema, "image"))
        {
            item.remove("name");
        }
        let is_selector = has(schema, "matchLabels") && has(schema, "matchExpressions");
        let is_complete = item
            .as_object()
            .is_none_or(|item| item.keys().all(|key| has(schema, key)));
        return if is_complete {
            Some(yaml(&item))
        } else if is_selector {
            selector_of_items(items).map(|selector| yaml(&selector))
        } else {
            None
        };
    }
    match schema.type_.as_deref() {
        Some("string") => text(field, schema, node, written),
        Some("boolean") => truth(node).map(|truth| truth.to_string()),
        Some("integer") => whole_number(field, node),
        Some("array") => list(field, schema, node, written, runs).map(|list| yaml(&list)),
        Some("object") => object(field, schema, node, written).map(|object| yaml(&object)),
        // Of the fields of type int-or-string, only the node limits have a minimum; the other one is a duration.
        _ if schema.minimum.is_some() => share(node),
        _ => None,
    }
}

fn share(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Number(number) => {
            let share = number.as_f64().filter(|share| *share > 0.0 && *share < 1.0)?;
            Some(format!("{:.0}%", (share * 100.0).max(1.0)))
        }
        Kind::Text(text) => node_limit(text),
        _ => None,
    }
}

/// A corrected node limit: `3` for `"3"`, `25%` for `25 %`.
pub(super) fn node_limit(text: &str) -> Option<String> {
    let text = text.trim();
    let unit = ["nodes", "node"].into_iter().find(|unit| text.ends_with(unit));
    let text = unit.map_or(text, |unit| text.trim_end_matches(unit).trim_end());
    match text.strip_suffix('%').or_else(|| text.strip_suffix("percent")) {
        Some(percent) => {
            let percent: f64 = percent.trim().parse().ok()?;
            (percent > 0.0).then(|| format!("{:.0}%", percent.floor().clamp(1.0, 100.0)))
        }
        None => text.parse::<u32>().ok().map(|nodes| nodes.max(1).to_string()),
    }
}

fn text(field: &str, schema: &JSONSchemaProps, node: &Node, written: &str) -> Option<String> {
    if let "spec.upgrade.image" | "spec.prepare.image" = field
        && let Kind::Map(_) = node.kind
    {
        return image(node).map(|image| yaml(&image.into()));
    }
    if !matches!(node.kind, Kind::Number(_) | Kind::Bool(_)) {
        return None;
    }
    match Unit::of(field) {
        Unit::Duration => match &node.kind {
            Kind::Number(number) => {
                let written = if written.bytes().all(|b| b.is_ascii_digit()) && !written.starts_with('0') {
                    written.to_owned()
                } else {
                    number.to_string()
                };
                duration(&written).filter(|duration| takes_duration(field, duration))
            }
            _ => None,
        },
        Unit::Time => time_of_day(written).map(quoted),
        // `1224` is a day that lost its dash, and any other number is none.
        _ if field.starts_with("spec.blackouts[") && !field.ends_with(".reason") => {
            day_without_dash(written).map(quoted)
        }
        _ if schema.enum_.is_some() => {
            let words = allowed(schema);
            let text = match (&node.kind, words.contains(&"Always")) {
                (Kind::Bool(true), true) => "Always",
                (Kind::Bool(false), true) => "Never",
                (Kind::Bool(false), _) if words.contains(&"None") => "None",
                // In ISO 8601 Sunday is day 7; in `spec.window.days` it is day 0.
                _ if written == "7" && words.contains(&"sunday") => "su",
                _ => written,
            };
            words.contains(&text).then(|| yaml(&text.into()))
        }
        _ if field == "spec.window.timeZone" || field == "spec.channel" => None,
        _ if matches!(field, "spec.upgrade.image" | "spec.prepare.image") => None,
        _ if field == "spec.version" && matches!(node.kind, Kind::Bool(_)) => None,
        _ if field.contains("abels.") || field.contains(".values[") => {
            Some(quoted(label_text(node, written)))
        }
        _ if field.starts_with("spec.reboot.requiredFiles") => None,
        _ => Some(quoted(written.to_owned())),
    }
}

/// The image of a chart's values: `{repository: rancher/k3s-upgrade, tag: v1}`.
fn image(node: &Node) -> Option<String> {
    let text = |name: &str| {
        node.get(name)
            .and_then(Node::text)
            .filter(|text| !text.is_empty())
    };
    let known = ["registry", "repository", "name", "tag", "digest", "pullPolicy"];
    let is_known = |name: &str| known.contains(&name);
    if !node
        .object()?
        .entries
        .iter()
        .all(|entry| is_known(&entry.key.name))
    {
        return None;
    }
    let mut image = text("repository").or(text("name"))?.to_owned();
    if let Some(registry) = text("registry") {
        image = format!("{registry}/{image}");
    }
    match (text("digest"), text("tag")) {
        (Some(digest), _) => image.extend(["@", digest]),
        (None, Some(tag)) => image.extend([":", tag]),
        (None, None) => {}
    }
    super::images::Reference::read(&image).is_some().then_some(image)
}

/// The value of a label: the label of a node is `true`, however a selector spells the bool.
pub(super) fn label_text(node: &Node, written: &str) -> String {
    match &node.kind {
        Kind::Text(text) => text.clone(),
        Kind::Bool(value) if written.eq_ignore_ascii_case(&value.to_string()) => value.to_string(),
        _ => written.to_owned(),
    }
}

/// Whether a number without a unit can only mean this duration: false for a zero duration in a field that needs a
/// positive one.
pub(super) fn takes_duration(field: &str, duration: &str) -> bool {
    let needs_time = matches!(field, "spec.reboot.timeout" | "spec.settle.timeout");
    // 72 may be hours or days, and 4 hours.
    if field == "spec.versionPolicy.minimumAge" || super::schema::no_indices(field) == "spec.windows.duration"
    {
        return false;
    }
    let duration = duration.parse::<GoDuration>().unwrap_or_default();
    let least = i64::from(needs_time);
    duration.as_nanos() >= least
}

pub(super) fn allowed(schema: &JSONSchemaProps) -> Vec<&str> {
    let all = schema.enum_.iter().flatten();
    all.filter_map(|one| one.0.as_str()).collect()
}

fn truth(node: &Node) -> Option<bool> {
    match &node.kind {
        // As in the values of a chart.
        Kind::Map(object) => match object.entries.as_slice() {
            [entry] if entry.key.name == "enabled" => match entry.value.kind {
                Kind::Bool(value) => Some(value),
                _ => None,
            },
            _ => None,
        },
        Kind::Number(number) => number.as_u64().filter(|bit| *bit < 2).map(|bit| bit == 1),
        Kind::Text(text) => match text.trim().to_lowercase().as_str() {
            "true" | "yes" | "y" | "on" | "1" | "enabled" | "enable" => Some(true),
            "false" | "no" | "n" | "off" | "0" | "disabled" | "disable" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn whole_number(field: &str, node: &Node) -> Option<String> {
    let is_concurrency = field == "spec.concurrency";
    let text = match &node.kind {
        Kind::Text(text) => text.trim(),
        Kind::Number(_) if is_concurrency => {
            return share(node).map(|share| format!("maxConcurrent: {share}"));
        }
        _ => return None,
    };
    match Unit::of(field) {
        Unit::Mode => {
            let digits = text.trim_start_matches("0o").trim_start_matches('0');
            let mode = u32::from_str_radix(digits, 8)
                .ok()
                .filter(|mode| *mode <= 0o777)?;
            Some(format!("0{mode:o}"))
        }
        Unit::Seconds => match text.parse::<i64>() {
            Ok(seconds) => Some(seconds.to_string()),
            Err(_) => seconds(text).map(|seconds| seconds.to_string()),
        },
        _ if is_concurrency && text.ends_with('%') => {
            node_limit(text).map(|share| format!("maxConcurrent: {share}"))
        }
        _ => text.parse::<i64>().ok().map(|number| number.to_string()),
    }
}

fn list(field: &str, schema: &JSONSchemaProps, node: &Node, written: &str, runs: Runs) -> Option<Value> {
    let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items else {
        return None;
    };
    if item.type_.as_deref() == Some("string") {
        let text = match &node.kind {
            Kind::Text(text) => text.clone(),
            Kind::Bool(_) if field.ends_with(".values") => label_text(node, written),
            Kind::Number(_) | Kind::Bool(_) => written.to_owned(),
            _ => return None,
        };
        return strings(field, item, &text, runs).map(Value::from);
    }
    match &node.kind {
        // One item without its list.
        Kind::Map(object) if object.entries.iter().any(|entry| has(item, &entry.key.name)) => {
            Some(json!([node.to_json()]))
        }
        Kind::Map(object) => {
            let pairs = object.entries.iter().map(|entry| {
                let value = match &entry.value.kind {
                    Kind::Text(text) => text.clone(),
                    Kind::Number(number) => number.to_string(),
                    Kind::Bool(value) => value.to_string(),
                    _ => return None,
                };
                pair(item, &entry.key.name, &value)
            });
            pairs
                .collect::<Option<Vec<_>>>()
                .filter(|all| !all.is_empty())
                .map(Value::from)
        }
        Kind::Text(text) => {
            let last = format!("{}[", field.rsplit('.').next().unwrap_or_default());
            // Their items have spaces.
            if let "spec.windows" | "spec.blackouts" | "spec.order" = field
                && let Some(item) = item_of_text(&last, item, text.trim())
            {
                return Some(json!([item]));
            }
            if let Some((name, value)) = text.split_once(": ").filter(|_| last == "envs[") {
                return variable(name, value).map(|one| json!([one]));
            }
            let words = text.split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty());
            let items = words.map(|word| item_of_text(&last, item, word));
            items
                .collect::<Option<Vec<_>>>()
                .filter(|all| !all.is_empty() && are_distinct(all))
                .map(Value::from)
        }
        _ => None,
    }
}

/// A list item for `NAME: value`.
fn pair(item: &JSONSchemaProps, key: &str, value: &str) -> Option<Value> {
    if has(item, "value") && has(item, "name") {
        return Some(json!({ "name": key, "value": value }));
    }
    (has(item, "operator") && has(item, "values"))
        .then(|| json!({ "key": key, "operator": "In", "values": [value] }))
}

/// Whether no two items have one name.
fn are_distinct(items: &[Value]) -> bool {
    let mut names = std::collections::BTreeSet::new();
    items
        .iter()
        .all(|item| item["name"].as_str().is_none_or(|name| names.insert(name)))
}

fn strings(field: &str, item: &JSONSchemaProps, text: &str, runs: Runs) -> Option<Vec<String>> {
    if item.enum_.is_some() {
        return days(item, text);
    }
    match field.rsplit('.').next().unwrap_or_default() {
        "command" | "args" if runs == Runs::Script => Some(vec![text.to_owned()]),
        // A list in quotes.
        "command" | "args" if text.trim_start().starts_with('[') => serde_json::from_str(text).ok(),
        "args" => arguments(text, runs),
        "command" => words(text),
        "requiredFiles" => {
            let files = text.split([',', ' ', '\n']).filter(|word| !word.is_empty());
            let files: Vec<_> = files.map(str::to_owned).collect();
            Some(files).filter(|files| !files.is_empty() && files.iter().all(|file| file.starts_with('/')))
        }
        _ => Some(
            text.split([',', ' '])
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
        ),
    }
}

/// Days from text, for a field that takes them: `mo,tu`, `Mon-Fri`, `weekdays`, `daily`.
pub(super) fn days(item: &JSONSchemaProps, text: &str) -> Option<Vec<String>> {
    days_of_text(text).filter(|_| allowed(item).contains(&"sunday"))
}

fn days_of_text(text: &str) -> Option<Vec<String>> {
    let of = |days: std::ops::RangeInclusive<usize>| -> Vec<String> {
        days.map(|day| DAYS[day % DAYS.len()][1].to_owned()).collect()
    };
    let lower = text.to_lowercase();
    match lower.trim() {
        "daily" | "everyday" | "every day" | "all" | "*" | "any" => return Some(of(1..=7)),
        "weekdays" | "weekday" | "workdays" => return Some(of(1..=5)),
        "weekend" | "weekends" => return Some(of(6..=7)),
        _ => {}
    }
    if let Some((first, last)) = lower.split_once(['-', '–']) {
        let (first, last) = (number_of_day(first)?, number_of_day(last)?);
        return Some(of(first..=if last < first { last + DAYS.len() } else { last }));
    }
    let split = lower.split([',', ' ', '/', ';']).filter(|word| !word.is_empty());
    let days = split.map(|word| {
        let number = number_of_day(word)?;
        let is_known = DAYS[number].contains(&word);
        Some(if is_known { word } else { DAYS[number][1] }.to_owned())
    });
    days.collect::<Option<Vec<_>>>().filter(|days| !days.is_empty())
}

/// Names of the days of the week in languages of many users, with their abbreviations, from Sunday. A day is not guessed
/// from a similar word: `lun` is a Monday, and near to `sun`.
const DAYS_IN_OTHER_LANGUAGES: [&str; 7] = [
    "so sonntag zo zondag dim dimanche dom domingo domenica",
    "montag maandag lun lundi lunes lunedi lunedì",
    "di dienstag dinsdag mar mardi martes martedi martedì",
    "mi mittwoch wo woensdag mer mercredi mie mié miercoles miércoles mercoledi mercoledì",
    "do donnerstag donderdag jeu jeudi jue jueves gio giovedi giovedì",
    "freitag vr vrijdag ven vendredi vie viernes venerdi venerdì",
    "samstag sonnabend za zaterdag sam samedi sab sáb sabado sábado sabato",
];

/// The number of a day in [`DAYS`], in any language.
fn number_of_day(word: &str) -> Option<usize> {
    let word = word.trim().trim_end_matches('.').to_lowercase();
    let known = DAYS.iter().position(|names| names.contains(&word.as_str()));
    known.or_else(|| {
        DAYS_IN_OTHER_LANGUAGES
            .iter()
            .position(|names| names.split(' ').any(|name| name == word))
    })
}

/// `12-24` from `1224`.
fn day_without_dash(written: &str) -> Option<String> {
    let (month, day) = written.split_at_checked(written.len().checked_sub(2)?)?;
    let day = format!("{month:0>2}-{day}");
    is_day(&day).then_some(day)
}

fn object(field: &str, schema: &JSONSchemaProps, node: &Node, written: &str) -> Option<Value> {
    let last = field.rsplit('.').next().unwrap_or_default();
    match &node.kind {
        Kind::Bool(value) => return switch(field, *value),
        Kind::Number(_) if field == "spec.settle" => {
            return duration(written).map(|ready| json!({ "minReady": ready }));
        }
        Kind::Number(_) if field.starts_with("spec.waves[") => return item_of_text(last, schema, written),
        Kind::List(items) if is_map(schema) => return labels_of_items(items),
        Kind::List(items) if has(schema, "matchExpressions") => return selector_of_items(items),
        Kind::List(items) if last == "capabilities" && has(schema, "add") => {
            let names: Option<Vec<_>> = items.iter().map(Node::text).collect();
            let names: Vec<_> = names?
                .iter()
                .map(|name| name.trim_start_matches("CAP_"))
                .collect();
            return Some(json!({ "add": names }));
        }
        Kind::List(items) if field == "spec.drain" => {
            let words: Option<Vec<_>> = items.iter().map(Node::text).collect();
            return switches(schema, &words?);
        }
        _ => {}
    }
    let text = node.text()?.trim();
    if text.is_empty() {
        return None;
    }
    match field {
        // The image of `prepare`, or the Plan that it waits for?
        "spec.prepare" if !text.contains(['/', ':']) => return None,
        "spec.upgrade" | "spec.prepare" if !text.contains(' ') => return Some(json!({ "image": text })),
        "spec.nodeSelector" | "spec.drain.podSelector" => return selector(text),
        "spec.window" => return window(text),
        "spec.settle" => return duration(text).map(|ready| json!({ "minReady": ready })),
        "spec.reboot" => {
            let when = allowed(schema.properties.as_ref()?.get("when")?);
            let plain = |text: &str| text.replace(['-', '_', ' '], "").to_lowercase();
            let when = when.into_iter().find(|when| plain(when) == plain(text));
            return match (when, truth(node)) {
                (Some(when), _) => Some(json!({ "when": when })),
                (None, truth) => switch(field, truth?),
            };
        }
        "spec.drain" => {
            let words: Vec<_> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
            return truth(node).map_or_else(
                || switches(schema, &words).or_else(|| flags(schema, &words)),
                |truth| switch(field, truth),
            );
        }
        "spec.failure" => {
            let policies = allowed(schema.properties.as_ref()?.get("policy")?);
            let meant = match text.to_lowercase().as_str() {
                "abort" | "halt" | "fail" => "Stop",
                "ignore" | "skip" => "Continue",
                _ => text,
            };
            let policy = policies
                .into_iter()
                .find(|policy| policy.eq_ignore_ascii_case(meant))?;
            return Some(json!({ "policy": policy }));
        }
        "spec.versionPolicy" => {
            return text
                .parse::<refit_base::version::Range>()
                .is_ok()
                .then(|| json!({ "range": text }));
        }
        _ => {}
    }
    if is_map(schema) {
        return labels(
            text.split(',')
                .map(|pair| pair.split_once(['=', ':']))
                .collect::<Option<Vec<_>>>()?,
        );
    }
    item_of_text(last, schema, text)
}

pub(super) fn has(schema: &JSONSchemaProps, name: &str) -> bool {
    schema
        .properties
        .as_ref()
        .is_some_and(|properties| properties.contains_key(name))
}

/// Whether the schema is an object with arbitrary keys, such as labels.
fn is_map(schema: &JSONSchemaProps) -> bool {
    schema.additional_properties.is_some()
}

fn fits(schema: &JSONSchemaProps, value: &Value) -> bool {
    match schema.type_.as_deref() {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("object") => value.is_object(),
        _ => false,
    }
}

/// The enum value that the text is a misspelling of.
pub(super) fn word<'s>(schema: &'s JSONSchemaProps, text: &str) -> Option<&'s str> {
    /// Shorter words are near to several days.
    const MIN_WORD: usize = 4;
    let words = allowed(schema);
    let text = text.trim();
    if !words.contains(&"sunday") {
        return nearest(text, words);
    }
    if text == "7" {
        return Some("su");
    }
    let same = words.iter().find(|word| word.eq_ignore_ascii_case(text));
    let known = same.copied().or_else(|| Some(DAYS[number_of_day(text)?][1]));
    // The nearest day to `1-5` is not what is meant.
    known.or_else(|| nearest(text, words).filter(|_| !text.contains('-') && text.chars().count() >= MIN_WORD))
}
