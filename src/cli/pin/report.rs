//! The report of `refit pin`.

use std::fmt::{self, Display, Write as _};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::flags::Flags;
use crate::cli::output;
use crate::cli::output_format::OutputFormat;
use refit_base::version::Version;
use refit_base::version::tag::munge;
use refit_offline::gitops::Source;
use refit_offline::gitops::pin::{KeptTag, PlanInFile};
use refit_offline::gitops::yaml::is_text_to_all;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Result {
    Changed,
    Same,
    Kept,
    Failed,
}

impl Result {
    fn word(self, is_check: bool) -> &'static str {
        match self {
            Self::Changed if is_check => "wouldChange",
            Self::Changed => "changed",
            Self::Same => "same",
            Self::Kept => "kept",
            Self::Failed => "failed",
        }
    }
}

pub(super) struct Outcome {
    pub(super) file: String,
    pub(super) plan: PlanInFile,
    pub(super) offered: Option<String>,
    pub(super) result: Result,
    pub(super) why: Option<String>,
    /// A warning about the change, such as a skipped minor version.
    pub(super) remark: Option<String>,
    /// Images whose digest changes.
    pub(super) images: Vec<String>,
    /// Images that keep an old version as their tag.
    pub(super) kept_tags: Vec<KeptTag>,
}

impl Outcome {
    pub(super) fn new(source: &Source, plan: PlanInFile) -> Self {
        Self {
            file: source.name.clone(),
            plan,
            offered: None,
            result: Result::Kept,
            why: None,
            remark: None,
            images: Vec::new(),
            kept_tags: Vec::new(),
        }
    }
}

/// An error that does not belong to a Plan.
pub(super) struct Failure {
    pub(super) file: Option<String>,
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(message: impl Display) -> Self {
        Self {
            file: None,
            line: None,
            message: message.to_string(),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, "{}:{line}: ", output::one_line(file))?;
        }
        f.write_str(&self.message)
    }
}

#[derive(Default)]
pub(super) struct Report {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) failures: Vec<Failure>,
    pub(super) notes: Vec<String>,
}

impl Report {
    pub(super) fn has_failed(&self) -> bool {
        !self.failures.is_empty() || self.of(Result::Failed) > 0
    }

    fn of(&self, result: Result) -> usize {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.result == result)
            .count()
    }

    /// Prints the changes, or the text with them, to standard output, and everything else to standard error.
    pub(super) fn print(&self, flags: &Flags, text: &str, is_filter: bool) -> anyhow::Result<()> {
        self.failures.iter().for_each(output::error);
        self.notes.iter().for_each(output::note);
        let mut lines = String::new();
        for outcome in &self.outcomes {
            Self::describe(flags, outcome, &mut lines);
        }
        // Standard output is the text or the diff for another program, so the changes go to standard error.
        let is_beside = flags.output != OutputFormat::Json && (flags.check || is_filter);
        if is_beside && !lines.is_empty() {
            output::note(lines.trim_end());
        }
        self.advice().into_iter().for_each(output::note);
        if let Some(summary) = self.summary() {
            output::note(summary);
        }
        match flags.output {
            OutputFormat::Json => output::json(&format!("{:#}\n", self.as_json(flags, text))),
            _ if flags.check => output::diff(text).map(|is_complete| {
                if !is_complete {
                    output::note(
                        "the diff shows control characters and invisible characters escaped, so patch cannot apply it; run \
                         refit pin without --check",
                    );
                }
            }),
            _ if is_filter => output::data(text),
            _ => output::text(&lines),
        }
        .context("the changes cannot be printed")
    }

    fn describe(flags: &Flags, outcome: &Outcome, lines: &mut String) {
        let (file, line) = (output::one_line(&outcome.file), outcome.plan.line);
        let plan = output::one_line(&outcome.plan.title);
        let version = outcome.plan.version.as_deref().unwrap_or("no version");
        match (outcome.result, &outcome.why) {
            (Result::Changed, _) => {
                let would = if flags.check { " would change" } else { "" };
                let offered = outcome.offered.as_deref().unwrap_or_default();
                let remark = outcome.remark.as_ref().map(|remark| format!(" ({remark})"));
                let remark = remark.unwrap_or_default();
                // Writing to a String cannot fail.
                if outcome.plan.is_number {
                    // As it is written: quoted where it would be a number again.
                    let quote = if is_text_to_all(offered) { "" } else { "\"" };
                    let _ = writeln!(
                        lines,
                        "{file}:{line}: Plan {plan}{would}: {version} (a number) -> {quote}{offered}{quote}{remark}"
                    );
                } else if munge(version) != munge(offered) && !offered.is_empty() {
                    let _ = writeln!(
                        lines,
                        "{file}:{line}: Plan {plan}{would}: {version} -> {offered}{remark}"
                    );
                }
                for image in &outcome.images {
                    let _ = writeln!(lines, "{file}:{line}: Plan {plan}{would}: image {image}");
                }
                for KeptTag {
                    image,
                    tag,
                    was_version,
                    place,
                } in &outcome.kept_tags
                {
                    if let Some(place) = place {
                        output::note(format_args!(
                            "{file}:{line}: Plan {plan}: image {image} in {place} stays, so the version of this patch does not \
                             choose what runs; write it there without tag and digest, and refit adds the version"
                        ));
                        continue;
                    }
                    if tag.is_empty() {
                        output::note(format_args!(
                            "{file}:{line}: Plan {plan}: image {image} has a digest and no tag, so the version does not choose \
                             what runs; give it the version as its tag, and --digest changes both"
                        ));
                        continue;
                    }
                    let (runs, how) = if !was_version {
                        (tag.as_str(), "remove the tag, and refit adds the version")
                    } else if image.contains('@') {
                        // The tag cannot change without the digest.
                        (version, "--digest changes the image too")
                    } else {
                        (version, "--image-tag changes the image too")
                    };
                    output::note(format_args!(
                        "{file}:{line}: Plan {plan}: image {image} keeps its tag, so it still runs {runs}; {how}"
                    ));
                }
            }
            (Result::Failed, Some(why)) => {
                output::error(format_args!("{file}:{line}: Plan {plan}: {why}"));
            }
            (_, Some(why)) => {
                let stays = outcome.plan.version.as_ref();
                let stays = stays.map_or(" stays as it is".to_owned(), |version| {
                    format!(" stays at {version}")
                });
                output::note(format_args!("{file}:{line}: Plan {plan}{stays}: {why}"));
            }
            _ => {}
        }
        if outcome.plan.is_number && outcome.result != Result::Changed {
            output::note(format_args!(
                "{file}:{line}: Plan {plan}: spec.version is the number {version}, which the API server refuses; write \
                 \"{version}\" in quotes"
            ));
        }
    }

    /// How to avoid skipped minor versions, for the first Plan that skips one of Kubernetes.
    fn advice(&self) -> Option<String> {
        let skips = |outcome: &&Outcome| {
            let remark = outcome.remark.as_deref().unwrap_or_default();
            let offered = outcome
                .offered
                .as_deref()
                .and_then(|version| version.parse().ok());
            let has_build = offered.is_some_and(|version: Version| version.builder().is_some());
            outcome.result == Result::Changed
                && remark.starts_with("skips")
                && (outcome.plan.installs_kubernetes || has_build)
        };
        let outcome = self.outcomes.iter().find(skips)?;
        let current: Version = outcome.plan.version.as_deref()?.parse().ok()?;
        let next = format!("{}.{}", current.major(), current.minor()? + 1);
        Some(format!(
            "Kubernetes supports upgrades by one minor version at a time: go to {next} first, as with --range ~{next}"
        ))
    }

    /// A line for a run without changes, whose output would otherwise be empty.
    fn summary(&self) -> Option<String> {
        let (same, all) = (self.of(Result::Same), self.outcomes.len());
        if same == 0 || self.of(Result::Changed) > 0 {
            return None;
        }
        Some(match (same, all) {
            (1, 1) => "the Plan is up to date".to_owned(),
            (same, all) if same == all => format!("all {all} Plans are up to date"),
            (same, all) => format!("{same} of {all} Plans are up to date"),
        })
    }

    fn as_json(&self, flags: &Flags, text: &str) -> Value {
        let plans: Vec<_> = self
            .outcomes
            .iter()
            .map(|outcome| {
                json!({
                    "file": outcome.file,
                    "line": outcome.plan.line,
                    "plan": outcome.plan.title,
                    "channel": outcome.plan.channel,
                    "version": outcome.plan.version,
                    "offered": outcome.offered,
                    "result": outcome.result.word(flags.check),
                    "remark": outcome.remark,
                    "images": outcome.images,
                    "keptTags": outcome.kept_tags.iter().map(|kept| &kept.image).collect::<Vec<_>>(),
                    "why": outcome.why,
                })
            })
            .collect();
        let of_files = self
            .failures
            .iter()
            .map(|failure| json!({ "file": failure.file, "line": failure.line, "message": failure.message }));
        let of_plans = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.result == Result::Failed)
            .map(|outcome| {
                json!({
                    "file": outcome.file,
                    "line": outcome.plan.line,
                    "plan": outcome.plan.title,
                    "message": outcome.why,
                })
            });
        let errors: Vec<_> = of_files.chain(of_plans).collect();
        let text = Some(text).filter(|text| !text.is_empty());
        json!({ "plans": plans, "errors": errors, "text": text })
    }
}
