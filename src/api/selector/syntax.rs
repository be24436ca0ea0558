//! Syntax of label keys and values, with apimachinery's error messages.

const MAX_LEN: usize = 63;
const MAX_PREFIX_LEN: usize = 253;

const KEY_PROBLEM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_PROBLEM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// What is wrong with a text that is not a DNS subdomain.
pub const SUBDOMAIN_PROBLEM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
     '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// All errors of a label key, with apimachinery's messages.
pub fn label_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {KEY_PROBLEM} {prefix}")];
        }
        Some(("", name)) => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            if prefix.len() > MAX_PREFIX_LEN {
                problems.push(format!("prefix part must be no more than {MAX_PREFIX_LEN} bytes"));
            }
            if !is_subdomain(prefix) {
                problems.push(format!("prefix part {SUBDOMAIN_PROBLEM}"));
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LEN {
        problems.push(format!("name part must be no more than {MAX_LEN} bytes"));
    }
    if !is_word(name) {
        problems.push(format!("name part {KEY_PROBLEM}"));
    }
    problems
}

/// All errors of a label value, with apimachinery's messages.
pub fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_LEN {
        problems.push(format!("must be no more than {MAX_LEN} bytes"));
    }
    if !value.is_empty() && !is_word(value) {
        problems.push(VALUE_PROBLEM.to_owned());
    }
    problems
}

/// Adds the errors of a label key at `path`.
pub(super) fn check_key(path: &str, key: &str, problems: &mut Vec<String>) {
    add_invalid(path, key, &label_key_problems(key), problems);
}

/// Adds the errors of a label value at `path`.
pub(super) fn check_value(path: &str, value: &str, problems: &mut Vec<String>) {
    add_invalid(path, value, &label_value_problems(value), problems);
}

fn add_invalid(path: &str, text: &str, details: &[String], problems: &mut Vec<String>) {
    if !details.is_empty() {
        problems.push(format!(
            "{path}: Invalid value: {}: {}",
            quote(text),
            details.join("; ")
        ));
    }
}

/// Joins errors without duplicates, in brackets if there are several.
pub(super) fn aggregate(mut problems: Vec<String>) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    match problems.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

/// Whether the text begins and ends with a letter or digit, and contains only those and `-_.`.
fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Whether `text` is a DNS label (RFC 1123): at most 63 of `[a-z0-9-]`, without `-` at either end.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LEN && !text.contains('.') && is_subdomain(text)
}

pub fn is_subdomain(text: &str) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.split('.').map(str::as_bytes).all(|label| {
        label.first().is_some_and(alphanumeric)
            && label.last().is_some_and(alphanumeric)
            && label.iter().all(|b| alphanumeric(b) || *b == b'-')
    })
}

/// A list as JSON, as apimachinery prints it; an empty list is nil there.
pub(super) fn json_list(values: &[String]) -> String {
    if values.is_empty() {
        return "null".to_owned();
    }
    let quoted: Vec<_> = values
        .iter()
        .map(|value| serde_json::Value::from(value.as_str()).to_string())
        .collect();
    format!("[{}]", quoted.join(","))
}

/// Quotes as Go's `%q`.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            ' '..='~' => quoted.push(c),
            '\0'..='\x7f' => quoted.extend(format!("\\x{:02x}", u32::from(c)).chars()),
            _ if c.escape_debug().len() == 1 => quoted.push(c),
            '\u{80}'..='\u{ffff}' => quoted.extend(format!("\\u{:04x}", u32::from(c)).chars()),
            _ => quoted.extend(format!("\\U{:08x}", u32::from(c)).chars()),
        }
    }
    quoted.push('"');
    quoted
}
