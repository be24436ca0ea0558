//! `spec.pauseRemediation`: the annotation `refit.rs/remediation` of a Node. It is there from before the first until after
//! the last thing that keeps remediation operators off the node, so that a successor can take all of them back.

use serde::{Deserialize, Serialize};

/// What a controller has set for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemediationPause {
    /// The controller, as [`holder`] names it. Others leave the pause alone.
    pub holder: String,
    /// Whether it has added the label. One that was there is not removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub label: bool,
}

/// Maximum length of the annotation, in bytes. Anyone who may patch the Node can write it.
const MAX_ANNOTATION: usize = 1024;

impl RemediationPause {
    /// Parses the annotation; `None` if it is invalid or too long.
    pub fn parse(text: &str) -> Option<Self> {
        let text = (text.len() <= MAX_ANNOTATION).then_some(text)?;
        serde_json::from_str(text).ok()
    }

    /// The value of the annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How a controller calls itself in Leases of nodes and on Machines: two controllers of one cluster must differ.
pub fn holder(namespace: &str, controller: &str) -> String {
    format!("refit/{namespace}/{controller}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_of_unknown_origin_is_read_if_it_is_short_and_valid() {
        let pause = RemediationPause {
            holder: holder("system-upgrade", "refit"),
            label: true,
        };
        assert_eq!(
            pause.to_text(),
            r#"{"holder":"refit/system-upgrade/refit","label":true}"#
        );
        assert_eq!(RemediationPause::parse(&pause.to_text()), Some(pause));
        let plain = RemediationPause::parse(r#"{"holder":"x"}"#);
        assert!(plain.is_some_and(|pause| !pause.label));
        for text in ["", "true", r#"{"label":true}"#] {
            assert_eq!(RemediationPause::parse(text), None, "{text}");
        }
        let long = format!(r#"{{"holder":"{}"}}"#, "x".repeat(MAX_ANNOTATION));
        assert_eq!(RemediationPause::parse(&long), None);
    }
}
