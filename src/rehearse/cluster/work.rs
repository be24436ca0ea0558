//! Runs the cluster: its controllers, scheduler, kubelets and containers.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use futures::future::{AbortHandle, Abortable};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep_until};

use super::Cluster;
use crate::journal::CLUSTER;
use crate::kubelets::container_task;

impl Cluster {
    /// Runs the cluster while a future runs, and returns its result.
    pub async fn run_while<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            // Without `biased`, `select!` polls in random order, and a rehearsal could not be repeated.
            biased;
            done = work => done,
            never = self.run_due_work() => match never {},
        }
    }

    /// Runs the controllers, the scheduler, the kubelets and the containers.
    async fn run_due_work(&self) -> Infallible {
        let this = self.acting_as(CLUSTER);
        let mut version = self.0.version.subscribe();
        let mut running = FuturesUnordered::new();
        loop {
            version.borrow_and_update();
            let (due, new_tasks) = this.with(|state| (state.process_due(), state.kubelets.take_tasks()));
            for task in new_tasks {
                let (abort, registration) = AbortHandle::new_pair();
                this.with(|state| state.kubelets.task_started(&task, abort));
                running.push(Abortable::new(
                    container_task::run(this.clone(), task),
                    registration,
                ));
            }
            let wait = due.map(|due| {
                let wait = due.duration_since(self.0.clock.now());
                Instant::now() + Duration::try_from(wait).unwrap_or_default()
            });
            tokio::select! {
                biased;
                Ok(()) = version.changed() => {}
                Some(_) = running.next(), if !running.is_empty() => {}
                () = until(wait) => {}
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
