//! Containers with a real effect: `refit cordon` and `refit drain` run the same code as on a node.

use std::sync::Arc;

use tokio::sync::watch;

use super::pod::ContainerTask;
use super::prepare;
use crate::cluster::Cluster;
use crate::pod_lifecycle::Exit;
use refit_cluster::drain::flags::{OnNode, on_node};
use refit_cluster::drain::{DryRun, PlanRun, Session};

/// Runs the container, and reports how it ended.
pub(crate) async fn run(cluster: Cluster, task: ContainerTask) {
    let exit = perform(&cluster, &task).await;
    cluster.with(|state| state.finish_task(&task.pod_uid, task.started.clone(), exit));
}

async fn perform(cluster: &Cluster, task: &ContainerTask) -> Exit {
    if let Some(prepare) = prepare::of(&task.start) {
        return prepare::run(cluster, task, &prepare).await;
    }
    let failed = |message: String| Exit {
        code: 1,
        message: Some(message),
    };
    let asked = match on_node(&task.start.args) {
        Ok(asked) => asked,
        Err(error) => return failed(format!("error: {error}")),
    };
    let (keep_alive, stop) = watch::channel(None);
    let session = Session {
        client: cluster.client(&format!("{} on {}", task.start.name, task.node)),
        clock: cluster.clock(),
        plan: PlanRun::read(|name| task.start.env.get(name).cloned()),
        dry_run: DryRun::None,
        report: Arc::new(|_| {}),
        changes: cluster.changes(),
        stop,
    };
    let done = match asked {
        OnNode::Cordon(which) => session.cordon(&which).await,
        OnNode::Drain(which, options) => session.drain(&which, &options).await,
    };
    drop(keep_alive);
    match done {
        Ok(()) => Exit::default(),
        Err(failure) => Exit {
            code: failure.exit_code.into(),
            message: Some(format!("error: {failure}")),
        },
    }
}
