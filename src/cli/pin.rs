//! `refit pin`: asks the channels, decides, and writes the files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use similar::TextDiff;

use super::ask::{Answers, Asking, Digests};
use super::{USAGE, output, validate};
use crate::api::names::GROUP;
use crate::channel::Offer;
use crate::channel::version::munge;
use crate::clock::Clock;
use crate::gitops::pin::{PlanAt, Verdict, Want, followers, judge, plans, rewrite};
use crate::gitops::{Source, write};
use crate::version::Range;
use crate::version::policy::Policy;

pub(super) const EXAMPLES: &str = "Examples:
  refit pin clusters/                                every Plan below a folder, from its own channel
  refit pin --check clusters/                        in CI: say what is behind, as a diff, and write nothing
  refit pin --range '>=1.33, <1.34' plan.yaml        take nothing else than 1.33
  refit pin --channel https://update.k3s.io/v1-release/channels/v1.33 plan.yaml
                                                     for Plans that have no channel
  kustomize build base | refit pin - | kubectl apply -f -";

/// Arguments of `refit pin`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Files, folders, patterns such as 'clusters/**/plan*.yaml', or - for standard input to standard output
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Write nothing: print what would change as a unified diff, and end with 1 if anything would
    #[arg(long)]
    check: bool,

    /// Take only versions in this range, such as '>=1.33 <1.34', in place of the Plan's `versionPolicy.range`; others leave the
    /// Plan as it is
    #[arg(long, value_name = "RANGE", value_parser = range)]
    range: Option<Range>,

    /// Take a version that is older than the one in the file, too
    #[arg(long)]
    allow_downgrade: bool,

    /// Channel of Plans that have none themselves
    #[arg(long, value_name = "URL")]
    channel: Option<String>,

    /// Write this version, and ask no channel
    #[arg(long, value_name = "VERSION", conflicts_with = "channel")]
    to: Option<String>,

    /// Only the Plan of this name. May be repeated
    #[arg(long, value_name = "NAME")]
    plan: Vec<String>,

    /// Move the tags of images along that are the version in the file
    #[arg(long)]
    image_tag: bool,

    /// Write images that follow the version with their tag and its digest, as the registry has it now
    #[arg(long)]
    digest: bool,

    /// How changes are told
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "text")]
    output: Format,

    #[command(flatten)]
    asking: Asking,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// A line for each Plan that changes
    Text,
    /// One object, with all Plans
    Json,
}

fn range(text: &str) -> Result<Range, String> {
    text.parse::<Range>().map_err(|error| error.to_string())
}

/// What became of a Plan.
struct Outcome {
    file: String,
    plan: PlanAt,
    offered: Option<String>,
    /// `changed`, `same`, `kept` or `failed`.
    result: &'static str,
    why: Option<String>,
    /// Images that get another digest.
    images: Vec<String>,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (sources, mut failed) = validate::read(&flags.files);
    let found: Vec<Vec<PlanAt>> = sources.iter().map(|source| chosen(flags, source)).collect();
    failed |= unreadable_plans(&sources, &found);
    if found.iter().all(Vec::is_empty) {
        let which = if flags.plan.is_empty() {
            "no Plan"
        } else {
            "no such Plan"
        };
        output::error(format_args!("there is {which} in these files"));
        return Ok(ExitCode::from(USAGE));
    }
    let answers = answers(flags, &found)?;
    let now = Clock::system().now();
    let mut outcomes = Vec::new();
    let mut of_file = Vec::new();
    for (source, plans) in sources.iter().zip(found) {
        let first = outcomes.len();
        let mut wants = Vec::new();
        for plan in plans {
            let (outcome, want) = decide(flags, source, plan, &answers, now);
            outcomes.push(outcome);
            wants.extend(want.map(|want| (outcomes.len() - 1, want)));
        }
        of_file.push((first..outcomes.len(), wants));
    }
    if flags.digest {
        pin_images(flags, &mut outcomes, &mut of_file)?;
    }
    let mut texts = Vec::new();
    for (source, (mine, wants)) in sources.iter().zip(of_file) {
        let wants: Vec<_> = wants.into_iter().map(|(_, want)| want).collect();
        let text = match rewrite(source, &wants) {
            Ok(text) => text,
            Err(error) => {
                for outcome in outcomes[mine]
                    .iter_mut()
                    .filter(|outcome| outcome.result == "changed")
                {
                    (outcome.result, outcome.why) = ("failed", Some(error.to_string()));
                }
                source.text.clone()
            }
        };
        texts.push(text);
    }

    let mut behind = false;
    let mut data = String::new();
    for (source, text) in sources.iter().zip(&texts) {
        behind |= *text != source.text;
        match (&source.path, flags.check) {
            (_, true) => data.push_str(&diff(source, text)),
            (None, false) => data.push_str(text),
            (Some(_), false) if *text == source.text => {}
            (Some(path), false) => {
                if let Err(error) = write::replace(path, &source.text, text) {
                    for outcome in outcomes.iter_mut().filter(|outcome| outcome.file == source.name) {
                        (outcome.result, outcome.why) = ("failed", Some(error.to_string()));
                    }
                }
            }
        }
    }
    tell(
        flags,
        &outcomes,
        data,
        sources.iter().any(|source| source.path.is_none()),
    )?;
    failed |= outcomes.iter().any(|outcome| outcome.result == "failed");
    Ok(if failed {
        ExitCode::from(USAGE)
    } else if flags.check && behind {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The outcomes of a file, and what is wanted for which of them.
type OfFile = (std::ops::Range<usize>, Vec<(usize, Want)>);

/// Asks for the digests of all images that follow a version, and wants them. A Plan of which one is not known stays as it is.
fn pin_images(flags: &Flags, outcomes: &mut [Outcome], of_file: &mut [OfFile]) -> anyhow::Result<()> {
    let wants = of_file.iter().flat_map(|(_, wants)| wants);
    let images = wants.flat_map(|(_, want)| followers(&want.plan, &want.version));
    let digests: Digests = flags.asking.digests(images.collect())?;
    for (_, wants) in of_file {
        wants.retain_mut(|(index, want)| {
            let outcome = &mut outcomes[*index];
            for image in followers(&want.plan, &want.version) {
                match digests.get(&image) {
                    Some(Ok(digest)) => {
                        let pinned = format!("{image}@{digest}");
                        if !want.plan.images.iter().any(|(_, image)| *image == pinned) {
                            outcome.result = "changed";
                            outcome.images.push(pinned);
                        }
                        want.digests.insert(image, digest.clone());
                    }
                    Some(Err(error)) => {
                        (outcome.result, outcome.why) = ("failed", Some(format!("image {image}: {error}")));
                        return false;
                    }
                    None => {}
                }
            }
            true
        });
    }
    Ok(())
}

fn chosen(flags: &Flags, source: &Source) -> Vec<PlanAt> {
    let mut found = plans(source);
    found.retain(|plan| flags.plan.is_empty() || flags.plan.contains(&plan.name));
    found
}

/// Says which files hold a Plan that nobody can read, though no other one of them is to be changed.
fn unreadable_plans(sources: &[Source], found: &[Vec<PlanAt>]) -> bool {
    let mut any = false;
    for (source, plans) in sources.iter().zip(found) {
        let error = source
            .stream
            .errors
            .first()
            .filter(|_| source.text.contains(GROUP));
        if let Some(error) = error.filter(|_| plans.is_empty()) {
            any = true;
            let line = source.place(error.offset).line;
            output::error(format_args!("{}:{line}: this is not YAML: {error}", source.name));
        }
    }
    any
}

fn channel_of(flags: &Flags, plan: &PlanAt) -> Option<String> {
    plan.channel.clone().or_else(|| flags.channel.clone())
}

fn answers(flags: &Flags, found: &[Vec<PlanAt>]) -> anyhow::Result<Answers> {
    if flags.to.is_some() {
        return Ok(BTreeMap::new());
    }
    let channels: BTreeSet<_> = found
        .iter()
        .flatten()
        .filter(|plan| plan.placeholder.is_none())
        .filter_map(|plan| channel_of(flags, plan))
        .collect();
    flags.asking.ask(channels)
}

fn decide(
    flags: &Flags,
    source: &Source,
    plan: PlanAt,
    answers: &Answers,
    now: Timestamp,
) -> (Outcome, Option<Want>) {
    let mut outcome = Outcome {
        file: source.name.clone(),
        plan,
        offered: None,
        result: "kept",
        why: None,
        images: Vec::new(),
    };
    if let Some(placeholder) = &outcome.plan.placeholder {
        outcome.why = Some(format!("somebody else fills in {placeholder}"));
        return (outcome, None);
    }
    let offer = match (&flags.to, channel_of(flags, &outcome.plan)) {
        (Some(version), _) => Ok(Cow::Owned(Offer::one(version.clone()))),
        (None, Some(channel)) => match answers.get(&channel) {
            Some(Ok(offer)) => Ok(Cow::Borrowed(offer)),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("it was not asked".to_owned()),
        },
        (None, None) => {
            outcome.why = Some("it has no channel; --channel gives it one".to_owned());
            return (outcome, None);
        }
    };
    let offer = match offer {
        Ok(offer) => offer,
        Err(why) => {
            (outcome.result, outcome.why) = ("failed", Some(format!("its channel gives no version: {why}")));
            return (outcome, None);
        }
    };
    let policy = match policy(flags, &outcome.plan) {
        Ok(policy) => policy,
        Err(why) => {
            (outcome.result, outcome.why) = ("failed", Some(why));
            return (outcome, None);
        }
    };
    if let [only] = offer.releases.as_slice() {
        outcome.offered = Some(only.version.clone());
    }
    let version = match judge(outcome.plan.version.as_deref(), &offer, &policy, now) {
        Verdict::Same => {
            outcome.result = "same";
            // Its images may be without their digests.
            outcome.plan.version.clone().filter(|_| flags.digest)
        }
        Verdict::Kept(why) => {
            outcome.why = Some(why);
            None
        }
        Verdict::Refused(why) => {
            (outcome.result, outcome.why) = ("failed", Some(why.to_string()));
            None
        }
        Verdict::Take(version) => {
            outcome.result = "changed";
            outcome.offered = Some(version.clone());
            Some(version)
        }
    };
    let want = version.map(|version| Want {
        plan: outcome.plan.clone(),
        version,
        images: flags.image_tag,
        digests: BTreeMap::new(),
    });
    (outcome, want)
}

/// What is asked for on the command line comes before what the Plan says; a version that is given there is the one that is meant.
fn policy(flags: &Flags, plan: &PlanAt) -> Result<Policy, String> {
    let mut policy = if flags.to.is_some() {
        Policy::default()
    } else {
        plan.policy.clone()?
    };
    policy.is_given |= flags.range.is_some();
    policy.range = flags.range.clone().or(policy.range);
    policy.allow_downgrade |= flags.allow_downgrade;
    Ok(policy)
}

/// What would change, as `diff -u` and `git apply` have it.
fn diff(source: &Source, text: &str) -> String {
    if source.text == text {
        return String::new();
    }
    let name = source.name.trim_start_matches("./").trim_start_matches('/');
    TextDiff::from_lines(source.text.as_str(), text)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string()
}

fn tell(flags: &Flags, outcomes: &[Outcome], data: String, is_filter: bool) -> anyhow::Result<()> {
    let mut lines = String::new();
    for outcome in outcomes {
        let (file, line, plan) = (&outcome.file, outcome.plan.line, &outcome.plan.title);
        let version = outcome.plan.version.as_deref().unwrap_or("no version");
        match (outcome.result, &outcome.why) {
            ("changed", _) => {
                let offered = outcome.offered.as_deref().unwrap_or_default();
                // Writing to a String cannot fail.
                if munge(version) != munge(offered) {
                    let _ = writeln!(lines, "{file}:{line}: Plan {plan}: {version} -> {offered}");
                }
                for image in &outcome.images {
                    let _ = writeln!(lines, "{file}:{line}: Plan {plan}: image {image}");
                }
            }
            ("failed", Some(why)) => output::error(format_args!("{file}:{line}: Plan {plan}: {why}")),
            (_, Some(why)) => output::note(format_args!(
                "{file}:{line}: Plan {plan} stays at {version}: {why}"
            )),
            _ => {}
        }
    }
    let data = match flags.output {
        Format::Json => format!("{:#}\n", as_json(outcomes, &data)),
        // The text itself, or the diff, is what goes on; what has changed is talk beside it.
        Format::Text if flags.check || is_filter => {
            if !lines.is_empty() {
                output::note(lines.trim_end());
            }
            data
        }
        Format::Text => lines,
    };
    output::data(&data).context("the changes cannot be printed")
}

fn as_json(outcomes: &[Outcome], text: &str) -> Value {
    let plans: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            json!({
                "file": outcome.file,
                "line": outcome.plan.line,
                "plan": outcome.plan.title,
                "channel": outcome.plan.channel,
                "version": outcome.plan.version,
                "offered": outcome.offered,
                "result": outcome.result,
                "images": outcome.images,
                "why": outcome.why,
            })
        })
        .collect();
    let text = Some(text).filter(|text| !text.is_empty());
    json!({ "plans": plans, "text": text })
}
