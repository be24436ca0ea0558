//! How roll-outs look in a browser: their data, and the file that shows it.
//!
//! One file of HTML with its style and its script, which refers to nothing else: it can be attached to a pull request, and
//! opened without a network. `refit dashboard` serves the same file, which then reads its data from there. Pure.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

mod document;
mod row;

pub use document::{
    Band, BandKind, Change, Document, Figures, Held, Link, Mood, PlanCard, Source, Verdict, VersionCount,
    WaitCard, count_versions,
};
pub use row::{FailureGroup, Row, RowState, Span, failures};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// One script of several files, so that one digest allows it.
const SCRIPT: &str = concat!(
    "'use strict';\n(() => {\n",
    include_str!("page/base.js"),
    include_str!("page/time.js"),
    include_str!("page/chart.js"),
    include_str!("page/rows.js"),
    include_str!("page/detail.js"),
    include_str!("page/page.js"),
    "})();\n",
);

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
    use jiff::Timestamp;
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
            // The namespace of SVG is a name; `url(#x)` is a pattern of the page itself.
            let page = page
                .replace("http://www.w3.org/2000/svg", "")
                .replace("url(#", "");
            let lines: Vec<_> = page.lines().filter(|line| line.contains(outside)).collect();
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
