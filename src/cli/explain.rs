//! `refit explain`: why a Plan, a node or another object is blocked.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use kube::Client;
use serde_json::json;

use super::output;
use super::output_format::{OutputFormat, any_of};
use super::target::{self, ClusterFlags, check_nodes, find, unknown, with_client};
use refit_cluster::kube::{Answer, brief};
use refit_facts::objects::maintenance::{KIND, Maintenance};
use refit_facts::objects::node_op::{AnyOp, OpKind};
use refit_formats::convert::op_plan::owner;
use refit_view::node_op::{explain_op_without_plan, explain_plan_of_op, plans_of, read_ops};
use refit_view::{Explanation, PlanOverview, Snapshot, explain_node, explain_plan};
use refit_view::{explain_any_node, explain_maintenance};

pub(super) const EXAMPLES: &str = "Examples:
  refit explain
      every Plan that is held
  refit explain server
      what holds the Plan, down to the object, and the command that would release it
  refit explain server node-7
      the same for one node, with its history
  refit explain node/node-7
      the maintenance that the node is in, and each Plan that selects it
  refit explain nodeop/firmware
      what holds the Plan of a NodeOp; also nodeopupgrade/NAME
  refit explain nodemaintenance/new-disk
      what a maintenance waits for, and who holds its node";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// The Plan, or another object: nodeop/NAME, nodeopupgrade/NAME, nodemaintenance/NAME, node/NAME [default: all Plans
    /// that are held]
    #[arg(value_name = "[NAMESPACE/]PLAN|KIND/NAME")]
    plan: Option<String>,

    /// Node to explain, whether or not the Plan selects it
    #[arg(value_name = "NODE")]
    node: Option<String>,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Json, OutputFormat::Yaml]))]
    output: OutputFormat,

    #[command(flatten)]
    place: ClusterFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target<'a> {
    /// All Plans that are held.
    Held,
    /// A Plan, perhaps with its namespace.
    Plan(&'a str),
    /// An object of kairos-operator, perhaps with its own namespace.
    Op(OpKind, Option<&'a str>, &'a str),
    Maintenance(&'a str),
    Node(&'a str),
}

impl<'a> Target<'a> {
    /// `KIND/NAME` as kubectl takes and prints it, or else a Plan.
    fn of(text: &'a str) -> Self {
        let Some((kind, name)) = text.split_once('/') else {
            return Self::Plan(text);
        };
        let op = |kind| match name.split_once('/') {
            Some((namespace, name)) => Self::Op(kind, Some(namespace), name),
            None => Self::Op(kind, None, name),
        };
        match kind.split('.').next().unwrap_or_default().to_lowercase().as_str() {
            "plan" | "plans" => Self::Plan(name),
            "nodeop" | "nodeops" => op(OpKind::Op),
            "nodeopupgrade" | "nodeopupgrades" => op(OpKind::Upgrade),
            "nodemaintenance" | "nodemaintenances" | "nm" => Self::Maintenance(name),
            "node" | "nodes" | "no" => Self::Node(name),
            _ => Self::Plan(text),
        }
    }
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client: Client| {
        let target = flags.plan.as_deref().map_or(Target::Held, Target::of);
        let scope = match target {
            Target::Held => flags.place.scope(&client, None).await,
            Target::Plan(plan) => flags.place.scope(&client, Some(plan)).await,
            // Plans of any namespace may hold such an object.
            Target::Op(..) | Target::Maintenance(_) | Target::Node(_) => flags.place.everywhere(),
        };
        let snapshot = target::read(&client, &scope).await?;
        let node = flags.node.as_deref();
        if let (Target::Maintenance(_) | Target::Node(_), Some(node)) = (target, node) {
            let object = flags.plan.as_deref().unwrap_or_default();
            bail!("{object} takes no NODE argument: leave out {node}");
        }
        let explanations = match target {
            Target::Held => {
                let all = snapshot
                    .plans
                    .iter()
                    .map(|plan| PlanOverview::new(&snapshot, plan));
                all.map(|view| explain_plan(&view)).filter(|it| it.held).collect()
            }
            Target::Plan(plan) => {
                let view = find(&snapshot, plan)?;
                vec![match node {
                    Some(node) => {
                        check_nodes(&view, std::slice::from_ref(&node.to_owned()))?;
                        explain_node(&view, node)
                    }
                    None => explain_plan(&view),
                }]
            }
            Target::Op(kind, namespace, name) => {
                vec![op(&client, &snapshot, (kind, namespace, name), node).await?]
            }
            Target::Maintenance(name) => maintenances(&snapshot, name)?,
            Target::Node(name) => {
                if let Some(known) = &snapshot.nodes
                    && !known.contains_key(name)
                {
                    bail!("{}", unknown("Node", name, known.keys().map(String::as_str)));
                }
                explain_any_node(&snapshot, name)
            }
        };
        print(flags, target, &snapshot, &explanations)
    })
}

fn print(
    flags: &Flags,
    target: Target<'_>,
    snapshot: &Snapshot,
    explanations: &[Explanation],
) -> anyhow::Result<ExitCode> {
    for gap in &snapshot.gaps {
        output::note(format_args!("note: {gap}"));
    }
    let held = explanations.iter().any(|explanation| explanation.held);
    if flags.output.is_data() {
        let mut all: Vec<_> = explanations.iter().map(Explanation::to_json).collect();
        let value = match (target, all.len()) {
            // Any number of objects concern a node.
            (Target::Node(name), _) => json!({ "node": name, "held": held, "explanations": all }),
            (Target::Plan(_) | Target::Op(..) | Target::Maintenance(_), 1) => all.pop().unwrap_or_default(),
            _ => json!({ "held": held, "explanations": all }),
        };
        flags.output.print(&value)?;
    } else {
        if explanations.is_empty() {
            let plans = snapshot.plans.len();
            output::note(format_args!("none of {plans} Plans is held"));
        }
        let texts: Vec<_> = explanations.iter().map(Explanation::to_text).collect();
        output::text(&texts.join("\n")).context("the explanation cannot be printed")?;
    }
    Ok(if held {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The Plan of an object, or why it has none.
async fn op(
    client: &Client,
    snapshot: &Snapshot,
    (kind, namespace, name): (OpKind, Option<&str>, &str),
    node: Option<&str>,
) -> anyhow::Result<Explanation> {
    let is_here =
        |owner: &str| namespace.is_none_or(|wanted| owner == format!("{} {wanted}/{name}", kind.name()));
    let plans = plans_of(snapshot, kind, name).into_iter();
    let plans: Vec<_> = plans.filter(|plan| owner(plan).is_some_and(is_here)).collect();
    match plans.as_slice() {
        [plan] => {
            let view = PlanOverview::new(snapshot, plan);
            if let Some(node) = node {
                check_nodes(&view, std::slice::from_ref(&node.to_owned()))?;
            }
            return Ok(explain_plan_of_op(&view, node));
        }
        [] => {}
        several => {
            let owners: Vec<_> = several.iter().filter_map(|plan| owner(plan)).collect();
            bail!(
                "there are several: {}; write {}/NAMESPACE/{name}",
                owners.join(", "),
                kind.name().to_lowercase()
            );
        }
    }
    let ops = read_ops(client, kind).await.map_err(|error| match &error {
        error if Answer::of(error) == Answer::NotFound => anyhow!(
            "the cluster has no {}s: its API server does not know the kind; install deploy/overlays/nodeops",
            kind.name()
        ),
        _ => anyhow!(
            "no Plan that can be read is of {} {name}, and {}s cannot be read: {}",
            kind.name(),
            kind.name(),
            brief(&error)
        ),
    })?;
    let mut named = ops
        .iter()
        .filter(|op| op.name() == name && namespace.is_none_or(|wanted| wanted == op.namespace()));
    match named.next() {
        Some(op) => Ok(explain_op_without_plan(op)),
        None => bail!("{}", unknown(kind.name(), name, ops.iter().map(AnyOp::name))),
    }
}

/// The objects of this name: one of each group.
fn maintenances(snapshot: &Snapshot, name: &str) -> anyhow::Result<Vec<Explanation>> {
    let all = &snapshot.maintenances;
    let named: Vec<_> = all.iter().filter(|object| object.name() == name).collect();
    if named.is_empty() {
        bail!("{}", unknown(KIND, name, all.iter().map(Maintenance::name)));
    }
    Ok(named
        .into_iter()
        .map(|object| explain_maintenance(snapshot, object))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_as_by_kubectl_and_a_plan_with_its_namespace() {
        for (text, expected) in [
            ("server", Target::Plan("server")),
            ("system-upgrade/server", Target::Plan("system-upgrade/server")),
            ("plan.upgrade.cattle.io/server", Target::Plan("server")),
            ("nodeop/firmware", Target::Op(OpKind::Op, None, "firmware")),
            (
                "NodeOpUpgrade/apps/kairos",
                Target::Op(OpKind::Upgrade, Some("apps"), "kairos"),
            ),
            ("nodemaintenance/disk", Target::Maintenance("disk")),
            (
                "nodemaintenance.nodemaintenance.medik8s.io/disk",
                Target::Maintenance("disk"),
            ),
            ("node/worker-1", Target::Node("worker-1")),
        ] {
            assert_eq!(Target::of(text), expected, "{text}");
        }
    }
}
