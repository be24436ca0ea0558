//! `refit resolve`: asks channels, and says which version would be taken, and what keeps the others back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::ask::{Answers, Asking};
use super::{USAGE, output, validate};
use crate::api::duration::GoDuration;
use crate::api::names::ANNOTATION_APPROVE;
use crate::api::{ChannelStatus, Plan};
use crate::channel::version::munge;
use crate::clock::Clock;
use crate::gitops::Source;
use crate::gitops::check::{is_placeholder, read_plan};
use crate::gitops::objects::objects;
use crate::version::policy::{Choice, Circumstances, Offered, Policy, Verdict, choose, consider};
use crate::version::{Range, Version};

pub(super) const EXAMPLES: &str = "Examples:
  refit resolve https://update.k3s.io/v1-release/channels/stable
  refit resolve plan.yaml                       what its controller would take now, and why nothing else
  refit resolve github://k3s-io/k3s --range 1.33.x --minimum-age 72h
  VERSION=$(refit resolve -o name https://update.k3s.io/v1-release/channels/stable)
  kubectl get plan server -o yaml | refit resolve -";

/// How many versions that are not taken the text shows.
const SHOWN: usize = 20;

/// Arguments of `refit resolve`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// URLs of channels, or files, folders, patterns and - with Plans
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,

    /// Take only versions in this range, such as '>=1.33 <1.35', '1.33.x' or '~1.33'
    #[arg(long, value_name = "RANGE", value_parser = range)]
    range: Option<Range>,

    /// Take only versions that have been out for this long, such as 72h: since their release, where the channel dates it,
    /// otherwise since a Plan's status says
    #[arg(long, value_name = "DURATION", value_parser = age)]
    minimum_age: Option<SignedDuration>,

    /// Take a version that is older than the current one, or cannot be compared with it, too
    #[arg(long)]
    allow_downgrade: bool,

    /// The version that is there now [default: that of the Plan's status]
    #[arg(long, value_name = "VERSION")]
    current: Option<String>,

    /// Only the Plan of this name. May be repeated
    #[arg(long, value_name = "NAME")]
    plan: Vec<String>,

    /// How the answer is told
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "text")]
    output: Format,

    #[command(flatten)]
    asking: Asking,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// The version, and what was looked at
    Text,
    /// The version alone, one line for each target
    Name,
    /// One object, with all targets
    Json,
}

fn range(text: &str) -> Result<Range, String> {
    text.parse()
        .map_err(|error: crate::version::RangeError| error.to_string())
}

fn age(text: &str) -> Result<SignedDuration, String> {
    match text.parse::<GoDuration>() {
        Ok(age) if !age.is_negative() => Ok(SignedDuration::from_nanos(age.as_nanos())),
        Ok(age) => Err(format!("{age} is negative; write for example 72h")),
        Err(error) => Err(format!("{error}; write for example 72h")),
    }
}

/// Something that has a version.
struct Target {
    /// The URL, or file, line and Plan.
    name: String,
    channel: Option<String>,
    /// `spec.version`, which wins.
    version: Option<String>,
    current: Option<String>,
    policy: Policy,
    seen: BTreeMap<String, Timestamp>,
    approved: Option<String>,
}

/// What came of it.
struct Outcome<'a> {
    target: &'a Target,
    version: Option<String>,
    choice: Choice,
    considered: Vec<Verdict<'a>>,
    error: Option<String>,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (urls, files): (Vec<_>, Vec<_>) = flags
        .targets
        .iter()
        .cloned()
        .partition(|target| target.contains("://"));
    let mut failed = false;
    let mut targets: Vec<_> = urls.into_iter().map(|url| of_channel(flags, url)).collect();
    if !files.is_empty() {
        let (sources, unread) = validate::read(&files);
        failed |= unread;
        for source in &sources {
            failed |= !plans_of(flags, source, &mut targets);
        }
    }
    if targets.is_empty() {
        if !failed {
            output::error("there is no such Plan in these files");
        }
        return Ok(ExitCode::from(USAGE));
    }
    let channels: BTreeSet<_> = targets
        .iter()
        .filter(|target| target.version.is_none())
        .filter_map(|target| target.channel.clone())
        .collect();
    let answers = flags.asking.ask(channels)?;
    let now = Clock::system().now();
    let offers = offers(&answers);
    let outcomes: Vec<_> = targets
        .iter()
        .map(|target| resolve(target, &answers, &offers, now))
        .collect();
    tell(flags.output, &outcomes)?;
    let none = outcomes.iter().any(|outcome| outcome.version.is_none());
    Ok(if failed {
        ExitCode::from(USAGE)
    } else if none {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn offers(answers: &Answers) -> BTreeMap<&str, Offered> {
    answers
        .iter()
        .filter_map(|(channel, answer)| Some((channel.as_str(), Offered::from(answer.as_ref().ok()?))))
        .collect()
}

fn of_channel(flags: &Flags, url: String) -> Target {
    Target {
        name: url.clone(),
        channel: Some(url),
        version: None,
        current: flags.current.clone(),
        policy: amended(Policy::default(), flags),
        seen: BTreeMap::new(),
        approved: None,
    }
}

/// What is asked on the command line comes before what a Plan says.
fn amended(mut policy: Policy, flags: &Flags) -> Policy {
    policy.is_given |= flags.range.is_some() || flags.minimum_age.is_some() || flags.allow_downgrade;
    policy.range = flags.range.clone().or(policy.range);
    policy.minimum_age = flags.minimum_age.unwrap_or(policy.minimum_age);
    policy.allow_downgrade |= flags.allow_downgrade;
    policy
}

/// The Plans of a file. False where one of them cannot be read.
fn plans_of(flags: &Flags, source: &Source, targets: &mut Vec<Target>) -> bool {
    let mut fine = true;
    if let Some(error) = source.stream.errors.first() {
        let line = source.place(error.offset).line;
        output::error(format_args!("{}:{line}: this is not YAML: {error}", source.name));
        fine = false;
    }
    for object in objects(&source.stream.documents)
        .iter()
        .filter(|object| object.is_plan())
    {
        let name = object.metadata("name").unwrap_or_default();
        if !flags.plan.is_empty() && !flags.plan.iter().any(|plan| plan == name) {
            continue;
        }
        let line = source.place(object.node.offset()).line;
        let title = format!("{}:{line}: Plan {}", source.name, object.title());
        let (plan, _) = read_plan(source, object);
        match of_plan(flags, title, &plan) {
            Ok(target) => targets.push(target),
            Err(why) => {
                output::error(why);
                fine = false;
            }
        }
    }
    fine
}

fn of_plan(flags: &Flags, title: String, plan: &Plan) -> Result<Target, String> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let spec = &plan.spec;
    let (version, channel) = (given(&spec.version), given(&spec.channel));
    if let Some(text) = version.iter().chain(&channel).find(|text| is_placeholder(text)) {
        return Err(format!("{title}: somebody else fills in {text}"));
    }
    if version.is_none() && channel.is_none() {
        return Err(format!("{title}: it has neither spec.version nor spec.channel"));
    }
    if version.is_none() && (spec.channel_secret_ref.is_some() || spec.channel_ca_secret_ref.is_some()) {
        output::note(format_args!(
            "{title}: its secrets are not read; --token-file and --ca-file say with what its channel is asked"
        ));
    }
    let policy = spec
        .version_policy()
        .map_err(|error| format!("{title}: {error}"))?;
    let status = plan.status.as_ref();
    let told = status.and_then(|status| status.channel.as_ref());
    let told = told.filter(|told| told.url == channel);
    let annotations = plan.metadata.annotations.as_ref();
    Ok(Target {
        name: title,
        channel,
        version,
        current: flags
            .current
            .clone()
            .or_else(|| status.and_then(|status| status.latest_version.clone())),
        policy: amended(policy, flags),
        seen: told.map(ChannelStatus::first_seen).unwrap_or_default(),
        approved: annotations.and_then(|annotations| annotations.get(ANNOTATION_APPROVE).cloned()),
    })
}

fn resolve<'a>(
    target: &'a Target,
    answers: &Answers,
    offers: &'a BTreeMap<&str, Offered>,
    now: Timestamp,
) -> Outcome<'a> {
    let mut outcome = Outcome {
        target,
        version: target.version.clone(),
        choice: Choice::default(),
        considered: Vec::new(),
        error: None,
    };
    let Some(channel) = target.channel.as_deref().filter(|_| target.version.is_none()) else {
        return outcome;
    };
    let Some(offered) = offers.get(channel) else {
        let error = answers.get(channel).and_then(|answer| answer.as_ref().err());
        outcome.error = error.map(|error| format!("its channel gives no version: {error}"));
        return outcome;
    };
    let current = target.current.as_deref().map(munge);
    let circumstances = Circumstances {
        current: current.as_deref(),
        seen: &target.seen,
        approved: target.approved.as_deref(),
        withdrawn: None,
        polled: now,
        now,
    };
    outcome.considered = consider(&target.policy, offered, &circumstances);
    let number = |verdict: &Verdict<'_>| verdict.version.parse::<Version>().ok().map(|v| v.sort_key());
    outcome.considered.sort_by(|one, other| {
        let by_number = number(other).cmp(&number(one));
        by_number.then_with(|| other.version.cmp(one.version))
    });
    outcome.choice = choose(&target.policy, offered, &circumstances);
    let taken = outcome.choice.take.as_deref();
    outcome.version = outcome
        .considered
        .iter()
        .find(|verdict| Some(munge(verdict.version).as_str()) == taken)
        .map(|verdict| verdict.version.to_owned());
    if outcome.version.is_none() {
        let held = outcome.choice.held.as_ref().map(|held| held.message.clone());
        outcome.error = held.or_else(|| outcome.choice.fault.clone());
    }
    outcome
}

fn tell(format: Format, outcomes: &[Outcome<'_>]) -> anyhow::Result<()> {
    for outcome in outcomes {
        if let Some(error) = &outcome.error {
            output::error(format_args!("{}: {error}", outcome.target.name));
        }
    }
    let data = match format {
        Format::Json => {
            let targets: Vec<_> = outcomes.iter().map(as_json).collect();
            format!("{:#}\n", json!({ "targets": targets }))
        }
        Format::Name => outcomes.iter().fold(String::new(), |mut data, outcome| {
            // Writing to a String cannot fail.
            let _ = writeln!(data, "{}", outcome.version.as_deref().unwrap_or_default());
            data
        }),
        Format::Text => outcomes.iter().map(as_text).collect(),
    };
    output::data(&data).context("the answer cannot be printed")
}

fn as_text(outcome: &Outcome<'_>) -> String {
    let target = outcome.target;
    let mut text = String::new();
    let version = outcome.version.as_deref().unwrap_or("no version");
    let source = match (&target.version, &target.channel) {
        (Some(_), _) => "spec.version",
        (None, Some(channel)) => channel,
        (None, None) => "",
    };
    // Writing to a String cannot fail.
    let _ = if target.name == source {
        writeln!(text, "{source}: {version}")
    } else {
        writeln!(text, "{}: {version} (from {source})", target.name)
    };
    if let Some(current) = &target.current {
        let _ = writeln!(text, "  the current version is {current}");
    }
    let others = outcome
        .considered
        .iter()
        .filter(|verdict| outcome.version.as_deref() != Some(verdict.version));
    for verdict in others.clone().take(SHOWN) {
        let why: Vec<_> = verdict
            .refusals
            .iter()
            .map(|refusal| {
                let guard = refusal.guard().map(|guard| format!(" ({guard})"));
                format!("{}{}", refusal.reason(), guard.unwrap_or_default())
            })
            .collect();
        let why = if why.is_empty() {
            "passes, and is not the newest".to_owned()
        } else {
            why.join(", ")
        };
        let _ = writeln!(
            text,
            "  {}: {why}",
            crate::version::quoted(verdict.version).trim_matches('"')
        );
    }
    let more = others.count().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more; -o json has all");
    }
    text
}

fn as_json(outcome: &Outcome<'_>) -> Value {
    let target = outcome.target;
    let current = target.current.as_deref().map(munge);
    let considered: Vec<_> = outcome
        .considered
        .iter()
        .map(|verdict| {
            let refusals: Vec<_> = verdict
                .refusals
                .iter()
                .map(|refusal| {
                    json!({
                        "guard": refusal.guard(),
                        "reason": refusal.reason(),
                        "message": refusal.sentence(verdict.version, &target.policy, current.as_deref()),
                    })
                })
                .collect();
            json!({
                "version": verdict.version,
                "published": verdict.published.map(|at| at.to_string()),
                "since": verdict.since.to_string(),
                "passes": verdict.passes(),
                "refusals": refusals,
            })
        })
        .collect();
    let held = outcome.choice.held.as_ref();
    json!({
        "target": target.name,
        "source": if target.version.is_some() { "version" } else { "channel" },
        "channel": target.channel,
        "current": target.current,
        "version": outcome.version,
        "tag": outcome.version.as_deref().map(munge),
        "candidate": held.map(|held| held.version.clone()),
        "reason": held.map(|held| held.refusal.reason()),
        "message": held.map(|held| held.message.clone()),
        "due": outcome.choice.due.map(|due| due.to_string()),
        "withdrawn": outcome.choice.withdrawn,
        "error": outcome.error,
        "considered": considered,
    })
}
