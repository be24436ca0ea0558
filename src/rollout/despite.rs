//! The limits in spite of which nodes of a roll-out start, from the annotation `refit.rs/despite`.
//!
//! An exemption ends with its roll-out. The stored status says so, in the write that also says that the roll-out is
//! complete: a node that joins later at the same hash meets all limits again, also under a successor.

use std::collections::{BTreeMap, BTreeSet};

use refit_api::exemption::{Exemption, StartLimit};
use refit_api::{DespiteStatus, names};
use refit_facts::NodeName;

use super::plan::DerivedPlan;

/// Limits that do not count. Mostly none.
pub(super) type Lifted = BTreeSet<StartLimit>;

/// Which limits do not count for which nodes of a Plan.
#[derive(Debug, Default)]
pub(super) struct Despite {
    /// What status says of each entry.
    pub(super) entries: Vec<DespiteStatus>,
    /// For all nodes.
    pub(super) of_all: Lifted,
    /// Nodes for which more does not count, by all that does not.
    pub(super) of_named: BTreeMap<Lifted, BTreeSet<NodeName>>,
}

impl Despite {
    pub(super) fn of(plan: &DerivedPlan) -> Self {
        let annotation = plan.facts.annotation(names::ANNOTATION_DESPITE);
        let Some((annotation, resolved)) = annotation.zip(plan.resolved.as_ref()) else {
            return Self::default();
        };
        let mut despite = Self::default();
        let mut named: BTreeMap<NodeName, Lifted> = BTreeMap::new();
        for (entry, read) in Exemption::all(annotation, &resolved.hash) {
            let mut status = Exemption::status(&entry, &read, &resolved.hash);
            let mut stored = plan.facts.status().despite.iter().flatten();
            status.ended = stored
                .find(|stored| stored.is_same(&status))
                .and_then(|stored| stored.ended.clone());
            if let Some(exemption) = read.ok().filter(|_| status.is_in_effect()) {
                for node in &exemption.nodes {
                    let lifted = named.entry(NodeName::from(node.as_str())).or_default();
                    lifted.extend(&exemption.limits);
                }
                if exemption.nodes.is_empty() {
                    despite.of_all.extend(exemption.limits);
                }
            }
            despite.entries.push(status);
        }
        for (node, mut lifted) in named {
            lifted.extend(&despite.of_all);
            if lifted != despite.of_all {
                despite.of_named.entry(lifted).or_default().insert(node);
            }
        }
        despite
    }
}
