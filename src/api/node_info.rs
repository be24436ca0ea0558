//! `spec.nodeInfo` and `spec.skipWhen`: what a node says of itself decides whether the Plan concerns it. The doc comments of
//! the fields are what `kubectl explain` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invalid::{ErrorList, FieldPath, at};
use refit_base::version::{Range, Version};

/// Maximum number of patterns of a field, as in the schema. A Plan stored under another schema may have more.
const MAX_PATTERNS: usize = 32;
/// Maximum length of a pattern.
const MAX_PATTERN_LEN: usize = 256;

/// Facts that a node must have, all of them, in addition to `nodeSelector`. They are what `kubectl get nodes -o wide` shows.
/// They decide whether a node starts: one that is in progress, has failed, or is done at the current version stays selected
/// when they change.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfoSpec {
    /// Range of versions of the kubelet, such as `<1.34.0` or `>=1.32 <1.34`, written as in `versionPolicy.range`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_version: Option<String>,
    /// Patterns of the operating system's name, such as `Ubuntu 22.04*`.
    ///
    /// One must match; `*` stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub os_image: Option<Vec<String>>,
    /// Patterns of the kernel's version, such as `5.15.*`.
    ///
    /// One must match; `*` stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub kernel_version: Option<Vec<String>>,
    /// Architectures such as `amd64` or `arm64`.
    ///
    /// The node must have one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub architecture: Option<Vec<String>>,
}

/// When a node needs no Job.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkipWhenSpec {
    /// If true, a Ready node whose kubelet has the Plan's version is marked as done without a Job. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_version: Option<bool>,
    /// If true, a Ready node whose `osImage` has the Plan's version as a word is marked as done without a Job.
    /// Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image: Option<bool>,
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeInfo<'a> {
    pub kubelet_version: &'a str,
    pub os_image: &'a str,
    pub kernel_version: &'a str,
    pub architecture: &'a str,
}

/// Which of a node's fields must have the Plan's version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionEvidence {
    pub kubelet: bool,
    pub os_image: bool,
}

impl VersionEvidence {
    /// The first of these fields that has another version, and what the node has there.
    pub fn missing<'a>(self, node: NodeInfo<'a>, version: &str) -> Option<(&'static str, &'a str)> {
        if self.kubelet && bare(node.kubelet_version) != bare(version) {
            return Some(("kubeletVersion", node.kubelet_version));
        }
        (self.os_image && !has_version(node.os_image, version)).then_some(("osImage", node.os_image))
    }
}

/// A version without optional parts: `v1.33.4+k3s1` equals the Plan's `v1.33.4-k3s1`, because the Plan's version is an
/// image tag, which cannot contain `+`.
pub fn bare(version: &str) -> String {
    version.strip_prefix('v').unwrap_or(version).replace('+', "-")
}

/// Whether a word of the operating system's name is the version: `Talos (v1.11.2)`, `Bottlerocket OS 1.49.0 (aws-k8s-1.33)`.
fn has_version(os_image: &str, version: &str) -> bool {
    let version = bare(version);
    let mut words = os_image.split(|c: char| c.is_whitespace() || "()[],;".contains(c));
    words.any(|word| !word.is_empty() && bare(word) == version)
}

/// `spec.nodeInfo`, parsed. The default selects all nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeInfoSelector {
    kubelet_version: Option<Range>,
    os_image: Option<Vec<String>>,
    kernel_version: Option<Vec<String>>,
    architecture: Option<Vec<String>>,
}

impl NodeInfoSelector {
    /// Whether the node has all facts.
    pub fn matches(&self, node: NodeInfo<'_>) -> bool {
        self.mismatch(node).is_none()
    }

    /// The field that does not match, and what the node has.
    pub fn mismatch<'a>(&self, node: NodeInfo<'a>) -> Option<(&'static str, &'a str)> {
        let is_in = |range: &Range| {
            node.kubelet_version
                .parse::<Version>()
                .is_ok_and(|it| range.has(&it))
        };
        if self.kubelet_version.as_ref().is_some_and(|range| !is_in(range)) {
            return Some(("kubeletVersion", node.kubelet_version));
        }
        let fields = [
            ("osImage", &self.os_image, node.os_image),
            ("kernelVersion", &self.kernel_version, node.kernel_version),
            ("architecture", &self.architecture, node.architecture),
        ];
        let differs =
            |patterns: &[String], text: &str| !patterns.iter().any(|pattern| is_like(pattern, text));
        let mut fields = fields.into_iter();
        fields
            .find_map(|(field, patterns, text)| differs(patterns.as_deref()?, text).then_some((field, text)))
    }
}

/// Whether a text matches a pattern, in which `*` stands for any text.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    // The first occurrence of each part leaves the most text for the parts after it.
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

fn patterns(errors: &mut ErrorList, field: &FieldPath, patterns: Option<&[String]>) -> Option<Vec<String>> {
    let patterns = patterns?;
    if patterns.is_empty() {
        let problem = "is empty, so that it selects no node: remove it, or add an item";
        errors.push(field.invalid(problem).hint("remove it"));
    }
    errors.take(field.at_most(patterns, MAX_PATTERNS, "items"))?;
    let is_bad = |pattern: &str| pattern.is_empty() || pattern.len() > MAX_PATTERN_LEN;
    for (index, pattern) in patterns.iter().enumerate().filter(|(_, pattern)| is_bad(pattern)) {
        let problem = format!("is {pattern:?}: it must have 1 to {MAX_PATTERN_LEN} bytes");
        errors.push(field.index(index).invalid(problem));
    }
    Some(patterns.to_vec())
}

/// The parsed `spec.nodeInfo`.
///
/// # Errors
/// Fails with all invalid fields; `validate` has reported them.
pub(super) fn parse(spec: &NodeInfoSpec) -> Result<NodeInfoSelector, ErrorList> {
    let info = at("nodeInfo");
    let mut errors = ErrorList::default();
    let range = spec.kubelet_version.as_deref();
    let range = range.map(|range| info.field("kubeletVersion").parse(range));
    let selector = NodeInfoSelector {
        kubelet_version: range.and_then(|range| errors.take(range)),
        os_image: patterns(&mut errors, &info.field("osImage"), spec.os_image.as_deref()),
        kernel_version: patterns(
            &mut errors,
            &info.field("kernelVersion"),
            spec.kernel_version.as_deref(),
        ),
        architecture: patterns(
            &mut errors,
            &info.field("architecture"),
            spec.architecture.as_deref(),
        ),
    };
    errors.finish(Some(selector))
}

impl SkipWhenSpec {
    /// What shows that a node has the Plan's version and needs no Job; `None` if each node gets one.
    pub(super) fn evidence(self) -> Option<VersionEvidence> {
        let evidence = VersionEvidence {
            kubelet: self.kubelet_version.unwrap_or_default(),
            os_image: self.os_image.unwrap_or_default(),
        };
        (evidence != VersionEvidence::default()).then_some(evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanSpec;

    const NODE: NodeInfo<'_> = NodeInfo {
        kubelet_version: "v1.33.4+k3s1",
        os_image: "Ubuntu 22.04.3 LTS",
        kernel_version: "5.15.0-105-generic",
        architecture: "amd64",
    };

    fn selector(change: impl FnOnce(&mut NodeInfoSpec)) -> Result<NodeInfoSelector, ErrorList> {
        let mut info = NodeInfoSpec::default();
        change(&mut info);
        let spec = PlanSpec {
            node_info: Some(info),
            ..PlanSpec::default()
        };
        spec.node_info()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_version_is_a_word_of_the_name_of_the_operating_system() {
        let evidence = VersionEvidence {
            os_image: true,
            ..VersionEvidence::default()
        };
        for (os_image, version, has) in [
            (
                "Flatcar Container Linux by Kinvolk 4081.2.0 (Oklo)",
                "4081.2.0",
                true,
            ),
            ("Bottlerocket OS 1.49.0 (aws-k8s-1.33)", "v1.49.0", true),
            ("Talos (v1.11.2)", "v1.11.2", true),
            ("Kairos v3.5.0+k3s1", "v3.5.0-k3s1", true),
            (
                "Flatcar Container Linux by Kinvolk 4081.2.0 (Oklo)",
                "4081.2",
                false,
            ),
            ("Bottlerocket OS 1.49.0 (aws-k8s-1.33)", "1.33", false),
            ("openSUSE MicroOS", "20261128", false),
            ("", "", false),
        ] {
            let node = NodeInfo { os_image, ..NODE };
            let found = evidence.missing(node, version);
            assert_eq!(found, (!has).then_some(("osImage", os_image)), "{version}");
        }
        let kubelet = VersionEvidence {
            kubelet: true,
            ..VersionEvidence::default()
        };
        assert_eq!(kubelet.missing(NODE, "v1.33.4-k3s1"), None);
        assert_eq!(
            kubelet.missing(NODE, "v1.33.4-k3s2"),
            Some(("kubeletVersion", "v1.33.4+k3s1"))
        );
    }

    #[test]
    fn a_node_must_have_all_facts() {
        assert!(selector(|_| {}).unwrap().matches(NODE));
        let range = |range: &str| {
            let range = range.to_owned();
            selector(|it| it.kubelet_version = Some(range))
                .unwrap()
                .mismatch(NODE)
        };
        assert_eq!(range("<1.34.0"), None);
        assert_eq!(range(">=1.33 <1.34"), None);
        assert_eq!(range("<1.33.0"), Some(("kubeletVersion", "v1.33.4+k3s1")));
        let os = |patterns: &[&str]| {
            selector(|it| it.os_image = Some(texts(patterns)))
                .unwrap()
                .matches(NODE)
        };
        assert!(os(&["Debian*", "Ubuntu 22.04*"]));
        assert!(os(&["*"]) && os(&["*22*LTS"]) && os(&["Ubuntu 22.04.3 LTS"]));
        assert!(!os(&["Ubuntu"]) && !os(&["*24*"]) && !os(&["ubuntu*"]) && !os(&["*LTS*LTS"]));
        let other = selector(|it| {
            it.kernel_version = Some(texts(&["5.15.*"]));
            it.architecture = Some(texts(&["arm64", "riscv64"]));
        });
        assert_eq!(other.unwrap().mismatch(NODE), Some(("architecture", "amd64")));
        let odd = NodeInfo {
            kubelet_version: "unknown",
            ..NODE
        };
        assert!(
            !selector(|it| it.kubelet_version = Some(">=1.0.0".to_owned()))
                .unwrap()
                .matches(odd)
        );
    }

    #[test]
    fn a_selector_that_can_select_nothing_is_invalid() {
        let error = |change: fn(&mut NodeInfoSpec)| selector(change).unwrap_err().to_string();
        assert!(
            error(|it| it.kubelet_version = Some("old".to_owned()))
                .starts_with("spec.nodeInfo.kubeletVersion is invalid, ")
        );
        assert_eq!(
            error(|it| it.os_image = Some(Vec::new())),
            "spec.nodeInfo.osImage is empty, so that it selects no node: remove it, or add an item"
        );
        assert_eq!(
            error(|it| it.architecture = Some(texts(&["amd64", ""]))),
            "spec.nodeInfo.architecture[1] is \"\": it must have 1 to 256 bytes"
        );
        assert_eq!(
            error(|it| it.kernel_version = Some(texts(&["5*"; 33]))),
            "spec.nodeInfo.kernelVersion has 33 items: it must have at most 32"
        );
    }
}
