//! The served CRD, the lists of Plans that can be trusted, and the permissions of the controller.

use jiff::Timestamp;

use crate::state::{ClusterState, Relist};
use refit_facts::{Schema, Text};

impl ClusterState {
    /// Applies the state of the served CRD; each creation or change is another edition. Returns whether it changed.
    pub(super) fn apply_schema(&mut self, schema: Schema, edition: Text) -> bool {
        let change = self.schema != schema || self.edition != edition;
        // Plans that were read under another CRD may lack refit's fields.
        if change && schema == Schema::Current && self.plan_lists > 0 {
            self.relist = Relist::Due;
            self.distrusts_lists = true;
        }
        let change = change || self.pruned.is_some();
        self.schema = schema;
        self.edition = edition;
        self.pruned = None;
        change
    }

    /// An API server drops refit's fields: it refused a write because of them, or its response lacked them. Plans that
    /// were read may lack them too. Returns whether that is new.
    pub(super) fn mark_status_pruned(&mut self, now: Timestamp) -> bool {
        self.relist = Relist::Due;
        self.distrusts_lists = true;
        self.pruned.replace(now).is_none()
    }

    /// The watch of Plans starts again, as [`Step::ReadPlans`](crate::Step::ReadPlans) requested. Plans listed
    /// from now on were read since.
    pub(super) fn start_plan_relist(&mut self) {
        if self.relist == Relist::Asked {
            self.relist = Relist::Running;
        }
    }

    /// A request was refused for a missing permission. If no missing permission is known, check them again.
    pub(super) fn recheck_permissions(&mut self) {
        self.permissions.take_if(|missing| missing.is_empty());
    }
}
