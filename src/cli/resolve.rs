//! `refit resolve`: queries channels, and shows which version would be taken and why others are held back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::channel_access::{ChannelFlags, Offers};
use super::chosen::{FILES, is_chosen, no_plan, unknown};
use super::output_format::{OutputFormat, any_of};
use super::render::all_are_read;
use super::{USAGE, output, validate};
use refit_api::names::ANNOTATION_APPROVE;
use refit_api::validate::validate as validate_plan;
use refit_api::{ChannelStatus, Plan, Reason, redacted};
use refit_base::go::GoDuration;
use refit_base::version::policy::{Choice, Offered, Policy, PolicyInputs, Verdict, choose, consider};
use refit_base::version::tag::munge;
use refit_base::version::{Range, Version};
use refit_channel::with_scheme;
use refit_cluster::clock::Clock;
use refit_offline::gitops::check::{ReadPlan, read_plan};
use refit_offline::gitops::objects::{Object, objects};
use refit_offline::gitops::pin::wrong_version;
use refit_offline::gitops::{Rule, Source};

pub(super) const EXAMPLES: &str = "Examples:
  refit resolve https://update.k3s.io/v1-release/channels/stable
  refit resolve plan.yaml                       what the controller would choose now, and why
  refit resolve github://k3s-io/k3s --range 1.33.x --minimum-age 72h
  VERSION=$(refit resolve -o name https://update.k3s.io/v1-release/channels/stable)
  kubectl get plan server -o yaml | refit resolve -";

/// Maximum number of refused versions in the text output.
const SHOWN: usize = 20;

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// URLs of channels, or files, folders, patterns and - with Plans
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,

    /// Take only versions in this range, such as '>=1.33 <1.35', '1.33.x' or '~1.33'
    #[arg(long, value_name = "RANGE", value_parser = range)]
    range: Option<Range>,

    /// Take only versions that have been out for this long, such as 72h: since the release if the channel dates it,
    /// otherwise since the time in a Plan's status
    #[arg(long, value_name = "DURATION", value_parser = age)]
    minimum_age: Option<SignedDuration>,

    /// Also take a version that is older than the current one, or cannot be compared with it
    #[arg(long)]
    allow_downgrade: bool,

    /// The current version [default: that of the Plan's status]
    #[arg(long, value_name = "VERSION")]
    current: Option<String>,

    /// Only the Plan of this name, such as k3s-server or system-upgrade/k3s-server. May be repeated
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    plan: Vec<String>,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Name, OutputFormat::Json]))]
    output: OutputFormat,

    #[command(flatten)]
    channels: ChannelFlags,
}

fn range(text: &str) -> Result<Range, String> {
    text.parse()
        .map_err(|error: refit_base::version::RangeError| error.to_string())
}

fn age(text: &str) -> Result<SignedDuration, String> {
    match text.parse::<GoDuration>() {
        Ok(age) if !age.is_negative() => Ok(SignedDuration::from_nanos(age.as_nanos())),
        Ok(age) => Err(format!("{age} is negative; write for example 72h")),
        Err(error) => Err(format!("{error}; write for example 72h")),
    }
}

struct Target {
    /// The URL, or file, line and Plan.
    name: String,
    channel: Option<String>,
    /// `spec.version`, which takes precedence over a channel.
    version: Option<String>,
    current: Option<String>,
    policy: Policy,
    seen: BTreeMap<String, Timestamp>,
    approved: Option<String>,
    /// What the Plan's image installs.
    installed: Option<&'static str>,
}

struct Outcome<'a> {
    target: &'a Target,
    version: Option<String>,
    choice: Choice,
    considered: Vec<Verdict<'a>>,
    error: Option<String>,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    // An argument that names an existing file is a file.
    let recognised = flags.targets.iter().map(|target| {
        if Path::new(target).exists() {
            target.clone()
        } else {
            with_scheme(target)
        }
    });
    let (urls, files): (Vec<_>, Vec<_>) = recognised.partition(|target| target.contains("://"));
    let mut failed = false;
    let mut sources = Vec::new();
    let mut targets: Vec<_> = urls
        .into_iter()
        .map(|url| target_of_channel(flags, url))
        .collect();
    if !files.is_empty() {
        let unread;
        (sources, unread) = validate::read(&files);
        failed |= unread;
        let titles: Vec<_> = sources
            .iter()
            .flat_map(|source| objects(&source.stream.documents))
            .filter(Object::is_plan)
            .map(|plan| {
                let name = plan.metadata("name").unwrap_or_default();
                (name.to_owned(), plan.title())
            })
            .collect();
        if let Some(why) = unknown(&flags.plan, &titles, FILES) {
            output::error(why);
            return Ok(ExitCode::from(USAGE));
        }
        for source in &sources {
            failed |= !add_targets_of_plans(flags, source, &mut targets);
        }
    }
    if targets.is_empty() {
        if !failed {
            output::error(no_plan(&sources));
        }
        return Ok(ExitCode::from(USAGE));
    }
    let channels: BTreeSet<_> = targets
        .iter()
        .filter(|target| target.version.is_none())
        .filter_map(|target| target.channel.clone())
        .collect();
    let answers = flags.channels.ask(channels)?;
    let now = Clock::system().now();
    let offers = offers(&answers);
    let outcomes: Vec<_> = targets
        .iter()
        .map(|target| resolve(target, &answers, &offers, now))
        .collect();
    print_outcomes(flags.output, &outcomes)?;
    let none = outcomes.iter().any(|outcome| outcome.version.is_none());
    Ok(if failed {
        ExitCode::from(USAGE)
    } else if none {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn offers(answers: &Offers) -> BTreeMap<&str, Offered> {
    answers
        .iter()
        .filter_map(|(channel, answer)| Some((channel.as_str(), Offered::from(answer.as_ref().ok()?))))
        .collect()
}

fn target_of_channel(flags: &Flags, url: String) -> Target {
    Target {
        name: redacted(&url).into_owned(),
        channel: Some(url),
        version: None,
        current: flags.current.clone(),
        policy: amended(Policy::default(), flags),
        seen: BTreeMap::new(),
        approved: None,
        installed: None,
    }
}

/// The policy with the flags applied, which take precedence.
fn amended(mut policy: Policy, flags: &Flags) -> Policy {
    policy.is_given |= flags.range.is_some() || flags.minimum_age.is_some() || flags.allow_downgrade;
    policy.range = flags.range.clone().or(policy.range);
    policy.minimum_age = flags.minimum_age.unwrap_or(policy.minimum_age);
    policy.allow_downgrade |= flags.allow_downgrade;
    policy
}

/// Adds the Plans of a file. Returns false if one of them cannot be read.
fn add_targets_of_plans(flags: &Flags, source: &Source, targets: &mut Vec<Target>) -> bool {
    let mut fine = all_are_read(std::slice::from_ref(source));
    for object in objects(&source.stream.documents)
        .iter()
        .filter(|object| object.is_plan())
    {
        let name = object.metadata("name").unwrap_or_default();
        if !is_chosen(&flags.plan, name, &object.title()) {
            continue;
        }
        let line = source.position(object.node.offset()).line;
        let title = format!("{}:{line}: Plan {}", source.name, object.title());
        if let Some(why) = wrong_version(source, object) {
            output::error(format_args!("{title}: {why}"));
            fine = false;
            continue;
        }
        let ReadPlan { plan, refused, .. } = read_plan(source, object);
        // Which of two versions counts depends on the reader.
        if let Some(found) = refused.iter().find(|found| found.rule == Rule::DuplicateKey) {
            output::error(format_args!(
                "{}:{}: Plan {}: {}",
                source.name,
                found.position.line,
                object.title(),
                found.message
            ));
            fine = false;
            continue;
        }
        match target_of_plan(flags, title, &plan) {
            Ok(target) => targets.push(target),
            Err(why) => {
                output::error(why);
                fine = false;
            }
        }
    }
    fine
}

fn target_of_plan(flags: &Flags, title: String, plan: &Plan) -> Result<Target, String> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let spec = &plan.spec;
    let (version, channel) = (given(&spec.version), given(&spec.channel));
    if version.is_none() && channel.is_none() && spec.is_on_request() {
        return Err(format!(
            "{title}: it has spec.trigger and no version, so there is nothing to resolve"
        ));
    }
    if version.is_none() && channel.is_none() {
        return Err(format!(
            "{title}: it has neither spec.version nor spec.channel; add one of them"
        ));
    }
    if version.is_none() && (spec.channel_secret_ref.is_some() || spec.channel_ca_secret_ref.is_some()) {
        output::note(format_args!(
            "{title}: refit does not read its Secrets; give the credentials of its channel with --token-file and --ca-file"
        ));
    }
    // The controller resolves no Plan that it finds invalid.
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let parsed = validate_plan(name, spec).map_err(|errors| format!("{title}: {errors}"))?;
    let policy = parsed.version_policy.unwrap_or_default();
    let status = plan.status.as_ref();
    let stored = status.and_then(|status| status.channel.as_ref());
    let shown = channel.as_deref().map(redacted);
    // If the channel was edited since, the times in status are of another channel's versions.
    let stored = stored.filter(|stored| stored.url.as_deref() == shown.as_deref());
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
        seen: stored.map(ChannelStatus::first_seen).unwrap_or_default(),
        approved: annotations.and_then(|annotations| annotations.get(ANNOTATION_APPROVE).cloned()),
        installed: spec.installed(),
    })
}

fn resolve<'a>(
    target: &'a Target,
    answers: &Offers,
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
    let inputs = PolicyInputs {
        current: current.as_deref(),
        oldest: None,
        oldest_follower: None,
        seen: &target.seen,
        approved: target.approved.as_deref(),
        installed: target.installed,
        withdrawn: None,
        polled: now,
        now,
    };
    outcome.considered = consider(&target.policy, offered, &inputs);
    let number = |verdict: &Verdict<'_>| verdict.version.parse::<Version>().ok().map(|v| v.sort_key());
    outcome.considered.sort_by(|one, other| {
        let by_number = number(other).cmp(&number(one));
        by_number.then_with(|| other.version.cmp(one.version))
    });
    outcome.choice = choose(&target.policy, offered, &inputs);
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

fn print_outcomes(format: OutputFormat, outcomes: &[Outcome<'_>]) -> anyhow::Result<()> {
    for outcome in outcomes {
        if let Some(error) = &outcome.error {
            output::error(format_args!("{}: {error}", outcome.target.name));
        }
    }
    match format {
        OutputFormat::Json => {
            let targets: Vec<_> = outcomes.iter().map(as_json).collect();
            output::json(&format!("{:#}\n", json!({ "targets": targets })))
        }
        OutputFormat::Name => output::text(&outcomes.iter().fold(String::new(), |mut data, outcome| {
            // Writing to a String cannot fail.
            let _ = writeln!(data, "{}", outcome.version.as_deref().unwrap_or_default());
            data
        })),
        _ => output::text(&outcomes.iter().map(as_text).collect::<String>()),
    }
    .context("the answer cannot be printed")
}

fn as_text(outcome: &Outcome<'_>) -> String {
    let target = outcome.target;
    let mut text = String::new();
    let version = outcome.version.as_deref().unwrap_or("no version");
    let source = match (&target.version, &target.channel) {
        (Some(_), _) => "spec.version",
        (None, Some(channel)) => &redacted(channel),
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
                format!("{}{}", Reason::from(refusal), guard.unwrap_or_default())
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
            refit_base::version::quoted(verdict.version).trim_matches('"')
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
                        "reason": Reason::from(refusal).name(),
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
        "channel": target.channel.as_deref().map(redacted),
        "current": target.current,
        "version": outcome.version,
        "tag": outcome.version.as_deref().map(munge),
        "candidate": held.map(|held| held.version.clone()),
        "reason": held.map(|held| Reason::from(&held.refusal).name()),
        "message": held.map(|held| held.message.clone()),
        "due": outcome.choice.due.map(|due| due.to_string()),
        "withdrawn": outcome.choice.withdrawn,
        "error": outcome.error,
        "considered": considered,
    })
}
