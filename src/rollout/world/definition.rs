//! The served `CustomResourceDefinition` of Plans, and which lists of Plans can be trusted: an API server that serves an older
//! one drops refit's fields.

use jiff::{SignedDuration, Timestamp};

use crate::later::later;
use refit_facts::{Schema, Text};

/// How long refit writes nothing after an API server dropped its fields, unless the CRD changes. The API servers of a
/// cluster load a new CRD one after the other.
const PRUNED_PAUSE: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Definition {
    schema: Schema,
    /// The edition of the CRD to which `schema` applies.
    edition: Text,
    /// When an API server last dropped refit's fields although the CRD has them.
    pruned: Option<Timestamp>,
    relist: Relist,
    /// Whether lists may lack refit's fields: an API server dropped them, or the CRD was changed at start.
    distrusts_lists: bool,
}

/// Whether Plans were read with all their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relist {
    /// They were, as far as refit knows.
    Done,
    /// They may lack refit's fields and must be listed again.
    Due,
    /// A list was requested.
    Asked,
    /// They are being listed.
    Running,
}

/// Why no Plan is written and no node starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteBlock<'a> {
    /// The served CRD lacks fields.
    Outdated {
        missing: &'a str,
        /// When to try again, if the CRD itself has the fields.
        until: Option<Timestamp>,
    },
    /// The CRD, the limits for all Plans, or the Plans must be read first.
    Unread {
        /// Whether that must still be requested.
        ask: bool,
    },
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            schema: Schema::Unknown,
            edition: "".into(),
            pruned: None,
            relist: Relist::Done,
            distrusts_lists: false,
        }
    }
}

impl Definition {
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn edition(&self) -> &Text {
        &self.edition
    }

    pub(crate) fn distrusts_lists(&self) -> bool {
        self.distrusts_lists
    }

    pub(crate) fn write_block(&self, now: Timestamp) -> Option<WriteBlock<'_>> {
        let missing = match &self.schema {
            Schema::Unknown => return Some(WriteBlock::Unread { ask: false }),
            Schema::Outdated(missing) => return Some(WriteBlock::Outdated { missing, until: None }),
            // The definition has every field, but an API server that drops them still serves an older one. This field
            // is in every status, so that server drops it too.
            Schema::Current => "status.observedGeneration",
        };
        let pause = |at: Timestamp| later(at, PRUNED_PAUSE);
        let until = self.pruned.map(pause).filter(|until| now < *until)?;
        let until = Some(until);
        Some(WriteBlock::Outdated { missing, until })
    }

    /// Whether Plans may lack fields, and if so whether their list must still be requested.
    pub(crate) fn relist(&self) -> Option<bool> {
        (self.relist != Relist::Done).then_some(self.relist == Relist::Due)
    }

    /// Stores the state of the served CRD; each creation or change is another edition. Returns whether it changed.
    pub(crate) fn put(&mut self, schema: Schema, edition: Text, has_listed_plans: bool) -> bool {
        let change = self.schema != schema || self.edition != edition;
        // Plans that were read under another CRD may lack refit's fields.
        if change && schema == Schema::Current && has_listed_plans {
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
    pub(crate) fn pruned(&mut self, now: Timestamp) -> bool {
        self.relist = Relist::Due;
        self.distrusts_lists = true;
        self.pruned.replace(now).is_none()
    }

    /// A status was stored with all its fields.
    pub(crate) fn not_pruned(&mut self) {
        self.pruned = None;
    }

    pub(crate) fn distrust_lists(&mut self) {
        self.distrusts_lists = true;
    }

    pub(crate) fn relist_due(&mut self) {
        self.relist = Relist::Due;
    }

    pub(crate) fn relist_asked(&mut self) {
        self.relist = Relist::Asked;
    }

    /// The watch of Plans starts again, as [`Step::ReadPlans`](crate::Step::ReadPlans) requested. Plans listed
    /// from now on were read since.
    pub(crate) fn relist_started(&mut self) {
        if self.relist == Relist::Asked {
            self.relist = Relist::Running;
        }
    }

    /// Plans were listed. Returns whether that list was requested.
    pub(crate) fn relist_finished(&mut self) -> bool {
        let is_it = self.relist == Relist::Running;
        if is_it {
            self.relist = Relist::Done;
        }
        is_it
    }

    /// The time of day was set by so much.
    pub(crate) fn shift_times(&mut self, shift: impl Fn(&mut Timestamp)) {
        self.pruned.iter_mut().for_each(shift);
    }
}
