//! `spec.apiAccess`: which containers of a Job get a token of the API server.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::reboot::one_of;

/// Which of the Plan's containers get a token of its service account.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiAccess {
    /// Both, as under system-upgrade-controller.
    All,
    /// `prepare`, which reads the API in the images of K3s and RKE2.
    PrepareOnly,
    /// Neither.
    None,
}

impl ApiAccess {
    /// All values, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::All, Self::PrepareOnly, Self::None];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PrepareOnly => "PrepareOnly",
            Self::None => "None",
            Self::All => "All",
        }
    }
}

impl JsonSchema for ApiAccess {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "ApiAccess".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        one_of(&Self::ALL.map(Self::as_str))
    }
}
