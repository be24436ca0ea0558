//! `refit rehearse`: a roll-out on a cluster in this process, in a time of its own.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

mod context;
mod lines;
mod live;
mod screen;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::ask::Asking;
use super::cluster::Connection;
use super::{USAGE, output, validate};
use crate::api::Plan;
use crate::channel::{ChannelError, Offer};
use crate::clock::Clock;
use crate::controller::settings::{Flags as ControllerFlags, Notice, Settings};
use crate::gitops::check::is_placeholder;
use crate::rehearse::assume::{Assumptions, Fail, Span};
use crate::rehearse::input::{self, Given, GivenPlan};
use crate::rehearse::nodes::{self, Asks};
use crate::rehearse::play::{Answers, PlayError, Rehearsal, Stage, play, secrets};
use crate::rehearse::report::report;
use crate::rehearse::snapshot::{self, Snapshot, SnapshotError};

pub(super) const EXAMPLES: &str = "Examples:
  refit rehearse examples/k3s-upgrade.yaml --nodes 12
      on twelve nodes that are made up, with labels that the Plans ask for
  kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml > cluster.yaml
  refit rehearse plan.yaml --snapshot cluster.yaml
      on the nodes, pods and budgets of a cluster, in the order in which the controller would take them
  refit rehearse plan.yaml --snapshot context
      on the cluster of the current context, which is read once
  kustomize build clusters/prod | refit rehearse - --nodes 40 --upgrade 4m..9m --fail 5% -q
      what a cluster would get, with other times and some failures; only the result
  refit rehearse plan.yaml --start 2026-03-06T21:30:00Z
      on a Friday evening, half an hour before the window opens";

/// Nodes that are made up where nobody says anything.
const NODES: usize = 12;
/// More nodes than any cluster has.
const MOST_NODES: usize = 20_000;
/// What a channel is taken to give.
const VERSION: &str = "v1.34.1";
/// When a rehearsal on a cluster that is made up starts: a Monday morning, always the same.
const START: Timestamp = Timestamp::constant(1_767_603_600, 0);
/// Word for the cluster of the current context.
const CONTEXT: &str = "context";
/// Name of the controller; which one it is changes nothing.
const CONTROLLER: &str = "system-upgrade-controller";
/// Settings of the manifests that refit ships.
const CONFIG: &str = include_str!("../../deploy/config.yaml");

/// Arguments of `refit rehearse`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Files, folders, patterns, or - for standard input. Not needed with --snapshot: then its own Plans are played
    #[arg(value_name = "PLAN", required_unless_present = "snapshot")]
    files: Vec<String>,

    /// Make up so many nodes, with labels that the Plans ask for, and workloads [default: 12]
    #[arg(long, value_name = "NUMBER", conflicts_with = "snapshot", value_parser = node_count)]
    nodes: Option<usize>,

    /// Cluster to start from: a file with what `kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml` prints (or -o
    /// json), - for standard input, or the word "context" to read it from the current context
    #[arg(long, value_name = "FILE|-|context")]
    snapshot: Option<String>,

    /// Only the Plan of this name. May be repeated
    #[arg(long, value_name = "NAME")]
    plan: Vec<String>,

    /// Namespace of the controller: only Plans in it count [default: that of the Plans]
    #[arg(long, short = 'n', value_name = "NAME")]
    namespace: Option<String>,

    /// ConfigMap with the controller's environment variables [default: that of the manifests]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print only the result
    #[arg(long, short = 'q')]
    quiet: bool,

    /// How the result is printed
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "text")]
    output: Format,

    #[command(flatten)]
    assumed: Assumed,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    asking: Asking,
}

/// What is taken for granted.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Assumptions")]
struct Assumed {
    /// How long `prepare` takes, once the Plan that it waits for is through
    #[arg(long, value_name = "TIME", default_value = "5s")]
    prepare: Span,

    /// How long a pod takes to end when it is evicted; its own grace period is the limit
    #[arg(long, value_name = "TIME", default_value = "20s")]
    drain: Span,

    /// How long `upgrade` takes, the same for each node every time
    #[arg(long, value_name = "TIME", default_value = "2m..5m")]
    upgrade: Span,

    /// How long a node takes to reboot
    #[arg(long, value_name = "TIME", default_value = "2m..4m")]
    reboot: Span,

    /// How long a pod takes to start
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pod_start: Span,

    /// Nodes whose upgrade fails: names, or a share such as 5%. May be repeated, or given several with commas between them
    #[arg(long, value_name = "NODE|SHARE", value_delimiter = ',')]
    fail: Vec<Fail>,

    /// What everything that is random follows from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// When the controller starts: 2026-03-06T22:00:00Z, 2026-03-06T22:00 (UTC), 2026-03-06, or "now"
    /// [default: the newest time in the snapshot; without one, 2026-01-05T09:00:00Z, a Monday]
    #[arg(long, value_name = "TIME", value_parser = start)]
    start: Option<Start>,

    /// How long to look into the future
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=3650))]
    limit: u16,

    /// Version that channels give [default: what the Plan has resolved to in the snapshot, or v1.34.1]
    #[arg(long, value_name = "VERSION", conflicts_with = "online")]
    version: Option<String>,

    /// Ask the channels for their version
    #[arg(long)]
    online: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// What happens line by line, then tables and the verdict
    Text,
    /// One object with everything
    Json,
}

/// When a rehearsal starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Now,
    At(Timestamp),
}

fn start(text: &str) -> Result<Start, String> {
    if text == "now" {
        return Ok(Start::Now);
    }
    let wrong =
        || "write a time such as 2026-03-06T22:00:00Z, 2026-03-06T22:00 (UTC), 2026-03-06, or now".to_owned();
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Start::At(at));
    }
    let civil: jiff::civil::DateTime = text.parse().map_err(|_| wrong())?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wrong())?;
    Ok(Start::At(zoned.timestamp()))
}

fn node_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST_NODES).contains(count));
    count.ok_or_else(|| format!("must be a number from 1 to {MOST_NODES}"))
}

/// Why there is nothing to rehearse. Each is told with exit code 2.
#[derive(Debug, thiserror::Error)]
enum BadInput {
    #[error("{0}")]
    Told(String),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("{name}: {source}")]
    Unreadable { name: String, source: std::io::Error },
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (rehearsal, assumed) = match prepare(flags) {
        Ok(prepared) => prepared,
        Err(error) => {
            if error.downcast_ref::<AlreadyTold>().is_none() {
                output::error(output::with_causes(&error));
            }
            return Ok(ExitCode::from(USAGE));
        }
    };
    for line in &assumed {
        output::note(format_args!("assumed: {line}"));
    }
    let mut live = live::Live::new(&rehearsal, flags.quiet || flags.output == Format::Json);
    let played = play(&rehearsal, &mut |happening| live.hear(happening));
    let outcome = match played {
        Ok(outcome) => outcome,
        Err(error @ (PlayError::UnknownNode(_) | PlayError::Refused { .. })) => {
            output::error(error);
            return Ok(ExitCode::from(USAGE));
        }
        Err(error) => return Err(error.into()),
    };
    let report = report(&outcome, flags.assumed.seed, assumed);
    live.end(&report);
    let text = match flags.output {
        Format::Text => report.to_text(),
        Format::Json => report.to_json(),
    };
    output::data(&text).context("the result cannot be printed")?;
    if flags.output == Format::Json {
        output::note(&report.verdict.line);
    }
    Ok(if report.verdict.complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// All that was wrong has been told.
#[derive(Debug, thiserror::Error)]
#[error("nothing is rehearsed")]
struct AlreadyTold;

/// Reads everything, and says what is assumed.
fn prepare(flags: &Flags) -> anyhow::Result<(Rehearsal, Vec<String>)> {
    let (sources, unread) = validate::read(&flags.files);
    if unread {
        return Err(AlreadyTold.into());
    }
    let mut given = input::read(&sources);
    if !given.mistakes.is_empty() {
        given.mistakes.iter().for_each(output::error);
        return Err(AlreadyTold.into());
    }
    given.notes.iter().for_each(output::note);
    let snapshot = read_snapshot(flags)?;
    choose(flags, &mut given, snapshot.as_ref())?;
    let namespace = namespace(flags, &mut given, snapshot.as_ref())?;
    let start = match (flags.assumed.start, &snapshot) {
        (Some(Start::At(at)), _) => at,
        (Some(Start::Now), _) => whole_second(Clock::system().now()),
        (None, Some(snapshot)) => snapshot.taken.map_or(START, whole_second),
        (None, None) => START,
    };
    let assumptions = Assumptions {
        seed: flags.assumed.seed,
        prepare: flags.assumed.prepare,
        drain: flags.assumed.drain,
        upgrade: flags.assumed.upgrade,
        reboot: flags.assumed.reboot,
        pod_start: flags.assumed.pod_start,
        fail: flags.assumed.fail.clone(),
    };
    let mut assumed = Vec::new();
    let stage = stage(flags, &given, snapshot, &namespace, &mut assumed);
    let answers = answers(flags, &mut given, &stage, &mut assumed)?;
    missing_secrets(&given, &mut assumed);
    assumed.push(assumptions.told());
    assumed.push(format!(
        "the controller starts at {}; seed {}",
        start.strftime("%a %Y-%m-%d %H:%M:%S UTC"),
        assumptions.seed
    ));
    let plans = if given.plans.is_empty() {
        match &stage {
            Stage::Snapshot(snapshot) => snapshot.plans.clone(),
            Stage::Generated { .. } => Vec::new(),
        }
    } else {
        given.plans.iter().map(|plan| plan.value.clone()).collect()
    };
    let rehearsal = Rehearsal {
        plans,
        objects: given.objects,
        stage,
        assumptions,
        settings: settings(flags, &namespace)?,
        answers,
        start,
        limit: SignedDuration::from_hours(24 * i64::from(flags.assumed.limit)),
    };
    let failing: Vec<&str> = rehearsal.failing()?.into_iter().collect();
    if !failing.is_empty() {
        assumed.push(format!("the upgrade fails on {}", failing.join(", ")));
    }
    Ok((rehearsal, assumed))
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn read_snapshot(flags: &Flags) -> anyhow::Result<Option<Snapshot>> {
    let Some(name) = &flags.snapshot else {
        return Ok(None);
    };
    let (name, objects) = match name.as_str() {
        CONTEXT => {
            let (objects, missing) = context::objects(&flags.connection)?;
            missing.iter().for_each(output::note);
            ("the cluster".to_owned(), objects)
        }
        "-" if flags.files.iter().any(|file| file == "-") => {
            let why = "Plans and --snapshot cannot both come from standard input";
            return Err(BadInput::Told(why.to_owned()).into());
        }
        "-" => {
            let name = "<stdin>".to_owned();
            let text = std::io::read_to_string(std::io::stdin().lock());
            let text = text.map_err(|source| BadInput::Unreadable {
                name: name.clone(),
                source,
            })?;
            let objects = snapshot::parse(&name, &text).map_err(BadInput::from)?;
            (name, objects)
        }
        path => {
            let text = std::fs::read_to_string(path).map_err(|source| BadInput::Unreadable {
                name: path.to_owned(),
                source,
            })?;
            let objects = snapshot::parse(path, &text).map_err(BadInput::from)?;
            (path.to_owned(), objects)
        }
    };
    let snapshot = snapshot::take(&name, objects).map_err(BadInput::from)?;
    Ok(Some(snapshot))
}

/// Leaves the Plans that were asked for.
fn choose(flags: &Flags, given: &mut Given, snapshot: Option<&Snapshot>) -> Result<(), BadInput> {
    let on_cluster = snapshot
        .map(|snapshot| snapshot.plans.as_slice())
        .unwrap_or_default();
    for wanted in &flags.plan {
        if !given.plans.iter().any(|plan| plan.name() == wanted) {
            let names: Vec<&str> = given.plans.iter().map(GivenPlan::name).collect();
            return Err(BadInput::Told(format!(
                "--plan {wanted}: there is no such Plan in these files{}",
                if names.is_empty() {
                    String::new()
                } else {
                    format!(", only {}", names.join(", "))
                }
            )));
        }
    }
    if !flags.plan.is_empty() {
        given
            .plans
            .retain(|plan| flags.plan.iter().any(|wanted| wanted == plan.name()));
    }
    if given.plans.is_empty() && (!flags.files.is_empty() || on_cluster.is_empty()) {
        let whence = if flags.files.is_empty() {
            "the snapshot"
        } else {
            "these files"
        };
        return Err(BadInput::Told(format!("there is no Plan in {whence}")));
    }
    Ok(())
}

/// The namespace of the controller, which carries out the Plans of one.
fn namespace(flags: &Flags, given: &mut Given, snapshot: Option<&Snapshot>) -> Result<String, BadInput> {
    let on_cluster = snapshot.into_iter().flat_map(|snapshot| &snapshot.plans);
    let all: BTreeSet<String> = if given.plans.is_empty() {
        let of = |plan: &Value| {
            plan["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        on_cluster.map(of).collect()
    } else {
        given
            .plans
            .iter()
            .map(|plan| plan.namespace().to_owned())
            .collect()
    };
    let names = || all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match (&flags.namespace, all.len()) {
        (Some(namespace), _) if !all.contains(namespace) => Err(BadInput::Told(format!(
            "--namespace {namespace}: there is no Plan in it, only in {}",
            names()
        ))),
        (Some(namespace), _) => {
            given.plans.retain(|plan| {
                let counts = plan.namespace() == namespace;
                if !counts {
                    output::note(format_args!(
                        "{}: Plan {}/{} is not in the controller's namespace, and passed over",
                        plan.place,
                        plan.namespace(),
                        plan.name()
                    ));
                }
                counts
            });
            Ok(namespace.clone())
        }
        (None, 0 | 1) => Ok(all
            .iter()
            .next()
            .cloned()
            .unwrap_or_else(|| input::NAMESPACE.to_owned())),
        (None, count) => Err(BadInput::Told(format!(
            "the Plans are in {count} namespaces ({}), and a controller carries out those of one: say which with \
             --namespace",
            names()
        ))),
    }
}

/// The cluster: as it was, or made up.
fn stage(
    flags: &Flags,
    given: &Given,
    snapshot: Option<Snapshot>,
    namespace: &str,
    assumed: &mut Vec<String>,
) -> Stage {
    if let Some(mut snapshot) = snapshot {
        // Plans of other namespaces are not this controller's.
        snapshot
            .plans
            .retain(|plan| plan["metadata"]["namespace"] == namespace);
        assumed.push(format!(
            "{} nodes as they were at {}",
            snapshot.nodes.len(),
            snapshot
                .taken
                .map_or_else(|| "some time".to_owned(), |at| at.to_string())
        ));
        assumed.extend(snapshot.notes.iter().cloned());
        if given.plans.iter().any(|plan| !is_on(&snapshot, plan)) {
            assumed.push(
                "the order of the nodes follows from UIDs, and a Plan that is not on the cluster yet has none: another one \
                 is as likely"
                    .to_owned(),
            );
        }
        return Stage::Snapshot(Box::new(snapshot));
    }
    let asks: Vec<Asks<'_>> = given
        .plans
        .iter()
        .map(|plan| Asks {
            plan: plan.name(),
            selector: plan.plan.spec.node_selector.as_ref(),
        })
        .collect();
    let generated = nodes::generate(flags.nodes.unwrap_or(NODES), &asks);
    let names: Vec<String> = generated
        .nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    assumed.extend(generated.assumed);
    assumed.push(nodes::workloads_told(names.len()));
    let grace = flags.assumed.drain.most().as_secs().max(1) + 10;
    Stage::Generated {
        workloads: nodes::workloads(&names, grace),
        nodes: generated.nodes,
    }
}

fn is_on(snapshot: &Snapshot, given: &GivenPlan) -> bool {
    snapshot
        .plans
        .iter()
        .any(|plan| plan["metadata"]["name"] == given.name())
}

/// What channels give. Versions that somebody else fills in count as channels.
fn answers(
    flags: &Flags,
    given: &mut Given,
    stage: &Stage,
    assumed: &mut Vec<String>,
) -> anyhow::Result<Answers> {
    let stored: Vec<Plan> = match stage {
        Stage::Snapshot(snapshot) => snapshot
            .plans
            .iter()
            .filter_map(|plan| serde_json::from_value(plan.clone()).ok())
            .collect(),
        Stage::Generated { .. } => Vec::new(),
    };
    let version = flags.assumed.version.as_deref();
    for plan in &mut given.plans {
        let written = plan.plan.spec.version.clone().unwrap_or_default();
        if is_placeholder(&written) {
            let version = version.unwrap_or(VERSION);
            plan.value["spec"]["version"] = version.into();
            assumed.push(format!(
                "Plan {}: version {version} for {written} (--version says another)",
                plan.name()
            ));
        }
    }
    let follows = |plan: &Plan| {
        let has_version = plan
            .spec
            .version
            .as_ref()
            .is_some_and(|version| !version.is_empty());
        let channel = plan.spec.channel.clone().unwrap_or_default();
        (!has_version && !channel.is_empty()).then_some(channel)
    };
    let channels: BTreeSet<String> = given
        .plans
        .iter()
        .map(|plan| &plan.plan)
        .chain(&stored)
        .filter_map(follows)
        .collect();
    if flags.assumed.online {
        let answers = flags.asking.ask(channels)?;
        for (channel, answer) in &answers {
            match answer {
                Ok(offer) => output::note(format_args!("{channel} gives {}", releases(offer))),
                Err(error) => output::note(format_args!("{channel} gives no version: {error}")),
            }
        }
        return Ok(Arc::new(move |url| {
            let unknown = || Err(ChannelError::Failed("it was not asked".to_owned()));
            answers.get(url).cloned().unwrap_or_else(unknown)
        }));
    }
    // A channel that was asked by the cluster is taken to say what it said then.
    let resolved: BTreeMap<String, String> = stored
        .iter()
        .filter_map(|plan| Some((follows(plan)?, plan.status.as_ref()?.latest_version.clone()?)))
        .filter(|_| version.is_none())
        .collect();
    for channel in channels {
        let known = resolved.get(&channel);
        let version = version.or(known.map(String::as_str)).unwrap_or(VERSION);
        assumed.push(format!(
            "the channel {channel} gives {version} (--version says another, --online asks)"
        ));
    }
    let fallback = version.unwrap_or(VERSION).to_owned();
    Ok(Arc::new(move |url| {
        let version = resolved.get(url).unwrap_or(&fallback);
        Ok(Offer::one(version.clone()))
    }))
}

/// What a channel offers, in a few words.
fn releases(offer: &Offer) -> String {
    let newest = offer.newest().map_or("nothing", |release| &release.version);
    match offer.releases.len() {
        0 | 1 => newest.to_owned(),
        count => format!("{count} releases, of which {newest} is the newest"),
    }
}

/// Secrets that are in no file.
fn missing_secrets(given: &Given, assumed: &mut Vec<String>) {
    for plan in &given.plans {
        for name in secrets(&plan.value) {
            let is_it = |object: &&Value| {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
                object["kind"] == "Secret"
                    && object["metadata"]["name"] == name
                    && namespace == plan.namespace()
            };
            if !given.objects.iter().any(|object| is_it(&object)) {
                assumed.push(format!("Secret {}/{name} is there, and empty", plan.namespace()));
            }
        }
    }
}

/// The controller's settings: those of a ConfigMap, and nothing of this process, so that everybody sees the same.
fn settings(flags: &Flags, namespace: &str) -> anyhow::Result<Settings> {
    let (name, text) = match &flags.config {
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
            (name, text)
        }
        None => ("deploy/config.yaml".to_owned(), CONFIG.to_owned()),
    };
    let map: ConfigMap = serde_saphyr::from_str(&text).with_context(|| format!("{name}: not a ConfigMap"))?;
    let data = map.data.unwrap_or_default();
    let controller = ControllerFlags {
        name: Some(CONTROLLER.to_owned()),
        namespace: Some(namespace.to_owned()),
        leader_elect: Some(false),
        ..ControllerFlags::default()
    };
    let (settings, notices) = Settings::resolve(controller, &|name| data.get(name).cloned(), "rehearsal")
        .with_context(|| name.clone())?;
    for notice in notices {
        if let Notice::Error(text) = notice {
            output::note(format_args!("{name}: {text}"));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_time_of_any_usual_form() {
        let at = |text: &str| text.parse::<Timestamp>().map(Start::At).unwrap();
        for (text, same) in [
            ("2026-03-06T22:00:00Z", "2026-03-06T22:00:00Z"),
            ("2026-03-06T22:00:00+01:00", "2026-03-06T21:00:00Z"),
            ("2026-03-06T22:00", "2026-03-06T22:00:00Z"),
            ("2026-03-06", "2026-03-06T00:00:00Z"),
        ] {
            assert_eq!(start(text), Ok(at(same)), "{text}");
        }
        assert_eq!(start("now"), Ok(Start::Now));
        for wrong in ["tomorrow", "22:00", "2026-13-01", ""] {
            assert!(start(wrong).is_err(), "{wrong}");
        }
        assert_eq!(START.to_string(), "2026-01-05T09:00:00Z");
    }

    #[test]
    fn a_number_of_nodes_is_one_that_a_cluster_has() {
        assert_eq!(node_count("12"), Ok(12));
        for wrong in ["0", "-1", "many", "100000"] {
            assert_eq!(
                node_count(wrong),
                Err("must be a number from 1 to 20000".to_owned()),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_settings_that_are_shipped_can_be_read() {
        let map: ConfigMap = serde_saphyr::from_str(CONFIG).unwrap();
        assert!(map.data.unwrap().contains_key("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT"));
    }
}
