//! Transitions of a container's status: waiting, running, terminated, restarted.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Exit, fnv1a};

/// Maximum back-off (`MaxContainerBackOff`).
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);
/// Maximum size of all termination messages of a pod, divided among its containers
/// (`MaxPodTerminationMessageLogLength`), …
const MESSAGE_BYTES_PER_POD: usize = 12 * 1024;
/// … and of the message of one container (`MaxContainerTerminationMessageLength`).
const MESSAGE_BYTES: usize = 4096;

pub(super) fn waiting(container: &Container, reason: &str) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting_state(reason, None)),
        started: Some(false),
        ..ContainerStatus::default()
    }
}

pub(super) fn waiting_state(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message,
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

/// Starts the container; the previous state becomes its last state. Returns the restart count.
pub(super) fn start(status: &mut ContainerStatus, uid: &str, boot: &str, ready: bool, now: Timestamp) -> i32 {
    status.restart_count += i32::from(last_exit(status).is_some());
    if is_terminated(status) {
        status.last_state = status.state.take();
    }
    let running = ContainerStateRunning {
        started_at: Some(Time(now)),
    };
    status.state = Some(ContainerState {
        running: Some(running),
        ..ContainerState::default()
    });
    status.container_id = Some(id(uid, &status.name, status.restart_count, boot));
    status.image_id.clone_from(&status.image);
    status.ready = ready;
    status.started = Some(true);
    status.restart_count
}

/// Ends the container. An init container that succeeded is ready.
pub(super) fn end(
    status: &mut ContainerStatus,
    exit: Exit,
    reason: &str,
    at: Timestamp,
    before_others: bool,
) {
    let started_at = started_at(status);
    status.ready = before_others && exit.code == 0;
    status.started = Some(false);
    let terminated = ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(reason.to_owned()),
        message: exit.message.filter(|message| !message.is_empty()),
        finished_at: Some(Time(started_at.map_or(at, |started_at| at.max(started_at)))),
        started_at: started_at.map(Time),
        container_id: status.container_id.clone(),
        signal: None,
    };
    status.state = Some(ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    });
}

/// The status of a container without a trace when its pod ends.
pub(super) fn lose(status: &mut ContainerStatus) {
    let terminated = ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        ..ContainerStateTerminated::default()
    };
    status.state = Some(ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    });
}

/// The reason for an exit code of the process.
pub(super) fn reason(code: i32) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

pub(super) fn is_terminated(status: &ContainerStatus) -> bool {
    terminated(status).is_some()
}

pub(super) fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref().and_then(|state| state.terminated.as_ref())
}

/// How a container that does not run ended last.
pub(super) fn last_exit(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    if is_running(status) {
        return None;
    }
    terminated(status).or_else(|| {
        status
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref())
    })
}

pub(super) fn started_at(status: &ContainerStatus) -> Option<Timestamp> {
    let running = status.state.as_ref().and_then(|state| state.running.as_ref());
    running
        .and_then(|running| running.started_at.as_ref())
        .map(|time| time.0)
}

pub(super) fn finished_at(exit: &ContainerStateTerminated) -> Option<Timestamp> {
    exit.finished_at.as_ref().map(|time| time.0)
}

/// The ID contains the boot, so the status alone shows which containers a reboot ended.
fn id(uid: &str, container: &str, attempt: i32, boot: &str) -> String {
    let attempt = attempt.to_string();
    let part = |salt: &str| fnv1a(&[salt, uid, container, &attempt, boot]);
    format!(
        "fake://{:016x}{:016x}{:016x}{}",
        part("1"),
        part("2"),
        part("3"),
        boot_tag(boot)
    )
}

/// The part of a container's ID that identifies its boot.
pub(super) fn boot_tag(boot: &str) -> String {
    format!("{:016x}", fnv1a(&[boot]))
}

/// The back-off before the next start after so many restarts.
pub(super) fn backoff(first: SignedDuration, restarts: i32) -> SignedDuration {
    if restarts <= 0 {
        return SignedDuration::ZERO;
    }
    let doublings = u32::try_from(restarts - 1).unwrap_or_default().min(30);
    first
        .saturating_mul(1_i32 << doublings)
        .min(MAX_BACKOFF.max(first))
}

/// Truncates a termination message for a pod with so many containers.
pub(super) fn cut(mut message: String, containers: usize) -> String {
    let limit = MESSAGE_BYTES.min(MESSAGE_BYTES_PER_POD / containers.max(1));
    if message.len() > limit {
        let end = (0..=limit)
            .rev()
            .find(|end| message.is_char_boundary(*end))
            .unwrap_or_default();
        message.truncate(end);
    }
    message
}

/// Whole seconds in Go's duration syntax.
pub(super) fn go_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) if duration.subsec_millis() != 0 && seconds == 0 => format!("{}ms", duration.subsec_millis()),
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}
