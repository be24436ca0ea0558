//! Each rule of the controller's roles, removed in turn: refit says what is missing before a node is cordoned. The
//! rules of the account that runs on nodes are in `tests/drain/rights.rs`.

use std::fmt::{self, Display};

use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::roles::until_refused_for;
use super::{BACKOFF_LIMIT, SHAPE, find_condition};
use crate::harness::{is_cordoned, ledger};
use crate::rollout::{PLAN, RollOut};
use crate::testenv::context::TestContext;
use crate::testenv::controller::Controller;
use crate::testenv::manifest::Manifests;
use crate::testenv::wait::{self, SOON};

const NAME: &str = "system-upgrade-controller";

/// As many as keep a machine with two cores busy.
const SIDE_BY_SIDE: usize = 4;

/// A role of the controller.
#[derive(Clone, Copy, Debug)]
enum RoleKind {
    Cluster,
    Namespace,
    /// For events about Nodes.
    Default,
    /// For the members of etcd.
    KubeSystem,
}

/// Where refit names what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedIn {
    Plan,
    Event,
    Log,
}

impl RoleKind {
    async fn read(self, ctx: &TestContext) -> Vec<PolicyRule> {
        let rules = match self {
            Self::Cluster => Self::clusters(ctx)
                .get(&ctx.local_name(NAME))
                .await
                .map(|it| it.rules),
            Self::Namespace => self.roles(ctx).get(NAME).await.map(|it| it.rules),
            Self::Default | Self::KubeSystem => self
                .roles(ctx)
                .get(&ctx.local_name(self.name()))
                .await
                .map(|it| it.rules),
        };
        rules.expect("the role").unwrap_or_default()
    }

    async fn write(self, ctx: &TestContext, rules: &[PolicyRule]) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "rules": rules })));
        let written = match self {
            Self::Cluster => {
                let name = ctx.local_name(NAME);
                Self::clusters(ctx).patch(&name, &params, &patch).await.map(drop)
            }
            Self::Namespace => self.roles(ctx).patch(NAME, &params, &patch).await.map(drop),
            Self::Default | Self::KubeSystem => {
                let name = ctx.local_name(self.name());
                self.roles(ctx).patch(&name, &params, &patch).await.map(drop)
            }
        };
        written.expect("the role is written");
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Default => "system-upgrade-controller-events",
            Self::KubeSystem => "system-upgrade-controller-etcd",
            Self::Namespace | Self::Cluster => NAME,
        }
    }

    fn namespace(self, ctx: &TestContext) -> &str {
        match self {
            Self::Default => "default",
            Self::KubeSystem => "kube-system",
            Self::Namespace | Self::Cluster => ctx.namespace(),
        }
    }

    fn clusters(ctx: &TestContext) -> Api<ClusterRole> {
        Api::all(ctx.client.clone())
    }

    fn roles(self, ctx: &TestContext) -> Api<Role> {
        Api::namespaced(ctx.client.clone(), self.namespace(ctx))
    }
}

/// One rule of a role.
#[derive(Clone, Debug)]
struct Removed {
    role: RoleKind,
    number: usize,
    rule: PolicyRule,
}

impl Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.role;
        let resources = self.rule.resources.as_deref().unwrap_or_default().join(",");
        write!(f, "{role:?}: {} {resources}", self.rule.verbs.join(","))
    }
}

impl Removed {
    /// Whether a text names a verb of the rule on one of its resources, in refit's words or in those of the API server.
    fn is_named_in(&self, text: &str) -> bool {
        let pairs = self.rule.resources.iter().flatten();
        let mut pairs = pairs.flat_map(|resource| self.rule.verbs.iter().map(move |verb| (verb, resource)));
        pairs.any(|(verb, resource)| {
            let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
            let group = &self.rule.api_groups.as_deref().unwrap_or_default()[0];
            let dot = if group.is_empty() { "" } else { "." };
            let slash = if part.is_empty() { "" } else { "/" };
            // `list` and `watch` of the ConfigMap are named together.
            text.contains(&format!("{verb} {kind}{dot}{group}{slash}{part}"))
                || text
                    .replace('\\', "")
                    .contains(&format!(r#"cannot {verb} resource "{resource}""#))
                || (kind == "configmaps" && text.contains("may not list and watch the ConfigMap refit"))
                || (kind == "pods" && text.contains("may not list and watch pods in kube-system"))
        })
    }

    /// Whether it is needed at the start of the controller, which names it when there is no Plan yet.
    fn is_for_the_start(&self) -> bool {
        let has = |kind: &str| self.rule.resources.iter().flatten().any(|it| it == kind);
        matches!(self.role, RoleKind::Default | RoleKind::KubeSystem)
            || has("namespaces")
            || has("leases")
            || has("configmaps")
            || has("customresourcedefinitions")
    }

    async fn where_reported(&self, rollout: &RollOut, controller: &Controller) -> Result<ReportedIn, String> {
        let ctx = &rollout.ctx;
        let plan = ctx.plans().get_opt(PLAN).await.expect("an answer");
        let conditions = ["Validated", "Complete"].map(|kind| {
            let condition = plan.as_ref().and_then(|plan| find_condition(plan, kind));
            condition.and_then(|it| it.message.clone()).unwrap_or_default()
        });
        if conditions.iter().any(|text| self.is_named_in(text)) {
            return Ok(ReportedIn::Plan);
        }
        let events = ctx.events_with(super::MISSING).await;
        if events
            .iter()
            .filter_map(|it| it.message.as_deref())
            .any(|it| self.is_named_in(it))
        {
            return Ok(ReportedIn::Event);
        }
        let log = controller.log();
        if self.is_named_in(&log) {
            return Ok(ReportedIn::Log);
        }
        Err(format!(
            "{self} is named neither in {conditions:?} nor in an event nor in the log:\n{log}"
        ))
    }

    /// Runs a controller without the rule, and a Plan that needs all of them.
    async fn run(self) -> (Self, ReportedIn) {
        let mut rollout = RollOut::prepare(TestContext::with(Manifests::Base).await, SHAPE).await;
        rollout.rough = true;
        rollout.spec["reboot"] = json!({ "when": "Always" });
        rollout.spec["settle"] = json!({ "workloads": true });
        let ctx = &rollout.ctx;
        let mut rules = self.role.read(ctx).await;
        assert_eq!(rules[self.number].verbs, self.rule.verbs);
        rules.remove(self.number);
        self.role.write(ctx, &rules).await;
        let first = |list: &Option<Vec<String>>| list.iter().flatten().next().cloned().unwrap_or_default();
        let (group, resource) = (first(&self.rule.api_groups), first(&self.rule.resources));
        let name = first(&self.rule.resource_names);
        until_refused_for(
            ctx,
            self.role.namespace(ctx),
            &name,
            &self.rule.verbs[0],
            &group,
            &resource,
        )
        .await;
        let controller = rollout.controller().env(BACKOFF_LIMIT, "0").start();
        if !self.is_for_the_start() {
            rollout.begin().await;
        }
        let named = wait::eventually("what is missing is named", SOON, async || {
            let found = self.where_reported(&rollout, &controller).await?;
            // The log is the first to know; a Plan that can say it does so next.
            let may_come = found == ReportedIn::Log && self.is_of_plans();
            if may_come {
                let plan = ctx.plans().get_opt(PLAN).await.expect("an answer");
                let status = plan.and_then(|plan| plan.status);
                Err(format!(
                    "{self} is named in the log only:\n{}\n{status:?}",
                    controller.log()
                ))
            } else {
                Ok(found)
            }
        })
        .await;
        for node in ctx.my_nodes().await {
            let is_touched = is_cordoned(&node) || ledger(&node).is_some();
            assert!(!is_touched, "{self}: named {named:?}, but {node:?}");
        }
        assert_eq!(ctx.jobs_of(PLAN).await.len(), 0, "{self}: a Job was created");
        (self, named)
    }

    /// Whether a Plan or an event about it says what is missing: not if Plans cannot be read or their status cannot be
    /// written.
    fn is_of_plans(&self) -> bool {
        let has = |kind: &str| self.rule.resources.iter().flatten().any(|it| it == kind);
        !self.is_for_the_start() && !has("plans") && !has("plans/status")
    }
}

#[tokio::test]
async fn each_rule_of_the_controller_s_roles_is_named_when_it_is_missing_and_before_a_node_is_cordoned() {
    let ctx = TestContext::with(Manifests::Base).await;
    let mut all = Vec::new();
    for role in [
        RoleKind::Cluster,
        RoleKind::Namespace,
        RoleKind::Default,
        RoleKind::KubeSystem,
    ] {
        let rules = role.read(&ctx).await.into_iter().enumerate();
        all.extend(rules.map(|(number, rule)| Removed { role, number, rule }));
    }
    drop(ctx);
    assert!(all.len() >= 14, "{all:?}");
    let mut outcomes =
        futures::stream::iter(all.into_iter().map(Removed::run)).buffer_unordered(SIDE_BY_SIDE);
    while let Some((removed, named)) = outcomes.next().await {
        eprintln!("{removed}: {named:?}");
    }
}
