//! Containers whose effect is real: `refit cordon` and `refit drain` do here what they do on a node, by the same code.

use std::sync::Arc;

use tokio::sync::watch;

use super::prepare;
use crate::cli::{self, OnNode};
use crate::drain::{DryRun, PlanRun, Session};
use crate::rehearse::cluster::Cluster;
use crate::rehearse::podlife::{ContainerStart, Exit, Started};

/// A container that was started.
#[derive(Clone, Debug)]
pub struct Errand {
    /// Name of the node.
    pub node: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// Which start of which container.
    pub started: Started,
    /// What it was started with.
    pub start: ContainerStart,
}

/// Does what the container does, and says how it ended.
pub async fn run(cluster: Cluster, errand: Errand) {
    let exit = perform(&cluster, &errand).await;
    cluster.with(|state| state.acted(&errand.pod_uid, errand.started.clone(), exit));
}

async fn perform(cluster: &Cluster, errand: &Errand) -> Exit {
    if let Some(plan) = prepare::dependency(&errand.start) {
        prepare::wait(cluster, errand, plan).await;
        return Exit::default();
    }
    let failed = |message: String| Exit {
        code: 1,
        message: Some(message),
    };
    let asked = match cli::on_node(&errand.start.args) {
        Ok(asked) => asked,
        Err(error) => return failed(format!("error: {error}")),
    };
    let (tell, stop) = watch::channel(None);
    let session = Session {
        client: cluster.client(&format!("{} on {}", errand.start.name, errand.node)),
        clock: cluster.clock(),
        plan: PlanRun::read(|name| errand.start.env.get(name).cloned()),
        dry_run: DryRun::None,
        tell: Arc::new(|_| {}),
        stop,
    };
    let done = match asked {
        OnNode::Cordon(which) => session.cordon(&which).await,
        OnNode::Drain(which, options) => session.drain(&which, &options).await,
    };
    drop(tell);
    match done {
        Ok(()) => Exit::default(),
        Err(failure) => failed(format!("error: {failure}")),
    }
}
