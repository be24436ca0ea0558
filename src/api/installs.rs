//! `spec.installs`: what the Plan's version is the version of.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::plan::PlanSpec;
use super::reboot::one_of;
use refit_base::version::installs_kubernetes;

/// What a Plan installs, as far as refit can compare it with its nodes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installs {
    /// Kubernetes: the version of a node is that of its kubelet.
    Kubernetes,
    /// Something else, whose version refit does not know of its nodes.
    Other,
}

impl Installs {
    /// All values, in the order of the documentation.
    const ALL: [Self; 2] = [Self::Kubernetes, Self::Other];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "Kubernetes",
            Self::Other => "Other",
        }
    }
}

impl JsonSchema for Installs {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Installs".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        one_of(&Self::ALL.map(Self::as_str))
    }
}

impl PlanSpec {
    /// Whether the Plan's version is the one that the kubelets of its nodes report after the upgrade: as `spec.installs` says,
    /// or else by its image.
    pub fn installs_kubernetes(&self) -> bool {
        match self.installs {
            Some(installs) => installs == Installs::Kubernetes,
            None => installs_kubernetes(self.upgrade_image()),
        }
    }
}
