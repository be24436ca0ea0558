//! `refit render`: the Job for a Plan on a node and the Pod that reboots it, from the controller's own code and
//! settings.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

mod live;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use super::channel_access::ChannelFlags;
use super::chosen::{NO_PLAN, is_chosen, unknown};
use super::cluster::Connection;
use super::{USAGE, defaults, output, validate};
use crate::api::selector::{Selector, explain};
use crate::api::{Plan, PlanSpec, names};
use crate::clock::Clock;
use crate::controller::own_image::DEFAULT_IMAGE;
use crate::controller::settings::{Flags as ControllerFlags, Notice, Settings};
use crate::gitops::input::read_text;
use crate::gitops::objects::{Object, objects};
use crate::gitops::pin::{Verdict, decide_version};
use crate::gitops::{Finding, Source, check};
use crate::job::{
    self, JobInput, JobSettings, NodeInput, PlanInput, RebootInput, RebootPodMode, digest, inputs, name,
};
use crate::version::policy::Offered;
use crate::version::tag::{check, munge};
use live::LiveCluster;

pub(super) const EXAMPLES: &str = "Examples:
  refit render plan.yaml --node worker-1
      offline, for a Linux node with unknown labels
  refit render plan.yaml --node worker-1 --version v1.33.4+k3s1
      without a request to the channel
  kubectl get node worker-1 -o yaml > node.yaml; refit render plan.yaml --node-file node.yaml
      with the node's UID, system and labels
  refit render plan.yaml --node worker-1 --config deploy/config.yaml
      with the controller's settings
  refit render plan.yaml --node worker-1 --live
      with UIDs, secrets and settings of a cluster";

/// Placeholder for a UID, which only a cluster assigns.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";
/// The controller's default name and namespace.
const CONTROLLER: &str = "system-upgrade-controller";
const NAMESPACE: &str = "system-upgrade";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Files, folders, patterns, or - for standard input; Secrets in them are included in the hash
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Name of the node
    #[arg(long, value_name = "NAME", required_unless_present = "node_file")]
    node: Option<String>,

    /// Node as `kubectl get node NAME -o yaml` prints it: name, UID, labels
    #[arg(long, value_name = "FILE", conflicts_with_all = ["node", "live"])]
    node_file: Option<PathBuf>,

    /// Label of the node, instead of its known labels; a node with labels must match the Plan's selector
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,

    /// Operating system of the node [default: its label, or linux]
    #[arg(long, value_enum)]
    os: Option<Os>,

    /// Only the Plan of this name, such as k3s-server or system-upgrade/k3s-server. May be repeated
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    plan: Vec<String>,

    /// Version of the Plan, instead of its own and its channel's
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// ConfigMap with the controller's environment variables; the environment of this process takes precedence [default:
    /// that of the manifests]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Name of the controller
    #[arg(long, value_name = "NAME", default_value = CONTROLLER)]
    name: String,

    /// Number of the attempt on this node
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    attempt: u32,

    /// Read the Plan's UID, Node, Secrets and settings from the cluster; writes nothing
    #[arg(long)]
    live: bool,

    /// Format of Jobs and Pods
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "yaml")]
    output: Format,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    channels: ChannelFlags,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Os {
    Linux,
    Windows,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// YAML documents
    Yaml,
    /// A JSON object; a List if there are several
    Json,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[derive(Clone, Debug, Default)]
struct NodeFacts {
    name: String,
    uid: Option<String>,
    /// `None` if the labels are unknown.
    labels: Option<BTreeMap<String, String>>,
    os: Option<String>,
    unschedulable: bool,
    boot_id: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RenderedObject {
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
            is_chosen(
                &flags.plan,
                object.metadata("name").unwrap_or_default(),
                &object.title(),
            )
        })
        .collect();
    if plans.is_empty() {
        let all = objects.iter().filter(|(_, object)| object.is_plan());
        let names: Vec<_> = all
            .map(|(_, object)| {
                let name = object.metadata("name").unwrap_or_default();
                (name.to_owned(), object.title())
            })
            .collect();
        output::error(unknown(&flags.plan, &names).unwrap_or_else(|| NO_PLAN.to_owned()));
        for (source, error) in sources
            .iter()
            .flat_map(|s| s.stream.errors.iter().map(move |e| (s, e)))
        {
            let line = source.place(error.offset).line;
            let remedy = source.render_first();
            output::error(format_args!(
                "{}:{line}: this is not YAML: {error}{remedy}",
                source.name
            ));
        }
        return Ok(ExitCode::from(USAGE));
    }
    let secrets: Vec<Secret> = objects.iter().filter_map(|(_, object)| secret(object)).collect();
    let live = flags
        .live
        .then(|| LiveCluster::connect(&flags.connection))
        .transpose()?;
    let node = node(flags, live.as_ref())?;

    let mut objects = Vec::new();
    let mut failed = false;
    let mut printed = BTreeSet::new();
    for (source, object) in plans {
        let check::ReadPlan { plan, refused, .. } = check::read_plan(source, object);
        if !refused.is_empty() {
            refused.iter().for_each(print_finding);
            failed = true;
            continue;
        }
        match render(flags, &plan, &node, &secrets, live.as_ref(), &mut printed) {
            Ok(found) if found.is_empty() => failed = true,
            Ok(found) => objects.extend(found),
            Err(error) => {
                failed = true;
                output::error(format_args!(
                    "Plan {}: {}",
                    object.title(),
                    output::error_chain(&error)
                ));
            }
        }
    }
    let text = print(flags.output, &objects)?;
    match flags.output {
        Format::Yaml => output::data(&text),
        Format::Json => output::json(&text),
    }
    .context("the Jobs cannot be printed")?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn print_finding(found: &Finding) {
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
    live: Option<&LiveCluster>,
    printed: &mut BTreeSet<String>,
) -> anyhow::Result<Vec<RenderedObject>> {
    let plan_name = plan.metadata.name.as_deref().unwrap_or_default();
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_else(|| {
        output::note(format_args!(
            "Plan {plan_name}: it has no namespace; assuming {NAMESPACE}"
        ));
        NAMESPACE
    });
    let stored = live
        .map(|live| live.plan(namespace, plan_name))
        .transpose()?
        .flatten();
    let settings = settings(flags, namespace, live, printed)?;
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
                "Plan {plan_name}: no file has Secret {wanted}; the hash and the names that contain it will differ on the cluster"
            )),
        }
    }
    let hash = digest::plan_hash(plan, &version, hashes);
    if let Some(why) = unselected(plan, node, &hash)? {
        output::error(format_args!(
            "Plan {plan_name} does not select node {}: {why}; the controller would create no Job",
            node.name
        ));
        return Ok(Vec::new());
    }
    let digests = pinned(stored.as_ref().unwrap_or(plan), &plan.spec, &hash);
    let uid = stored.and_then(|plan| plan.metadata.uid);
    if uid.is_none() || node.uid.is_none() {
        output::note(format_args!(
            "Plan {plan_name}: UIDs that only the cluster knows are shown as {NO_UID}"
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
        // As in the controller: only kubectl, used on Windows, keeps no ledger on the node.
        unschedulable_before: on_windows.then_some(node.unschedulable),
    };
    // Errors for which the controller would not start a node.
    let mut errors = job::check(&input.plan, &settings).errors.into_iter();
    if let Some(error) = errors.find(|error| on_windows || !error.is_for_windows()) {
        return Err(error.into());
    }
    let mut objects = vec![RenderedObject::Job(Box::new(job::render(&input, &settings)?))];
    if plan.spec.may_reboot() {
        objects.push(RenderedObject::Pod(Box::new(reboot_pod(
            &input, node, &settings,
        )?)));
    }
    Ok(objects)
}

/// The Pod that reboots the node after its Job has succeeded, as the controller first requests it.
fn reboot_pod(job: &JobInput<'_>, node: &NodeFacts, settings: &JobSettings) -> anyhow::Result<Pod> {
    let boot_id = node.boot_id.as_deref().unwrap_or_else(|| {
        output::note(format_args!(
            "Plan {}: the boot ID of the node is shown as {NO_UID}; give it with --live or --node-file",
            job.plan.name
        ));
        NO_UID
    });
    let timeout = job.plan.spec.reboot_or_default().timeout()?;
    let input = RebootInput {
        plan: job.plan,
        node: job.node,
        hash: job.plan.latest_hash,
        mode: RebootPodMode::Reboot { boot_id },
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
            let answers = flags.channels.ask([channel.clone()].into())?;
            match answers.into_values().next() {
                Some(answer) => {
                    let offer = answer.map_err(|error| {
                        anyhow!("the channel {channel:?} gives no version ({error}); set one with --version")
                    })?;
                    let policy = plan.spec.version_policy()?;
                    let distribution = plan.spec.distribution();
                    match decide_version(
                        None,
                        distribution,
                        &Offered::from(&offer),
                        &policy,
                        Clock::system().now(),
                    ) {
                        Verdict::Take(version) => version,
                        Verdict::Refused(why) => bail!("{why}; set one with --version"),
                        Verdict::Kept(why) => bail!("{why}; set one with --version"),
                        Verdict::Same => bail!("it has no version; set one with --version"),
                    }
                }
                None => bail!("it has neither version nor channel; set a version with --version"),
            }
        };
    let munged = munge(&version);
    check(&munged)?;
    Ok(munged)
}

/// The controller's settings, in this order: the environment, its ConfigMap, the shipped manifests.
fn settings(
    flags: &Flags,
    namespace: &str,
    live: Option<&LiveCluster>,
    printed: &mut BTreeSet<String>,
) -> anyhow::Result<JobSettings> {
    // Reading the Deployment is optional; without permission there is a note.
    let pod = match live.map(|live| live.deployed(namespace, &flags.name)).transpose() {
        Ok(pod) => pod.flatten(),
        Err(error) => {
            output::note(format_args!(
                "{error}; using the controller's settings from this environment"
            ));
            None
        }
    };
    let mut config = match live.zip(pod.as_ref()) {
        Some((live, pod)) => live.environment(namespace, pod)?,
        None => BTreeMap::new(),
    };
    let is_given = flags.config.is_some() || pod.is_some();
    if !is_given || flags.config.is_some() {
        config.extend(defaults::config(flags.config.as_deref())?.1);
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
    if !is_given {
        let text = defaults::describe(&jobs);
        if printed.insert(text.clone()) {
            output::note(text);
        }
    }
    if let Some(pod) = pod {
        live::fill_in_image(&mut jobs, pod);
    }
    if jobs.own_image.is_empty() {
        DEFAULT_IMAGE.clone_into(&mut jobs.own_image);
    }
    Ok(jobs)
}

fn node(flags: &Flags, live: Option<&LiveCluster>) -> anyhow::Result<NodeFacts> {
    let read: Option<Node> = match (&flags.node_file, live, &flags.node) {
        (Some(path), _, _) => {
            let text = read_text(path)?;
            let node = serde_saphyr::from_str(&text)
                .with_context(|| format!("{}: the file has no Node", path.display()))?;
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
        // The kubelet sets this label on every node.
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

/// Why the Plan does not select the node. A node with unknown labels is assumed to be selected, as far as
/// the flags do not say otherwise.
fn unselected(plan: &Plan, node: &NodeFacts, hash: &str) -> anyhow::Result<Option<String>> {
    let Some(asked) = &plan.spec.node_selector else {
        return Ok(Some("it has no spec.nodeSelector".to_owned()));
    };
    let Some(labels) = &node.labels else {
        // The labels that the flags give.
        let given = [
            (names::LABEL_HOSTNAME, Some(&node.name)),
            (names::LABEL_OS, node.os.as_ref()),
        ];
        let given = given
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?.clone())));
        let given: BTreeMap<String, String> = given.collect();
        let is_given = |one: &explain::Requirement| given.contains_key(&one.key);
        return Ok(unmet(asked, &given, is_given));
    };
    let selector = Selector::new(Some(asked))?;
    let key = name::plan_label_key(plan.metadata.name.as_deref().unwrap_or_default());
    let done = labels.get(&key).map(String::as_str);
    if !selector.matches(labels) {
        return Ok(unmet(asked, labels, |_| true));
    }
    Ok(match done {
        _ if !labels.contains_key(names::LABEL_HOSTNAME) => Some(format!(
            "the node has no label {}, which its kubelet gives it",
            names::LABEL_HOSTNAME
        )),
        Some(names::LABEL_VALUE_DISABLED) => Some(format!(
            "the node's label {key}={} excludes it from the Plan; remove the label to include the node",
            names::LABEL_VALUE_DISABLED
        )),
        Some(value) if value == hash => Some(format!(
            "the node is done: its label {key} has the Plan's hash already"
        )),
        _ => None,
    })
}

/// The requirements of this kind that the labels do not meet.
fn unmet(
    asked: &LabelSelector,
    labels: &BTreeMap<String, String>,
    counts: impl Fn(&explain::Requirement) -> bool,
) -> Option<String> {
    let missing = explain::requirements(asked);
    let missing = missing.iter().filter(|one| counts(one) && !one.matches(labels));
    let missing = missing.map(|one| format!("{}, and {}", one.text(), explain::found(&one.key, labels)));
    let missing: Vec<String> = missing.collect();
    (!missing.is_empty()).then(|| format!("spec.nodeSelector requires {}", missing.join("; for ")))
}

fn is_named(secret: &Secret, namespace: &str, name: &str) -> bool {
    let of = secret.metadata.namespace.as_deref().unwrap_or(namespace);
    of == namespace && secret.metadata.name.as_deref() == Some(name)
}

/// A Secret in the files, as the API server would store it.
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

fn print(format: Format, objects: &[RenderedObject]) -> anyhow::Result<String> {
    Ok(match (format, objects) {
        (_, []) => String::new(),
        (Format::Yaml, objects) => {
            let documents: Result<Vec<_>, _> = objects.iter().map(serde_saphyr::to_string).collect();
            documents?.join("---\n")
        }
        (Format::Json, [one]) => format!("{}\n", serde_json::to_string_pretty(one)?),
        (Format::Json, several) => {
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": several });
            format!("{list:#}\n")
        }
    })
}

/// The image digests in status, if they are for this hash.
fn pinned(known: &Plan, spec: &PlanSpec, hash: &str) -> BTreeMap<String, String> {
    let pinned = known.status.as_ref().and_then(|status| status.pinned.as_ref());
    let pinned = pinned.filter(|pinned| spec.pins_digests() && pinned.hash == hash);
    let images = pinned.into_iter().flat_map(|pinned| &pinned.images);
    images
        .map(|pinned| (pinned.image.clone(), pinned.digest.clone()))
        .collect()
}
