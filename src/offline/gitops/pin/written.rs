//! The value of `spec.version`: a version, nothing, or something else, which is not replaced.

use crate::gitops::objects::Object;
use crate::gitops::overlay::{Change, Field, SetTo};
use crate::gitops::placeholder::{in_comment, is_marker, is_placeholder, is_whole_placeholder, syntax};
use crate::gitops::source::Source;
use crate::gitops::yaml::{Kind, Node};
use refit_base::version::tag::{check, munge};
use refit_base::version::{Range, Version, quoted};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Missing, null or an empty string.
    Absent,
    Version {
        /// The source text, which a parsed number such as `1.50` would lose.
        text: String,
        /// YAML parses it as a number, which the API server refuses.
        is_number: bool,
    },
    /// Something else, which is never replaced.
    Other(Other),
}

/// A `spec.version` that is not a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// What it is, such as `"$VERSION", a variable, as a shell replaces it`.
    pub what: String,
    pub remedy: &'static str,
    /// It is a mistake, not a value that a tool replaces.
    pub is_mistake: bool,
    /// The file may be applied as it is: the value is a word that has no order, such as `latest`, or a version that a
    /// tool keeps up to date.
    pub is_resolvable: bool,
}

const FILLED_IN: &str = "set the version where the placeholder gets its value";
const MARKED: &str = "that tool sets the version; change it there, or remove the comment";
const WRITE_ONE: &str =
    "write a version such as v1.33.4+k3s1 there, or delete the line and run refit pin again";
const RANGE: &str = "move it to spec.versionPolicy.range, and delete the line";

pub(super) fn version(source: &Source, spec: Option<&Node>) -> Written {
    let Some(entry) = spec.and_then(Node::object).and_then(|spec| spec.entry("version")) else {
        return Written::Absent;
    };
    if let Some((comment, syntax)) = in_comment(source, entry) {
        return match entry.value.text().map(str::trim) {
            Some(text) if !text.is_empty() => Written::Other(Other {
                what: format!("{} with the comment {comment}, {syntax}", quoted(text)),
                remedy: if is_marker(syntax) { MARKED } else { FILLED_IN },
                is_mistake: false,
                is_resolvable: is_marker(syntax) && check(&munge(text)).is_ok(),
            }),
            _ => other(format!("{comment}, {syntax}"), FILLED_IN, false),
        };
    }
    let written = source.text.get(entry.value.span.clone()).unwrap_or_default();
    match &entry.value.kind {
        Kind::Null => Written::Absent,
        Kind::Text(text) => of_text(text),
        Kind::Number(_) if is_version_as_number(written) => Written::Version {
            text: written.to_owned(),
            is_number: true,
        },
        Kind::Number(_) => other(
            format!("the number {written}, which is not a version"),
            WRITE_ONE,
            true,
        ),
        Kind::Bool(_) => other(
            format!("the bool {written}, which is not a version"),
            WRITE_ONE,
            true,
        ),
        Kind::List(_) | Kind::Map(_) if is_whole_placeholder(written) => other(
            format!("{}, {}", quoted(written), syntax(written).unwrap_or_default()),
            FILLED_IN,
            false,
        ),
        Kind::List(_) => other("a list, not a version".to_owned(), WRITE_ONE, true),
        Kind::Map(_) => other("an object, not a version".to_owned(), WRITE_ONE, true),
    }
}

/// What a text is.
pub(super) fn of_text(text: &str) -> Written {
    let text = text.trim();
    let shown = quoted(text);
    if text.is_empty() {
        Written::Absent
    } else if let Some(syntax) = syntax(text) {
        let remedy = if is_placeholder(text) {
            FILLED_IN
        } else {
            WRITE_ONE
        };
        other(format!("{shown}, {syntax}"), remedy, false)
    } else if is_version(text) {
        Written::Version {
            text: text.to_owned(),
            is_number: false,
        }
    } else if text.parse::<Range>().is_ok() {
        other(format!("{shown}, a range and not a version"), RANGE, false)
    } else {
        Written::Other(Other {
            what: format!("{shown}, which is not a version"),
            remedy: WRITE_ONE,
            is_mistake: false,
            is_resolvable: check(&munge(text)).is_ok(),
        })
    }
}

pub(super) fn other(what: String, remedy: &'static str, is_mistake: bool) -> Written {
    Written::Other(Other {
        what,
        remedy,
        is_mistake,
        is_resolvable: false,
    })
}

/// What a replacement or the operation `copy` sets.
pub(super) fn of_elsewhere(change: &Change) -> String {
    format!("what Kustomize takes from elsewhere ({})", change.place())
}

/// The placeholder in `spec.channel`.
pub(super) fn channel_placeholder(source: &Source, object: &Object<'_>) -> Option<String> {
    let in_text = || {
        let text = source.text_of(object, Field::Channel)?;
        Some(format!("{}, {}", quoted(text), syntax(text)?))
    };
    match source.change(object, Field::Channel) {
        Some(change) if change.to == SetTo::Unknown => return Some(of_elsewhere(change)),
        Some(_) => return in_text(),
        None => {}
    }
    let entry = object.node.get("spec")?.object()?.entry("channel")?;
    let in_comment = in_comment(source, entry).map(|(comment, syntax)| format!("{comment}, {syntax}"));
    in_comment.or_else(in_text)
}

fn is_version(text: &str) -> bool {
    text.parse::<Version>().is_ok() && check(&munge(text)).is_ok()
}

/// True for `1.50` and `20260801`, but not for other YAML spellings of numbers: `0x10`, `1e3`, `1_000`, or `010`, which
/// is eight.
fn is_version_as_number(written: &str) -> bool {
    let is_octal = written.len() > 1 && written.starts_with('0') && !written.contains('.');
    !is_octal && written.bytes().all(|b| b.is_ascii_digit() || b == b'.') && is_version(written)
}
