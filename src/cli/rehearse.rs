//! `refit rehearse`: a roll-out on a simulated cluster, in virtual time.

mod assumed_version;
mod channel_offers;
mod compare;
mod context;
mod event_line;
mod flags;
mod front_ends;
mod input;
mod inputs;
mod progress;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use channel_offers::channel_offers;
pub(super) use flags::Flags;
use flags::Start;
use input::RehearsalInput;
use inputs::{
    approved, checked, choose, chosen_on_cluster, elsewhere, initial_cluster, missing_images,
    missing_secrets, namespace, read_snapshot, requests, settings, unwaited,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;

use super::output_format::OutputFormat;
use super::{USAGE, html, output, validate};
use refit_api::Plan;
use refit_cluster::clock::Clock;
use refit_controller::settings::Settings;
use refit_rehearse::assumptions::Assumptions;
use refit_rehearse::json::Value;
use refit_rehearse::report::{Report, TimeFormat, report};
use refit_rehearse::run::{ChannelOffers, InitialCluster, Outcome, Rehearsal, RehearsalError, run_rehearsal};

pub(super) const EXAMPLES: &str = "Examples:
  refit rehearse examples/k3s-upgrade.yaml --nodes 12
      on twelve generated nodes with the labels that the Plans select
  kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml > cluster.yaml
  refit rehearse plan.yaml --snapshot cluster.yaml
      on the nodes, pods and budgets of a cluster, in the order in which the controller would take them
  refit rehearse plan.yaml --snapshot context
      on the cluster of the current context, which is read once
  kustomize build clusters/prod | refit rehearse - --nodes 40 --upgrade 4m..9m --fail 5% -q
      what a cluster would get, with other times and some failures; only the result
  refit rehearse --compare main/plan.yaml plan.yaml --html change.html
      what a change of a Plan does, as a table and as a page for the pull request
  refit rehearse plan.yaml --start 2026-03-06T21:30:00Z
      on a Friday evening, half an hour before the window opens";

/// Start of a rehearsal on a generated cluster: a fixed Monday morning, so that results are reproducible.
const START: Timestamp = Timestamp::constant(1_767_603_600, 0);

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    if let Some(Err(error)) = flags.html.as_deref().map(check_html) {
        output::error(error);
        return Ok(ExitCode::from(USAGE));
    }
    if let [old, new] = flags.compare.as_slice() {
        return compare::run(flags, old, new);
    }
    let rehearsed = match rehearse(flags, flags.quiet || flags.output == OutputFormat::Json)? {
        Ok(rehearsed) => rehearsed,
        Err(code) => return Ok(code),
    };
    let report = &rehearsed.report;
    rehearsed.progress.end(report);
    let is_written = flags.html.as_deref().is_none_or(|path| {
        let document = report.to_document(&rehearsed.outcome, None);
        html::write_or_report(path, &document)
    });
    match flags.output {
        OutputFormat::Json => output::json(&report.to_json()),
        _ => output::text(&report.to_text()),
    }
    .context("the result cannot be printed")?;
    if flags.output == OutputFormat::Json {
        output::note(&report.verdict.line);
    }
    Ok(exit_code(report, is_written))
}

fn check_html(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        path != Path::new("-"),
        "--html needs the name of a file; standard output has the result"
    );
    html::check(path)
}

/// The exit code of a rehearsal, whose page may not have been written.
fn exit_code(report: &Report, is_written: bool) -> ExitCode {
    if !is_written {
        ExitCode::from(USAGE)
    } else if report.verdict.complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A rehearsal that has ended.
struct Rehearsed {
    report: Report,
    outcome: Outcome,
    progress: progress::Progress,
    /// Nodes of the cluster at the start.
    nodes: BTreeSet<String>,
}

/// Reads the input and runs the rehearsal. The exit code is that of errors which have been printed.
fn rehearse(flags: &Flags, quiet: bool) -> anyhow::Result<Result<Rehearsed, ExitCode>> {
    let (rehearsal, mut assumed) = match prepare(flags) {
        Ok(prepared) => prepared,
        Err(error) => {
            if error.downcast_ref::<AlreadyPrinted>().is_none() {
                output::error(output::error_chain(&error));
            }
            return Ok(Err(ExitCode::from(USAGE)));
        }
    };
    let times = if flags.times {
        let plans: Vec<Plan> = rehearsal
            .all_plans()
            .filter_map(|plan| Plan::deserialize(plan).ok())
            .collect();
        TimeFormat::clock(rehearsal.start, &plans, &rehearsal.blackouts())
    } else {
        TimeFormat::since(rehearsal.start)
    };
    assumed.push(format!(
        "the controller starts at {}; seed {}",
        times.start(),
        flags.assumed.seed
    ));
    for line in &assumed {
        output::note(format_args!("assumed: {line}"));
    }
    let mut progress = progress::Progress::new(&rehearsal, quiet, &times);
    let outcome = run_rehearsal(&rehearsal, &mut |event| progress.add(event));
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error @ (RehearsalError::UnknownNode(_) | RehearsalError::Refused { .. })) => {
            output::error(error);
            return Ok(Err(ExitCode::from(USAGE)));
        }
        Err(error) => return Err(error.into()),
    };
    let nodes = rehearsal.initial_cluster.nodes().into_iter().map(str::to_owned);
    Ok(Ok(Rehearsed {
        report: report(&outcome, flags.assumed.seed, assumed, times),
        nodes: nodes.collect(),
        outcome,
        progress,
    }))
}

/// All errors have been reported.
#[derive(Debug, thiserror::Error)]
#[error("the errors are printed already")]
struct AlreadyPrinted;

/// Reads all input, and returns the assumptions.
fn prepare(flags: &Flags) -> anyhow::Result<(Rehearsal, Vec<String>)> {
    let (sources, unread) = validate::read(&flags.files);
    if unread {
        return Err(AlreadyPrinted.into());
    }
    let mut given = input::read(&sources);
    if !given.errors.is_empty() {
        given.errors.iter().for_each(output::error);
        return Err(AlreadyPrinted.into());
    }
    given.notes.iter().for_each(output::note);
    let mut snapshot = read_snapshot(flags)?;
    front_ends::add_plans(flags, &mut given, snapshot.as_mut());
    if !given.errors.is_empty() {
        given.errors.iter().for_each(output::error);
        return Err(AlreadyPrinted.into());
    }
    choose(flags, &sources, &mut given, snapshot.as_ref())?;
    let namespace = namespace(flags, &mut given, snapshot.as_ref())?;
    let start = match (flags.assumed.start, &snapshot) {
        (Some(Start::At(at)), _) => at,
        (Some(Start::Now), _) => whole_second(Clock::system().now()),
        (None, Some(snapshot)) => snapshot.taken.map_or(START, whole_second),
        (None, None) => START,
    };
    let assumptions = Assumptions {
        seed: flags.assumed.seed,
        prepare: flags.assumed.prepare,
        drain: flags.assumed.drain,
        upgrade: flags.assumed.upgrade,
        reboot: flags.assumed.reboot,
        pod_start: flags.assumed.pod_start,
        hook: flags.assumed.hook,
        fail: flags.assumed.fail.clone(),
        faults: flags.assumed.fault.clone(),
    };
    if let Some(snapshot) = &mut snapshot {
        // The controller ignores Plans of other namespaces.
        let is_here = |plan: &Value| plan["metadata"]["namespace"] == *namespace;
        for plan in snapshot.plans.iter().filter(|plan| !is_here(plan)) {
            given
                .absent
                .entry(plan.meta("name").to_owned())
                .or_insert_with(|| elsewhere(plan.meta("namespace")));
        }
        snapshot.plans.retain(is_here);
    }
    let (mut assumed, mut offered) = (Vec::new(), std::mem::take(&mut given.assumed));
    let channel_offers = channel_offers(flags, &mut given, snapshot.as_ref(), &mut offered)?;
    let mut initial_cluster = initial_cluster(flags, &given, snapshot, &channel_offers, &mut assumed);
    assumed.append(&mut offered);
    missing_secrets(&given, &mut assumed);
    unwaited(&given, &mut assumed);
    approved(&given, &mut assumed);
    checked(flags, &given, &mut assumed)?;
    assumed.push(assumptions.describe());
    let on_cluster = match &initial_cluster {
        // Those of a snapshot run anyway; they are rehearsed if nothing else is, or if they are chosen.
        InitialCluster::Snapshot(snapshot) if given.plans.is_empty() || !flags.plan.is_empty() => {
            chosen_on_cluster(flags, &given, &snapshot.plans)
        }
        InitialCluster::Snapshot(_) | InitialCluster::Generated { .. } => Vec::new(),
    };
    let plans = given.plans.iter().map(|plan| plan.value.clone());
    let plans: Vec<Value> = plans.chain(on_cluster).collect();
    requests(&plans, &mut initial_cluster, &mut assumed);
    let mut settings = settings(flags, &namespace, &initial_cluster, &mut assumed)?;
    refuse_missing_images(flags, &given, &settings, &channel_offers, start)?;
    front_ends::enable(&mut settings, &given.objects, &initial_cluster, &mut assumed);
    let rehearsal = Rehearsal {
        plans,
        objects: given.objects,
        initial_cluster,
        assumptions,
        settings,
        channel_offers,
        start,
        absent: given.absent,
        failing_checks: flags.assumed.fail_check.iter().cloned().collect(),
        limit: SignedDuration::from_hours(24 * i64::from(flags.assumed.limit)),
    };
    let failing: Vec<&str> = rehearsal.failing()?.into_iter().collect();
    if !failing.is_empty() {
        assumed.push(format!("the upgrade fails on {}", failing.join(", ")));
    }
    assumed.extend(
        rehearsal
            .hooks()
            .map(|hook| rehearsal.assumptions.describe_hook(hook)),
    );
    for fault in &rehearsal.assumptions.faults {
        if let Some(why) = fault.unknown(rehearsal.initial_cluster.nodes()) {
            return Err(inputs::BadInput::Invalid(why).into());
        }
        assumed.push(fault.to_string());
    }
    rehearsal.faults_without_effect().iter().for_each(output::note);
    Ok((rehearsal, assumed))
}

/// Fails if a registry does not have an image: no node would start.
fn refuse_missing_images(
    flags: &Flags,
    given: &RehearsalInput,
    settings: &Settings,
    answers: &ChannelOffers,
    start: Timestamp,
) -> anyhow::Result<()> {
    if !flags.assumed.online || !settings.check_images {
        return Ok(());
    }
    let missing = missing_images(flags, given, answers, start)?;
    if missing.is_empty() {
        return Ok(());
    }
    missing.iter().for_each(output::error);
    Err(AlreadyPrinted.into())
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rehearsal_starts_on_a_monday_unless_something_else_is_said() {
        assert_eq!(
            START.strftime("%a %FT%TZ").to_string(),
            "Mon 2026-01-05T09:00:00Z"
        );
    }
}
