//! Remedies for terminals and pages: without the links of the documents.

use super::Reason;

impl Reason {
    /// The remedy without Markdown.
    pub fn plain_remedy(self) -> String {
        plain(self.remedy())
    }
}

/// Markdown without links: `[text](address)` becomes `text`, and `; [more](address)` or `. [More](address)` nothing.
fn plain(markdown: &str) -> String {
    let (mut out, mut rest) = (String::new(), markdown);
    while let Some((before, text, after)) = link(rest) {
        if text.eq_ignore_ascii_case("more") {
            out.push_str(before.trim_end_matches("; ").trim_end());
        } else {
            out.push_str(before);
            out.push_str(text);
        }
        rest = after;
    }
    out + rest
}

/// The text before the first link, its text, and what follows it.
fn link(markdown: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = markdown.split_once('[')?;
    let (text, rest) = rest.split_once("](")?;
    let (_, after) = rest.split_once(')')?;
    Some((before, text, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_has_no_links_outside_of_documents() {
        assert_eq!(plain("raise the limit; [more](#how)"), "raise the limit");
        assert_eq!(
            plain("wait; [repair](#when) it, or [edit](a.md#b)"),
            "wait; repair it, or edit"
        );
        for reason in Reason::ALL {
            let text = plain(reason.remedy());
            assert!(
                !text.contains("](") && !text.to_lowercase().ends_with("more"),
                "{text}"
            );
        }
    }
}
