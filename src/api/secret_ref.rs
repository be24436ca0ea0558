//! `spec.channelSecretRef` and its like.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Secret in the Plan's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct SecretRef {
    /// Name of the Secret. Required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}
