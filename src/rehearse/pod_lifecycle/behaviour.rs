//! The behaviour of a pod: how long its containers run, how they end, and what fails.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::ids::fnv1a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    After(SignedDuration),
    /// Never by itself.
    Never,
}

impl Delay {
    pub const fn millis(millis: i64) -> Self {
        Self::After(SignedDuration::from_millis(millis))
    }
}

/// Whether a container reboots its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reboots {
    #[default]
    Not,
    /// It ends, and when its pod has succeeded, the node reboots.
    Afterwards,
    /// The first start on the node reboots instead of ending; later ones end.
    Once,
    /// Every start reboots.
    Always,
}

/// The state in which a rebooted node comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComesBack {
    /// In a new boot, Ready.
    #[default]
    Ready,
    /// In a new boot, not Ready.
    NotReady,
    Never,
    /// In the same boot: the host accepts the request and does nothing.
    SameBoot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    pub comes_back: ComesBack,
    /// Duration without power.
    pub off: SignedDuration,
    /// Duration in the new boot before the node is Ready.
    pub not_ready: SignedDuration,
}

impl Default for Boot {
    fn default() -> Self {
        Self {
            comes_back: ComesBack::Ready,
            off: SignedDuration::from_secs(1),
            not_ready: SignedDuration::ZERO,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Defaults {
    /// From admission, or from the boot, to the start of the first container.
    pub start: Delay,
    /// Run time of an init container.
    pub init: Delay,
    /// Run time of a container. Containers with restartPolicy Always run until they are stopped.
    pub run: Delay,
    /// Time that a container takes to stop, up to the grace period.
    pub stop: Delay,
    /// Maximum deviation of each of these delays, in percent, derived from the pod's UID.
    pub jitter_percent: u8,
    pub boot: Boot,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            start: Delay::millis(200),
            init: Delay::millis(200),
            run: Delay::millis(1_000),
            stop: Delay::millis(200),
            jitter_percent: 0,
            boot: Boot::default(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct PodBehaviour {
    pub(super) start: Delay,
    /// The second back-off of a restarted container, doubled up to five minutes. The first restart is immediate.
    pub(super) backoff: SignedDuration,
    /// Why the kubelet refuses the pod.
    pub(super) reject: Option<String>,
    /// Whether a file requests a reboot.
    pub(super) reboot_required: bool,
    pub(super) boot: Boot,
    /// The init containers, and then the others, in the order of the spec.
    pub(super) containers: Vec<ContainerBehaviour>,
}

#[derive(Clone, Debug)]
pub(super) struct ContainerBehaviour {
    pub(super) name: String,
    pub(super) is_init: bool,
    pub(super) run: Delay,
    pub(super) exit_code: i32,
    pub(super) exit_code_first: Option<i32>,
    pub(super) message: Option<String>,
    pub(super) stop: Delay,
    pub(super) stop_exit_code: i32,
    pub(super) reboots: Reboots,
    pub(super) has_task: bool,
}

pub(super) static PLAIN: ContainerBehaviour = ContainerBehaviour {
    name: String::new(),
    is_init: false,
    run: Delay::Never,
    exit_code: 0,
    exit_code_first: None,
    message: None,
    stop: Delay::Never,
    // 128 + SIGTERM, the exit code of most processes that are asked to stop.
    stop_exit_code: 143,
    reboots: Reboots::Not,
    has_task: false,
};

impl PodBehaviour {
    /// The behaviour of a pod that the kubelet refuses for this reason.
    #[must_use]
    pub fn rejecting(reason: &str) -> Self {
        let mut behaviour = Self::unsteered(&Pod::default(), &Defaults::default(), &|_| false);
        behaviour.reject = Some(reason.to_owned());
        behaviour
    }

    /// How the node reboots when one of the containers reboots it.
    #[must_use]
    pub fn boot(&self) -> Boot {
        self.boot
    }

    /// Whether the container has a real effect.
    #[must_use]
    pub fn has_task(&self, name: &str) -> bool {
        let mut containers = self.containers.iter();
        containers.any(|container| container.name == name && container.has_task)
    }

    pub(super) fn unsteered(pod: &Pod, defaults: &Defaults, has_task: &dyn Fn(&str) -> bool) -> Self {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let jitter = |delay, what: &str| jittered(delay, defaults.jitter_percent, uid, what);
        let container = |container: &Container, is_init: bool, run: Delay| ContainerBehaviour {
            name: container.name.clone(),
            is_init,
            run: jitter(run, &container.name),
            stop: jitter(defaults.stop, &container.name),
            has_task: has_task(&container.name),
            ..PLAIN.clone()
        };
        let mut containers = Vec::new();
        if let Some(spec) = &pod.spec {
            let run = match spec.restart_policy.as_deref() {
                None | Some("Always") => Delay::Never,
                Some(_) => defaults.run,
            };
            let inits = spec.init_containers.iter().flatten();
            containers.extend(inits.map(|one| container(one, true, defaults.init)));
            containers.extend(spec.containers.iter().map(|one| container(one, false, run)));
        }
        Self {
            start: jitter(defaults.start, "/start"),
            backoff: SignedDuration::from_secs(10),
            reject: None,
            reboot_required: false,
            boot: defaults.boot,
            containers,
        }
    }
}

/// The delay with a deviation of up to `percent`, fixed for a pod and purpose.
fn jittered(delay: Delay, percent: u8, uid: &str, what: &str) -> Delay {
    let Delay::After(duration) = delay else {
        return delay;
    };
    let span = u64::from(percent) * 10; // per mille
    let per_mille = 1_000 - span + fnv1a(&[uid, what]) % (2 * span + 1);
    let nanos = duration.as_nanos() * i128::from(per_mille) / 1_000;
    Delay::After(SignedDuration::from_nanos_i128(nanos))
}
