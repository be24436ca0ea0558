//! Placeholders: values that another program, or a person, replaces before a file reaches a cluster.

use super::Source;
use super::yaml::Entry;
use refit_base::version::quoted;

/// What replaces the text, if it is or contains a placeholder.
pub fn syntax(text: &str) -> Option<&'static str> {
    program_syntax(text)
        .or_else(|| is_name_in_signs(text.trim()).then_some("a placeholder between signs"))
        .or_else(|| is_to_do(text).then_some("a word that a person has to replace"))
}

/// Whether a program replaces the text, or a part of it.
pub fn is_placeholder(text: &str) -> bool {
    program_syntax(text).is_some()
}

/// Whether a program replaces all of the text, which may then become a list or an object.
pub fn is_whole_placeholder(text: &str) -> bool {
    const BRACKETS: [(&str, &str); 15] = [
        ("{{", "}}"),
        ("{%", "%}"),
        ("{#", "#}"),
        ("${", "}"),
        ("$(", ")"),
        ("$[", "]"),
        ("<", ">"),
        ("[[", "]]"),
        ("((", "))"),
        ("#{", "}"),
        ("#{", "}#"),
        ("%{", "}"),
        ("%(", ")s"),
        ("(@", "@)"),
        ("ENC[", "]"),
    ];
    let text = text.trim();
    let is_name = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    };
    // `$(a) $(b)` are two, and what is between them stays.
    let is_one = |open: &str, close: &str, inner: &str| {
        open.len() > 1 && !open.starts_with(['$', '#', '%']) || {
            let mut depth = 0;
            let (open, close) = (open.chars().last(), close.chars().next());
            inner.chars().all(|c| {
                depth += i32::from(Some(c) == open) - i32::from(Some(c) == close);
                depth >= 0
            })
        }
    };
    is_placeholder(text)
        && (BRACKETS.iter().any(|(open, close)| {
            let inner = text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
            inner.is_some_and(|inner| is_one(open, close, inner))
        }) || text.strip_prefix('$').is_some_and(is_name)
            || ["@", "%", "__"].iter().any(|sign| {
                let inner = text.strip_prefix(sign).and_then(|rest| rest.strip_suffix(sign));
                inner.is_some_and(is_name)
            })
            || text.starts_with("#@")
            || text.starts_with("std.")
            || (["ref+", "vault:", "op://"]
                .iter()
                .any(|start| text.starts_with(start))
                && !text.contains(char::is_whitespace)))
}

/// The program that replaces the text.
pub fn program_syntax(text: &str) -> Option<&'static str> {
    let between = |open: &str, close: &str| {
        text.split_once(open)
            .is_some_and(|(_, rest)| rest.contains(close))
    };
    // `cat <a >b` redirects.
    let in_angles = |text: &str| {
        let inner = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
        inner.is_some_and(|(inner, _)| inner.trim() == inner)
    };
    let text = text.trim();
    Some(match text {
        _ if between("{{", "}}") => "a template expression, as of Helm or Jinja",
        _ if text.contains("{%") || text.contains("{#") => "a statement of a Jinja template",
        _ if between("${", "}") => "a variable, as Flux and envsubst replace it",
        _ if between("$(", ")") => "a variable, as Kustomize and Make replace it",
        _ if between("$[", "]") => "a variable, as Azure Pipelines replaces it",
        _ if has_variable(text) => "a variable, as a shell replaces it",
        _ if between("<path:", ">") => "a path of argocd-vault-plugin",
        _ if between("<%", "%>") => "an expression of an ERB template",
        _ if in_angles(text) => "a placeholder in angle brackets",
        _ if between("[[", "]]") => "a template expression in double brackets",
        _ if between("((", "))") => "a variable, as Concourse and BOSH replace it",
        _ if between("#{", "}") => "a token that a release pipeline replaces",
        _ if between("%(", ")s") => "a variable, as Python and Jsonnet replace it",
        _ if between("%{", "}") => "a variable, as Terraform and Puppet replace it",
        _ if between("(@", "@)") || text.starts_with("#@") => "an expression of ytt",
        _ if text.starts_with("ENC[") => "a value that SOPS has encrypted",
        _ if text.contains("std.extVar") || text.contains("std.native") => "an expression of Jsonnet",
        _ if is_enclosed(text, "@") => "a variable between at signs, as CMake and Maven replace it",
        _ if is_enclosed(text, "%") => "a variable between percent signs",
        _ if is_enclosed(text, "__") => "a placeholder between underscores",
        _ if text.starts_with("ref+") || text.starts_with("vault:") || text.starts_with("op://") => {
            "a reference to a store of secrets"
        }
        _ => return None,
    })
}

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
    let comment = rest.starts_with('#').then(|| rest.trim())?;
    Some((quoted(comment), comment_syntax(comment, is_absent)?))
}

const SETTER: &str = "a setter of kpt or Kustomize";
const IMAGE_POLICY: &str = "a marker of Flux's image automation";

/// Whether the comment has its tool change the value in Git, so that the value next to it is one to apply.
pub fn is_marker(syntax: &str) -> bool {
    matches!(syntax, SETTER | IMAGE_POLICY)
}

fn comment_syntax(comment: &str, is_absent: bool) -> Option<&'static str> {
    const ANNOTATIONS: [&str; 3] = ["#@overlay/", "#@schema/", "#@assert/"];
    let text = comment.trim_start_matches('#').trim();
    // A comment may follow the token.
    let token = text.split(" #").next().unwrap_or_default().trim();
    match comment {
        _ if ANNOTATIONS.iter().any(|start| comment.starts_with(start)) => None,
        _ if comment.starts_with("#@") => Some("an expression of ytt"),
        _ if comment.starts_with("#{") => Some("a token that a release pipeline replaces"),
        _ if text.starts_with("kpt-set:") || text.contains("$kpt-set") || text.contains("$openapi") => {
            Some(SETTER)
        }
        _ if text.contains("$imagepolicy") => Some(IMAGE_POLICY),
        // `version: #VERSION#` has no value before the token is replaced. Behind a blank, it is a person's comment.
        _ if !is_absent || comment.starts_with("# ") => None,
        _ if is_whole_placeholder(token) => program_syntax(token),
        _ if is_token(comment) => Some("a token between number signs"),
        _ => None,
    }
}

/// Whether a comment begins with a name between number signs: `#VERSION#`, `#[version]#`.
fn is_token(comment: &str) -> bool {
    let inner = comment.trim_start_matches('#').split_once('#');
    inner.is_some_and(|(name, _)| {
        let name = name.trim_start_matches('[').trim_end_matches(']');
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
    })
}

/// Whether the text has a variable such as `$VERSION`; a lone `$` is none.
fn has_variable(text: &str) -> bool {
    text.split('$')
        .skip(1)
        .any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// Whether the text is a name between signs of any kind: `{VERSION}`, `~version~`, `§VERSION§`.
fn is_name_in_signs(text: &str) -> bool {
    let is_sign = |c: char| "{}~§|!?:#&".contains(c);
    let name = text.trim_start_matches(is_sign);
    let before = text.len() - name.len();
    let name = name.trim_end_matches(is_sign);
    let after = text.len() - before - name.len();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    before > 0 && after > 0 && is_name && name.len() > 1
}

/// Whether the text contains a name between two signs, such as `@NAME@`.
fn is_enclosed(text: &str, sign: &str) -> bool {
    let is_name = |name: &&str| {
        name.len() > 1
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
    };
    let count = text.matches(sign).count();
    // The last piece has no closing sign. `%20x%20` in a URL is not a placeholder: it begins with a digit.
    let mut names = text.split(sign).skip(1).take(count.saturating_sub(1));
    names.any(|name| is_name(&name) && (sign == "@" || !name.contains(|c: char| c.is_ascii_lowercase())))
}

fn is_to_do(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    let marks = [
        "REPLACE",
        "CHANGEME",
        "CHANGE_ME",
        "CHANGE-ME",
        "PLACEHOLDER",
        "FIXME",
        "TODO",
    ];
    marks.iter().any(|mark| upper.contains(mark))
        || matches!(upper.as_str(), "TBD" | "XXX" | "VERSION")
        || is_pattern(&upper)
}

/// Whether a version has letters where its numbers belong: `vX.Y.Z+k3s1`, `v1.XX.Y`. `1.33.x` is a range.
fn is_pattern(upper: &str) -> bool {
    let numbers = upper.trim_start_matches('V').split(['+', '-']).next();
    let parts: Vec<_> = numbers.unwrap_or_default().split('.').collect();
    let is_letters = |part: &str| {
        let all = |letter: u8| !part.is_empty() && part.bytes().all(|b| b == letter);
        ["MAJOR", "MINOR", "PATCH"].contains(&part) || all(b'Y') || all(b'Z') || all(b'N') || all(b'X')
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    parts.len() > 1
        && parts.iter().all(|part| is_letters(part) || is_number(part))
        && parts.iter().any(|part| is_letters(part) && **part != *"X")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_recognised_in_every_syntax() {
        for text in [
            "${VERSION}",
            "v${K3S_VERSION:=1.33.4}+k3s1",
            "$UPGRADEVERSION",
            "$(VAR)",
            "$(var.version)",
            "$[variables.version]",
            "{{ .Values.version }}",
            "{{k3s_install_version|default('v1.23.5+k3s1')}}",
            "{% raw %}v1{% endraw %}",
            "<new_version>",
            "<path:secret/data/k3s#version>",
            "<%= version %>",
            "[[ .version ]]",
            "((k3s_version))",
            "#{K3S_VERSION}#",
            "%{version}",
            "#@ data.values.version",
            "(@= data.values.version @)",
            "ENC[AES256_GCM,data:AA==,type:str]",
            "std.extVar('version')",
            "@VAR@",
            "@project.version@",
            "%VERSION%",
            "{VERSION}",
            "~VERSION~",
            "§version§",
            "!!K3S_VERSION!!",
            "|VERSION|",
            "__VERSION__",
            "v1.33.__PATCH__",
            "ref+vault://secret/k3s#/version",
            "REPLACE_ME",
            "TODO",
            "changeme",
            "v1.0.0-PLACEHOLDER",
            "vX.Y.Z+k3s1",
            "v1.XX.Y",
            "1.33.XX",
            "v1.MINOR.PATCH+rke2r1",
            "n.n.n",
        ] {
            assert!(syntax(text).is_some(), "{text}");
        }
    }

    #[test]
    fn only_a_text_that_is_replaced_as_a_whole_can_become_a_list() {
        for text in [
            "${ARGS}",
            "${ARGS:=${DEFAULT}}",
            "$ARGS",
            "$(ARGS)",
            "{{ .Values.args | toYaml }}",
            "{{ if .a }}b{{ end }}",
            "<args>",
            "@ARGS@",
            "__ARGS__",
            "#@ data.values.args",
            "#{ARGS}#",
            "ENC[AES256_GCM,data:AA==,type:str]",
        ] {
            assert!(is_whole_placeholder(text), "{text}");
        }
        for text in [
            "run.sh $NAME",
            "bash -c \"echo $(date)\"",
            "set -e\necho $HOME",
            "$(which sh) $(date)",
            "${A} ${B}",
            "upgrade {{ .Values.name }}",
            "cat <in >out",
            "upgrade",
        ] {
            assert!(!is_whole_placeholder(text), "{text}");
        }
    }

    #[test]
    fn versions_and_channels_are_no_placeholders() {
        for text in [
            "v1.33.4+k3s1",
            "1.2.3-alpine_3",
            "2026-08-01",
            "latest",
            "1.33.x",
            "v1.X.X",
            "x",
            "zz",
            "focal",
            "",
            "$",
            "5$",
            "*",
            "~1.33",
            "“v1.34.2”",
            "https://user:p%40ss%20word@update.k3s.io/v1-release/channels/stable",
            "https://update.k3s.io/v1-release/channels#v1%2E33%2E4",
            "github://k3s-io/k3s",
            "oci://docker.io/rancher/k3s-upgrade",
        ] {
            assert_eq!(syntax(text), None, "{text}");
        }
    }
}
