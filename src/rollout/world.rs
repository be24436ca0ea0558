//! What is on the cluster, as far as watches and the responses to refit's own requests have shown it: stores without
//! policy. An older version of an object never replaces a newer one, so a slow watch cannot undo what a write returned.

pub(super) mod definition;
pub(super) mod index;
pub(super) mod jobs;
pub(super) mod limits;
pub(super) mod maintenances;
pub(super) mod nodes;
pub(super) mod pods;
pub(super) mod secrets;

use std::collections::{BTreeMap, BTreeSet};

use definition::Definition;
use jobs::Jobs;
use limits::KnownLimits;
use maintenances::Maintenances;
use nodes::Nodes;
use pods::Pods;
use secrets::Secrets;

use refit_api::ChannelRef;
use refit_facts::{ChannelFacts, Missing, NodeName, Text};

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) nodes: Nodes,
    pub(super) jobs: Jobs,
    pub(super) pods: Pods,
    pub(super) secrets: Secrets,
    pub(super) channels: BTreeMap<ChannelRef, ChannelFacts>,
    pub(super) definition: Definition,
    /// What holds for all Plans.
    pub(super) limits: KnownLimits,
    /// Missing permissions, once checked.
    pub(super) permissions: Option<Missing>,
    pub(super) maintenances: Maintenances,
    /// Nodes whose member of etcd is not Ready, as its pod says; `None` before the pods were read.
    pub(super) etcd_down: Option<BTreeSet<NodeName>>,
    /// The version of the API server, once it is known.
    pub(super) api_server_version: Option<Text>,
}
