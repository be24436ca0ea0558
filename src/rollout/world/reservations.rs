//! Nodes that other objects than Plans want, such as a `NodeMaintenance`.

use std::collections::BTreeMap;

use refit_facts::{NodeName, Text};

/// An object that wants or holds a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Its kind and name, for messages.
    pub object: Text,
    pub uid: Text,
}

/// The nodes that objects want, by name; one object each.
pub(crate) type Reservations = BTreeMap<NodeName, Reservation>;

/// What was decided about an object that wants a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationDecision {
    /// The UID of the object: the next one that wants the node has to wait for a decision of its own.
    pub uid: Text,
    /// Whether it may take the node, and otherwise why not.
    pub answer: Result<(), String>,
}

/// The decisions, by the name of the node.
pub type ReservationDecisions = BTreeMap<NodeName, ReservationDecision>;
