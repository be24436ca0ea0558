//! `spec.installs`: what the Plan's version is the version of; `spec.onDrift`: what follows if a node loses it.

use super::field_enum::field_enum;

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
