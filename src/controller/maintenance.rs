//! Nodes in maintenance (`NodeMaintenance`, as of node-maintenance-operator): a front end. While such an object is
//! there, its node is cordoned and drained; when it goes, the node is as it was before.
//!
//! The objects become reservations, which keep Plans off their nodes; the decision says which nodes may be taken, and when an
//! object has its turn (`rollout/maintenance.rs`). A turn drains the node with the same session as `refit drain`, and writes
//! a status in the operator's words. It runs in the controller, because a pod on the node would evict itself, and one
//! elsewhere would need a node that is not drained next. The node's ledger has the object as a holder, so that a controller
//! that dies loses nothing, and so that the decision restores the node once the object is being deleted or is gone.

mod events;
mod guard;
mod status;
mod worker;

#[cfg(test)]
mod tests;
