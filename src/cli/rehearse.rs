//! `refit rehearse`: a roll-out on a cluster in this process, in a time of its own.

mod context;
mod flags;
mod gather;
mod lines;
mod live;
mod screen;

use std::process::ExitCode;

use anyhow::Context as _;
pub(super) use flags::Flags;
use flags::{Format, Start};
use gather::{answers, choose, missing_secrets, namespace, read_snapshot, settings, stage};
use jiff::{SignedDuration, Timestamp};

use super::{USAGE, output, validate};
use crate::clock::Clock;
use crate::rehearse::assume::Assumptions;
use crate::rehearse::input;
use crate::rehearse::play::{PlayError, Rehearsal, Stage, play};
use crate::rehearse::report::report;

pub(super) const EXAMPLES: &str = "Examples:
  refit rehearse examples/k3s-upgrade.yaml --nodes 12
      on twelve nodes that are made up, with labels that the Plans ask for
  kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml > cluster.yaml
  refit rehearse plan.yaml --snapshot cluster.yaml
      on the nodes, pods and budgets of a cluster, in the order in which the controller would take them
  refit rehearse plan.yaml --snapshot context
      on the cluster of the current context, which is read once
  kustomize build clusters/prod | refit rehearse - --nodes 40 --upgrade 4m..9m --fail 5% -q
      what a cluster would get, with other times and some failures; only the result
  refit rehearse plan.yaml --start 2026-03-06T21:30:00Z
      on a Friday evening, half an hour before the window opens";

/// When a rehearsal on a cluster that is made up starts: a Monday morning, always the same.
const START: Timestamp = Timestamp::constant(1_767_603_600, 0);

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (rehearsal, assumed) = match prepare(flags) {
        Ok(prepared) => prepared,
        Err(error) => {
            if error.downcast_ref::<AlreadyTold>().is_none() {
                output::error(output::with_causes(&error));
            }
            return Ok(ExitCode::from(USAGE));
        }
    };
    for line in &assumed {
        output::note(format_args!("assumed: {line}"));
    }
    let mut live = live::Live::new(&rehearsal, flags.quiet || flags.output == Format::Json);
    let played = play(&rehearsal, &mut |happening| live.hear(happening));
    let outcome = match played {
        Ok(outcome) => outcome,
        Err(error @ (PlayError::UnknownNode(_) | PlayError::Refused { .. })) => {
            output::error(error);
            return Ok(ExitCode::from(USAGE));
        }
        Err(error) => return Err(error.into()),
    };
    let report = report(&outcome, flags.assumed.seed, assumed);
    live.end(&report);
    let text = match flags.output {
        Format::Text => report.to_text(),
        Format::Json => report.to_json(),
    };
    output::data(&text).context("the result cannot be printed")?;
    if flags.output == Format::Json {
        output::note(&report.verdict.line);
    }
    Ok(if report.verdict.complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// All that was wrong has been told.
#[derive(Debug, thiserror::Error)]
#[error("nothing is rehearsed")]
struct AlreadyTold;

/// Reads everything, and says what is assumed.
fn prepare(flags: &Flags) -> anyhow::Result<(Rehearsal, Vec<String>)> {
    let (sources, unread) = validate::read(&flags.files);
    if unread {
        return Err(AlreadyTold.into());
    }
    let mut given = input::read(&sources);
    if !given.mistakes.is_empty() {
        given.mistakes.iter().for_each(output::error);
        return Err(AlreadyTold.into());
    }
    given.notes.iter().for_each(output::note);
    let snapshot = read_snapshot(flags)?;
    choose(flags, &mut given, snapshot.as_ref())?;
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
        fail: flags.assumed.fail.clone(),
    };
    let mut assumed = Vec::new();
    let stage = stage(flags, &given, snapshot, &namespace, &mut assumed);
    let answers = answers(flags, &mut given, &stage, &mut assumed)?;
    missing_secrets(&given, &mut assumed);
    assumed.push(assumptions.told());
    assumed.push(format!(
        "the controller starts at {}; seed {}",
        start.strftime("%a %Y-%m-%d %H:%M:%S UTC"),
        assumptions.seed
    ));
    let plans = if given.plans.is_empty() {
        match &stage {
            Stage::Snapshot(snapshot) => snapshot.plans.clone(),
            Stage::Generated { .. } => Vec::new(),
        }
    } else {
        given.plans.iter().map(|plan| plan.value.clone()).collect()
    };
    let settings = settings(flags, &namespace, &stage)?;
    let rehearsal = Rehearsal {
        plans,
        objects: given.objects,
        stage,
        assumptions,
        settings,
        answers,
        start,
        limit: SignedDuration::from_hours(24 * i64::from(flags.assumed.limit)),
    };
    let failing: Vec<&str> = rehearsal.failing()?.into_iter().collect();
    if !failing.is_empty() {
        assumed.push(format!("the upgrade fails on {}", failing.join(", ")));
    }
    Ok((rehearsal, assumed))
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
