//! What the channels of a rehearsal offer: what they say with `--online`, and otherwise what is assumed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;

use super::assumed_version::{AssumedVersion, VERSION, Why, assumed as assumed_version, newest, usual};
use super::flags::Flags;
use super::input::{InputPlan, RehearsalInput};
use super::inputs::BadInput;
use crate::cli::output;
use refit_api::{Plan, redacted};
use refit_base::version::policy::{Offered, Policy};
use refit_base::version::{Offer, Version, has_builds};
use refit_channel::ChannelError;
use refit_offline::gitops::pin::{Verdict, decide_version};
use refit_rehearse::run::ChannelOffers;
use refit_rehearse::snapshot::Snapshot;

/// The version that a Plan will resolve to, as far as it is known beforehand.
pub(super) fn resolved_version(plan: &InputPlan, answers: &ChannelOffers) -> Option<String> {
    let written = plan.value["spec"]["version"].as_str().unwrap_or_default();
    if !written.is_empty() {
        return Some(written.to_owned());
    }
    let spec = &plan.plan.spec;
    let offer = answers(spec.channel.as_deref()?).ok()?;
    // Without its guards that depend on time, the Plan's policy chooses as the controller does.
    let policy = Policy {
        minimum_age: SignedDuration::ZERO,
        ..spec.version_policy().unwrap_or_default()
    };
    let offered = Offered::from(&offer);
    match decide_version(None, spec.installed(), &offered, &policy, Timestamp::UNIX_EPOCH) {
        Verdict::Take(version) => Some(version),
        _ => offer.newest().map(|release| release.version.clone()),
    }
}

/// The newest kubelet of the nodes before the rehearsal.
fn newest_kubelet(flags: &Flags, snapshot: Option<&Snapshot>) -> Option<Version> {
    let objects = snapshot.into_iter().flat_map(|snapshot| &snapshot.objects);
    let nodes = objects.filter(|object| object["kind"] == "Node");
    let of_nodes = nodes.filter_map(|node| node["status"]["nodeInfo"]["kubeletVersion"].as_str());
    newest(of_nodes.chain(flags.assumed.kubelet.as_deref()))
}

/// Checks that `--version` is one of what the Plans install, and says which Plans have their own.
fn check_version(given: &RehearsalInput, version: &str) -> Result<(), BadInput> {
    for plan in &given.plans {
        let (name, spec) = (plan.name(), &plan.plan.spec);
        let own = spec.version.as_deref().unwrap_or_default();
        if !own.is_empty() && plan.unknown_version.is_none() {
            output::note(format_args!(
                "{}: Plan {name} has spec.version {own}, which --version does not change",
                plan.place
            ));
            continue;
        }
        let builder = spec.installed().filter(|installed| has_builds(installed));
        let is_release = |builder: &str| {
            let version = version.parse::<Version>();
            version.is_ok_and(|version| version.builder() == Some(builder))
        };
        if let Some(builder) = builder.filter(|builder| !is_release(builder)) {
            let example = usual(&plan.plan, spec.channel.as_deref()).version;
            return Err(BadInput::Invalid(format!(
                "--version {version}: Plan {name} installs {builder}, whose versions are such as {example}"
            )));
        }
    }
    Ok(())
}

/// The versions of channels. Placeholders for versions are treated as channels.
pub(super) fn channel_offers(
    flags: &Flags,
    given: &mut RehearsalInput,
    snapshot: Option<&Snapshot>,
    assumed: &mut Vec<String>,
) -> anyhow::Result<ChannelOffers> {
    let stored = snapshot.into_iter().flat_map(|snapshot| &snapshot.plans);
    let stored: Vec<Plan> = stored.filter_map(|plan| Plan::deserialize(plan).ok()).collect();
    let version = flags.assumed.version.as_deref();
    if let Some(version) = version {
        check_version(given, version)?;
    }
    let kubelet = newest_kubelet(flags, snapshot);
    let of_plan = |plan: &Plan| {
        let channel = plan.spec.channel.as_deref();
        let found = assumed_version(&[plan], channel, kubelet.as_ref());
        found.unwrap_or_else(|| usual(plan, channel))
    };
    for plan in &mut given.plans {
        if let Some(unknown) = &plan.unknown_version {
            let version = version.map_or_else(|| of_plan(&plan.plan).version, str::to_owned);
            plan.value["spec"]["version"] = version.as_str().into();
            assumed.push(format!(
                "Plan {}: version {version} replaces {unknown} (change it with --version)",
                plan.name()
            ));
            plan.plan.spec.version = Some(version);
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
    let mut channels: BTreeMap<String, Vec<&Plan>> = BTreeMap::new();
    for plan in given.plans.iter().map(|plan| &plan.plan).chain(&stored) {
        if let Some(channel) = follows(plan) {
            channels.entry(channel).or_default().push(plan);
        }
    }
    if flags.assumed.online {
        let answers = flags.channels.ask(channels.into_keys().collect())?;
        for (channel, answer) in &answers {
            match answer {
                Ok(offer) => output::note(format_args!("{} gives {}", redacted(channel), releases(offer))),
                Err(error) => output::note(format_args!("{} gives no version: {error}", redacted(channel))),
            }
        }
        return Ok(Arc::new(move |url| {
            let unknown = || Err(ChannelError::Failed("refit did not ask it".to_owned()));
            answers.get(url).cloned().unwrap_or_else(unknown)
        }));
    }
    // A channel that the cluster has queried is assumed to give the same version again.
    let resolved: BTreeMap<String, String> = stored
        .iter()
        .filter_map(|plan| Some((follows(plan)?, plan.status.as_ref()?.latest_version.clone()?)))
        .filter(|_| version.is_none())
        .collect();
    let mut offers: BTreeMap<String, Offer> = BTreeMap::new();
    for (channel, plans) in channels {
        let known = |version: &str, why| AssumedVersion {
            version: version.to_owned(),
            why,
        };
        let of_channel = version
            .map(|version| known(version, Why::Usual))
            .or_else(|| Some(known(resolved.get(&channel)?, Why::OnCluster)))
            .or_else(|| assumed_version(&plans, Some(&channel), kubelet.as_ref()));
        let found = match of_channel {
            Some(found) => vec![found],
            // A list has a version for each range, a redirect has one for all.
            None if is_list(&channel) => plans.iter().map(|plan| of_plan(plan)).collect(),
            None => plans.last().map(|plan| of_plan(plan)).into_iter().collect(),
        };
        let mut offer = Offer::default();
        let mut shown: Vec<String> = Vec::new();
        for AssumedVersion { version, why } in found {
            if offer.releases.iter().all(|known| known.version != version) {
                shown.push(format!("{version}{why}"));
                offer.releases.extend(Offer::one(version).releases);
            }
        }
        assumed.push(format!(
            "the channel {channel} gives {} (change it with --version, ask the channel with --online)",
            shown.join(" and ")
        ));
        offers.insert(channel, offer);
    }
    let given = version.unwrap_or(VERSION).to_owned();
    Ok(Arc::new(move |url| {
        let known = offers.get(url).cloned();
        Ok(known.unwrap_or_else(|| Offer::one(given.clone())))
    }))
}

/// Whether the channel gives all its releases, and not one version.
fn is_list(channel: &str) -> bool {
    ["github://", "oci://"]
        .iter()
        .any(|scheme| channel.starts_with(scheme))
}

/// Describes a channel's offer in a few words.
fn releases(offer: &Offer) -> String {
    let newest = offer.newest().map_or("nothing", |release| &release.version);
    match offer.releases.len() {
        0 | 1 => newest.to_owned(),
        count => format!("{count} releases; the newest is {newest}"),
    }
}
