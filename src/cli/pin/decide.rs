//! Decides what happens to one Plan.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::flags::Flags;
use super::patched;
use super::report::{Outcome, Result};
use crate::cli::channel_access::Offers;
use refit_base::version::policy::{Offered, Policy};
use refit_base::version::{Offer, Version, has_builds};
use refit_channel::with_scheme;
use refit_offline::gitops::Source;
use refit_offline::gitops::pin::{PinRequest, PlanInFile, Refusal, Verdict, decide_version, remark};

/// The offers of all channels, parsed once for all their Plans.
pub(super) struct Channels(BTreeMap<String, std::result::Result<Offered, String>>);

impl Channels {
    pub(super) fn new(answers: Offers) -> Self {
        let offered = |(channel, answer): (String, std::result::Result<Offer, _>)| {
            let offered = answer.as_ref().map(Offered::from);
            (channel, offered.map_err(ToString::to_string))
        };
        Self(answers.into_iter().map(offered).collect())
    }
}

/// The channel that determines the version of a Plan.
pub(super) fn channel_of(flags: &Flags, plan: &PlanInFile) -> Option<String> {
    let given = || flags.channel.as_deref().map(with_scheme);
    plan.channel.clone().or_else(given)
}

pub(super) fn decide(
    flags: &Flags,
    source: &Source,
    plan: PlanInFile,
    channels: &Channels,
    now: Timestamp,
) -> (Outcome, Option<PinRequest>) {
    if let Some(by) = &plan.deleted {
        let why = format!("a patch of Kustomize deletes it: {}", by.place());
        let mut outcome = Outcome::new(source, plan);
        outcome.why = Some(why);
        return (outcome, None);
    }
    if !plan.patched.all.is_empty() {
        let outcome = patched::decide(flags, source, plan.clone(), channels, now);
        // Where an overlay leaves the version as it is, that of the Plan counts.
        if !plan.patched.is_partial || outcome.result == Result::Failed {
            return (outcome, None);
        }
    }
    let mut outcome = Outcome::new(source, plan);
    match wanted(flags, &outcome.plan, channels, now) {
        Decision::Same => {
            outcome.result = Result::Same;
            // The digests of its images may be missing, and a number must become a string for the API server.
            let is_wanted = flags.digest || outcome.plan.is_number;
            let version = outcome.plan.version.clone().filter(|_| is_wanted);
            if outcome.plan.is_number {
                outcome.result = Result::Changed;
                outcome.offered.clone_from(&version);
            }
            let want = version.map(|version| want(flags, &outcome.plan, version));
            (outcome, want)
        }
        Decision::Take(version) => {
            outcome.result = Result::Changed;
            let current = outcome.plan.version.as_deref();
            outcome.remark = current.and_then(|current| remark(current, &version, outcome.plan.installed));
            outcome.offered = Some(version.clone());
            let want = want(flags, &outcome.plan, version);
            (outcome, Some(want))
        }
        Decision::Keep(why, offered) => {
            (outcome.why, outcome.offered) = (Some(why), offered);
            (outcome, None)
        }
        Decision::Fail(why) => {
            (outcome.result, outcome.why) = (Result::Failed, Some(why));
            (outcome, None)
        }
    }
}

fn want(flags: &Flags, plan: &PlanInFile, version: String) -> PinRequest {
    PinRequest {
        plan: plan.clone(),
        version,
        images: flags.image_tag,
        digests: BTreeMap::new(),
    }
}

pub(super) enum Decision {
    Same,
    Take(String),
    /// Why the Plan stays unchanged, and the offered version.
    Keep(String, Option<String>),
    Fail(String),
}

pub(super) fn wanted(flags: &Flags, plan: &PlanInFile, channels: &Channels, now: Timestamp) -> Decision {
    if let Some(other) = &plan.other {
        let why = format!("spec.version is {}; {}", other.what, other.remedy);
        return if other.is_mistake {
            Decision::Fail(why)
        } else {
            Decision::Keep(why, None)
        };
    }
    let policy = policy(flags, plan);
    let given;
    let offered = match (&flags.to, channel_of(flags, plan)) {
        (Some(version), _) => {
            given = Offered::from(&Offer::one(version.clone()));
            &given
        }
        // A channel that Kustomize creates is in no file.
        (None, _) if plan.channel_placeholder.is_some() => {
            let channel = plan.channel_placeholder.as_deref().unwrap_or_default();
            let why =
                format!("spec.channel is {channel}; pin the rendered file, or give the version with --to");
            return Decision::Keep(why, None);
        }
        (None, Some(channel)) => match (&policy, channels.0.get(&channel)) {
            (Err(why), _) => return Decision::Fail(why.clone()),
            (Ok(_), Some(Ok(offered))) => offered,
            (Ok(_), Some(Err(error))) => {
                return Decision::Fail(format!("its channel gives no version: {error}"));
            }
            (Ok(_), None) => return Decision::Fail("refit did not ask its channel".to_owned()),
        },
        (None, None) => {
            return Decision::Keep(
                "it has no channel; add spec.channel, or give one with --channel".to_owned(),
                None,
            );
        }
    };
    let policy = match policy {
        Ok(policy) => policy,
        Err(why) => return Decision::Fail(why),
    };
    let verdict = decide_version(plan.version.as_deref(), plan.installed, offered, &policy, now);
    match verdict {
        Verdict::Same => Decision::Same,
        Verdict::Kept(why) => Decision::Keep(why, None),
        // Someone set a newer version by hand, which is not an error: the channel will catch up.
        Verdict::Refused(Refusal::Downgrade { offered, .. }) if flags.to.is_none() => Decision::Keep(
            format!(
                "it is newer than {offered}, the version of its channel; to go back, use --allow-downgrade"
            ),
            Some(offered),
        ),
        Verdict::Refused(why) => Decision::Fail(why.to_string()),
        Verdict::Take(version) if flags.to.is_none() && version.parse::<Version>().is_err() => {
            Decision::Fail(format!(
                "its channel gives {version:?}, which is not a version; name a channel that gives versions"
            ))
        }
        Verdict::Take(version) => match lacks_build(plan, &version) {
            Some(why) => Decision::Fail(why),
            None => Decision::Take(version),
        },
    }
}

/// Why the image of the Plan, which is of K3s or RKE2, has no such version.
fn lacks_build(plan: &PlanInFile, version: &str) -> Option<String> {
    let distribution = plan.installed.filter(|installed| has_builds(installed))?;
    let is_plain = version.parse::<Version>().is_ok_and(|version| version.is_plain());
    is_plain.then(|| {
        format!(
            "{version:?} is not a version of {distribution}, which the Plan's image installs; correct its channel, or change the \
             version by hand"
        )
    })
}

/// The Plan's policy with the flags applied. `--to` is explicit, so no policy restricts it.
fn policy(flags: &Flags, plan: &PlanInFile) -> std::result::Result<Policy, String> {
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
