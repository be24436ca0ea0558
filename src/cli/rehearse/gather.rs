//! What is to be rehearsed, put together from files, flags and a cluster; and what is assumed where they say nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize as _;

use super::context;
use super::flags::Flags;
use crate::api::Plan;
use crate::channel::{ChannelError, Offer};
use crate::cli::output;
use crate::controller::settings::{Flags as ControllerFlags, Notice, Settings};
use crate::gitops::check::is_placeholder;
use crate::rehearse::input::{self, Given, GivenPlan};
use crate::rehearse::json::Value;
use crate::rehearse::nodes::{self, Asks};
use crate::rehearse::play::{Answers, Stage, secrets};
use crate::rehearse::snapshot::{self, Snapshot, SnapshotError};

/// Nodes that are made up where nobody says anything.
const NODES: usize = 12;
/// What a channel is taken to give.
const VERSION: &str = "v1.34.1";
/// Word for the cluster of the current context.
const CONTEXT: &str = "context";
/// Name of the controller, where nothing tells another one.
const CONTROLLER: &str = "system-upgrade-controller";
/// Settings of the manifests that refit ships.
const CONFIG: &str = include_str!("../../../deploy/config.yaml");

/// Why there is nothing to rehearse. Each is told with exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadInput {
    #[error("{0}")]
    Told(String),
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
pub(super) fn choose(flags: &Flags, given: &mut Given, snapshot: Option<&Snapshot>) -> Result<(), BadInput> {
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
pub(super) fn namespace(
    flags: &Flags,
    given: &mut Given,
    snapshot: Option<&Snapshot>,
) -> Result<String, BadInput> {
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

fn is_on(snapshot: &Snapshot, given: &GivenPlan) -> bool {
    snapshot
        .plans
        .iter()
        .any(|plan| plan["metadata"]["name"] == given.name())
}

/// The cluster: as it was, or made up.
pub(super) fn stage(
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

/// What channels give. Versions that somebody else fills in count as channels.
pub(super) fn answers(
    flags: &Flags,
    given: &mut Given,
    stage: &Stage,
    assumed: &mut Vec<String>,
) -> anyhow::Result<Answers> {
    let stored: Vec<Plan> = match stage {
        Stage::Snapshot(snapshot) => snapshot
            .plans
            .iter()
            .filter_map(|plan| Plan::deserialize(plan).ok())
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
pub(super) fn missing_secrets(given: &Given, assumed: &mut Vec<String>) {
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

/// The controller's settings: those of a `ConfigMap`, and nothing of this process, so that everybody sees the same.
pub(super) fn settings(flags: &Flags, namespace: &str, stage: &Stage) -> anyhow::Result<Settings> {
    let known = match stage {
        Stage::Snapshot(snapshot) => snapshot.controller.clone(),
        Stage::Generated { .. } => None,
    };
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
        name: Some(known.unwrap_or_else(|| CONTROLLER.to_owned())),
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
    fn the_settings_that_are_shipped_can_be_read() {
        let map: ConfigMap = serde_saphyr::from_str(CONFIG).unwrap();
        assert!(map.data.unwrap().contains_key("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT"));
    }
}
