//! `refit suspend`, `resume`, `approve`, `retry`, `skip`, `abort`, `rerun` and `start`: each writes what a person could write by
//! hand, with who and when.

mod change;
mod edit;
pub(super) mod examples;
mod freeze;
mod start;
#[cfg(test)]
mod tests;
mod wait;
mod write;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use change::changes;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use edit::{Action, Changes, Request};
pub(super) use freeze::{FreezeFlags, Place, freeze, unfreeze};
use kube::Client;
use serde_json::json;

use super::cluster::DryRunFlag;
use super::output;
use super::output_format::{OutputFormat, any_of};
use super::target::{self, ClusterFlags, check_nodes, find, with_client};
use refit_api::annotation::signature;
use refit_api::exemption::StartLimit;
use refit_cluster::clock::Clock;
use refit_cluster::drain::DryRun;
use refit_cluster::drain::flags::TimeoutArg;

#[derive(Args, Clone, Debug)]
struct Common {
    #[command(flatten)]
    dry_run: DryRunFlag,

    /// Wait for the effect; progress is on standard error
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    timeout: TimeoutArg,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Json, OutputFormat::Yaml, OutputFormat::Name]))]
    output: OutputFormat,

    #[command(flatten)]
    place: ClusterFlags,
}

#[derive(Args, Clone, Debug)]
pub(super) struct PlanFlags {
    /// Plan by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    #[command(flatten)]
    common: Common,
}

/// One Plan or several.
#[derive(Args, Clone, Debug)]
pub(super) struct PlansFlags {
    /// Plans by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN", required_unless_present = "all")]
    plan: Vec<String>,

    /// All Plans of the namespace, or with -A of all namespaces
    #[arg(long, conflicts_with = "plan")]
    all: bool,

    #[command(flatten)]
    common: Common,
}

#[derive(Args, Clone, Debug)]
pub(super) struct SuspendFlags {
    /// Reason, shown in status and events
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    plans: PlansFlags,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ReasonFlags {
    /// Reason, shown in status and events
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    plan: PlanFlags,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ApproveFlags {
    /// Approve this version; fail unless it waits for approval
    #[arg(long, value_name = "VERSION", conflicts_with = "wave")]
    version: Option<String>,

    /// Approve this wave at the current version; fail unless it waits for approval
    #[arg(long, value_name = "NAME")]
    wave: Option<String>,

    #[command(flatten)]
    plan: PlanFlags,
}

#[derive(Args, Clone, Debug)]
pub(super) struct NodeFlags {
    /// Plan by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    /// Nodes [default: all to which the command applies]
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,

    #[command(flatten)]
    common: Common,
}

#[derive(Args, Clone, Debug)]
pub(super) struct SkipFlags {
    /// Plan by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    /// Nodes to skip
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,

    /// Stop skipping the nodes
    #[arg(long)]
    undo: bool,

    /// Skip the nodes at every version, not only at the current one
    #[arg(long, conflicts_with = "undo")]
    always: bool,

    #[command(flatten)]
    common: Common,
}

#[derive(Args, Clone, Debug)]
pub(super) struct StartFlags {
    /// Plan by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    /// Nodes that start [default: all of the roll-out]
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,

    /// Limits that do not count: window, soak, checks, blackout; separated by commas
    #[arg(
        long,
        value_name = "LIMIT",
        required = true,
        value_delimiter = ',',
        add = ArgValueCandidates::new(|| StartLimit::ALL.map(|limit| limit.as_str().into()).into())
    )]
    despite: Vec<StartLimit>,

    /// Reason, shown in history and events
    #[arg(long, value_name = "TEXT", required = true, value_parser = start::reason)]
    reason: String,

    #[command(flatten)]
    common: Common,
}

pub(super) fn start(flags: &StartFlags) -> anyhow::Result<ExitCode> {
    let action = Action::Start {
        limits: flags.despite.iter().copied().collect(),
        reason: flags.reason.clone(),
    };
    run(&flags.plan, &flags.nodes, action, &flags.common)
}

pub(super) fn suspend(flags: &SuspendFlags) -> anyhow::Result<ExitCode> {
    let action = Action::Suspend {
        reason: flags.reason.clone(),
    };
    run_each(&flags.plans, &action)
}

pub(super) fn resume(flags: &PlansFlags) -> anyhow::Result<ExitCode> {
    run_each(flags, &Action::Resume)
}

pub(super) fn abort(flags: &ReasonFlags) -> anyhow::Result<ExitCode> {
    let action = Action::Abort {
        reason: flags.reason.clone(),
    };
    run(&flags.plan.plan, &[], action, &flags.plan.common)
}

pub(super) fn approve(flags: &ApproveFlags) -> anyhow::Result<ExitCode> {
    let action = Action::Approve {
        version: flags.version.clone(),
        wave: flags.wave.clone(),
    };
    run(&flags.plan.plan, &[], action, &flags.plan.common)
}

pub(super) fn retry(flags: &NodeFlags) -> anyhow::Result<ExitCode> {
    run(&flags.plan, &flags.nodes, Action::Retry, &flags.common)
}

pub(super) fn skip(flags: &SkipFlags) -> anyhow::Result<ExitCode> {
    let action = if flags.undo {
        Action::Unskip
    } else {
        Action::Skip { always: flags.always }
    };
    run(&flags.plan, &flags.nodes, action, &flags.common)
}

pub(super) fn rerun(flags: &NodeFlags) -> anyhow::Result<ExitCode> {
    run(&flags.plan, &flags.nodes, Action::Rerun, &flags.common)
}

/// One Plan after the other. What goes wrong with one keeps the others from nothing.
fn run_each(flags: &PlansFlags, action: &Action) -> anyhow::Result<ExitCode> {
    let common = &flags.common;
    with_client(&common.place.connection, async |client: Client| {
        let plans = if flags.all {
            let scope = common.place.scope(&client, None).await;
            let snapshot = target::read_plans(&client, &scope).await?;
            let title = |plan: &refit_facts::PlanFacts| format!("{}/{}", plan.namespace(), plan.name);
            snapshot.plans.iter().map(title).collect()
        } else {
            flags.plan.clone()
        };
        if let [plan] = plans.as_slice() {
            return steer(&client, plan, &[], action.clone(), common).await;
        }
        let mut code = ExitCode::SUCCESS;
        for plan in &plans {
            match steer(&client, plan, &[], action.clone(), common).await {
                Ok(ended) if ended == ExitCode::SUCCESS => {}
                Ok(ended) => code = ended,
                Err(error) => {
                    output::error(format_args!("Plan {plan}: {}", output::error_chain(&error)));
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    })
}

fn run(plan: &str, nodes: &[String], action: Action, common: &Common) -> anyhow::Result<ExitCode> {
    let work = async |client: Client| steer(&client, plan, nodes, action, common).await;
    with_client(&common.place.connection, work)
}

async fn steer(
    client: &Client,
    plan: &str,
    nodes: &[String],
    action: Action,
    common: &Common,
) -> anyhow::Result<ExitCode> {
    let dry_run = common.dry_run.dry_run;
    let scope = common.place.scope(client, Some(plan)).await;
    let snapshot = target::read(client, &scope).await?;
    let view = find(&snapshot, plan)?;
    check_nodes(&view, nodes)?;
    let who = write::whoami(client).await;
    let request = Request {
        view: &view,
        nodes,
        action: &action,
        signature: signature(&who, Clock::system().now()),
    };
    let changes = match changes(&request) {
        Ok(changes) => changes,
        Err(refusal) => bail!("{refusal}"),
    };
    for note in &changes.notes {
        output::note(format_args!("note: {note}"));
    }
    let done = match dry_run {
        DryRun::Client => write::Written::all(&changes),
        _ => write::write(client, &changes, dry_run == DryRun::Server).await,
    };
    print(&changes, &done, common)?;
    if let Some(error) = done.error {
        return Err(error);
    }
    if common.wait && dry_run == DryRun::None {
        let goal = wait::Goal::of(&action, nodes, &view, &changes);
        return wait::wait(client, &changes, &goal, common.timeout.limit()).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what was changed.
fn print(changes: &Changes, done: &write::Written, common: &Common) -> anyhow::Result<()> {
    let dry_run = common.dry_run.dry_run;
    let suffix = dry_run.suffix();
    let plan = changes.plan.as_ref().filter(|_| done.plan);
    let plan = plan
        .iter()
        .map(|plan| ("plan.upgrade.cattle.io", &changes.name, &plan.says));
    let nodes = changes.nodes.iter().take(done.nodes);
    let nodes = nodes.map(|node| ("node", &node.name, &node.says));
    let objects: Vec<_> = plan.chain(nodes).collect();
    if common.output.is_data() {
        let written = objects
            .iter()
            .map(|(kind, name, says)| json!({ "object": format!("{kind}/{name}"), "change": says }));
        return common.output.print(&json!({
            "plan": changes.name, "namespace": changes.namespace, "dryRun": dry_run != DryRun::None,
            "changed": written.collect::<Vec<_>>(),
        }));
    }
    let line = |(kind, name, says): &(&str, &String, &String)| match common.output {
        OutputFormat::Name => format!("{kind}/{name}\n"),
        _ => format!("{kind}/{name} {says}{suffix}\n"),
    };
    let lines: String = objects.iter().map(line).collect();
    output::text(&lines).context("the result cannot be printed")
}
