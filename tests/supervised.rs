//! A controller under a supervisor that restarts it whenever it ends, like a kubelet.

use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::testenv::controller::{Controller, Setup};

/// Keeps a controller running until this is dropped.
pub(crate) struct SupervisedController {
    current: Arc<Mutex<Arc<Controller>>>,
    ends: Arc<Mutex<Vec<ExitStatus>>>,
    supervisor: JoinHandle<()>,
}

impl SupervisedController {
    pub(crate) fn start(setup: Setup) -> Self {
        let current = Arc::new(Mutex::new(Arc::new(setup.start())));
        let ends = Arc::<Mutex<Vec<_>>>::default();
        let supervisor = {
            let (current, ends) = (current.clone(), ends.clone());
            tokio::spawn(async move {
                loop {
                    let running = lock(&current).clone();
                    let status = running.ended(Duration::MAX).await;
                    lock(&ends).push(status);
                    *lock(&current) = Arc::new(setup.start());
                }
            })
        };
        Self {
            current,
            ends,
            supervisor,
        }
    }

    /// The running process.
    pub(crate) fn now(&self) -> Arc<Controller> {
        lock(&self.current).clone()
    }

    /// Exit statuses of the restarted processes.
    pub(crate) fn ends(&self) -> Vec<ExitStatus> {
        lock(&self.ends).clone()
    }
}

impl Drop for SupervisedController {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
