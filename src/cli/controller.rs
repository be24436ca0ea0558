//! `refit controller`: reads the settings, starts the log and the runtime, and waits for the end.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tracing::{error, info};

use super::{USAGE, output};
use crate::clock::Clock;
use crate::controller;
use crate::controller::settings::{Flags, Notice, Settings};
use crate::telemetry;

/// Threads of the runtime: one more than the decision needs, so that the Lease is renewed while it is made.
const RUNTIME_THREADS: usize = 2;

/// Signals that come so soon after the first one say nothing new.
const SAME_WISH: Duration = Duration::from_secs(1);

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let lookup = |name: &str| std::env::var(name).ok();
    let hostname = hostname::get().context("the host name cannot be read")?;
    let resolved = Settings::resolve(flags, &lookup, &hostname.to_string_lossy());
    let (settings, notices) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => return Ok(usage(&error)),
    };
    if let Err(error) = telemetry::init(settings.debug, settings.log_format, &lookup) {
        return Ok(usage(&error));
    }
    for notice in notices {
        match notice {
            Notice::Error(text) => error!("{text}"),
            Notice::Info(text) => info!("{text}"),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let ended = runtime.block_on(async {
        let shutdown = shutdown().context("signals cannot be handled")?;
        Ok::<_, anyhow::Error>(controller::run(settings, Clock::system(), shutdown).await)
    })?;
    // What still runs on a thread of its own, such as a name being looked up, is not waited for.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{}", output::with_causes(&error.into()));
            ExitCode::FAILURE
        }
    })
}

fn usage(error: &(impl std::error::Error + ?Sized)) -> ExitCode {
    output::error(format_args!("{error}\n\nFor more information, try '--help'."));
    ExitCode::from(USAGE)
}

/// Resolves at the first SIGTERM or SIGINT. One that comes later ends the process on the spot; one that comes at once is
/// the same wish, since `timeout` and process managers signal a process and its group.
fn shutdown() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut next = async move || {
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    };
    Ok(async move {
        let signal = next().await;
        info!(signal, "shutting down");
        let first = Instant::now();
        tokio::spawn(async move {
            loop {
                let signal = next().await;
                if first.elapsed() > SAME_WISH {
                    error!(signal, "ended by a second signal");
                    std::process::exit(1);
                }
            }
        });
    })
}
