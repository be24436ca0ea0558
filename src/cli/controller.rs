//! `refit controller`: reads the settings, starts the log and the runtime, and waits for the end.

use std::process::ExitCode;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, setrlimit};
use tracing::{error, info, warn};

use super::cluster::signals;
use super::{USAGE, output};
use refit_cluster::clock::Clock;
use refit_controller::settings::{Flags, Notice, Settings};
use refit_controller::telemetry;

/// Two threads, so that the Lease is renewed while a decision is computed.
const RUNTIME_THREADS: usize = 2;

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let lookup = |name: &str| std::env::var(name).ok();
    let hostname = rustix::system::uname();
    let resolved = Settings::resolve(flags, &lookup, &hostname.nodename().to_string_lossy());
    let (settings, notices) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => return Ok(usage(&error)),
    };
    if let Err(error) = telemetry::init(settings.debug, settings.log_format, &lookup) {
        return Ok(usage(&error));
    }
    no_core_dump();
    for notice in notices {
        match notice {
            Notice::Error(text) => error!("{text}"),
            Notice::Warning(text) => warn!("{text}"),
            Notice::Info(text) => info!("{text}"),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let ended = runtime.block_on(async {
        let mut signals = signals().context("signals cannot be handled")?;
        let shutdown = async move {
            let signal = signals.wait_for(Option::is_some).await;
            info!(signal = signal.ok().and_then(|signal| *signal), "shutting down");
        };
        Ok::<_, anyhow::Error>(Box::pin(refit_controller::run(settings, Clock::system(), shutdown)).await)
    })?;
    // A name resolution that hangs on its thread would delay the exit.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{}", output::error_chain(&error.into()));
            ExitCode::FAILURE
        }
    })
}

/// A core file would have Secrets in it: `panic = "abort"` writes one where the limit allows it.
fn no_core_dump() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if let Err(error) = setrlimit(Resource::Core, none) {
        info!(%error, "core files cannot be turned off");
    }
}

fn usage(error: &(impl std::error::Error + ?Sized)) -> ExitCode {
    output::error(format_args!("{error}\n\nFor more information, try '--help'."));
    ExitCode::from(USAGE)
}
