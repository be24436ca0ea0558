//! `refit rehearse --compare OLD NEW`.

use std::process::ExitCode;

use anyhow::Context as _;

use super::{Flags, OutputFormat, Rehearsed, USAGE, exit_code, html, output, rehearse};
use refit_rehearse::report::compare::Comparison;

/// Rehearses both, and prints what differs. The exit code is that of the new Plans.
pub(super) fn run(flags: &Flags, old: &str, new: &str) -> anyhow::Result<ExitCode> {
    if flags.snapshot.as_deref() == Some("-") || (old == "-" && new == "-") {
        output::error(
            "standard input can be read once: --compare needs the snapshot, and one of the two Plans, in a file",
        );
        return Ok(ExitCode::from(USAGE));
    }
    let of = |name: &str, file: &str| -> anyhow::Result<Result<Rehearsed, ExitCode>> {
        output::note(format_args!("{name}: {file}"));
        let flags = Flags {
            files: vec![file.to_owned()],
            compare: Vec::new(),
            ..flags.clone()
        };
        rehearse(&flags, true)
    };
    let before = match of("before", old)? {
        Ok(rehearsed) => rehearsed,
        Err(code) => return Ok(code),
    };
    let after = match of("after", new)? {
        Ok(rehearsed) => rehearsed,
        Err(code) => return Ok(code),
    };
    if before.nodes != after.nodes {
        output::note(
            "the two run on different generated nodes, because the Plans select by different labels; \
             with --snapshot both run on the same cluster",
        );
    }
    let comparison = Comparison::new(&before.report, &after.report);
    let is_written = flags.html.as_deref().is_none_or(|path| {
        let old = before.report.to_document(&before.outcome, None);
        let compared = Some((old, comparison.changes.clone()));
        html::write_or_report(path, &after.report.to_document(&after.outcome, compared))
    });
    match flags.output {
        OutputFormat::Json => output::json(&comparison.to_json()),
        _ => output::text(&comparison.to_text()),
    }
    .context("the comparison cannot be printed")?;
    Ok(exit_code(&after.report, is_written))
}
