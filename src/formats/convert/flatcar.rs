//! The Flatcar update operator, and its predecessor for `CoreOS`: the DaemonSet of its agent says which nodes, and how
//! they are drained; the Deployment of its operator says when.

use jiff::civil::Time;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::flags::Flags;
use super::workload::{Workload, environment, words};
use super::{Converted, Note, base, drain_timeout, seconds};
use refit_api::{DrainSpec, PlanSpec, RebootSpec, Trigger, WindowSpec};
use refit_base::go::GoDuration;

/// Default of the agent's `-grace-period`, in seconds.
const GRACE_PERIOD: i64 = 600;

const ONE_PLAN: &str = "of the two Plans for agent and operator keep one, with the drain of the agent's and the windows of the \
                        operator's.";
const LOCKSMITH: &str = "locksmithd must stay masked on the nodes, or it reboots them by itself.";

pub(super) fn agent(workload: &Workload, container: &Container) -> Result<(PlanSpec, Vec<String>), String> {
    let flags = read(container, "UPDATE_AGENT_", &["force-drain"]);
    let grace = match flags.last("grace-period") {
        None => GRACE_PERIOD,
        Some(text) => text
            .parse()
            .map_err(|_| format!("-grace-period is {text:?}: it must be a number of seconds"))?,
    };
    let timeout = grace.checked_mul(1_000_000_000).filter(|nanos| *nanos > 0);
    let spec = plan(
        workload.node_selector(),
        workload.tolerations(),
        timeout.map(GoDuration::from_nanos),
        flags.is_on("force-drain"),
    );
    let mut notes = vec![
        "the agents may stay: refit reads what they say. Without them, `refit agent` (deploy/overlays/agent) must run with the \
         arguments --no-files --update-engine."
            .to_owned(),
        ONE_PLAN.to_owned(),
        "pods of kube-system are evicted like others; drain.podSelector can leave some out.".to_owned(),
        LOCKSMITH.to_owned(),
    ];
    notes.extend(unknown(&flags, &["node", "grace-period", "force-drain"]));
    Ok((spec, notes))
}

pub(super) fn operator(_: &Workload, container: &Container) -> Result<(PlanSpec, Vec<String>), String> {
    let flags = read(
        container,
        "UPDATE_OPERATOR_",
        &[
            "auto-label-flatcar-linux",
            "auto-label-container-linux",
            "manage-agent",
        ],
    );
    let zone = environment(container).find(|(name, value)| *name == "TZ" && !value.is_empty());
    let timeout = GoDuration::from_nanos(GRACE_PERIOD * 1_000_000_000);
    // Only the DaemonSet of the agent says which nodes. Without it, every node that requests a reboot counts.
    let mut spec = plan(LabelSelector::default(), None, Some(timeout), false);
    let start = flags.last("reboot-window-start");
    let length = flags.last("reboot-window-length");
    spec.windows = match (start, length) {
        (None, None) => None,
        (Some(start), Some(length)) => Some(vec![WindowSpec {
            cron: Some(cron(start)?),
            duration: Some(length.to_owned()),
            time_zone: zone.map(|(_, zone)| zone.to_owned()),
            ..WindowSpec::default()
        }]),
        _ => return Err("-reboot-window-start and -reboot-window-length need each other".to_owned()),
    };
    let mut notes = vec![
        ONE_PLAN.to_owned(),
        "stop the operator before this Plan is applied: both would reboot nodes.".to_owned(),
        LOCKSMITH.to_owned(),
    ];
    for (name, instead) in [
        (
            "before-reboot-annotations",
            "a `prepare` container that succeeds when the node may be drained",
        ),
        (
            "after-reboot-annotations",
            "a `verify` container that succeeds when the node may take pods again",
        ),
    ] {
        if flags.last(name).is_some() {
            notes.push(format!("-{name} was left out: use {instead}."));
        }
    }
    notes.extend(unknown(
        &flags,
        &[
            "after-reboot-annotations",
            "agent-image-repo",
            "auto-label-container-linux",
            "auto-label-flatcar-linux",
            "before-reboot-annotations",
            "kubeconfig",
            "manage-agent",
            "reboot-window-length",
            "reboot-window-start",
            "v",
        ],
    ));
    Ok((spec, notes))
}

/// One Plan for agent and operator: the windows are the operator's, and so is the name.
pub(super) fn join(agent: &Converted, operator: &Converted) -> Converted {
    let mut plan = agent.plan.clone();
    plan.metadata = operator.plan.metadata.clone();
    plan.spec.windows.clone_from(&operator.plan.spec.windows);
    let mut notes: Vec<Note> = Vec::new();
    for note in agent.notes.iter().chain(&operator.notes) {
        if note.text != ONE_PLAN && !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    Converted {
        plan,
        notes,
        part: None,
    }
}

fn plan(
    node_selector: LabelSelector,
    tolerations: Option<Vec<k8s_openapi::api::core::v1::Toleration>>,
    timeout: Option<GoDuration>,
    force: bool,
) -> PlanSpec {
    PlanSpec {
        trigger: Some(Trigger::RebootNeeded),
        // The operator lets one node reboot at a time.
        concurrency: Some(1),
        max_unavailable: Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1)),
        node_selector: Some(node_selector),
        tolerations,
        drain: Some(DrainSpec {
            force: force.then_some(true),
            timeout: drain_timeout(timeout.filter(|timeout| seconds(*timeout) > 0)),
            ..DrainSpec::default()
        }),
        reboot: Some(RebootSpec::default()),
        ..base(timeout)
    }
}

/// A variable counts only for a flag that the command line does not have.
fn read(container: &Container, prefix: &str, switches: &[&str]) -> Flags {
    let mut flags = Flags::read(&words(container), switches);
    for (name, value) in environment(container) {
        let name = name
            .strip_prefix(prefix)
            .map(|name| name.to_lowercase().replace('_', "-"));
        if let Some(name) = name.filter(|name| !flags.names().contains(name.as_str())) {
            flags.push(name, value.to_owned());
        }
    }
    flags
}

fn unknown(flags: &Flags, known: &[&str]) -> Vec<String> {
    let names = flags.names().into_iter().filter(|name| !known.contains(name));
    let names = names.map(|name| format!("-{name} is not a flag that refit knows; it was left out."));
    let words = flags.unread.iter();
    names
        .chain(words.map(|word| format!("the argument {word:?} is not a flag; it was left out.")))
        .collect()
}

/// `Thu 23:00`, or `14:00` for every day.
fn cron(start: &str) -> Result<String, String> {
    let wrong =
        || format!("-reboot-window-start is {start:?}: it must be a time such as \"14:00\" or \"Thu 23:00\"");
    let (day, time) = match start.trim().split_once(' ') {
        None => ("*".to_owned(), start.trim()),
        Some((day, time)) => {
            let day = day.to_lowercase();
            let known = refit_api::window::DAYS
                .iter()
                .find(|names| names[2] == day || names[3] == day)
                .ok_or_else(wrong)?;
            (known[2].to_owned(), time.trim())
        }
    };
    let time = Time::strptime("%H:%M", time).map_err(|_| wrong())?;
    Ok(format!("{} {} * * {day}", time.minute(), time.hour()))
}
