//! Suggested YAML for a value that its field does not accept, if the intention is clear.
//!
//! People paste hints unread. So suggested YAML must be accepted by the field, in the unit of the field. If the
//! intention is ambiguous, there is no suggestion.

use jiff::SpanRelativeTo;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::{Map, Value, json};

use crate::api::selector::{label_key_problems, label_value_problems};
use crate::api::window::DAYS;
use crate::gitops::yaml::{Kind, Node, is_text_to_all, number};
use crate::go::GoDuration;
use crate::nearest::nearest;

/// The unit of a field, beyond its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A Go duration, as text.
    Duration,
    /// Seconds, as a number.
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
            | "versionPolicy.minimumAge" => Self::Duration,
            "jobActiveDeadlineSecs"
            | "drain.gracePeriod"
            | "drain.skipWaitForDeleteTimeout"
            | "tolerations.tolerationSeconds" => Self::Seconds,
            "window.startTime" | "window.endTime" => Self::Time,
            "secrets.defaultMode" => Self::Mode,
            _ => Self::None,
        }
    }
}

/// What to say of a limit of nodes whose meaning is unclear.
pub(super) const ANY_LIMIT: &str = "write a number from 1 on, or a share such as `25%`";
/// A longer number of seconds is probably one of milliseconds.
const MAX_SECONDS: f64 = 100_000.0;

/// What runs the text that stands for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// The text is a whole command line.
    Line,
    /// A shell with a flag such as `-c`: the text is its script.
    Script,
    /// A shell without arguments.
    Shell,
    /// A program that may not be a shell.
    Arguments,
}

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
    {
        return Some(yaml(&item.to_json()));
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

/// Converts common spellings of a duration (`30`, `5 minutes`, `1d`, `PT1H`) to Go's syntax. A plain number means
/// seconds.
pub(super) fn duration(text: &str) -> Option<String> {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let in_seconds = format!("{text}s");
    // Not `5m`, which an `s` behind it makes five milliseconds.
    if text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(is_number)
        && text.parse::<f64>().is_ok_and(|seconds| seconds <= MAX_SECONDS)
        && in_seconds.parse::<GoDuration>().is_ok()
    {
        return Some(in_seconds);
    }
    if !text.starts_with(['-', '+']) && text.parse::<GoDuration>().is_ok() {
        return Some(text.to_owned());
    }
    let span: jiff::Span = text.parse().or_else(|_| text.to_lowercase().parse()).ok()?;
    let span = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let nanos = i64::try_from(span.as_nanos()).ok().filter(|nanos| *nanos >= 0)?;
    Some(short(GoDuration::from_nanos(nanos)))
}

/// Go's syntax without zero parts: `1h`, not `1h0m0s`.
pub(super) fn short(duration: GoDuration) -> String {
    let text = duration.to_string();
    let text = text
        .strip_suffix("m0s")
        .map_or(text.clone(), |minutes| format!("{minutes}m"));
    text.strip_suffix("h0m")
        .map_or(text.clone(), |hours| format!("{hours}h"))
}

fn seconds(text: &str) -> Option<i64> {
    let exact = text.trim().parse::<GoDuration>().ok();
    let duration = exact.or_else(|| duration(text)?.parse().ok())?;
    (duration.as_nanos() % 1_000_000_000 == 0).then(|| duration.as_secs())
}

/// Converts common spellings of a time of day (`22`, `2200`, `22.30`, `10 PM`, `22h30`) to `22:00`.
pub(super) fn time_of_day(text: &str) -> Option<String> {
    let lower: String = text
        .to_lowercase()
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    let (clock, half) = match (lower.strip_suffix("am"), lower.strip_suffix("pm")) {
        (Some(clock), _) => (clock, Some(0)),
        (_, Some(clock)) => (clock, Some(12)),
        _ => (lower.as_str(), None),
    };
    let (hour, minute) = match clock.split_once([':', '.', 'h']) {
        Some((hour, minute)) => (hour, if minute.is_empty() { "0" } else { minute }),
        None if clock.len() > 2 => clock.split_at_checked(clock.len() - 2)?,
        None => (clock, "0"),
    };
    // YAML reads 22.30 as a number, and drops its last zero.
    let minute = if clock.contains('.') && minute.len() == 1 {
        format!("{minute}0")
    } else {
        minute.to_owned()
    };
    let (mut hour, minute): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
    if let Some(half) = half {
        hour = (1..=12).contains(&hour).then(|| hour % 12 + half)?;
    }
    (hour < 24 && minute < 60).then(|| format!("{hour:02}:{minute:02}"))
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
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.trim().parse().ok()?;
            (percent > 0.0).then(|| format!("{:.0}%", percent.floor().clamp(1.0, 100.0)))
        }
        None => text.parse::<u32>().ok().map(|nodes| nodes.max(1).to_string()),
    }
}

fn text(field: &str, schema: &JSONSchemaProps, node: &Node, written: &str) -> Option<String> {
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
        _ if schema.enum_.is_some() => {
            let words = allowed(schema);
            let text = match (&node.kind, words.contains(&"Always")) {
                (Kind::Bool(true), true) => "Always",
                (Kind::Bool(false), true) => "Never",
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

/// The value of a label: the label of a node is `true`, however a selector spells the bool.
pub(super) fn label_text(node: &Node, written: &str) -> String {
    match &node.kind {
        Kind::Text(text) => text.clone(),
        Kind::Bool(value) if written.eq_ignore_ascii_case(&value.to_string()) => value.to_string(),
        _ => written.to_owned(),
    }
}

/// False for a zero duration in a field that needs a positive one.
fn takes_duration(field: &str, duration: &str) -> bool {
    let needs_time = matches!(field, "spec.reboot.timeout" | "spec.settle.timeout");
    // 72 may be hours or days.
    if field == "spec.versionPolicy.minimumAge" {
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

/// Days from text: `mo,tu`, `Mon-Fri`, `weekdays`, `daily`.
pub(super) fn days(item: &JSONSchemaProps, text: &str) -> Option<Vec<String>> {
    let words = allowed(item);
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
    let number = |word: &str| DAYS.iter().position(|names| names.contains(&word.trim()));
    if let Some((first, last)) = lower.split_once('-') {
        let (first, last) = (number(first)?, number(last)?);
        return Some(of(first..=if last < first { last + DAYS.len() } else { last }));
    }
    let split = lower.split([',', ' ', '/', ';']).filter(|word| !word.is_empty());
    let days = split.map(|word| words.contains(&word).then(|| word.to_owned()));
    days.collect::<Option<Vec<_>>>().filter(|days| !days.is_empty())
}

/// The list of arguments in a text.
fn arguments(text: &str, runs: Runs) -> Option<Vec<String>> {
    if runs == Runs::Shell {
        return if text.starts_with('-') {
            let mut words = words(&format!("sh {text}"))?;
            (words.remove(0) == "sh").then_some(words)
        } else if needs_shell(text) {
            Some(["-c", text.trim_end()].map(str::to_owned).to_vec())
        } else {
            // `sh echo hi` looks for a file `echo`.
            shlex::split(text).filter(|words| words.first().is_some_and(|word| word.contains('/')))
        };
    }
    // Nothing says that a shell reads them.
    if needs_shell(text) {
        return None;
    }
    let mut words = shlex::split(text).filter(|words| !words.is_empty())?;
    // `a, b` is a list without brackets; `a,b` may be one value.
    if let Some((_, others)) = words.split_last_mut()
        && !others.is_empty()
        && others.iter().all(|word| word.ends_with(','))
    {
        for word in others {
            word.pop();
        }
    }
    let may_be_list = words.len() == 1 && words[0].contains(',') && !words[0].contains('=');
    (!may_be_list).then_some(words)
}

/// Splits a command line as a shell would: a Plan's command is not read by a shell.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line)?;
    let first = words.first()?;
    let is_shell = is_shell(first);
    let script = words.iter().position(|word| is_script_flag(word));
    let is_quoted = line.contains(['"', '\'', '\\']);
    match script {
        // `sh -c echo hi` was not meant to run `echo` without arguments.
        Some(at) if is_shell && !is_quoted => {
            let mut words = words[..=at].to_vec();
            let (_, script) = line.split_once(&words[at])?;
            // The script may be in the arguments.
            words.extend(Some(script.trim().to_owned()).filter(|script| !script.is_empty()));
            Some(words)
        }
        _ => {
            // A shell reads its script itself. What is beside it, nobody would.
            let beside = match script.and_then(|at| words.get(at + 2..)) {
                Some(beside) if is_shell => beside.join(" "),
                _ => line.to_owned(),
            };
            Some(if needs_shell(&beside) {
                ["/bin/sh", "-c", line.trim_end()].map(str::to_owned).to_vec()
            } else {
                words
            })
        }
    }
}

/// Whether the word is a shell flag before a script: `-c`, `-euc`.
pub(super) fn is_script_flag(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

pub(super) fn is_shell(program: &str) -> bool {
    matches!(
        program.rsplit('/').next(),
        Some("sh" | "bash" | "ash" | "dash" | "zsh")
    )
}

/// Whether the line uses shell syntax. `$(NAME)` is expanded by Kubernetes.
fn needs_shell(line: &str) -> bool {
    const BUILTINS: [&str; 16] = [
        "cd", "export", "set", "unset", "source", ".", "eval", "exec", "trap", "ulimit", "umask", "alias",
        "if", "for", "while", "until",
    ];
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_assignment = first.split_once('=').is_some_and(|(name, _)| is_variable(name));
    let has_home = line
        .split_whitespace()
        .any(|word| word == "~" || word.starts_with("~/"));
    let braces = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let is_brace = braces.is_some_and(|(inner, _)| inner.contains(',') && !inner.contains([':', '"']));
    // Kubernetes replaces names, not commands.
    let mut replaced = line.split("$(").skip(1).filter_map(|rest| rest.split(')').next());
    if replaced.any(|name| name.contains(' ')) {
        return true;
    }
    if BUILTINS.contains(&first) || is_assignment || has_home || is_brace {
        return true;
    }
    let without = line.replace("$(", "");
    let is_own = line.contains("$(") && !without.contains(['|', '&', ';', '<', '>', '$', '`', '*', '\n']);
    !is_own && line.contains(['|', '&', ';', '<', '>', '$', '`', '*', '\n'])
}

fn object(field: &str, schema: &JSONSchemaProps, node: &Node, written: &str) -> Option<Value> {
    let last = field.rsplit('.').next().unwrap_or_default();
    match &node.kind {
        Kind::Bool(value) => return switch(field, *value),
        Kind::Number(_) if field == "spec.settle" => {
            return duration(written).map(|ready| json!({ "minReady": ready }));
        }
        Kind::List(items) if is_map(schema) => {
            let pairs = items.iter().map(|item| item.text()?.split_once(['=', ':']));
            return labels(pairs.collect::<Option<Vec<_>>>()?);
        }
        _ => {}
    }
    let text = node.text()?.trim();
    if text.is_empty() {
        return None;
    }
    match field {
        "spec.upgrade" | "spec.prepare" if !text.contains(' ') => return Some(json!({ "image": text })),
        "spec.nodeSelector" | "spec.drain.podSelector" => return selector(text),
        "spec.window" => return window(text),
        "spec.settle" => return duration(text).map(|ready| json!({ "minReady": ready })),
        "spec.reboot" => {
            let when = allowed(schema.properties.as_ref()?.get("when")?);
            let when = when.into_iter().find(|when| when.eq_ignore_ascii_case(text));
            return match (when, truth(node)) {
                (Some(when), _) => Some(json!({ "when": when })),
                (None, truth) => switch(field, truth?),
            };
        }
        "spec.drain" => return switch(field, truth(node)?),
        "spec.versionPolicy" => {
            return text
                .parse::<crate::version::Range>()
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

/// An object from text; `last` is the last part of its field.
fn item_of_text(last: &str, schema: &JSONSchemaProps, text: &str) -> Option<Value> {
    let has = |name: &str| has(schema, name);
    if last.starts_with("tolerations[") {
        return toleration(text);
    }
    if last.starts_with("matchExpressions[") {
        return None;
    }
    if has("value") && has("name") {
        let pair = text.split_once('=').filter(|(name, _)| is_variable(name));
        let (name, value) = pair.or_else(|| text.split_once(": "))?;
        return variable(name, value);
    }
    if has("source") && has("destination") {
        return volume(text);
    }
    if has("name") && text.contains([',', ' ', ':', '=']) {
        return None;
    }
    if has("name") && has("path") {
        return Some(json!({ "name": text, "path": format!("/host/run/system-upgrade/secrets/{text}") }));
    }
    (has("name") && schema.properties.as_ref().is_some_and(|all| all.len() == 1))
        .then(|| json!({ "name": text }))
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn variable(name: &str, value: &str) -> Option<Value> {
    is_variable(name).then(|| json!({ "name": name, "value": value.trim() }))
}

/// The value that enables a field for which the author wrote `true`.
fn switch(field: &str, on: bool) -> Option<Value> {
    match (field, on) {
        ("spec.drain", true) => Some(json!({})),
        ("spec.reboot", true) => Some(json!({ "when": "Always" })),
        ("spec.reboot", false) => Some(json!({ "when": "Never" })),
        _ => None,
    }
}

fn labels(pairs: Vec<(&str, &str)>) -> Option<Value> {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| (key.trim().to_owned(), Value::from(value.trim())));
    let labels: Map<_, _> = pairs.collect();
    let is_whole = !labels.is_empty() && labels.keys().all(|key| !key.is_empty() && !key.contains(' '));
    is_whole.then(|| labels.into())
}

/// A selector from `a=b,c=d` as in kubectl, or from a label key that must exist.
fn selector(text: &str) -> Option<Value> {
    if text.contains([' ', '!', '(']) {
        return None;
    }
    let pairs: Option<Vec<_>> = text
        .split(',')
        .map(|pair| pair.split_once("==").or_else(|| pair.split_once('=')))
        .collect();
    let is_label = |(key, value): &(&str, &str)| {
        label_key_problems(key).is_empty() && label_value_problems(value).is_empty()
    };
    match pairs {
        Some(pairs) => labels(
            pairs
                .into_iter()
                .map(|pair| is_label(&pair).then_some(pair))
                .collect::<Option<_>>()?,
        )
        .map(|labels| json!({ "matchLabels": labels })),
        None if text.contains(['=', ',']) || !label_key_problems(text).is_empty() => None,
        // Whether every node is meant is unclear.
        None if ["all", "any", "every", "everything", "none"].contains(&text) => None,
        None => Some(json!({ "matchExpressions": [{ "key": text, "operator": "Exists" }] })),
    }
}

/// A daily window from `22:00-04:00`.
fn window(text: &str) -> Option<Value> {
    let (start, end) = text.split_once(['-', '–'])?;
    let (start, end) = (time_of_day(start)?, time_of_day(end)?);
    let days: Vec<_> = (1..=7).map(|day| DAYS[day % DAYS.len()][1]).collect();
    Some(json!({ "days": days, "startTime": start, "endTime": end }))
}

/// A toleration from `key=value:Effect`, as in `kubectl taint`; `Exists` tolerates all taints.
fn toleration(text: &str) -> Option<Value> {
    if text.eq_ignore_ascii_case("exists") || text == "*" || text.eq_ignore_ascii_case("all") {
        return Some(json!({ "operator": "Exists" }));
    }
    let (taint, effect) = text
        .split_once(':')
        .map_or((text, None), |(taint, effect)| (taint, Some(effect)));
    if taint.contains(' ') || effect.is_some_and(|effect| !EFFECTS.contains(&effect)) {
        return None;
    }
    let mut toleration = match taint.split_once('=') {
        Some((key, value)) => json!({ "key": key, "operator": "Equal", "value": value }),
        None => json!({ "key": taint, "operator": "Exists" }),
    };
    if let Some(effect) = effect {
        toleration["effect"] = effect.into();
    }
    Some(toleration)
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Maximum length of a volume's name, with room for the number of a second one.
const MAX_VOLUME_NAME: usize = 60;

/// A volume from `/source:/destination`, as in container runtimes.
pub(super) fn volume(text: &str) -> Option<Value> {
    if text.contains([',', ' ']) {
        return None;
    }
    let mut parts = text.split(':');
    let source = parts.next().filter(|path| path.starts_with('/'))?;
    let destination = parts.next().unwrap_or(source);
    let name: String = source
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    // The end of a path says more than its beginning.
    let name = name
        .get(name.len().saturating_sub(MAX_VOLUME_NAME)..)
        .unwrap_or(&name);
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "root" } else { name };
    destination
        .starts_with('/')
        .then(|| json!({ "name": name, "source": source, "destination": destination }))
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
    let words = allowed(schema);
    // The nearest day to `1-5` is not what is meant.
    if text.contains('-') && words.contains(&"sunday") {
        return None;
    }
    if text == "7" && words.contains(&"sunday") {
        return Some("su");
    }
    nearest(text.trim(), words)
}

fn quoted(text: String) -> String {
    Value::from(text).to_string()
}

/// A value as YAML on one line.
pub(super) fn yaml(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Array(items) => {
            // If one item of a list needs quotes, quote them all for readability.
            let plain = items.iter().all(|item| item.as_str().is_none_or(is_plain));
            let item = |item: &Value| if plain { yaml(item) } else { json_or_yaml(item) };
            format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("{}: {}", yaml(&key.as_str().into()), yaml(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn json_or_yaml(value: &Value) -> String {
    if value.is_string() {
        value.to_string()
    } else {
        yaml(value)
    }
}

/// Whether every YAML reader takes the unquoted text for a string, in any position.
fn is_plain(text: &str) -> bool {
    let is_path = text.starts_with('/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    // A label key has a slash; the parts before and after it are checked separately.
    let is_key = text.split('/').all(is_text_to_all);
    let is_span = text.parse::<GoDuration>().is_ok() && text.ends_with(|c: char| c.is_ascii_alphabetic());
    is_path || is_key || (is_span && number(text).is_none())
}

#[cfg(test)]
mod tests;
