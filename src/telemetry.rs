//! The log: to stderr, as text or JSON.
//!
//! Other crates are heard from level INFO on, whatever is asked for: below that they print addresses, headers and
//! bodies as they come. kube's client is heard from ERROR on, since its warnings hold whole answers, Secrets among them.

use std::io::{self, IsTerminal as _};

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, FilterFn, ParseError};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::controller::settings::LogFormat;

/// Variables with a filter in tracing's syntax, such as `refit=debug`; the first that is set counts.
const FILTERS: [&str; 2] = ["REFIT_LOG", "RUST_LOG"];

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "the environment variable {name} is {value:?}; it must be a level such as debug, or a filter such as refit=debug"
    )]
    Filter {
        name: &'static str,
        value: String,
        source: ParseError,
    },
    #[error("a log is set up already")]
    Twice,
}

/// Sets up the log of this process. `lookup` reads an environment variable.
pub fn init(
    debug: bool,
    format: LogFormat,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<(), TelemetryError> {
    let filter = filter(debug, lookup)?.and(FilterFn::new(is_harmless));
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_file(debug)
        .with_line_number(debug);
    let layer = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => {
            let colour =
                io::stderr().is_terminal() && lookup("NO_COLOR").is_none_or(|value| value.is_empty());
            lines.with_ansi(colour).boxed()
        }
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()
        .map_err(|_| TelemetryError::Twice)
}

fn filter(debug: bool, lookup: &dyn Fn(&str) -> Option<String>) -> Result<EnvFilter, TelemetryError> {
    let set = FILTERS
        .into_iter()
        .find_map(|name| Some((name, lookup(name).filter(|value| !value.is_empty())?)));
    match set {
        Some((name, value)) => {
            EnvFilter::try_new(&value).map_err(|source| TelemetryError::Filter { name, value, source })
        }
        None => Ok(EnvFilter::new(if debug { "info,refit=debug" } else { "info" })),
    }
}

fn is_harmless(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let within = |name: &str| {
        target == name
            || target
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with("::"))
    };
    let limit = if within("refit") {
        Level::TRACE
    } else if within("kube_client::client") {
        Level::ERROR
    } else {
        Level::INFO
    };
    *metadata.level() <= limit
}
