//! The controller as a task on a simulated cluster.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use refit_channel::{ChannelClient, ChannelError};
use refit_controller::settings::{Flags, Settings};
use refit_controller::{Dependencies, run_with};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::testenv::simulated::{Connection, Simulated};

/// Host name of all controllers, as if they ran on one machine.
const HOST: &str = "test-machine";

/// `wait` status of a process that exited with 1.
const EXIT_FAILURE: i32 = 1 << 8;
/// `wait` status of a process that was killed by SIGKILL.
const KILLED: i32 = 9;

pub(super) struct Task {
    number: u32,
    connection: Arc<Connection>,
    handle: AbortHandle,
    shutdown: watch::Sender<bool>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

impl Task {
    /// Starts it with the settings of this environment.
    pub(super) fn start(simulated: &Simulated, user: &str, environment: &BTreeMap<String, String>) -> Self {
        let lookup = |name: &str| environment.get(name).cloned();
        let (settings, _) = Settings::resolve(Flags::default(), &lookup, HOST)
            .unwrap_or_else(|error| panic!("invalid settings: {error}"));
        let (server, connection) = simulated.server(user);
        let (answers, checks) = (simulated.clone(), simulated.clone());
        let dependencies = Dependencies {
            server,
            clock: simulated.cluster().clock(),
            channels: Some(
                ChannelClient::with_answers(move |url, _| {
                    answers.offer(url).map_err(ChannelError::Unexpected)
                })
                .with_checks(move |check| checks.check(check)),
            ),
            listener: None,
        };
        let (shutdown, mut asked) = watch::channel(false);
        let (end, ended) = watch::channel(None);
        let task = tokio::task::spawn_local(async move {
            let shutdown = async move { drop(asked.wait_for(|asked| *asked).await) };
            let code = match Box::pin(run_with(dependencies, settings, shutdown)).await {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("the controller ended: {error}");
                    EXIT_FAILURE
                }
            };
            end.send_replace(Some(ExitStatus::from_raw(code)));
        });
        Self {
            number: simulated.next_number(),
            connection,
            handle: task.abort_handle(),
            shutdown,
            ended,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn kill(&self) {
        self.connection.cut();
        self.handle.abort();
    }

    pub(super) fn shut_down(&self) {
        self.shutdown.send_replace(true);
    }

    pub(super) fn ended(&self) -> Option<ExitStatus> {
        let ended = *self.ended.borrow();
        // A killed task drops its end of the channel.
        let killed = ended.is_none() && self.handle.is_finished();
        ended.or(killed.then(|| ExitStatus::from_raw(KILLED)))
    }

    pub(super) async fn end(&self, limit: Duration) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        let _ = tokio::time::timeout(limit, ended.wait_for(Option::is_some)).await;
        self.ended()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.kill();
    }
}
