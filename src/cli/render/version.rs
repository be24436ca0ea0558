//! The version that a Job is rendered for: of a flag, the Plan, the cluster or the channel.

use anyhow::{anyhow, bail};

use super::Flags;
use refit_api::Plan;
use refit_api::trigger::ON_REQUEST;
use refit_base::version::policy::Offered;
use refit_base::version::tag::{check, munge};
use refit_cluster::clock::Clock;
use refit_offline::gitops::pin::{Verdict, decide_version};

pub(super) fn version(flags: &Flags, plan: &Plan, stored: Option<&Plan>) -> anyhow::Result<String> {
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
                None if plan.spec.is_on_request() => ON_REQUEST.to_owned(),
                None => bail!("it has neither version nor channel; set a version with --version"),
            }
        };
    let munged = munge(&version);
    check(&munged)?;
    Ok(munged)
}
