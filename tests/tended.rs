//! A controller that is looked after: started again whenever it has ended, as the kubelet does with the one in a pod.

use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::support::controller::{Controller, Setup};

/// Keeps one controller running until it is dropped, and that controller with it.
pub(crate) struct Tended {
    current: Arc<Mutex<Arc<Controller>>>,
    ends: Arc<Mutex<Vec<ExitStatus>>>,
    tender: JoinHandle<()>,
}

impl Tended {
    pub(crate) fn start(setup: Setup) -> Self {
        let current = Arc::new(Mutex::new(Arc::new(setup.start())));
        let ends = Arc::<Mutex<Vec<_>>>::default();
        let tender = {
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
            tender,
        }
    }

    /// The process that runs now.
    pub(crate) fn now(&self) -> Arc<Controller> {
        lock(&self.current).clone()
    }

    /// How the processes ended that were started again.
    pub(crate) fn ends(&self) -> Vec<ExitStatus> {
        lock(&self.ends).clone()
    }
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.tender.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
