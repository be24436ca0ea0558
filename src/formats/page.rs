//! How roll-outs look in a browser: their data, and the file that shows it.
//!
//! One file of HTML with its style and its script, which refers to nothing else: it can be attached to a pull request, and
//! opened without a network. `refit dashboard` serves the same file, which then reads its data from there. Pure.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use refit_api::{ExpectedEnd, NodePhase, OpenEnum, PlanState, Reason, RollOut};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Where the data of the page is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A rehearsal, in virtual time.
    Rehearsal,
    /// A real cluster.
    Cluster,
}

/// Everything that the page shows.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    pub source: Source,
    pub title: String,
    /// The time up to which spans without an end are drawn.
    pub now: Timestamp,
    pub start: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why a live page may be old, if it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
    /// What was assumed, or what is not known; a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub plans: Vec<PlanCard>,
    pub rows: Vec<Row>,
    /// Number of nodes by the version of their kubelet.
    pub versions: Vec<VersionCount>,
    /// What a change of the Plans does, where two rehearsals are compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl Document {
    /// One without Plans.
    pub fn new(source: Source, title: impl Into<String>, start: Timestamp, now: Timestamp) -> Self {
        Self {
            source,
            title: title.into(),
            now,
            start,
            verdict: None,
            stale: None,
            notes: Vec::new(),
            plans: Vec::new(),
            rows: Vec::new(),
            versions: Vec::new(),
            changes: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub complete: bool,
    pub line: String,
}

/// A Plan, apart from its nodes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanCard {
    pub name: String,
    pub version: Option<String>,
    pub state: PlanState,
    pub selected: i64,
    pub done: i64,
    pub applying: i64,
    pub waiting: i64,
    pub failed: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_end: Option<ExpectedEnd>,
    /// Earlier roll-outs, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RollOut>,
    /// Waits, grouped by what was waited for, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitCard>,
}

/// What holds a Plan, and what releases it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    pub reason: OpenEnum<Reason>,
    pub message: String,
    pub remedy: String,
}

impl Held {
    pub fn new(reason: OpenEnum<Reason>, message: String) -> Self {
        let remedy = reason.known().map_or_else(String::new, Reason::plain_remedy);
        Self {
            reason,
            message,
            remedy,
        }
    }
}

/// Nodes of a Plan that waited for the same thing.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitCard {
    pub reason: OpenEnum<Reason>,
    pub message: String,
    /// Maximum total time of a node.
    pub seconds: i64,
    /// Absent if the whole Plan waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    pub is_over: bool,
}

/// A Plan on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub plan: String,
    pub node: String,
    pub state: RowState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// In the order of their starts.
    pub spans: Vec<Span>,
    /// Grows with each change, so that a viewer gets what it has not seen.
    #[serde(skip)]
    pub revision: u64,
}

impl Row {
    /// One that waits, without spans.
    pub fn new(plan: &str, node: &str) -> Self {
        Self {
            plan: plan.to_owned(),
            node: node.to_owned(),
            state: RowState::Waiting,
            reason: None,
            message: None,
            spans: Vec::new(),
            revision: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RowState {
    Waiting,
    Applying,
    Done,
    Failed,
    /// It gave its slot back without being done, as after an abort.
    Released,
}

/// A time in one phase, in seconds of the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    pub phase: OpenEnum<NodePhase>,
    pub from: i64,
    /// Absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    /// Why the node waits, or why it failed in this phase. Absent in other phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionCount {
    pub version: String,
    pub nodes: usize,
}

/// One difference between two rehearsals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What is compared, such as `duration` or `Plan server: failed nodes`.
    pub what: String,
    pub old: String,
    pub new: String,
}

/// Counts versions, the most frequent first.
pub fn count_versions<'a>(versions: impl Iterator<Item = &'a str>) -> Vec<VersionCount> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for version in versions {
        *counts.entry(version).or_default() += 1;
    }
    let count = |(version, nodes): (&str, usize)| VersionCount {
        version: version.to_owned(),
        nodes,
    };
    let mut counts: Vec<_> = counts.into_iter().map(count).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.nodes));
    counts
}

/// The page with its data.
///
/// # Errors
/// Fails if the data cannot be serialized, which is a bug.
pub fn file(document: &Document) -> serde_json::Result<String> {
    // In JSON, `<` stands in strings only. Without it no text can end the element, or begin a comment.
    let data = serde_json::to_string(document)?.replace('<', "\\u003c");
    Ok(fill(&document.title, &data))
}

/// The page without data: it asks for them where it was loaded from.
pub fn live() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| fill("Roll-outs", "null"));
    &PAGE
}

/// The Content-Security-Policy of the page. Style and script are allowed by their digests, so no text of a cluster can
/// become one of them; `connect-src` is for the live page.
pub fn content_security_policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let digest = |text: &str| STANDARD.encode(Sha256::digest(text));
        format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'",
            digest(SCRIPT),
            digest(STYLE)
        )
    });
    &POLICY
}

fn fill(title: &str, data: &str) -> String {
    let title = escaped(title);
    let mut page = String::with_capacity(TEMPLATE.len() + STYLE.len() + SCRIPT.len() + data.len());
    // In one pass, so that what is filled in is never taken for a placeholder.
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        page.push_str(match name {
            "policy" => content_security_policy(),
            "title" => &title,
            "style" => STYLE,
            "script" => SCRIPT,
            _ => data,
        });
        rest = after;
    }
    page.push_str(rest);
    page
}

/// Text in HTML.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_api::NodePhase;

    fn document(title: &str) -> Document {
        Document::new(
            Source::Rehearsal,
            title,
            Timestamp::UNIX_EPOCH,
            Timestamp::UNIX_EPOCH,
        )
    }

    #[test]
    fn texts_of_a_cluster_cannot_become_markup_or_script() {
        let evil = "</script><script>alert(1)</script><!-- {{script}} & \"'";
        let page = file(&document(evil)).unwrap();
        assert_eq!(page.matches("<script").count(), 2, "the data and the program");
        assert!(!page.contains("alert(1)</script>"));
        assert!(page.contains("<title>&lt;/script&gt;"), "{}", &page[..600]);
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        let (data, _) = rest.split_once("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["title"], evil);
    }

    #[test]
    fn the_page_refers_to_nothing_outside_and_allows_only_its_own_script() {
        let page = file(&document("x")).unwrap();
        for outside in [
            "http://",
            "https://",
            "src=",
            "@import",
            "url(",
            "javascript:",
            "onclick",
        ] {
            let is_namespace = |line: &&str| line.contains("http://www.w3.org/2000/svg");
            let lines: Vec<_> = page
                .lines()
                .filter(|line| line.contains(outside))
                .filter(|line| !is_namespace(line))
                .collect();
            assert!(lines.is_empty(), "{outside}: {lines:?}");
        }
        assert!(
            page.contains(content_security_policy()),
            "the policy is in the file"
        );
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("eval("));
    }

    #[test]
    fn the_script_has_a_step_for_each_phase_and_for_nothing_else() {
        let (_, steps) = SCRIPT.split_once("const STEPS = {\n").unwrap();
        let (steps, _) = steps.split_once("};").unwrap();
        let steps: Vec<_> = steps
            .lines()
            .filter_map(|line| Some(line.split_once(": ")?.0.trim()))
            .collect();
        let phases: Vec<_> = NodePhase::ALL.iter().map(|phase| phase.name()).collect();
        assert_eq!(steps, phases);
    }

    #[test]
    fn versions_are_counted_the_most_frequent_first() {
        let counts = count_versions(["v1", "v2", "v2"].into_iter());
        let counts: Vec<_> = counts
            .iter()
            .map(|count| (count.version.as_str(), count.nodes))
            .collect();
        assert_eq!(counts, [("v2", 2), ("v1", 1)]);
    }
}
