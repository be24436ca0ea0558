//! Placeholders: values that another program replaces before a file reaches a cluster.

use super::source::Source;
use super::yaml::Entry;
use refit_base::version::quoted;

/// How a placeholder begins and ends, and what it is.
const SYNTAXES: [(&str, &str, &str); 4] = [
    ("{{", "}}", "a template expression, as of Helm or Jinja"),
    ("${", "}", "a variable, as Flux and envsubst replace it"),
    ("$(", ")", "a variable, as Kustomize and Make replace it"),
    ("<", ">", "a placeholder in angle brackets"),
];

/// What replaces the text, if it is or contains a placeholder.
pub fn syntax(text: &str) -> Option<&'static str> {
    if let Some(tool) = tool_of(text) {
        return Some(tool);
    }
    let found = SYNTAXES.iter().find(|(open, close, _)| {
        let inner = text
            .split_once(open)
            .and_then(|(_, rest)| Some(rest.split_once(close)?.0));
        // `cat <in >out` redirects.
        inner.is_some_and(|inner| *open != "<" || inner.trim() == inner)
    });
    found.map(|(.., what)| *what)
}

/// Whether a program replaces the text, or a part of it.
pub fn is_placeholder(text: &str) -> bool {
    syntax(text).is_some()
}

/// The text, unless it is empty or a program replaces it.
pub fn given(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty() && !is_placeholder(text))
        .cloned()
}

/// Whether a program replaces all of the text, which may then become a list or an object.
pub fn is_whole_placeholder(text: &str) -> bool {
    let text = text.trim();
    // `$(a) $(b)` are two, and what is between them stays.
    let is_one = |open: &str, close: &str, inner: &str| {
        let (open, close) = (open.chars().last(), close.chars().next());
        let mut depth = 0;
        inner.chars().all(|c| {
            depth += i32::from(Some(c) == open) - i32::from(Some(c) == close);
            depth >= 0
        })
    };
    is_placeholder(text)
        && SYNTAXES.iter().any(|(open, close, _)| {
            let inner = text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
            inner.is_some_and(|inner| *open == "{{" || is_one(open, close, inner))
        })
}

const SETTER: &str = "a setter of kpt or Kustomize";
const IMAGE_POLICY: &str = "a marker of Flux's image automation";
const YTT: &str = "an expression of ytt";

/// The comment after a value that makes a tool replace it, and the tool. YAML ignores the comment, so the value may
/// look empty.
pub fn in_comment(source: &Source, entry: &Entry) -> Option<(String, &'static str)> {
    let value = &entry.value;
    let is_absent = value.is_null() && value.span.is_empty();
    let at = match &value.alias {
        Some(alias) => alias.end,
        None if is_absent || entry.merged.is_some() => entry.key.span.end,
        None => value.span.end,
    };
    let line = source.line_of(at.saturating_sub(1));
    let rest = source.text.get(at..line.end)?;
    let rest = rest.trim_start_matches([':', ' ', '\t', ',']);
    let comment = rest.trim();
    Some((quoted(comment), tool_of(comment)?))
}

/// The tool that a comment tells to replace the value before it.
fn tool_of(comment: &str) -> Option<&'static str> {
    let text = comment.strip_prefix('#')?.trim();
    let is_annotation = ["@overlay/", "@schema/", "@assert/"]
        .iter()
        .any(|start| text.starts_with(start));
    match text {
        _ if is_annotation => None,
        _ if comment.starts_with("#@") => Some(YTT),
        _ if text.starts_with("kpt-set:") || text.contains("$kpt-set") || text.contains("$openapi") => {
            Some(SETTER)
        }
        _ if text.contains("$imagepolicy") => Some(IMAGE_POLICY),
        _ => None,
    }
}

/// Whether the comment has its tool change the value in Git, so that the value next to it is one to apply.
pub fn is_marker(syntax: &str) -> bool {
    matches!(syntax, SETTER | IMAGE_POLICY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_recognised_in_four_syntaxes() {
        for text in [
            "${VERSION}",
            "v${K3S_VERSION:=1.33.4}+k3s1",
            "$(VAR)",
            "{{ .Values.version }}",
            "{{k3s_install_version|default('v1.23.5+k3s1')}}",
            "<new_version>",
            "<path:secret/data/k3s#version>",
            "#@ data.values.version",
        ] {
            assert!(syntax(text).is_some(), "{text}");
        }
        for text in [
            "v1.33.4+k3s1",
            "latest",
            "1.33.x",
            "",
            "$",
            "5$",
            "$HOME",
            "a < b",
            "cat <in >out",
            "https://user:p%40ss%20word@update.k3s.io/v1-release/channels/stable",
            "github://k3s-io/k3s",
        ] {
            assert_eq!(syntax(text), None, "{text}");
        }
    }

    #[test]
    fn only_a_text_that_is_replaced_as_a_whole_can_become_a_list() {
        for text in [
            "${ARGS}",
            "${ARGS:=${DEFAULT}}",
            "$(ARGS)",
            "{{ .Values.args | toYaml }}",
            "{{ if .a }}b{{ end }}",
            "<args>",
        ] {
            assert!(is_whole_placeholder(text), "{text}");
        }
        for text in [
            "bash -c \"echo $(date)\"",
            "$(which sh) $(date)",
            "${A} ${B}",
            "upgrade {{ .Values.name }}",
            "cat <in >out",
            "upgrade",
        ] {
            assert!(!is_whole_placeholder(text), "{text}");
        }
    }
}
