//! What a kubelet knows of a pod: written as the pod's status, and read from it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};

use crate::json::{Value, json, seconds};

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    /// Termination message.
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerAttempt {
    pub container: String,
    /// `restartCount` of this start.
    pub attempt: i32,
}

/// Precedes the boot in the ID of a container.
const RUNTIME: &str = "fake://";

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodState {
    pub(super) phase: Phase,
    /// Why the kubelet refused or ended the pod.
    pub(super) reason: Option<String>,
    /// When the kubelet accepted the pod.
    pub(super) accepted_at: Option<Timestamp>,
    /// Whether all containers run, and since when that is so.
    pub(super) ready: Option<(bool, Timestamp)>,
    /// The init containers, and then the others, in the order of the spec.
    pub(super) containers: Vec<Container>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    fn read(text: &str) -> Self {
        let all = [Self::Running, Self::Succeeded, Self::Failed];
        let known = all.into_iter().find(|phase| phase.as_str() == text);
        known.unwrap_or_default()
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Container {
    pub(super) name: String,
    image: String,
    pub(super) is_init: bool,
    pub(super) state: State,
    /// The end before the last start.
    pub(super) last: Option<End>,
    pub(super) restarts: i32,
    /// The boot of the last start.
    pub(super) boot: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// Never started.
    Waiting,
    Running(Timestamp),
    /// It may restart.
    Ended(End),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub(super) exit: Exit,
    pub(super) at: Timestamp,
}

impl PodState {
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub(super) fn read(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let statuses = || {
            let inits = status.init_container_statuses.iter().flatten();
            inits.chain(status.container_statuses.iter().flatten())
        };
        let mut conditions = status.conditions.iter().flatten();
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        let spec = pod.spec.iter();
        let containers = spec.flat_map(|spec| {
            let inits = spec.init_containers.iter().flatten().map(|init| (init, true));
            inits.chain(spec.containers.iter().map(|regular| (regular, false)))
        });
        let container = |(container, is_init): (&k8s_openapi::api::core::v1::Container, bool)| {
            let known = statuses().find(|status| status.name == container.name);
            let image = container.image.clone().unwrap_or_default();
            Container::read(&container.name, image, is_init, known)
        };
        Self {
            phase: Phase::read(status.phase.as_deref().unwrap_or_default()),
            reason: status.reason.clone(),
            accepted_at: status.start_time.as_ref().map(|time| time.0),
            ready: ready.and_then(|ready| {
                let since = ready.last_transition_time.as_ref()?.0;
                Some((ready.status == "True", since))
            }),
            containers: containers.map(container).collect(),
        }
    }

    pub(super) fn status(&self) -> Value {
        let mut status = json!({ "phase": self.phase.as_str() });
        if let Some(reason) = &self.reason {
            status["reason"] = reason.clone().into();
        }
        if let Some(at) = self.accepted_at {
            status["startTime"] = seconds(at).into();
        }
        if let Some((ready, since)) = self.ready {
            let verdict = if ready { "True" } else { "False" };
            status["conditions"] =
                json!([{ "type": "Ready", "status": verdict, "lastTransitionTime": seconds(since) }]);
        }
        for (field, is_init) in [("initContainerStatuses", true), ("containerStatuses", false)] {
            let containers = self.containers.iter().filter(|one| one.is_init == is_init);
            let statuses: Vec<Value> = containers.map(Container::status).collect();
            if !statuses.is_empty() {
                status[field] = statuses.into();
            }
        }
        status
    }
}

impl Container {
    fn read(name: &str, image: String, is_init: bool, status: Option<&ContainerStatus>) -> Self {
        let end = |state: Option<&ContainerState>| Some(End::read(state?.terminated.as_ref()?));
        let state = status.and_then(|status| status.state.as_ref());
        let running = state.and_then(|state| state.running.as_ref()?.started_at.as_ref());
        let id = status.and_then(|status| status.container_id.as_deref());
        let boot = id.and_then(|id| id.strip_prefix(RUNTIME)?.split_once('/'));
        Self {
            name: name.to_owned(),
            image,
            is_init,
            state: match (running, end(state)) {
                (Some(since), _) => State::Running(since.0),
                (None, Some(end)) => State::Ended(end),
                (None, None) => State::Waiting,
            },
            last: end(status.and_then(|status| status.last_state.as_ref())),
            restarts: status.map_or(0, |status| status.restart_count),
            boot: boot.map(|(boot, _)| boot.to_owned()),
        }
    }

    fn status(&self) -> Value {
        let state = match &self.state {
            State::Waiting => json!({ "waiting": { "reason": "ContainerCreating" } }),
            State::Running(since) => json!({ "running": { "startedAt": seconds(*since) } }),
            State::Ended(end) => end.state(),
        };
        let mut status = json!({
            "name": self.name, "image": self.image, "imageID": self.image, "restartCount": self.restarts,
            "ready": matches!(self.state, State::Running(_)), "state": state,
        });
        if let Some(last) = &self.last {
            status["lastState"] = last.state();
        }
        if let Some(boot) = &self.boot {
            status["containerID"] = format!("{RUNTIME}{boot}/{}", self.restarts).into();
        }
        status
    }

    pub(super) fn attempt(&self) -> ContainerAttempt {
        ContainerAttempt {
            container: self.name.clone(),
            attempt: self.restarts,
        }
    }

    /// The exit code of a container that does not run.
    pub(super) fn exit_code(&self) -> Option<i32> {
        match &self.state {
            State::Ended(end) => Some(end.exit.code),
            State::Waiting | State::Running(_) => None,
        }
    }
}

impl End {
    fn read(terminated: &ContainerStateTerminated) -> Self {
        Self {
            exit: Exit {
                code: terminated.exit_code,
                message: terminated.message.clone(),
            },
            at: terminated.finished_at.as_ref().map_or(Timestamp::MIN, |at| at.0),
        }
    }

    fn state(&self) -> Value {
        let reason = if self.exit.code == 0 { "Completed" } else { "Error" };
        let mut end = json!({ "exitCode": self.exit.code, "reason": reason, "finishedAt": seconds(self.at) });
        if let Some(message) = &self.exit.message {
            end["message"] = message.clone().into();
        }
        json!({ "terminated": end })
    }
}
