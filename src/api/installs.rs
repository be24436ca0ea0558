//! `spec.installs`: what the Plan's version is the version of; `spec.onDrift`: what follows if a node loses it.

use super::field_enum::field_enum;
use super::plan::PlanSpec;
use refit_base::version::{Claim, installs_kubernetes};

field_enum! {
    /// What a Plan installs, as far as refit can compare it with its nodes.
    Installs {
        /// Kubernetes: the version of a node is that of its kubelet.
        Kubernetes,
        /// Something else, whose version refit does not know of its nodes.
        Other,
    }
}

field_enum! {
    /// What follows if a done node goes back to an older version.
    #[derive(Default)]
    OnDrift {
        /// It is reported.
        #[default]
        Report,
        /// It is reported, and the Plan runs there again.
        Rerun,
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

    /// What the kubelets of nodes that are done at this version must report, if the Plan installs Kubernetes.
    pub fn claim(&self, version: &str) -> Option<Claim> {
        self.installs_kubernetes().then(|| Claim::of(version))?
    }
}
