//! Which Plan `prepare` waits for.
//!
//! The K3s and RKE2 images take `prepare <plan>`. Their script (`scripts/upgrade.sh` of rancher/k3s-upgrade and
//! rancher/rke2-upgrade) polls until the deadline of the Job: first for a Plan of that name in the same namespace, then
//! for its `status.applying` to be empty, and then for all control-plane nodes to run the version of the waiting Plan.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::control_plane::Role;
use super::metadata::is_subdomain;
use super::subject::Subject;
use super::versions::release_of;
use super::waits::Waits;
use crate::gitops::placeholder::{given, is_placeholder};
use crate::gitops::roots::Roots;
use crate::gitops::rule::Rule;
use crate::gitops::source::Source;
use crate::gitops::yaml::{Kind, Node};
use refit_api::Plan;
use refit_api::prepare::Prepare;
use refit_base::version::distribution_of;
use refit_base::version::tag::munge;

const FIELD: &str = "spec.prepare.args";
const COMMAND: &str = "spec.prepare.command";

/// A Plan, and what the check of other Plans needs to know of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) file: String,
    pub(super) roots: Roots,
    pub(super) role: Role,
    pub(super) program: Option<&'static str>,
    pub(super) prepare: Option<Prepare>,
    pub(super) version: Option<String>,
    /// The release of `program` that the version means.
    pub(super) release: Option<String>,
    channel: Option<String>,
    pub(super) depends_on: Vec<String>,
    /// Absent if it is not all that selects the nodes.
    pub(super) selector: Option<LabelSelector>,
    pub(super) is_suspended: bool,
}

impl Known {
    pub(super) fn new(plan: &Plan, source: &Source) -> Self {
        let spec = &plan.spec;
        let program = distribution_of(spec.upgrade_image());
        let release = spec.version.as_deref().and_then(release_of);
        Self {
            namespace: plan.metadata.namespace.clone().unwrap_or_default(),
            name: plan.metadata.name.clone().unwrap_or_default(),
            file: source.name.clone(),
            roots: source.roots.clone(),
            role: Role::of(spec.node_selector.as_ref()),
            program,
            // One of another distribution has a finding of its own.
            release: release.filter(|release| program.is_some_and(|program| release.contains(program))),
            prepare: spec.prepare.as_deref().and_then(Prepare::of),
            version: given(spec.version.as_ref()),
            channel: given(spec.channel.as_ref()),
            depends_on: spec
                .depends_on
                .iter()
                .flatten()
                .map(|one| one.name.clone())
                .collect(),
            selector: spec.node_selector.clone().filter(|_| spec.node_info.is_none()),
            is_suspended: spec.suspend == Some(true),
        }
    }

    /// Whether both are in the same namespace of one cluster.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        other.namespace == self.namespace && other.roots.may_share_cluster(&self.roots)
    }
}

impl Subject<'_> {
    /// Checks which Plan this one waits for.
    pub(super) fn check_prepare(&mut self, own: &Known, waits: &Waits<'_>) {
        let Some(prepare) = &own.prepare else { return };
        if !self.has_texts(FIELD) || !self.has_texts(COMMAND) {
            return; // one that was refused for its type
        }
        let command = self.node(COMMAND).map_or(&[][..], Node::items);
        let program = command.first().and_then(Node::text).unwrap_or_default();
        let is_program = matches!(prepare, Prepare::NotFound(word) if word == program);
        let has_args = self.node(FIELD).is_some_and(|args| !args.items().is_empty());
        let in_command = command.len() > 1 && !has_args || is_program;
        let field = if in_command { COMMAND } else { FIELD };
        let servers = || {
            waits.all.iter().find(|other| {
                own.is_beside(other)
                    && other.name != own.name
                    && other.program == own.program
                    && other.role == Role::ControlPlane
            })
        };
        let hint = || {
            let name = servers().map_or("NAME", |servers| servers.name.as_str());
            format!(
                "the arguments are `prepare` and the Plan for control-plane nodes, as in `[prepare, {name}]`"
            )
        };
        let problem = match prepare {
            Prepare::Upgrades if !has_args && command.is_empty() => {
                "spec.prepare has no args, so its image upgrades the node before it is cordoned or drained"
                    .to_owned()
            }
            Prepare::Upgrades => {
                format!("{field} upgrades the node before it is cordoned or drained, and waits for no Plan")
            }
            Prepare::Nothing => {
                format!("{field} names no function of the image, so it does nothing and waits for no Plan")
            }
            Prepare::NotFound(word) if is_placeholder(word) || word.contains("$(") => return,
            Prepare::NotFound(word) => format!(
                "{field} calls {word:?}, which is neither `prepare` nor `upgrade`, so every Job fails with exit code 127"
            ),
            Prepare::WithoutPlan => format!("{field} names no Plan to wait for, so every Job fails"),
            Prepare::WaitsFor(name) if is_placeholder(name) => return,
            Prepare::WaitsFor(name) if *name == own.name => {
                format!("{field} waits for Plan {name:?}, which is this Plan: no Job ever gets past prepare")
            }
            Prepare::WaitsFor(name) => match waits.beside(own, name) {
                Some(awaited) => return self.check_awaited(field, own, awaited, waits),
                None if !is_subdomain(name) => format!(
                    "{field} waits for Plan {name:?}, which cannot be the name of a Plan: no Job ever gets past prepare"
                ),
                None if servers().is_some() => {
                    let why = waits.elsewhere(own, name);
                    format!("{field} waits for Plan {name:?}, which {why}: no Job ever gets past prepare")
                }
                None => {
                    let why = waits.elsewhere(own, name);
                    let message = format!("{field} waits for Plan {name:?}, which {why}");
                    let hint =
                        "check that it exists in the same namespace; otherwise no Job ever gets past prepare";
                    let items = self.node(field).map_or(&[][..], Node::items);
                    let place = items.iter().position(|item| item.text() == Some(name));
                    let item = place.map_or_else(|| field.to_owned(), |place| format!("{field}[{place}]"));
                    self.report(Rule::UnknownPlan, &item, message, Some(hint.to_owned()));
                    return;
                }
            },
        };
        let hint = hint();
        self.report(Rule::PreparePlan, field, problem, Some(hint));
    }

    /// The field is absent, or a list of texts.
    fn has_texts(&self, field: &str) -> bool {
        self.node(field).is_none_or(|node| match &node.kind {
            Kind::Null => true,
            Kind::List(items) => items.iter().all(|item| item.text().is_some()),
            _ => false,
        })
    }

    fn check_awaited(&mut self, field: &str, own: &Known, awaited: &Known, waits: &Waits<'_>) {
        let name = &awaited.name;
        let cycle = waits.cycle(own, name).filter(|_| awaited.role != Role::Worker);
        if let Some(members) = cycle {
            let message = format!("{field} makes a cycle, so that no Job gets past prepare: {members}");
            let hint =
                "let the Plan for control-plane nodes wait for no other, neither by prepare nor by dependsOn";
            self.report(Rule::PreparePlan, field, message, Some(hint.to_owned()));
            return;
        }
        if own.role == Role::ControlPlane {
            let message = format!(
                "{field} waits until all control-plane nodes have the new version, but this Plan is the one that upgrades them"
            );
            let hint = "remove spec.prepare here; it belongs in the Plan for agents".to_owned();
            self.report(Rule::PreparePlan, field, message, Some(hint));
            return;
        }
        if awaited.role == Role::Worker {
            let message = format!(
                "{field} waits for Plan {name:?}, which selects no control-plane node and upgrades none"
            );
            let hint = "name the Plan for control-plane nodes".to_owned();
            self.report(Rule::PreparePlan, field, message, Some(hint));
            return;
        }
        let (field, mine, other) = match (&own.version, &awaited.version) {
            (Some(mine), Some(other)) if munge(mine) != munge(other) => ("spec.version", mine, other),
            (None, None) => match (&own.channel, &awaited.channel) {
                (Some(mine), Some(other)) if mine != other => ("spec.channel", mine, other),
                _ => return,
            },
            _ => return,
        };
        let message = format!(
            "{field} is {mine:?}, but that of Plan {name:?} is {other:?}: prepare waits until all control-plane nodes run \
             the version of this Plan"
        );
        let hint = "give both Plans the same version, that for control-plane nodes first".to_owned();
        self.report(Rule::VersionSkew, field, message, Some(hint));
    }
}
