//! Logging to stderr, as text or JSON.
//!
//! Other crates log from level INFO, whatever the settings say, because below that they print addresses, headers and
//! bodies. kube's client logs from ERROR, because its warnings contain whole responses, including Secrets.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, FilterFn, ParseError};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt};

/// Variables with a filter in tracing's syntax, such as `refit=debug`. The first one that is set applies.
const FILTERS: [&str; 2] = ["REFIT_LOG", "RUST_LOG"];

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

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

/// Sets up logging. `lookup` reads an environment variable.
///
/// # Errors
/// Fails if the filter of the environment is invalid, or a log is set up already.
pub fn init(
    debug: bool,
    format: LogFormat,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<(), TelemetryError> {
    let colour = io::stderr().is_terminal() && lookup("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = layer(debug, format, lookup, colour, io::stderr)?;
    tracing_subscriber::registry()
        .with(layer)
        .try_init()
        .map_err(|_| TelemetryError::Twice)
}

fn layer<W>(
    debug: bool,
    format: LogFormat,
    lookup: &dyn Fn(&str) -> Option<String>,
    colour: bool,
    writer: W,
) -> Result<impl Layer<Registry>, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = filter(debug, lookup)?.and(FilterFn::new(is_harmless));
    let lines = fmt::layer()
        .with_writer(writer)
        .with_file(debug)
        .with_line_number(debug);
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.with_ansi(colour).boxed(),
    };
    Ok(lines.with_filter(filter))
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
    // refit's own crates, such as `refit_controller`.
    let limit = if target.split([':', '_']).next() == Some("refit") {
        Level::TRACE
    } else if target.starts_with("kube_client::client") {
        Level::ERROR
    } else {
        Level::INFO
    };
    *metadata.level() <= limit
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged, as text.
    pub(crate) fn logged_text(log: impl FnOnce()) -> String {
        logged(false, LogFormat::Text, &[], log)
    }

    fn logged(debug: bool, format: LogFormat, pairs: &[(&str, &str)], log: impl FnOnce()) -> String {
        let lookup = |name: &str| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = layer(debug, format, &lookup, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    fn all_levels() {
        tracing::info!(target: "refit_controller::engine", "refit info");
        tracing::debug!(target: "refit_controller::engine", "refit debug");
        tracing::info!(target: "hyper_util::client", "hyper info");
        tracing::debug!(target: "hyper_util::client", "hyper debug");
        tracing::warn!(target: "kube_client::client", "{}, {:?}", r#"{"data":{"password":"s3cret"}}"#, "no");
        tracing::error!(target: "kube_client::client", "kube error");
        tracing::debug!(target: "refitting", "not ours");
    }

    fn said(debug: bool, pairs: &[(&str, &str)]) -> Vec<&'static str> {
        let text = logged(debug, LogFormat::Text, pairs, all_levels);
        assert!(!text.contains("s3cret"), "{text}");
        [
            "refit info",
            "refit debug",
            "hyper info",
            "hyper debug",
            "kube error",
            "not ours",
        ]
        .into_iter()
        .filter(|words| text.contains(words))
        .collect()
    }

    #[test]
    fn debug_is_about_refit() {
        assert_eq!(said(false, &[]), ["refit info", "hyper info", "kube error"]);
        assert_eq!(
            said(true, &[]),
            ["refit info", "refit debug", "hyper info", "kube error"]
        );
    }

    #[test]
    fn a_filter_takes_the_place_of_the_level_but_not_of_the_limits() {
        assert_eq!(said(true, &[("REFIT_LOG", "refit=info")]), ["refit info"]);
        assert_eq!(
            said(false, &[("RUST_LOG", "trace")]),
            ["refit info", "refit debug", "hyper info", "kube error"]
        );
        assert_eq!(
            said(false, &[("REFIT_LOG", "error"), ("RUST_LOG", "trace")]),
            ["kube error"]
        );
        assert_eq!(
            said(false, &[("REFIT_LOG", ""), ("RUST_LOG", "error")]),
            ["kube error"]
        );
    }

    #[test]
    fn a_filter_that_is_none_is_an_error() {
        let lookup = |name: &str| (name == "RUST_LOG").then(|| "refit=loud".to_owned());
        let error = filter(false, &lookup).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"the environment variable RUST_LOG is "refit=loud"; it must be a level such as debug, or a filter such as refit=debug"#
        );
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = logged(false, LogFormat::Json, &[], || {
            tracing::info!(target: "refit", plan = "k3s", nodes = 3, "line\nbreak");
            tracing::info!(target: "refit", "second");
        });
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["plan"], "k3s");
        assert_eq!(lines[0]["nodes"], 3);
        assert_eq!(lines[0]["message"], "line\nbreak");
        assert_eq!(lines[0]["level"], "INFO");
        assert!(lines[0]["timestamp"].as_str().unwrap().ends_with('Z'));
    }
}
