//! `refit render`: the Job for a Plan on a node, and the Pod that reboots it, made by the same code and settings as the
//! controller's.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

mod live;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use serde::Serialize;

use super::ask::Asking;
use super::cluster::Connection;
use super::{USAGE, output, validate};
use crate::api::selector::Selector;
use crate::api::{Plan, PlanSpec, names};
use crate::channel::version;
use crate::clock::Clock;
use crate::controller::own_image::DEFAULT_IMAGE;
use crate::controller::settings::{Flags as ControllerFlags, Notice, Settings};
use crate::gitops::objects::{Object, objects};
use crate::gitops::pin::{Verdict, judge};
use crate::gitops::{Finding, Source, check};
use crate::job::{
    self, Errand, JobInput, JobSettings, NodeInput, PlanInput, RebootInput, digest, inputs, name,
};
use live::Live;

pub(super) const EXAMPLES: &str = "Examples:
  refit render plan.yaml --node worker-1
      offline, for a Linux node of which nothing else is known
  refit render plan.yaml --node worker-1 --version v1.33.4+k3s1
      without asking the channel
  kubectl get node worker-1 -o yaml > node.yaml; refit render plan.yaml --node-file node.yaml
      with the node's UID, system and labels
  refit render plan.yaml --node worker-1 --config deploy/config.yaml
      with the controller's settings
  refit render plan.yaml --node worker-1 --live
      with UIDs, secrets and settings of a cluster";

/// What stands for a UID that only a cluster knows.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";
/// The controller's usual name, and its namespace.
const CONTROLLER: &str = "system-upgrade-controller";
const NAMESPACE: &str = "system-upgrade";

/// Arguments of `refit render`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Files, folders, patterns, or - for standard input; Secrets in them count towards the hash
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Name of the node
    #[arg(long, value_name = "NAME", required_unless_present = "node_file")]
    node: Option<String>,

    /// Node as `kubectl get node NAME -o yaml` prints it: name, UID, labels
    #[arg(long, value_name = "FILE", conflicts_with_all = ["node", "live"])]
    node_file: Option<PathBuf>,

    /// Label of the node, in place of what is known of it; a node with labels is held against the Plan's selector
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,

    /// Operating system of the node [default: its label, or linux]
    #[arg(long, value_enum)]
    os: Option<Os>,

    /// Only the Plan of this name. May be repeated
    #[arg(long, value_name = "NAME")]
    plan: Vec<String>,

    /// Version of the Plan, in place of its own, and of its channel's answer
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// ConfigMap with the controller's environment variables; what this process has itself counts more
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Name of the controller
    #[arg(long, value_name = "NAME", default_value = CONTROLLER)]
    name: String,

    /// Which attempt on this node it is
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    attempt: u32,

    /// Read Plan UID, Node, Secrets and settings from the cluster; nothing is written there
    #[arg(long)]
    live: bool,

    /// How Jobs and Pods are printed
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "yaml")]
    output: Format,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    asking: Asking,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Os {
    Linux,
    Windows,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Documents
    Yaml,
    /// An object; a List where there are several
    Json,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The node as far as it is known.
#[derive(Clone, Debug, Default)]
struct NodeFacts {
    name: String,
    uid: Option<String>,
    /// Nothing where nobody has said any.
    labels: Option<BTreeMap<String, String>>,
    os: Option<String>,
    unschedulable: bool,
    boot_id: Option<String>,
}

/// What the controller makes.
#[derive(Serialize)]
#[serde(untagged)]
enum Made {
    Job(Box<Job>),
    Pod(Box<Pod>),
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (sources, unread) = validate::read(&flags.files);
    if unread {
        return Ok(ExitCode::from(USAGE));
    }
    let objects: Vec<(&Source, Object<'_>)> = sources
        .iter()
        .flat_map(|source| {
            objects(&source.stream.documents)
                .into_iter()
                .map(move |object| (source, object))
        })
        .collect();
    let plans: Vec<_> = objects
        .iter()
        .filter(|(_, object)| object.is_plan())
        .filter(|(_, object)| {
            let name = object.metadata("name").unwrap_or_default();
            flags.plan.is_empty() || flags.plan.iter().any(|plan| plan == name)
        })
        .collect();
    if plans.is_empty() {
        output::error("there is no such Plan in these files");
        for (source, error) in sources
            .iter()
            .flat_map(|s| s.stream.errors.iter().map(move |e| (s, e)))
        {
            let line = source.place(error.offset).line;
            output::error(format_args!("{}:{line}: this is not YAML: {error}", source.name));
        }
        return Ok(ExitCode::from(USAGE));
    }
    let secrets: Vec<Secret> = objects.iter().filter_map(|(_, object)| secret(object)).collect();
    let live = flags.live.then(|| Live::connect(&flags.connection)).transpose()?;
    let node = node(flags, live.as_ref())?;

    let mut made = Vec::new();
    let mut failed = false;
    for (source, object) in plans {
        let (plan, refused) = check::read_plan(source, object);
        if !refused.is_empty() {
            refused.iter().for_each(say);
            failed = true;
            continue;
        }
        match render(flags, &plan, &node, &secrets, live.as_ref()) {
            Ok(found) if found.is_empty() => failed = true,
            Ok(found) => made.extend(found),
            Err(error) => {
                failed = true;
                output::error(format_args!(
                    "Plan {}: {}",
                    object.title(),
                    output::with_causes(&error)
                ));
            }
        }
    }
    output::data(&print(flags.output, &made)?).context("the Jobs cannot be printed")?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn say(found: &Finding) {
    output::error(format_args!(
        "{}:{}:{}: {} [{}]",
        found.file, found.place.line, found.place.column, found.message, found.rule
    ));
}

fn render(
    flags: &Flags,
    plan: &Plan,
    node: &NodeFacts,
    secrets: &[Secret],
    live: Option<&Live>,
) -> anyhow::Result<Vec<Made>> {
    let plan_name = plan.metadata.name.as_deref().unwrap_or_default();
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_else(|| {
        output::note(format_args!(
            "Plan {plan_name}: its namespace is taken to be {NAMESPACE}"
        ));
        NAMESPACE
    });
    let stored = live
        .map(|live| live.plan(namespace, plan_name))
        .transpose()?
        .flatten();
    let settings = settings(flags, namespace, live)?;
    let version = version(flags, plan, stored.as_ref())?;
    let mut hashes = Vec::new();
    for wanted in digest::hashed_secrets(&plan.spec) {
        let found = match live {
            Some(live) => live.secret(namespace, wanted)?,
            None => None,
        };
        let of_files = || {
            secrets
                .iter()
                .find(|secret| is_named(secret, namespace, wanted))
                .cloned()
        };
        match found.or_else(of_files) {
            Some(secret) => hashes.push(digest::secret_hash(&secret)),
            None => output::note(format_args!(
                "Plan {plan_name}: Secret {wanted} is not known; the hash, and what has it in its name, is without it"
            )),
        }
    }
    let hash = digest::plan_hash(plan, &version, hashes);
    if !is_selected(plan, node, &hash)? {
        output::error(format_args!(
            "Plan {plan_name} does not select node {}: no Job is made",
            node.name
        ));
        return Ok(Vec::new());
    }
    let digests = pinned(stored.as_ref().unwrap_or(plan), &plan.spec, &hash);
    let uid = stored.and_then(|plan| plan.metadata.uid);
    if uid.is_none() || node.uid.is_none() {
        output::note(format_args!(
            "Plan {plan_name}: UIDs that only a cluster knows are {NO_UID}"
        ));
    }
    let on_windows = node.os.as_deref() == Some("windows");
    let job_name = name::job_name(plan_name, &node.name, &hash);
    let inputs = inputs::inputs(&plan.spec, &version);
    let input = JobInput {
        plan: PlanInput {
            name: plan_name,
            namespace,
            uid: uid.as_deref().unwrap_or(NO_UID),
            labels: plan.metadata.labels.as_ref(),
            annotations: plan.metadata.annotations.as_ref(),
            spec: &plan.spec,
            latest_version: &version,
            latest_hash: &hash,
            inputs: &inputs,
            digests: &digests,
        },
        node: NodeInput {
            name: &node.name,
            uid: node.uid.as_deref().unwrap_or(NO_UID),
            os: node.os.as_deref(),
        },
        name: &job_name,
        attempt: flags.attempt,
        // As the controller does: only kubectl, on Windows, keeps no ledger on the node.
        unschedulable_before: on_windows.then_some(node.unschedulable),
    };
    // What the controller would not even start a node for.
    let mut errors = job::check(&input.plan, &settings).errors.into_iter();
    if let Some(error) = errors.find(|error| on_windows || !error.is_for_windows()) {
        return Err(error.into());
    }
    let mut made = vec![Made::Job(Box::new(job::render(&input, &settings)?))];
    if plan.spec.may_reboot() {
        made.push(Made::Pod(Box::new(reboot_pod(&input, node, &settings)?)));
    }
    Ok(made)
}

/// The Pod that reboots the node once its Job has succeeded, as it is asked for first.
fn reboot_pod(job: &JobInput<'_>, node: &NodeFacts, settings: &JobSettings) -> anyhow::Result<Pod> {
    let boot_id = node.boot_id.as_deref().unwrap_or_else(|| {
        output::note(format_args!(
            "Plan {}: the boot of the node, which --live or --node-file tells, is {NO_UID}",
            job.plan.name
        ));
        NO_UID
    });
    let timeout = job.plan.spec.reboot_or_default().timeout()?;
    let input = RebootInput {
        plan: job.plan,
        node: job.node,
        hash: job.plan.latest_hash,
        errand: Errand::Reboot { boot_id },
        seconds: timeout.as_secs(),
        critical: true,
    };
    Ok(job::reboot_pod(&input, settings)?)
}

fn version(flags: &Flags, plan: &Plan, stored: Option<&Plan>) -> anyhow::Result<String> {
    let given = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    let resolved = |plan: &Plan| {
        plan.status
            .as_ref()
            .and_then(|status| status.latest_version.clone())
    };
    let follows_same = |stored: &&Plan| {
        stored.spec.channel == plan.spec.channel && given(stored.spec.version.as_ref()).is_none()
    };
    let version =
        if let Some(version) = given(flags.version.as_ref()).or_else(|| given(plan.spec.version.as_ref())) {
            version
        } else if let Some(version) = stored
            .filter(follows_same)
            .and_then(resolved)
            .filter(|v| !v.is_empty())
        {
            version
        } else {
            let channel = plan.spec.channel.clone().unwrap_or_default();
            let answers = flags.asking.ask([channel.clone()].into())?;
            match answers.into_values().next() {
                Some(answer) => {
                    let offer = answer.map_err(|error| {
                        anyhow!("the channel {channel:?} gives no version ({error}); --version gives one")
                    })?;
                    let policy = plan.spec.version_policy()?;
                    match judge(None, &offer, &policy, Clock::system().now()) {
                        Verdict::Take(version) => version,
                        Verdict::Refused(why) => bail!("{why}; --version gives it a version"),
                        Verdict::Kept(why) => bail!("{why}; --version gives it a version"),
                        Verdict::Same => bail!("it has no version; --version gives it one"),
                    }
                }
                None => bail!("it has neither version nor channel; --version gives it one"),
            }
        };
    let munged = version::munge(&version);
    version::check(&munged)?;
    Ok(munged)
}

/// The controller's own settings: its environment here, its ConfigMap, its defaults.
fn settings(flags: &Flags, namespace: &str, live: Option<&Live>) -> anyhow::Result<JobSettings> {
    // Who may not read the Deployment has the settings by other means, and is told.
    let pod = match live.map(|live| live.deployed(namespace, &flags.name)).transpose() {
        Ok(pod) => pod.flatten(),
        Err(error) => {
            output::note(format_args!(
                "{error}; the controller's settings are those of this environment"
            ));
            None
        }
    };
    let mut config = match live.zip(pod.as_ref()) {
        Some((live, pod)) => live.environment(namespace, pod)?,
        None => BTreeMap::new(),
    };
    if let Some(path) = &flags.config {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let map: ConfigMap =
            serde_saphyr::from_str(&text).with_context(|| format!("{}: not a ConfigMap", path.display()))?;
        config.extend(map.data.unwrap_or_default());
    }
    let lookup = |name: &str| std::env::var(name).ok().or_else(|| config.get(name).cloned());
    let controller = ControllerFlags {
        name: Some(flags.name.clone()),
        namespace: Some(namespace.to_owned()),
        ..ControllerFlags::default()
    };
    let (settings, notices) = Settings::resolve(controller, &lookup, "")?;
    for notice in notices {
        if let Notice::Error(text) = notice {
            output::note(text);
        }
    }
    let mut jobs = settings.jobs;
    if let Some(pod) = pod {
        live::fill_in_image(&mut jobs, pod);
    }
    if jobs.own_image.is_empty() {
        DEFAULT_IMAGE.clone_into(&mut jobs.own_image);
    }
    Ok(jobs)
}

fn node(flags: &Flags, live: Option<&Live>) -> anyhow::Result<NodeFacts> {
    let read: Option<Node> = match (&flags.node_file, live, &flags.node) {
        (Some(path), _, _) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let node =
                serde_saphyr::from_str(&text).with_context(|| format!("{}: not a Node", path.display()))?;
            Some(node)
        }
        (None, Some(live), Some(name)) => Some(live.node(name)?),
        _ => None,
    };
    let mut facts = match read {
        Some(node) => NodeFacts {
            name: node.metadata.name.unwrap_or_default(),
            uid: node.metadata.uid,
            labels: Some(node.metadata.labels.unwrap_or_default()),
            os: None,
            boot_id: node
                .status
                .and_then(|status| status.node_info)
                .map(|info| info.boot_id),
            unschedulable: node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
        },
        None => NodeFacts {
            name: flags.node.clone().unwrap_or_default(),
            ..NodeFacts::default()
        },
    };
    if facts.name.is_empty() {
        bail!("the node has no name");
    }
    if !flags.label.is_empty() {
        let labels = facts.labels.get_or_insert_default();
        // Every node has this one from its kubelet.
        labels
            .entry(names::LABEL_HOSTNAME.to_owned())
            .or_insert_with(|| facts.name.clone());
        labels.extend(flags.label.iter().cloned());
    }
    facts.os = match flags.os {
        Some(Os::Windows) => Some("windows".to_owned()),
        Some(Os::Linux) => Some("linux".to_owned()),
        None => facts
            .labels
            .as_ref()
            .and_then(|labels| labels.get(names::LABEL_OS).cloned()),
    };
    if let (Some(os), Some(labels)) = (&facts.os, &mut facts.labels) {
        labels.insert(names::LABEL_OS.to_owned(), os.clone());
    }
    Ok(facts)
}

/// Whether the Plan is for the node; where nobody has said what labels it has, it is taken to be.
fn is_selected(plan: &Plan, node: &NodeFacts, hash: &str) -> anyhow::Result<bool> {
    let Some(labels) = &node.labels else {
        return Ok(true);
    };
    let selector =
        Selector::new(plan.spec.node_selector.as_ref())?.and(Selector::exists(names::LABEL_HOSTNAME)?);
    let done = labels.get(&name::plan_label_key(
        plan.metadata.name.as_deref().unwrap_or_default(),
    ));
    let skipped = done.is_some_and(|value| value == names::LABEL_VALUE_DISABLED || value == hash);
    Ok(selector.matches(labels) && !skipped)
}

fn is_named(secret: &Secret, namespace: &str, name: &str) -> bool {
    let of = secret.metadata.namespace.as_deref().unwrap_or(namespace);
    of == namespace && secret.metadata.name.as_deref() == Some(name)
}

/// A Secret in the files, as the API server stores it.
fn secret(object: &Object<'_>) -> Option<Secret> {
    if object.kind != "Secret" || object.api_version != "v1" {
        return None;
    }
    let mut secret: Secret = serde_json::from_value(object.node.to_json()).ok()?;
    let written = secret.string_data.take().unwrap_or_default();
    if !written.is_empty() {
        let data = secret.data.get_or_insert_default();
        data.extend(
            written
                .into_iter()
                .map(|(key, text)| (key, ByteString(text.into_bytes()))),
        );
    }
    secret.type_.get_or_insert_with(|| "Opaque".to_owned());
    Some(secret)
}

fn print(format: Format, made: &[Made]) -> anyhow::Result<String> {
    Ok(match (format, made) {
        (_, []) => String::new(),
        (Format::Yaml, made) => {
            let documents: Result<Vec<_>, _> = made.iter().map(serde_saphyr::to_string).collect();
            documents?.join("---\n")
        }
        (Format::Json, [one]) => format!("{}\n", serde_json::to_string_pretty(one)?),
        (Format::Json, several) => {
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": several });
            format!("{list:#}\n")
        }
    })
}

/// The digests that status has of the Plan's images at this hash.
fn pinned(known: &Plan, spec: &PlanSpec, hash: &str) -> BTreeMap<String, String> {
    let pinned = known.status.as_ref().and_then(|status| status.pinned.as_ref());
    let pinned = pinned.filter(|pinned| spec.pins_digests() && pinned.hash == hash);
    let images = pinned.into_iter().flat_map(|pinned| &pinned.images);
    images
        .map(|pinned| (pinned.image.clone(), pinned.digest.clone()))
        .collect()
}
