//! Combines the input of a rehearsal from files, flags and a cluster, and assumes the rest.

use std::collections::BTreeSet;
use std::io::Read;

use anyhow::Context as _;
use jiff::Timestamp;

use super::channel_offers::resolved_version;
use super::context;
use super::flags::Flags;
use super::input::{self, InputPlan, RehearsalInput};
use crate::cli::chosen::{is_chosen, no_plan, unknown};
use crate::cli::{defaults, output};
use refit_api::prepare::Prepare;
use refit_base::version::is_upgrade_image;
use refit_controller::own_image;
use refit_controller::settings::{Flags as ControllerFlags, Notice, Settings};
use refit_offline::gitops::Source;
use refit_offline::gitops::input::{as_text, open};
use refit_rehearse::assumptions::Span;
use refit_rehearse::json::Value;
use refit_rehearse::nodes::PlanSelector;
use refit_rehearse::run::{ChannelOffers, InitialCluster, secrets};
use refit_rehearse::snapshot::{Snapshot, SnapshotError};
use refit_rehearse::upgrade_script::dependency;
use refit_rehearse::words::pluralized;
use refit_rehearse::{nodes, snapshot};

/// Default number of generated nodes.
const NODES: usize = 12;
/// The argument that stands for the cluster of the current context.
const CONTEXT: &str = "context";
/// Default name of the controller.
const CONTROLLER: &str = "system-upgrade-controller";

/// Why there is nothing to rehearse; exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadInput {
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("{name}: {source}")]
    Unreadable { name: String, source: std::io::Error },
}

pub(super) fn read_snapshot(flags: &Flags) -> anyhow::Result<Option<Snapshot>> {
    let Some(name) = &flags.snapshot else {
        return Ok(None);
    };
    let (name, objects) = match name.as_str() {
        CONTEXT => {
            let (objects, missing) = context::objects(&flags.connection, flags.namespace.as_deref())?;
            missing.iter().for_each(output::note);
            ("the cluster".to_owned(), objects)
        }
        "-" if flags.files.iter().any(|file| file == "-") => {
            let why = "Plans and --snapshot cannot both come from standard input";
            return Err(BadInput::Invalid(why.to_owned()).into());
        }
        "-" => {
            let name = "<stdin>".to_owned();
            let text = read_text(&name, std::io::stdin().lock())?;
            let objects = snapshot::parse(&name, &text).map_err(BadInput::from)?;
            (name, objects)
        }
        path => {
            let file = open(path.as_ref()).map_err(|error| BadInput::Invalid(error.to_string()))?;
            let text = read_text(path, file)?;
            let objects = snapshot::parse(path, &text).map_err(BadInput::from)?;
            (path.to_owned(), objects)
        }
    };
    let snapshot = snapshot::take(&name, objects).map_err(BadInput::from)?;
    Ok(Some(snapshot))
}

/// Reads the text of a snapshot, as far as its memory budget.
fn read_text(name: &str, from: impl Read) -> Result<String, BadInput> {
    let mut bytes = Vec::new();
    let read = from.take(snapshot::MAX_TEXT + 1).read_to_end(&mut bytes);
    let length = read.map_err(|source| BadInput::Unreadable {
        name: name.to_owned(),
        source,
    })?;
    if length as u64 > snapshot::MAX_TEXT {
        return Err(SnapshotError::TooLarge(name.to_owned()).into());
    }
    as_text(name.to_owned(), bytes).map_err(|error| BadInput::Invalid(error.to_string()))
}

/// Removes Plans that `--plan` does not select.
pub(super) fn choose(
    flags: &Flags,
    sources: &[Source],
    given: &mut RehearsalInput,
    snapshot: Option<&Snapshot>,
) -> Result<(), BadInput> {
    let on_cluster = snapshot
        .map(|snapshot| snapshot.plans.as_slice())
        .unwrap_or_default();
    let title = |plan: &InputPlan| format!("{}/{}", plan.namespace(), plan.name());
    let names = given
        .plans
        .iter()
        .map(|plan| (plan.name().to_owned(), title(plan)));
    let names: Vec<_> = names.chain(on_cluster.iter().map(names_of)).collect();
    let place = match (flags.files.is_empty(), snapshot) {
        (_, None) => "these files",
        (true, Some(_)) => "the snapshot",
        (false, Some(_)) => "these files and the snapshot",
    };
    if let Some(why) = unknown(&flags.plan, &names, place) {
        return Err(BadInput::Invalid(why));
    }
    if !flags.plan.is_empty() {
        let is_wanted = |plan: &InputPlan| is_chosen(&flags.plan, plan.name(), &title(plan));
        let all = std::mem::take(&mut given.plans);
        let (wanted, left_out): (Vec<_>, Vec<_>) = all.into_iter().partition(is_wanted);
        for plan in &wanted {
            let Some(awaited) = dependency(&plan.value["spec"]["prepare"]) else {
                continue;
            };
            let is_on_cluster = on_cluster
                .iter()
                .any(|one| one["metadata"]["name"] == awaited.as_str());
            if !is_on_cluster && left_out.iter().any(|one| one.name() == awaited) {
                let name = plan.name();
                output::note(format_args!(
                    "Plan {name} waits in `prepare` for Plan {awaited}, which --plan leaves out: add --plan {awaited}"
                ));
            }
        }
        for plan in &left_out {
            let name = plan.name();
            let why = if wanted.iter().any(|one| one.namespace() == plan.namespace()) {
                format!("is in the files, but left out by --plan; add --plan {name}")
            } else {
                elsewhere(plan.namespace())
            };
            given.absent.insert(name.to_owned(), why);
        }
        given.plans = wanted;
    }
    let is_from_files = !flags.files.is_empty();
    let is_chosen_there = !flags.plan.is_empty() && !chosen_on_cluster(flags, given, on_cluster).is_empty();
    if given.plans.is_empty() && !is_chosen_there && (is_from_files || on_cluster.is_empty()) {
        let why = if is_from_files {
            no_plan(sources)
        } else {
            "there is no Plan in the snapshot".to_owned()
        };
        return Err(BadInput::Invalid(why));
    }
    Ok(())
}

/// Name and title of a Plan of the snapshot.
fn names_of(plan: &Value) -> (String, String) {
    let name = plan.meta("name");
    (name.to_owned(), format!("{}/{name}", plan.meta("namespace")))
}

/// The Plans of the snapshot that `--plan` selects, unless a file has them.
pub(super) fn chosen_on_cluster(flags: &Flags, given: &RehearsalInput, on_cluster: &[Value]) -> Vec<Value> {
    let is_chosen = |plan: &&Value| {
        let (name, title) = names_of(plan);
        is_chosen(&flags.plan, &name, &title) && !given.plans.iter().any(|given| given.name() == name)
    };
    on_cluster.iter().filter(is_chosen).cloned().collect()
}

/// Remarks about `prepare` containers that wait for nothing, or whose command is not understood.
pub(super) fn unwaited(given: &RehearsalInput, assumed: &mut Vec<String>) {
    for plan in &given.plans {
        let Some(prepare) = &plan.plan.spec.prepare else {
            continue;
        };
        let name = plan.name();
        match Prepare::of(prepare) {
            Some(Prepare::Upgrades) => output::note(format_args!(
                "Plan {name}: its `prepare` upgrades the node at once and waits for no Plan; write `args: [prepare, <Plan of the control-plane nodes>]`"
            )),
            Some(Prepare::Nothing) => output::note(format_args!(
                "Plan {name}: its `prepare` does nothing and waits for no Plan; write `args: [prepare, <Plan of the control-plane nodes>]`"
            )),
            None if is_upgrade_image(&prepare.image) => assumed.push(format!(
                "Plan {name}: what its `prepare` runs is unknown to refit, and succeeds"
            )),
            Some(_) | None => {}
        }
    }
}

/// Waves that the rehearsal approves.
pub(super) fn approved(given: &RehearsalInput, assumed: &mut Vec<String>) {
    for plan in &given.plans {
        let waves = plan.plan.spec.waves().unwrap_or_default();
        let waves: Vec<_> = waves
            .iter()
            .filter(|wave| wave.approval)
            .map(|wave| wave.name.as_str())
            .collect();
        if !waves.is_empty() {
            assumed.push(format!(
                "Plan {}: someone approves {} as soon as it is over",
                plan.name(),
                waves.join(" and ")
            ));
        }
    }
}

/// The answers to checks, which a rehearsal does not ask.
pub(super) fn checked(
    flags: &Flags,
    given: &RehearsalInput,
    assumed: &mut Vec<String>,
) -> Result<(), BadInput> {
    let mut known = BTreeSet::new();
    for plan in &given.plans {
        let checks = plan.plan.spec.checks().unwrap_or_default();
        let names: Vec<String> = checks.into_iter().map(|check| check.name).collect();
        known.extend(names.iter().cloned());
        let passing = names.iter().filter(|name| {
            !flags
                .assumed
                .fail_check
                .iter()
                .any(|(failing, _)| failing == *name)
        });
        let passing: Vec<&str> = passing.map(String::as_str).collect();
        if !passing.is_empty() {
            assumed.push(format!(
                "Plan {}: no server is asked for {}, which {}",
                plan.name(),
                passing.join(" and "),
                if passing.len() == 1 { "passes" } else { "pass" }
            ));
        }
    }
    for (name, time) in &flags.assumed.fail_check {
        if !known.contains(name) {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let known = if known.is_empty() {
                "no Plan has checks".to_owned()
            } else {
                format!("the Plans have {}", known.join(", "))
            };
            return Err(BadInput::Invalid(format!(
                "--fail-check {name}: there is no such check; {known}"
            )));
        }
        let until = time.map_or_else(
            || "always".to_owned(),
            |time| format!("for {} from the start", Span::of(time)),
        );
        assumed.push(format!("check {name} fails {until}"));
    }
    Ok(())
}

/// Without a request, a Plan on request would do nothing.
pub(super) fn requests(plans: &[Value], cluster: &mut InitialCluster, assumed: &mut Vec<String>) {
    let is_on_request = |plan: &&Value| plan["spec"]["trigger"].is_string();
    let Some(plan) = plans.iter().find(is_on_request) else {
        return;
    };
    if cluster.request_reboots() {
        let name = plan.meta("name");
        assumed.push(format!(
            "every node needs a reboot: no Node says so, and Plan {name} has spec.trigger"
        ));
    }
}

/// Why `prepare` and `dependsOn` do not find a Plan of another namespace.
pub(super) fn elsewhere(namespace: &str) -> String {
    format!(
        "is in namespace {namespace}, and a Plan waits only for Plans of its own; name one of those, or move one of the two"
    )
}

/// The namespace of the controller, which handles the Plans of one namespace.
pub(super) fn namespace(
    flags: &Flags,
    given: &mut RehearsalInput,
    snapshot: Option<&Snapshot>,
) -> Result<String, BadInput> {
    let on_cluster = snapshot.into_iter().flat_map(|snapshot| &snapshot.plans);
    let all: BTreeSet<String> = if given.plans.is_empty() {
        let of = |plan: &Value| plan.meta("namespace").to_owned();
        let chosen = on_cluster.filter(|plan| {
            let (name, title) = names_of(plan);
            is_chosen(&flags.plan, &name, &title)
        });
        chosen.map(of).collect()
    } else {
        given
            .plans
            .iter()
            .map(|plan| plan.namespace().to_owned())
            .collect()
    };
    let names = || all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match (&flags.namespace, all.len()) {
        (Some(namespace), _) if !all.contains(namespace) => Err(BadInput::Invalid(format!(
            "--namespace {namespace}: this namespace has no Plan; the Plans are in {}",
            names()
        ))),
        (Some(namespace), _) => {
            let absent = &mut given.absent;
            given.plans.retain(|plan| {
                let counts = plan.namespace() == namespace;
                if !counts {
                    absent.insert(plan.name().to_owned(), elsewhere(plan.namespace()));
                    output::note(format_args!(
                        "{}: Plan {}/{}: skipped, it is not in the controller's namespace {namespace}",
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
        (None, count) => Err(BadInput::Invalid(format!(
            "the Plans are in {count} namespaces ({}), but a controller handles only one; choose it with --namespace",
            names()
        ))),
    }
}

fn is_on(snapshot: &Snapshot, given: &InputPlan) -> bool {
    snapshot
        .plans
        .iter()
        .any(|plan| plan["metadata"]["name"] == given.name())
}

/// The cluster from the snapshot, or a generated one.
pub(super) fn initial_cluster(
    flags: &Flags,
    given: &RehearsalInput,
    snapshot: Option<Snapshot>,
    answers: &ChannelOffers,
    assumed: &mut Vec<String>,
) -> InitialCluster {
    if let Some(snapshot) = snapshot {
        let taken = snapshot.taken.map_or_else(
            || "a snapshot without times".to_owned(),
            |at| format!("the snapshot of {at}"),
        );
        let nodes = pluralized(snapshot.nodes.len(), "node");
        assumed.push(format!("{nodes} as in {taken}"));
        assumed.extend(snapshot.notes.iter().cloned());
        if given.plans.iter().any(|plan| !is_on(&snapshot, plan)) {
            assumed.push(
                "the order of nodes depends on the UID of the Plan, which a new Plan does not have yet; the cluster may choose another order"
                    .to_owned(),
            );
        }
        return InitialCluster::Snapshot(Box::new(snapshot));
    }
    let versions: Vec<Option<String>> = given
        .plans
        .iter()
        .map(|plan| resolved_version(plan, answers))
        .collect();
    let selector: Vec<PlanSelector<'_>> = given
        .plans
        .iter()
        .zip(&versions)
        .map(|(plan, version)| {
            let spec = &plan.plan.spec;
            PlanSelector {
                plan: plan.name(),
                selector: spec.node_selector.as_ref(),
                image: plan.value["spec"]["upgrade"]["image"]
                    .as_str()
                    .unwrap_or_default(),
                version: version.as_deref(),
                channel: spec.channel.as_deref(),
                installs_kubernetes: spec.installs_kubernetes(),
            }
        })
        .collect();
    let kubelet = flags.assumed.kubelet.as_deref();
    let mut generated = nodes::generate(flags.nodes.unwrap_or(NODES), &selector, kubelet);
    let names: Vec<String> = generated
        .nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    assumed.extend(generated.assumed);
    let specs = given.plans.iter().map(|plan| plan.plan.spec.settle_or_default());
    let conditions = specs.flat_map(|settle| settle.conditions.iter().flatten());
    assumed.extend(nodes::add_conditions(&mut generated.nodes, conditions));
    assumed.push(nodes::describe_workloads(names.len()));
    // The grace period limits how long an evicted pod takes, so it has to be longer than the assumed time.
    let grace = flags.assumed.drain.most().as_secs().max(1) + 10;
    InitialCluster::Generated {
        workloads: nodes::workloads(&names, grace),
        nodes: generated.nodes,
    }
}

/// Errors about images that their registries do not have, so that no node would start.
pub(super) fn missing_images(
    flags: &Flags,
    given: &RehearsalInput,
    answers: &ChannelOffers,
    now: Timestamp,
) -> anyhow::Result<Vec<String>> {
    let images = given.plans.iter().filter_map(|plan| plan.images.as_ref());
    let images = images.flat_map(|images| {
        let channel = images.channel.as_deref();
        let offer = channel.and_then(|channel| answers(channel).ok());
        images.at_version(offer.as_ref(), now)
    });
    let (missing, unknown) = flags.channels.missing(&images.collect::<Vec<_>>())?;
    unknown.iter().for_each(output::note);
    Ok(missing.iter().map(input::error).collect())
}

/// Reports Secrets that no file contains.
pub(super) fn missing_secrets(given: &RehearsalInput, assumed: &mut Vec<String>) {
    for plan in &given.plans {
        for name in secrets(&plan.value) {
            let is_it = |object: &&Value| {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
                object["kind"] == "Secret"
                    && object["metadata"]["name"] == name
                    && namespace == plan.namespace()
            };
            let what = format!("Secret {}/{name} exists and is empty", plan.namespace());
            if !given.objects.iter().any(|object| is_it(&object)) && !assumed.contains(&what) {
                assumed.push(what);
            }
        }
    }
}

/// The controller's settings from a `ConfigMap`. The environment of this process is ignored, so that results are
/// reproducible.
pub(super) fn settings(
    flags: &Flags,
    namespace: &str,
    initial_cluster: &InitialCluster,
    assumed: &mut Vec<String>,
) -> anyhow::Result<Settings> {
    let known = match initial_cluster {
        InitialCluster::Snapshot(snapshot) => snapshot.controller.clone(),
        InitialCluster::Generated { .. } => None,
    };
    let (name, data) = defaults::config(flags.config.as_deref())?;
    let controller = ControllerFlags {
        name: Some(known.unwrap_or_else(|| CONTROLLER.to_owned())),
        namespace: Some(namespace.to_owned()),
        // A rehearsal has one controller, so it needs no Lease.
        leader_elect: Some(false),
        ..ControllerFlags::default()
    };
    let (mut settings, notices) = Settings::resolve(controller, &|name| data.get(name).cloned(), "rehearsal")
        .with_context(|| name.clone())?;
    for notice in notices {
        if let Notice::Error(text) = notice {
            output::note(format_args!("{name}: {text}"));
        }
    }
    // No image is pulled in a rehearsal; the controller's pod, which would name it, is not part of it.
    if settings.jobs.own_image.is_empty() {
        own_image::OF_THIS_BUILD.clone_into(&mut settings.jobs.own_image);
    }
    if flags.config.is_none() {
        assumed.push(defaults::describe(&settings.jobs));
    }
    Ok(settings)
}
