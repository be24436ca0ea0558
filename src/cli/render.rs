//! `refit render`: the Job for a Plan on a node and the Pod that reboots it, from the controller's own code and
//! settings.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

mod live;
mod node;
mod secret;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde::Serialize;

use super::channel_access::ChannelFlags;
use super::chosen::{FILES, is_chosen, no_plan, unknown};
use super::cluster::Connection;
use super::output_format::{OutputFormat, any_of};
use super::{USAGE, defaults, output, validate};
use live::LiveCluster;
use node::{NodeFacts, node, unselected};
use refit_api::{Hook, Plan, PlanSpec};
use refit_controller::own_image::OF_THIS_BUILD;
use refit_controller::settings::{Flags as ControllerFlags, Notice, Settings};
use refit_job::{
    HookInput, JobInput, JobSettings, NodeInput, PlanInput, RebootInput, RebootPodMode, VerifyInput, digest,
    inputs, name,
};
use refit_offline::gitops::objects::{Object, objects};
use refit_offline::gitops::pin::wrong_version;
use refit_offline::gitops::{Finding, Source, check};
use secret::{is_named, secret};
use version::version;

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

    /// Label of the node, instead of its known labels; a node with labels must match the Plan's selector. May be repeated or
    /// comma-separated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
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
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "yaml", value_parser = any_of(&[OutputFormat::Yaml, OutputFormat::Json]))]
    output: OutputFormat,

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

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
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
        // A Plan may be in a file or a document that cannot be read.
        let is_read = all_are_read(&sources);
        match unknown(&flags.plan, &names, FILES) {
            Some(why) => output::error(why),
            None if is_read => output::error(no_plan(&sources)),
            None => {}
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
    // kubectl refuses a file with a broken document.
    let mut failed = !all_are_read(&sources);
    let mut printed = BTreeSet::new();
    for (source, object) in plans {
        let check::ReadPlan {
            plan,
            refused,
            assumed,
            ..
        } = check::read_plan(source, object);
        if !refused.is_empty() {
            refused.iter().for_each(print_finding);
            failed = true;
            continue;
        }
        assumed.iter().for_each(output::note);
        let wrong = wrong_version(source, object).filter(|_| flags.version.is_none());
        if let Some(why) = wrong {
            output::error(format_args!(
                "{}:{}: Plan {}: {why}, or give one with --version",
                source.name,
                source.position(object.node.offset()).line,
                object.title()
            ));
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
        OutputFormat::Json => output::json(&text),
        _ => output::data(&text),
    }
    .context("the Jobs cannot be printed")?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints what is not YAML, and Plans that are not recognised; false if there is any.
pub(super) fn all_are_read(sources: &[Source]) -> bool {
    let errors = sources.iter().flat_map(|source| {
        let errors = source.stream.errors.iter();
        errors.map(move |error| (source, error))
    });
    let mut is_read = true;
    for (source, error) in errors {
        is_read = false;
        let line = source.position(error.offset).line;
        let remedy = source.render_first();
        output::error(format_args!(
            "{}:{line}: this is not YAML: {error}{remedy}",
            source.name
        ));
    }
    for found in sources.iter().flat_map(check::missed_plans) {
        is_read = false;
        print_finding(&found);
    }
    is_read
}

fn print_finding(found: &Finding) {
    output::error(format_args!(
        "{}:{}:{}: {} [{}]",
        found.file, found.position.line, found.position.column, found.message, found.rule
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
            shares_hostname: false,
            may_be_new: false,
        },
        name: &job_name,
        attempt: flags.attempt,
        // As in the controller: only kubectl, used on Windows, keeps no ledger on the node.
        unschedulable_before: on_windows.then_some(node.unschedulable),
    };
    // Errors for which the controller would not start a node.
    let mut errors = refit_job::check(&input.plan, &settings).errors.into_iter();
    if let Some(error) = errors.find(|error| on_windows || !error.is_for_windows()) {
        return Err(error.into());
    }
    let mut objects = vec![RenderedObject::Job(Box::new(refit_job::render(
        &input, &settings,
    )?))];
    if plan.spec.has_sentinel() {
        objects.push(RenderedObject::Pod(Box::new(reboot_pod(
            &input, node, &settings,
        )?)));
    }
    let verify = VerifyInput {
        plan: input.plan,
        node: input.node,
        attempt: flags.attempt,
        upgrade_job: NO_UID,
    };
    let verify = refit_job::verify_job(&verify, &settings)?;
    objects.extend(verify.map(|job| RenderedObject::Job(Box::new(job))));
    for hook in Hook::ALL {
        objects.extend(hook_job(&input.plan, hook, &settings)?.map(|job| RenderedObject::Job(Box::new(job))));
    }
    Ok(objects)
}

/// The Job that runs once for each roll-out, at its first attempt.
fn hook_job(plan: &PlanInput<'_>, hook: Hook, settings: &JobSettings) -> anyhow::Result<Option<Job>> {
    let Some(inputs) = inputs::hook_inputs(plan.spec, hook, plan.latest_version) else {
        return Ok(None);
    };
    let name = name::hook_job_name(hook, [plan.name, plan.uid], plan.latest_hash, &inputs, 1);
    let input = HookInput {
        plan: *plan,
        hook,
        name: &name,
        attempt: 1,
    };
    Ok(refit_job::hook_job(&input, settings)?)
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
        name_is_taken: false,
        critical: true,
    };
    Ok(refit_job::reboot_pod(&input, settings)?)
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
        OF_THIS_BUILD.clone_into(&mut jobs.own_image);
        let text = format!(
            "refit's image is assumed to be {}, because that of the controller is not known; set REFIT_IMAGE to it",
            jobs.own_image
        );
        if printed.insert(text.clone()) {
            output::note(text);
        }
    }
    Ok(jobs)
}

fn print(format: OutputFormat, objects: &[RenderedObject]) -> anyhow::Result<String> {
    Ok(match (format, objects) {
        (_, []) => String::new(),
        (OutputFormat::Json, [one]) => format!("{}\n", serde_json::to_string_pretty(one)?),
        (OutputFormat::Json, several) => {
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": several });
            format!("{list:#}\n")
        }
        (_, objects) => {
            let documents: Result<Vec<_>, _> = objects.iter().map(serde_saphyr::to_string).collect();
            documents?.join("---\n")
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
