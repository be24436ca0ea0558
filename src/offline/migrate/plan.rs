//! The Plans: what refit does with each of them that system-upgrade-controller does not.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;

use super::finding::{Finding, Severity, names};
use super::reading::Reading;
use refit_api::invalid::{ErrorList, at};
use refit_api::names::{JOB_SERVICE_ACCOUNT, LABEL_HOSTNAME, LABEL_PLAN_PREFIX, LABEL_VALUE_DISABLED};
use refit_api::validate::validate;
use refit_api::window::Window;
use refit_api::{ConditionType, DrainTimeout, PlanSpec, Reason};
use refit_base::version::is_upgrade_image;
use refit_base::version::tag::munge;
use refit_facts::{NodeFacts, PlanFacts};
use refit_job::digest;

/// The largest number that system-upgrade-controller reads as `drain.timeout`.
const MAX_INT32: i64 = i32::MAX as i64;

/// A Plan, and the nodes that are left for it.
struct PlanView<'a> {
    facts: &'a PlanFacts,
    spec: &'a PlanSpec,
    title: String,
    /// Selected, and neither done nor disabled.
    left: Vec<&'a NodeFacts>,
}

impl<'a> PlanView<'a> {
    fn new(reading: &Reading<'a>, facts: &'a PlanFacts) -> Self {
        let spec = &facts.object.spec;
        let hash = facts.status().latest_hash.as_deref().unwrap_or_default();
        let selector = spec.selector().ok();
        let is_left = |node: &&NodeFacts| {
            let done = node.labels.of_plan(&facts.name);
            let is_over = done == Some(LABEL_VALUE_DISABLED) || (done == Some(hash) && !hash.is_empty());
            let mut selector = selector.iter();
            !is_over && selector.any(|selector| selector.matches_by(|label| node.labels.get(label)))
        };
        Self {
            facts,
            spec,
            title: format!("Plan {}/{}", reading.namespace, facts.name),
            left: reading.nodes.iter().copied().filter(is_left).collect(),
        }
    }

    fn cordons(&self) -> bool {
        self.spec.cordon.unwrap_or_default() || self.spec.drain.is_some()
    }

    /// The names of those of its nodes.
    fn nodes(&self, is_wanted: impl Fn(&NodeFacts) -> bool) -> Vec<&str> {
        let wanted = self.left.iter().filter(|node| is_wanted(node));
        wanted.map(|node| &*node.name).collect()
    }

    fn change(&self, change: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding::new(Severity::Change, &self.title, change, remedy)
    }

    fn action(&self, change: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding::new(Severity::Action, &self.title, change, remedy)
    }
}

/// What a rule finds in each Plan that can be decoded.
fn each<'a, I: IntoIterator<Item = Finding>>(
    reading: &Reading<'a>,
    check: impl Fn(&PlanView<'a>) -> I,
) -> Vec<Finding> {
    let plans = reading.plans.iter().filter(|plan| plan.malformed.is_none());
    plans
        .flat_map(|plan| check(&PlanView::new(reading, plan)))
        .collect()
}

pub(super) fn invalid(reading: &Reading<'_>) -> Vec<Finding> {
    let mut found = each(reading, |plan| {
        let mut errors = ErrorList::default();
        errors.take(validate(&plan.facts.name, plan.spec));
        errors.take(
            plan.spec
                .selector()
                .map_err(|error| at("nodeSelector").says(error.to_string())),
        );
        errors.take(digest::check_fields(&plan.facts.object));
        let mut conditions = plan.facts.status().conditions.iter();
        let is_known = conditions.any(|one| one.type_ == ConditionType::Validated && one.status == "False");
        (!errors.is_empty()).then(|| {
            if is_known {
                let change = format!("it is invalid, as under system-upgrade-controller: {errors}");
                Finding::new(Severity::Note, &plan.title, change, "correct the Plan")
            } else {
                let change = format!("refit finds it invalid and starts no node: {errors}");
                plan.action(change, "correct the Plan before the switch")
            }
        })
    });
    for plan in &reading.plans {
        if let Some(why) = &plan.malformed {
            let change = format!(
                "it cannot be decoded: {why}. system-upgrade-controller stops handling all Plans then; refit skips this one only"
            );
            let object = format!("Plan {}/{}", reading.namespace, plan.name);
            let remedy = "correct the field that the message names";
            found.push(Finding::new(Severity::Change, object, change, remedy));
        }
    }
    found
}

pub(super) fn concurrency(reading: &Reading<'_>) -> Vec<Finding> {
    each(reading, |plan| {
        let starts_none =
            plan.spec.concurrency.unwrap_or_default() <= 0 && plan.spec.max_concurrent.is_none();
        starts_none.then(|| {
            let change = format!(
                "concurrency is not positive, and nodes are left ({}): system-upgrade-controller reports Complete=True; refit reports Complete=False with reason {}. Neither starts a node",
                plan.left.len(),
                Reason::ConcurrencyZero,
            );
            plan.change(change, "set concurrency, or spec.suspend: true if the Plan is meant to rest; tools that wait for Complete would wait")
        })
    })
}

pub(super) fn window(reading: &Reading<'_>) -> Vec<Finding> {
    each(reading, |plan| {
        // An invalid window is reported with the Plan.
        let window = plan.spec.window.as_ref();
        let window = window.and_then(|window| Window::parse(window, &TimeZone::UTC).ok());
        window.map(|window| {
            let (start, end) = (window.start(), window.end());
            let change = format!(
                "window {window}: system-upgrade-controller checks it once, when a roll-out starts, and then continues outside of it; refit checks it before each node, so a long roll-out takes several windows"
            );
            let remedy = "if all nodes must fit into one window, widen it or raise concurrency; `refit rehearse --snapshot context` shows how long the roll-out takes";
            if start <= end || window.is_every_day() {
                return plan.change(change, remedy);
            }
            let change = format!(
                "{change}. It is overnight: system-upgrade-controller opens it on each listed day from 00:00 to {end} and from {start} to 24:00; refit opens it at {start} of each listed day and closes it at {end} of the next"
            );
            let remedy = format!("{remedy}; list the days on which the night starts");
            plan.change(change, remedy)
        })
    })
}

/// The channels that decide the version of a Plan.
pub fn channels(reading: &Reading<'_>) -> BTreeSet<String> {
    reading
        .plans
        .iter()
        .filter_map(|plan| channel_of(&plan.object.spec))
        .map(str::to_owned)
        .collect()
}

fn channel_of(spec: &PlanSpec) -> Option<&str> {
    spec.channel.as_deref().filter(|_| spec.version.is_none())
}

pub(super) fn channel(reading: &Reading<'_>) -> Vec<Finding> {
    each(reading, |plan| {
        let known = plan.facts.status().latest_version.as_deref().unwrap_or_default();
        let has = if known.is_empty() { "no version" } else { known };
        match reading.answers.get(channel_of(plan.spec)?)? {
            Err(why) => Some(plan.action(
                format!("refit gets no version from its channel: {why}; the Plan has {has}"),
                "correct the channel, or set spec.version; `refit resolve` shows the answer",
            )),
            // Status has the version as an image tag.
            Ok(version) if munge(version) != known => Some(plan.change(
                format!(
                    "its channel gives {version} to refit, and the Plan has {has}: a redirect other than 302, a newer release, or one that was withdrawn"
                ),
                "expect a roll-out of that version, unless it is older; set spec.version to prevent it",
            )),
            Ok(_) => None,
        }
    })
}

pub(super) fn works_now(reading: &Reading<'_>) -> Vec<Finding> {
    each(reading, |plan| {
        let (spec, mut found) = (plan.spec, Vec::new());
        let timeout = spec.drain.as_ref().and_then(|drain| drain.timeout.as_ref());
        if let Some(DrainTimeout::Nanoseconds(timeout)) = timeout
            && *timeout > MAX_INT32
        {
            let change = format!(
                "drain.timeout is the number {timeout}: system-upgrade-controller cannot read it, and then handles no Plan any more; refit reads it as nanoseconds and carries the Plan out"
            );
            found.push(plan.change(
                change,
                format!("check that {} s is what you want", timeout / 1_000_000_000),
            ));
        }
        let upgrade = spec
            .upgrade
            .iter()
            .flat_map(|upgrade| upgrade.volumes.iter().flatten());
        let upgrade: BTreeSet<_> = upgrade.map(|volume| &*volume.name).collect();
        let prepare = spec
            .prepare
            .iter()
            .flat_map(|prepare| prepare.volumes.iter().flatten());
        let only: Vec<_> = prepare
            .map(|volume| &*volume.name)
            .filter(|name| !upgrade.contains(name))
            .collect();
        if !only.is_empty() {
            let change = format!(
                "prepare mounts {}, which upgrade does not: system-upgrade-controller creates no such volume, so that its Jobs are refused; refit creates it",
                names(&only)
            );
            found.push(plan.change(change, "expect the Plan to run"));
        }
        let renamed =
            plan.nodes(|node| node.labels.get(LABEL_HOSTNAME) != Some(&*node.name) || node.name.len() > 63);
        if !renamed.is_empty() {
            let change = format!(
                "{}: the label kubernetes.io/hostname differs from the name, or the name is over 63 characters. system-upgrade-controller never completes such a node; refit upgrades it",
                names(&renamed)
            );
            let remedy = format!(
                "to exclude them, label them {LABEL_PLAN_PREFIX}{}={LABEL_VALUE_DISABLED}",
                plan.facts.name
            );
            found.push(plan.change(change, remedy));
        }
        found
    })
}

/// Whether `upgrade` may use the token of its account, which refit's own manifests withhold from it for their account.
pub(super) fn token(reading: &Reading<'_>) -> Vec<Finding> {
    each(reading, |plan| {
        let is_ours = plan.spec.service_account_name.as_deref() == Some(JOB_SERVICE_ACCOUNT);
        // The images of K3s and RKE2 use it only in `prepare`.
        let upgrade = plan
            .spec
            .upgrade_container()
            .filter(|it| !is_upgrade_image(&it.image));
        let upgrade = upgrade.filter(|_| is_ours && plan.spec.api_access.is_none());
        upgrade.map(|upgrade| {
            let change = format!(
                "{} may use the token of ServiceAccount {JOB_SERVICE_ACCOUNT}: system-upgrade-controller gives it to upgrade; refit does not with REFIT_JOB_API_ACCESS=PrepareOnly, as in its manifests",
                upgrade.image
            );
            let remedy = "set spec.apiAccess: All if the image calls the API server, or unset the variable; otherwise nothing";
            plan.change(change, remedy)
        })
    })
}

pub(super) fn cordoned(reading: &Reading<'_>) -> Vec<Finding> {
    each(reading, |plan| {
        // A Job of system-upgrade-controller that is under way cordoned its node itself; refit uncordons it.
        let has_job = |node: &NodeFacts| {
            let mut jobs = reading.jobs.iter();
            jobs.any(|(controller, job)| {
                *controller == reading.controller && job.plan == plan.facts.name && job.node == node.name
            })
        };
        let nodes = plan.nodes(|node| node.unschedulable && node.ledger.is_none() && !has_job(node));
        (plan.cordons() && !nodes.is_empty()).then(|| {
            let change = format!(
                "{}: cordoned by someone else. system-upgrade-controller uncordons any node after its upgrade; refit leaves it cordoned",
                names(&nodes)
            );
            plan.change(change, "uncordon them, before the switch or afterwards, unless someone needs them cordoned")
        })
    })
}

pub(super) fn not_ready(reading: &Reading<'_>) -> Vec<Finding> {
    each(reading, |plan| {
        let nodes = plan.nodes(|node| !node.ready);
        (!nodes.is_empty() && !plan.spec.tolerates_not_ready()).then(|| {
            let change = format!(
                "{}: not Ready. system-upgrade-controller upgrades such nodes; refit waits with reason {}, and takes the others first",
                names(&nodes),
                Reason::NodeNotReady,
            );
            plan.change(change, "repair them; if the Plan is what repairs them, add a toleration of node.kubernetes.io/not-ready")
        })
    })
}
