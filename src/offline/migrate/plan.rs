//! The Plans: what refit does with each of them that system-upgrade-controller does not.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use url::Url;

use super::controller::is_control_plane;
use super::permissions;
use super::{Cluster, Finding, Severity, count, names, window};
use refit_api::invalid::{ErrorList, at};
use refit_api::names::{
    ANNOTATION_CORDON, JOB_SERVICE_ACCOUNT, LABEL_CONTROLLER, LABEL_HOSTNAME, LABEL_NODE, LABEL_PLAN,
    LABEL_PLAN_PREFIX, LABEL_VALUE_DISABLED,
};
use refit_api::validate::validate;
use refit_api::{ConditionType, DrainTimeout, Plan, PlanCondition, Reason};
use refit_base::go::parse_bool;
use refit_base::version::is_upgrade_image;
use refit_channel::hosts::{CHANNEL_HOST, Hosts, is_loopback};
use refit_job::digest;

/// The largest number that system-upgrade-controller reads as `drain.timeout`.
const MAX_INT32: i64 = i32::MAX as i64;

pub(super) fn check(cluster: &Cluster, now: Timestamp) -> Vec<Finding> {
    let mut found = Vec::new();
    let plans: Vec<PlanOverview<'_>> = cluster
        .plans
        .iter()
        .map(|plan| PlanOverview::new(cluster, plan))
        .collect();
    for plan in &plans {
        plan.check_validity(&mut found);
        plan.check_concurrency(&mut found);
        if let Some(window) = &plan.plan.spec.window {
            window::check(&plan.title, window, now, &mut found);
        }
        plan.check_channel(cluster, &mut found);
        plan.check_drain_timeout(&mut found);
        plan.check_containers(cluster, &mut found);
        plan.check_token(cluster, &mut found);
        plan.check_nodes(&mut found);
        plan.check_quorum(cluster, &mut found);
    }
    shared_nodes(&plans, &mut found);
    found
}

/// A Plan, and the nodes that are left for it.
struct PlanOverview<'a> {
    plan: &'a Plan,
    name: &'a str,
    title: String,
    /// Selected, and neither done nor disabled.
    left: Vec<&'a Node>,
    /// Nodes with a Job of the Plan.
    with_job: BTreeSet<&'a str>,
}

impl<'a> PlanOverview<'a> {
    fn new(cluster: &'a Cluster, plan: &'a Plan) -> Self {
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        let hash = plan
            .status
            .as_ref()
            .and_then(|status| status.latest_hash.as_deref())
            .unwrap_or_default();
        let label = format!("{LABEL_PLAN_PREFIX}{name}");
        let selector = plan.spec.selector().ok();
        let is_left = |node: &&Node| {
            let empty = BTreeMap::new();
            let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
            let done = labels.get(&label).map(String::as_str);
            let is_over = done == Some(LABEL_VALUE_DISABLED) || (done == Some(hash) && !hash.is_empty());
            selector.as_ref().is_some_and(|selector| selector.matches(labels)) && !is_over
        };
        let with_job = cluster.jobs.iter().filter_map(|job| {
            let labels = job.metadata.labels.as_ref()?;
            let is_ours = labels.get(LABEL_CONTROLLER) == Some(&cluster.controller)
                && labels.get(LABEL_PLAN).map(String::as_str) == Some(name);
            labels.get(LABEL_NODE).filter(|_| is_ours).map(String::as_str)
        });
        Self {
            plan,
            name,
            title: format!("Plan {namespace}/{name}"),
            left: cluster.nodes.iter().filter(is_left).collect(),
            with_job: with_job.collect(),
        }
    }

    fn condition(&self, type_: ConditionType) -> Option<&PlanCondition> {
        let conditions = &self.plan.status.as_ref()?.conditions;
        conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether it makes nodes unschedulable, or keeps other disruptive Plans away.
    fn is_disruptive(&self) -> bool {
        let spec = &self.plan.spec;
        self.cordons() || spec.exclusive.unwrap_or_default()
    }

    fn cordons(&self) -> bool {
        let spec = &self.plan.spec;
        spec.cordon.unwrap_or_default() || spec.drain.is_some()
    }

    fn check_validity(&self, found: &mut Vec<Finding>) {
        let spec = &self.plan.spec;
        let mut errors = ErrorList::default();
        errors.take(validate(self.name, spec));
        let selector = spec.selector();
        errors.take(selector.map_err(|error| at("nodeSelector").says(error.to_string())));
        errors.take(digest::check_fields(self.plan));
        if errors.is_empty() {
            return;
        }
        let is_known = self
            .condition(ConditionType::Validated)
            .is_some_and(|condition| condition.status == "False");
        if is_known {
            let change = format!("it is invalid, as under system-upgrade-controller: {errors}");
            found.push(
                Finding::new(Severity::Note, "invalid", &self.title, change).remedy("correct the Plan"),
            );
        } else {
            let change = format!("refit finds it invalid and starts no node: {errors}");
            found.push(
                Finding::new(Severity::Action, "invalid", &self.title, change)
                    .remedy("correct the Plan before the switch"),
            );
        }
    }

    fn check_concurrency(&self, found: &mut Vec<Finding>) {
        if self.plan.spec.concurrency.unwrap_or_default() > 0 || self.plan.spec.max_concurrent.is_some() {
            return;
        }
        let value = if self.plan.spec.concurrency.is_some() {
            "not positive"
        } else {
            "absent"
        };
        let change = format!(
            "concurrency is {value}, and {} left: system-upgrade-controller reports Complete=True; refit reports Complete=False with reason {}. Neither starts a node",
            count(self.left.len(), "node"),
            Reason::ConcurrencyZero,
        );
        let remedy = "set concurrency, or spec.suspend: true if the Plan is meant to rest; tools that wait for Complete would wait";
        found.push(Finding::new(Severity::Change, "concurrency-zero", &self.title, change).remedy(remedy));
    }

    /// What can be seen without a request; `--online` queries the channel.
    fn check_channel(&self, cluster: &Cluster, found: &mut Vec<Finding>) {
        let spec = &self.plan.spec;
        let Some(url) = spec.channel.as_deref().filter(|_| spec.version.is_none()) else {
            return;
        };
        let Ok(url) = Url::parse(url) else { return };
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        if url.scheme() == "http" && has_credentials && !is_loopback(&url) {
            let change =
                "its channel has credentials in an http:// URL, which refit does not send over plain HTTP";
            let remedy = "use https, or spec.channelSecretRef";
            found.push(
                Finding::new(Severity::Action, "channel-credentials", &self.title, change).remedy(remedy),
            );
        }
        let is_known = |host: &str| {
            let hosts = cluster.environment();
            hosts.get(CHANNEL_HOST).is_some_and(|list| list.contains(host))
        };
        if let Err(why) = Hosts::default().check(&url)
            && !url.host_str().is_some_and(is_known)
        {
            let change = format!("refit does not query its channel: {why}");
            let remedy = "set REFIT_CHANNEL_HOST for the controller if that host is wanted";
            found.push(Finding::new(Severity::Action, "channel-host", &self.title, change).remedy(remedy));
        }
    }

    fn check_drain_timeout(&self, found: &mut Vec<Finding>) {
        let drain = self.plan.spec.drain.as_ref();
        let Some(DrainTimeout::Nanoseconds(timeout)) = drain.and_then(|drain| drain.timeout.as_ref()) else {
            return;
        };
        if *timeout > MAX_INT32 {
            let change = format!(
                "drain.timeout is the number {timeout}: system-upgrade-controller cannot read it, and then handles no Plan any more; refit reads it as nanoseconds and carries the Plan out"
            );
            let remedy = format!("check that {} s is what you want", timeout / 1_000_000_000);
            found.push(Finding::new(Severity::Change, "drain-timeout", &self.title, change).remedy(remedy));
        }
    }

    fn check_containers(&self, cluster: &Cluster, found: &mut Vec<Finding>) {
        let spec = &self.plan.spec;
        let containers = || spec.prepare.iter().chain(&spec.upgrade);
        let forbids = cluster
            .environment()
            .get("ALLOW_USER_DEFINED_SECURITY_CONTEXT")
            .is_some_and(|value| !parse_bool(value).unwrap_or(true));
        if forbids && containers().any(|container| container.security_context.is_some()) {
            let change = "ALLOW_USER_DEFINED_SECURITY_CONTEXT is false, and the Plan has a securityContext: system-upgrade-controller uses it all the same; refit ignores it, so upgrade is privileged";
            let remedy = "remove the variable if Plans may choose their security context";
            found
                .push(Finding::new(Severity::Change, "security-context", &self.title, change).remedy(remedy));
        }
        let of_upgrade: BTreeSet<_> = spec
            .upgrade
            .iter()
            .flat_map(|upgrade| upgrade.volumes.iter().flatten())
            .map(|volume| &volume.name)
            .collect();
        let volumes = spec
            .prepare
            .iter()
            .flat_map(|prepare| prepare.volumes.iter().flatten());
        let only_prepare: Vec<_> = volumes
            .map(|volume| &volume.name)
            .filter(|name| !of_upgrade.contains(name))
            .collect();
        if !only_prepare.is_empty() {
            let change = format!(
                "prepare mounts {}, which upgrade does not: system-upgrade-controller creates no such volume, so that its Jobs are refused; refit creates it",
                names(&only_prepare)
            );
            found.push(
                Finding::new(Severity::Change, "prepare-volumes", &self.title, change)
                    .remedy("expect the Plan to run"),
            );
        }
    }

    /// Whether `upgrade` may use the token of its account, which refit's own manifests withhold from it for their account.
    fn check_token(&self, cluster: &Cluster, found: &mut Vec<Finding>) {
        let spec = &self.plan.spec;
        let account = spec.service_account_name.as_deref().unwrap_or("default");
        // The images of K3s and RKE2 use it only in `prepare`.
        let Some(upgrade) = spec.upgrade_container().filter(|it| !is_upgrade_image(&it.image)) else {
            return;
        };
        if spec.api_access.is_some() || !permissions::has_role(cluster, account) {
            return;
        }
        let may = format!(
            "{} may use the token of ServiceAccount {account}, to which a role is bound",
            upgrade.image
        );
        found.push(if account == JOB_SERVICE_ACCOUNT {
            let change = format!(
                "{may}: system-upgrade-controller gives it to upgrade; refit does not with REFIT_JOB_API_ACCESS=PrepareOnly, as in its manifests"
            );
            Finding::new(Severity::Change, "token", &self.title, change)
                .remedy("set spec.apiAccess: All if the image calls the API server, or unset the variable")
        } else {
            let change = format!("{may}: refit gives it to upgrade, too, as system-upgrade-controller does");
            Finding::new(Severity::Note, "token", &self.title, change)
                .remedy("if the image does not call the API server, set spec.apiAccess: PrepareOnly")
        });
    }

    fn check_nodes(&self, found: &mut Vec<Finding>) {
        let named = |is_wanted: &dyn Fn(&Node) -> bool| -> Vec<&str> {
            let wanted = self.left.iter().filter(|node| is_wanted(node));
            wanted.filter_map(|node| node.metadata.name.as_deref()).collect()
        };
        // A Job of system-upgrade-controller that is under way cordoned its node itself; refit uncordons it.
        let cordoned = named(&|node| {
            let is_unschedulable = node
                .spec
                .as_ref()
                .and_then(|spec| spec.unschedulable)
                .unwrap_or_default();
            let annotations = node.metadata.annotations.as_ref();
            let has_ledger = annotations.is_some_and(|all| all.contains_key(ANNOTATION_CORDON));
            is_unschedulable && !has_ledger && !self.with_job.contains(name_of(node))
        });
        if self.cordons() && !cordoned.is_empty() {
            let change = format!(
                "{}: cordoned by someone else. system-upgrade-controller uncordons any node after its upgrade; refit leaves it cordoned",
                names(&cordoned)
            );
            let remedy = "uncordon them, before the switch or afterwards, unless someone needs them cordoned";
            found.push(Finding::new(Severity::Change, "cordoned-nodes", &self.title, change).remedy(remedy));
        }
        let not_ready = named(&|node| !is_ready(node));
        if !not_ready.is_empty() && !self.plan.spec.tolerates_not_ready() {
            let change = format!(
                "{}: not Ready. system-upgrade-controller upgrades such nodes; refit waits with reason {}, and takes the others first",
                names(&not_ready),
                Reason::NodeNotReady,
            );
            let remedy = "repair them; if the Plan is what repairs them, add a toleration of node.kubernetes.io/not-ready";
            found.push(Finding::new(Severity::Change, "nodes-not-ready", &self.title, change).remedy(remedy));
        }
        let renamed = named(&|node| {
            let host = node
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(LABEL_HOSTNAME));
            host != node.metadata.name.as_ref() || name_of(node).len() > 63
        });
        if !renamed.is_empty() {
            let change = format!(
                "{}: the label kubernetes.io/hostname differs from the name, or the name is over 63 characters. system-upgrade-controller never completes such a node; refit upgrades it",
                names(&renamed)
            );
            let remedy = format!(
                "to exclude them, label them {LABEL_PLAN_PREFIX}{}={LABEL_VALUE_DISABLED}",
                self.name
            );
            found.push(Finding::new(Severity::Change, "host-names", &self.title, change).remedy(remedy));
        }
    }

    /// etcd needs more than half of its members.
    fn check_quorum(&self, cluster: &Cluster, found: &mut Vec<Finding>) {
        let servers = cluster
            .nodes
            .iter()
            .filter(|node| is_control_plane(&node.metadata))
            .count();
        let selected = self
            .left
            .iter()
            .filter(|node| is_control_plane(&node.metadata))
            .count();
        let may_be_down = servers.saturating_sub(1) / 2;
        let concurrency = usize::try_from(self.plan.spec.concurrency.unwrap_or_default()).unwrap_or_default();
        // With one or two members any reboot loses the quorum, so one node at a time is the best that a Plan can do.
        if concurrency.min(selected) > may_be_down.max(1) {
            let change = format!(
                "concurrency is {concurrency}, and it selects {selected} of {servers} control-plane nodes: system-upgrade-controller takes down as many at a time; etcd loses its quorum with more than {may_be_down}"
            );
            let remedy = "set concurrency: 1 for the control plane";
            found.push(Finding::new(Severity::Change, "quorum", &self.title, change).remedy(remedy));
        }
    }
}

/// Pairs of Plans that would disrupt the same nodes.
fn shared_nodes(plans: &[PlanOverview<'_>], found: &mut Vec<Finding>) {
    let disruptive: Vec<_> = plans.iter().filter(|plan| plan.is_disruptive()).collect();
    for (index, plan) in disruptive.iter().enumerate() {
        let mine: BTreeSet<&str> = plan.left.iter().map(|node| name_of(node)).collect();
        let mut others = Vec::new();
        for other in disruptive.iter().skip(index + 1) {
            if other.left.iter().any(|node| mine.contains(name_of(node))) {
                others.push(other.name);
            }
        }
        if !others.is_empty() {
            let change = format!(
                "it and {} cordon, drain or exclude others on the same nodes: system-upgrade-controller runs them at the same time; refit runs one of them on a node at a time",
                names(&others)
            );
            found.push(Finding::new(Severity::Note, "shared-nodes", &plan.title, change));
        }
    }
}

/// The name of a node. A Job's label has it too, unless it is too long.
fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
