//! The waves whose nodes may start.

use std::collections::BTreeSet;

use super::order::{SortKey, UNASSIGNED};
use refit_facts::NodeName;

/// The waves whose nodes may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenWaves {
    last: u16,
    unassigned: bool,
}

impl OpenWaves {
    /// All nodes.
    pub(super) const ALL: Self = Self {
        last: UNASSIGNED,
        unassigned: true,
    };

    /// The nodes that the selectors of the waves up to this index name, and perhaps those that none names.
    pub(super) fn up_to(index: usize, unassigned: bool) -> Self {
        let last = u16::try_from(index).unwrap_or(UNASSIGNED);
        Self { last, unassigned }
    }

    pub(super) fn has(self, sort_key: &SortKey) -> bool {
        sort_key.wave <= self.last || (self.unassigned && sort_key.wave == UNASSIGNED)
    }

    /// The nodes that it has, in their order.
    pub(super) fn of(
        self,
        nodes: &BTreeSet<(SortKey, NodeName)>,
    ) -> impl Iterator<Item = &(SortKey, NodeName)> {
        let selected = nodes
            .iter()
            .take_while(move |(sort_key, _)| sort_key.wave <= self.last);
        let rest = (self.unassigned && self.last < UNASSIGNED).then(|| {
            let first = (SortKey::first_of(UNASSIGNED), NodeName::default());
            nodes.range(first..)
        });
        selected.chain(rest.into_iter().flatten())
    }
}
