//! `refit pin`: queries the channels, decides, and writes the files.

mod decide;
mod flags;
mod images;
mod patched;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use super::USAGE;
use super::channel_access::Offers;
use super::chosen::{FILES, is_chosen, no_plan, unknown};
use refit_api::names::GROUP;
use refit_cluster::clock::Clock;
use refit_offline::gitops::check::missed_plans;
use refit_offline::gitops::kustomize::{attach_with_neighbours, is_patch};
use refit_offline::gitops::pin::{PinRequest, PlanInFile, kept_tags, plans, repeated, rewrite};
use refit_offline::gitops::{Source, input, patch, write};

use decide::{Channels, channel_of, decide};
pub(super) use flags::Flags;
use report::{Failure, Outcome, Report, Result};

pub(super) const EXAMPLES: &str = "Examples:
  refit pin clusters/                                every Plan below a folder, from its own channel
  refit pin --check clusters/                        in CI: what is behind, as a diff
  refit pin --range '>=1.33, <1.34' plan.yaml        only 1.33
  refit pin --channel https://update.k3s.io/v1-release/channels/v1.33 plan.yaml
                                                     for Plans that have no channel
  kustomize build base | refit pin - | kubectl apply -f -";

/// A file with selected Plans.
struct File {
    source: Source,
    /// Indices of the outcomes of its Plans.
    outcomes: std::ops::Range<usize>,
    /// Outcome index and request of each Plan to change.
    requests: Vec<(usize, PinRequest)>,
    text: String,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let mut sources = Vec::new();
    let (inputs, errors) = input::expand(&flags.files);
    report.failures.extend(errors.iter().map(Failure::new));
    for input in &inputs {
        match input::read(input) {
            Ok(source) => sources.push(source),
            Err(error) => report.failures.push(Failure::new(&error)),
        }
    }
    let patches = attach_with_neighbours(&mut sources);
    let mut found: Vec<_> = sources.iter().map(plans).collect();
    patched::remove_without_version(&patches, &sources, &mut found, &mut report.notes);
    patched::complete(&sources, &mut found);
    unreadable_plans(&patches, &sources, &found, &mut report);
    let titles = found
        .iter()
        .flatten()
        .map(|plan| (plan.name.clone(), plan.title.clone()));
    if let Some(why) = unknown(&flags.plan, &titles.collect::<Vec<_>>(), FILES) {
        report.failures.push(Failure::new(why));
        report.print(flags, "", false)?;
        return Ok(ExitCode::from(USAGE));
    }
    let is_template = |source: &Source| source.is_template() && source.text.contains(GROUP);
    if found.iter().all(Vec::is_empty) && !sources.iter().any(is_template) {
        // A Plan may be in a file that cannot be read.
        if report.failures.is_empty() {
            report.failures.push(Failure::new(no_plan(&sources)));
        }
        report.print(flags, "", false)?;
        return Ok(ExitCode::from(USAGE));
    }
    let is_selected = |plan: &PlanInFile| is_chosen(&flags.plan, &plan.name, &plan.title);
    let found: Vec<Vec<PlanInFile>> = found
        .into_iter()
        .map(|plans| plans.into_iter().filter(is_selected).collect())
        .collect();
    let channels = Channels::new(channel_offers(flags, &found)?);
    let now = Clock::system().now();
    let mut files = Vec::new();
    for (source, plans) in sources.into_iter().zip(found) {
        let first = report.outcomes.len();
        let mut requests = Vec::new();
        for plan in plans {
            let (mut outcome, request) = decide(flags, &source, plan, &channels, now);
            if request.is_none()
                && outcome.result != Result::Failed
                && let Some(error) = repeated(&source, &outcome.plan)
            {
                (outcome.result, outcome.why) = (Result::Failed, Some(error.to_string()));
            }
            report.outcomes.push(outcome);
            requests.extend(request.map(|request| (report.outcomes.len() - 1, request)));
        }
        files.push(File {
            text: source.text.clone(),
            source,
            outcomes: first..report.outcomes.len(),
            requests,
        });
    }
    if flags.digest {
        images::pin(flags, &mut report.outcomes, &mut files)?;
    } else if flags.to.is_none() {
        images::keep_without(flags, &mut report, &mut files)?;
    }
    for file in &mut files {
        edit(file, &mut report.outcomes);
        keep_checksum(file, &mut report.outcomes);
        keep_outside(file, &flags.files, &mut report.outcomes);
    }
    let (data, is_behind) = write_all(flags, &files, &mut report.outcomes);
    let is_filter = files.iter().any(|file| file.source.path.is_none());
    report.print(flags, &data, is_filter)?;
    Ok(if report.has_failed() {
        ExitCode::from(USAGE)
    } else if flags.check && is_behind {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Edits the text of a file. If that fails, none of its Plans changes.
fn edit(file: &mut File, outcomes: &mut [Outcome]) {
    let mut requests = Vec::new();
    for (index, request) in &file.requests {
        let outcome = &mut outcomes[*index];
        outcome.kept_tags = kept_tags(request).into_iter().collect();
        requests.push(request.clone());
    }
    match rewrite(&file.source, &requests) {
        Ok(text) => file.text = text,
        Err(error) => {
            let changed = outcomes[file.outcomes.clone()]
                .iter_mut()
                .filter(|outcome| outcome.result == Result::Changed);
            for outcome in changed {
                let is_own = error.plan.as_ref() == Some(&outcome.plan.title);
                let why = if is_own {
                    error.kind.to_string()
                } else {
                    format!("the file stays unchanged because of {error}")
                };
                (outcome.result, outcome.why) = (Result::Failed, Some(why));
            }
        }
    }
}

/// Keeps a file whose values SOPS guards with a checksum, which any edit would break.
fn keep_checksum(file: &mut File, outcomes: &mut [Outcome]) {
    let source = &file.source;
    for (index, request) in &file.requests {
        let (outcome, plan) = (&mut outcomes[*index], &request.plan);
        if !plan.is_guarded_by_sops || outcome.result != Result::Changed {
            continue;
        }
        file.text.clone_from(&source.text);
        let has_new_version = plan.is_number || plan.version.as_ref() != Some(&request.version);
        let what = if has_new_version {
            format!("it would become {}", request.version)
        } else {
            "its images would change".to_owned()
        };
        // `sops set` changes the first document only.
        let how = if source.path.is_some() && plan.document == 0 && has_new_version {
            let path = plan.path.iter().cloned().chain(["spec".into(), "version".into()]);
            let path: String = path.map(|step| step.in_brackets()).collect();
            let value = format!("\"{}\"", request.version);
            format!(
                "run: sops set {} {} {}",
                shell_word(&source.name),
                in_quotes(&path),
                in_quotes(&value)
            )
        } else if source.path.is_some() {
            format!("edit it with: sops {}", shell_word(&source.name))
        } else {
            "edit the file with sops".to_owned()
        };
        let why = format!("{what}, but SOPS guards the file with a checksum that an edit breaks; {how}");
        (outcome.result, outcome.why) = (Result::Failed, Some(why));
    }
}

/// The text as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        in_quotes(text)
    }
}

fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Keeps a file outside of the folder in which a link to it was found.
fn keep_outside(file: &mut File, arguments: &[String], outcomes: &mut [Outcome]) {
    let path = file.source.path.as_deref();
    let target = path
        .filter(|_| file.text != file.source.text)
        .and_then(|path| input::target_outside(arguments, path));
    let Some(target) = target else { return };
    file.text.clone_from(&file.source.text);
    for outcome in &mut outcomes[file.outcomes.clone()] {
        if outcome.result == Result::Changed {
            let why = format!(
                "{} is a link out of its folder, to {}; name the file itself to change it",
                file.source.name,
                target.display()
            );
            (outcome.result, outcome.why) = (Result::Failed, Some(why));
        }
    }
}

/// Writes the changed files, or collects their text for printing.
fn write_all(flags: &Flags, files: &[File], outcomes: &mut [Outcome]) -> (String, bool) {
    let mut data = String::new();
    let mut is_behind = false;
    for file in files {
        let (source, text) = (&file.source, &file.text);
        is_behind |= *text != source.text;
        match (&source.path, flags.check) {
            (_, true) => data.push_str(&patch::unified(&source.name, &source.text, text)),
            (None, false) => data.push_str(text),
            (Some(_), false) if *text == source.text => {}
            (Some(path), false) => {
                if let Err(error) = write::replace(path, &source.text, text) {
                    for outcome in &mut outcomes[file.outcomes.clone()] {
                        (outcome.result, outcome.why) = (Result::Failed, Some(error.to_string()));
                    }
                }
            }
        }
    }
    (data, is_behind)
}

/// Reports files that may hold an unreadable Plan, even if no other Plan in them changes.
fn unreadable_plans(
    patches: &BTreeSet<PathBuf>,
    sources: &[Source],
    found: &[Vec<PlanInFile>],
    report: &mut Report,
) {
    for (source, plans) in sources.iter().zip(found) {
        if is_patch(patches, source) {
            if plans.is_empty() {
                report
                    .notes
                    .push(format!("{}: skipped, a patch of Kustomize", source.name));
            }
        } else {
            let missed = missed_plans(source).into_iter();
            report.failures.extend(missed.map(|found| Failure {
                file: Some(found.file),
                line: Some(found.position.line),
                message: format!("{} [{}]", found.message, found.rule),
            }));
        }
        let errors = &source.stream.errors;
        let Some(error) = errors.first().filter(|_| source.text.contains(GROUP)) else {
            continue;
        };
        let line = source.position(error.offset).line;
        if source.is_template() && plans.is_empty() {
            report.notes.push(format!(
                "{}:{line}: skipped, a template; pin the version in the values of the template",
                source.name
            ));
        } else {
            report.failures.push(Failure {
                file: Some(source.name.clone()),
                line: Some(line),
                message: format!("this is not YAML: {error}"),
            });
        }
    }
}

fn channel_offers(flags: &Flags, found: &[Vec<PlanInFile>]) -> anyhow::Result<Offers> {
    if flags.to.is_some() {
        return Ok(BTreeMap::new());
    }
    let channels: BTreeSet<_> = found
        .iter()
        .flatten()
        .filter(|plan| plan.other.is_none() && plan.channel_placeholder.is_none())
        .filter_map(|plan| channel_of(flags, plan))
        .collect();
    flags.channels.ask(channels)
}
