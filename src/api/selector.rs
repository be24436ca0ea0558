//! Label selectors: from a Plan's `LabelSelector` or from kubectl's text, ready to be asked about thousands of objects.
//!
//! What they accept, match and print is what `k8s.io/apimachinery/pkg/labels` does.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Why there is no such selector, in apimachinery's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// A condition on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {}

impl Selector {
    /// Matches nothing.
    pub fn nothing() -> Self {
        Self {}
    }

    /// Matches everything.
    pub fn everything() -> Self {
        Self {}
    }

    /// The selector of a spec: absent matches nothing, `{}` everything (S13).
    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let _ = selector;
        Ok(Self {})
    }

    /// This selector, and `other` too.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let _ = other;
        self
    }

    /// Requires the label `key`.
    pub fn exists(key: &str) -> Result<Self, SelectorError> {
        let _ = key;
        Ok(Self {})
    }

    /// Requires that there is no label `key`.
    pub fn does_not_exist(key: &str) -> Result<Self, SelectorError> {
        let _ = key;
        Ok(Self {})
    }

    /// Whether it can match nothing at all, because the spec has no selector.
    pub fn is_nothing(&self) -> bool {
        false
    }

    /// Whether it matches everything.
    pub fn is_everything(&self) -> bool {
        false
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let _ = labels;
        false
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Err(SelectorError(text.to_owned()))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
