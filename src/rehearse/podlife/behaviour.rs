//! How a pod is to behave: how long its containers take, how they end, and what goes wrong.
//!
//! Annotations under `fake-kubelet/` steer it, on the pod or on its node. A Plan's reach its pods (S31), for they have
//! neither `cattle.io/` nor `refit.rs/` in them. A key that is not known, or a value that is not understood, refuses the
//! pod, so that a slip of the pen cannot look like success.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, Pod};
use thiserror::Error;

use super::admission::Rejection;
use super::fnv1a;

/// Prefix of the annotations that steer a pod.
pub const STEERING_PREFIX: &str = "fake-kubelet/";

/// How long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// This long.
    After(SignedDuration),
    /// It never comes to an end by itself.
    Never,
}

impl Delay {
    /// This many milliseconds.
    pub const fn millis(millis: i64) -> Self {
        Self::After(SignedDuration::from_millis(millis))
    }
}

/// Whether a container reboots its node where it would otherwise have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reboots {
    /// It ends.
    #[default]
    Not,
    /// Its first start on the node reboots, the later ones end.
    Once,
    /// Every start reboots.
    Always,
}

/// In which state a node is back that a container has rebooted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComesBack {
    /// In a new boot, and Ready.
    #[default]
    Ready,
    /// In a new boot, and not Ready.
    NotReady,
    /// It does not come back.
    Never,
    /// The host takes the request and does nothing.
    AsIfNothing,
}

/// How a node reboots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// How it ends.
    pub comes_back: ComesBack,
    /// Without power.
    pub off: SignedDuration,
    /// In the new boot, before it is Ready.
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

/// What a pod does that nothing steers.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// From admission, or from the boot, to the start of the first container.
    pub start: Delay,
    /// How long an init container runs.
    pub init: Delay,
    /// How long a container runs. Those of pods with restartPolicy Always run until they are stopped.
    pub run: Delay,
    /// How long a container takes to stop when it is told to. Its grace period is the limit.
    pub stop: Delay,
    /// From the end of the last container to the phase that says so. About a second on a real kubelet.
    pub teardown: SignedDuration,
    /// The first back-off of a container that is restarted; it doubles up to five minutes. The first restart is at once.
    pub backoff: SignedDuration,
    /// From the end of a container to `CrashLoopBackOff`. A kubelet of 1.36 says it only when something else about the pod
    /// has changed; older ones say it after up to ten seconds.
    pub resync: Delay,
    /// By how many percent, at most, each of the delays above is off, by the pod's UID.
    pub jitter_percent: u8,
    /// How a node reboots.
    pub boot: Boot,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            start: Delay::millis(200),
            init: Delay::millis(200),
            run: Delay::millis(1_000),
            stop: Delay::millis(200),
            teardown: SignedDuration::ZERO,
            backoff: SignedDuration::from_secs(10),
            resync: Delay::Never,
            jitter_percent: 0,
            boot: Boot::default(),
        }
    }
}

/// How one pod behaves.
#[derive(Clone, Debug)]
pub struct Behaviour {
    pub(super) start: Delay,
    pub(super) teardown: SignedDuration,
    pub(super) backoff: SignedDuration,
    pub(super) resync: Delay,
    pub(super) reject: Option<Rejection>,
    /// How many pods of the same owner were on this node before.
    pub(super) earlier: i32,
    /// Whether a file asks for a reboot.
    pub(super) reboot_required: bool,
    pub(super) boot: Boot,
    pub(super) init: Vec<ContainerBehaviour>,
    pub(super) regular: Vec<ContainerBehaviour>,
}

/// How one container behaves.
#[derive(Clone, Debug)]
pub(super) struct ContainerBehaviour {
    pub(super) run: Delay,
    pub(super) exit_code: i32,
    pub(super) exit_code_first: Option<i32>,
    pub(super) message: Option<String>,
    pub(super) stop: Delay,
    pub(super) stop_exit_code: i32,
    pub(super) reboots: Reboots,
    pub(super) acted: bool,
}

/// Nothing special.
pub(super) static PLAIN: ContainerBehaviour = ContainerBehaviour {
    run: Delay::Never,
    exit_code: 0,
    exit_code_first: None,
    message: None,
    stop: Delay::Never,
    stop_exit_code: TERMINATED,
    reboots: Reboots::Not,
    acted: false,
};

/// 128 + SIGTERM: how most processes end that are told to stop.
const TERMINATED: i32 = 143;

/// A steering annotation that is not understood.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("annotation {key}={value:?}: {wanted}")]
pub struct SteeringError {
    key: String,
    value: String,
    wanted: &'static str,
}

impl Behaviour {
    /// How this pod behaves: by its own annotations, then by `layers` (first is nearest), then by `defaults`. What is
    /// said of a container by name comes before what is said of all.
    ///
    /// `acted` says of a container's name whether its effect is real, so that its end is reported
    /// ([`Life::report`](super::Life::report)) instead of being made up here; steering its exit code puts that out of force.
    pub fn resolve(
        pod: &Pod,
        layers: &[&BTreeMap<String, String>],
        defaults: &Defaults,
        acted: &dyn Fn(&str) -> bool,
    ) -> Result<Self, SteeringError> {
        let mut behaviour = Self::unsteered(pod, defaults, acted);
        let own = pod.metadata.annotations.iter();
        let layers: Vec<_> = own.chain(layers.iter().copied()).collect();
        for by_name in [false, true] {
            for (key, value) in layers.iter().rev().flat_map(|layer| steering(layer)) {
                let rest = &key[STEERING_PREFIX.len()..];
                let applied = match rest.split_once('.') {
                    None if !by_name => behaviour.steer(rest, value),
                    Some((container, what)) if by_name => {
                        behaviour.steer_container(pod, container, what, value)
                    }
                    _ => Ok(()),
                };
                applied.map_err(|wanted| SteeringError {
                    key: key.clone(),
                    value: value.clone(),
                    wanted,
                })?;
            }
        }
        Ok(behaviour)
    }

    /// The behaviour of a pod that the kubelet refuses.
    #[must_use]
    pub fn rejecting(pod: &Pod, reason: &str, message: &str) -> Self {
        let mut behaviour = Self::unsteered(pod, &Defaults::default(), &|_| false);
        behaviour.reject = Some(Rejection::new(reason, message));
        behaviour
    }

    /// The same, for a pod whose owner had this many others on the node before: what is steered for the first try only is
    /// not for a pod that a Job made in place of a lost one.
    #[must_use]
    pub fn after_earlier_pods(mut self, pods: i32) -> Self {
        self.earlier = pods;
        self
    }

    /// How the node reboots that one of the containers has rebooted.
    #[must_use]
    pub fn boot(&self) -> Boot {
        self.boot
    }

    /// Whether the effect of the container of that name is real.
    #[must_use]
    pub fn is_acted(&self, pod: &Pod, name: &str) -> bool {
        let spec = pod.spec.as_ref();
        let inits = spec
            .and_then(|spec| spec.init_containers.as_deref())
            .unwrap_or_default();
        let regulars = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let containers = inits
            .iter()
            .zip(&self.init)
            .chain(regulars.iter().zip(&self.regular));
        containers
            .into_iter()
            .any(|(container, behaviour)| container.name == name && behaviour.acted)
    }

    fn unsteered(pod: &Pod, defaults: &Defaults, acted: &dyn Fn(&str) -> bool) -> Self {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let policy = spec
            .and_then(|spec| spec.restart_policy.as_deref())
            .unwrap_or("Always");
        let jitter = |delay, what: &str| jittered(delay, defaults.jitter_percent, uid, what);
        let container = |container: &Container, run: Delay| ContainerBehaviour {
            run: jitter(run, &container.name),
            stop: jitter(defaults.stop, &container.name),
            acted: acted(&container.name),
            ..PLAIN.clone()
        };
        let inits = spec
            .and_then(|spec| spec.init_containers.as_deref())
            .unwrap_or_default();
        let regulars = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let run = if policy == "Always" {
            Delay::Never
        } else {
            defaults.run
        };
        Self {
            start: jitter(defaults.start, "/start"),
            teardown: defaults.teardown,
            backoff: defaults.backoff,
            resync: defaults.resync,
            reject: None,
            earlier: 0,
            reboot_required: false,
            boot: defaults.boot,
            init: inits
                .iter()
                .map(|init| {
                    container(
                        init,
                        if is_sidecar(init) {
                            Delay::Never
                        } else {
                            defaults.init
                        },
                    )
                })
                .collect(),
            regular: regulars.iter().map(|regular| container(regular, run)).collect(),
        }
    }

    fn steer(&mut self, what: &str, value: &str) -> Result<(), &'static str> {
        match what {
            "start-delay" => self.start = delay(value)?,
            "delete-delay" => {
                let delay = delay(value)?;
                self.init
                    .iter_mut()
                    .chain(&mut self.regular)
                    .for_each(|container| container.stop = delay);
            }
            "teardown-delay" => self.teardown = duration(value)?,
            "backoff" => self.backoff = duration(value)?,
            "resync-delay" => self.resync = delay(value)?,
            "reboot-required" => {
                self.reboot_required = match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err("true or false is wanted"),
                }
            }
            "comes-back" => {
                self.boot.comes_back = match value {
                    "ready" => ComesBack::Ready,
                    "not-ready" => ComesBack::NotReady,
                    "never" => ComesBack::Never,
                    "as-if-nothing" => ComesBack::AsIfNothing,
                    _ => return Err("ready, not-ready, never or as-if-nothing is wanted"),
                }
            }
            "boot-delay" => self.boot.off = duration(value)?,
            "ready-delay" => self.boot.not_ready = duration(value)?,
            "reject" => self.reject = Some(Rejection::parse(value)),
            "init-delay" => {
                let delay = delay(value)?;
                // A sidecar's default is never to end; it is steered by its name only.
                self.init
                    .iter_mut()
                    .filter(|init| init.run != Delay::Never)
                    .for_each(|init| init.run = delay);
            }
            "init-exit-code" => {
                let code = exit_code(value)?;
                self.init.iter_mut().for_each(|init| init.exit_code = code);
            }
            "run-delay" | "exit-code" | "exit-code-first" | "message" | "stop-exit-code" | "reboot" => {
                self.regular
                    .iter_mut()
                    .try_for_each(|regular| regular.steer(what, value))?;
            }
            _ => return Err("no such key"),
        }
        Ok(())
    }

    fn steer_container(
        &mut self,
        pod: &Pod,
        name: &str,
        what: &str,
        value: &str,
    ) -> Result<(), &'static str> {
        let Some(spec) = &pod.spec else { return Ok(()) };
        let named = |containers: &[Container]| containers.iter().position(|container| container.name == name);
        let target = match named(&spec.containers) {
            Some(index) => self.regular.get_mut(index),
            None => spec
                .init_containers
                .as_deref()
                .and_then(named)
                .and_then(|index| self.init.get_mut(index)),
        };
        // A node's annotations speak of containers that only some of its pods have.
        let Some(target) = target else { return Ok(()) };
        if matches!(what, "exit-code" | "exit-code-first") {
            target.acted = false;
        }
        target.steer(what, value)
    }
}

impl ContainerBehaviour {
    fn steer(&mut self, what: &str, value: &str) -> Result<(), &'static str> {
        match what {
            "run-delay" => self.run = delay(value)?,
            "exit-code" => self.exit_code = exit_code(value)?,
            "exit-code-first" => self.exit_code_first = Some(exit_code(value)?),
            "message" => self.message = Some(value.to_owned()),
            "delete-delay" => self.stop = delay(value)?,
            "stop-exit-code" => self.stop_exit_code = exit_code(value)?,
            "reboot" => {
                self.reboots = match value {
                    "never" => Reboots::Not,
                    "once" => Reboots::Once,
                    "always" => Reboots::Always,
                    _ => return Err("never, once or always is wanted"),
                }
            }
            _ => return Err("no such key of a container"),
        }
        Ok(())
    }
}

/// Whether an init container runs beside the others instead of before them (KEP-753).
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn steering(layer: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    layer
        .range(STEERING_PREFIX.to_owned()..)
        .take_while(|(key, _)| key.starts_with(STEERING_PREFIX))
}

fn delay(value: &str) -> Result<Delay, &'static str> {
    if value == "never" {
        Ok(Delay::Never)
    } else {
        duration(value).map(Delay::After)
    }
}

fn duration(value: &str) -> Result<SignedDuration, &'static str> {
    let parsed = if value == "0" {
        Ok(SignedDuration::ZERO)
    } else {
        value.parse::<SignedDuration>()
    };
    parsed
        .ok()
        .filter(|duration| !duration.is_negative())
        .ok_or("a duration such as 300ms or 1m30s is wanted")
}

fn exit_code(value: &str) -> Result<i32, &'static str> {
    value
        .parse::<u8>()
        .map(i32::from)
        .map_err(|_| "an exit code from 0 to 255 is wanted")
}

/// The delay, off by up to `percent` in either direction, always the same for the same pod and purpose.
fn jittered(delay: Delay, percent: u8, uid: &str, what: &str) -> Delay {
    let Delay::After(duration) = delay else {
        return delay;
    };
    let span = i64::from(percent) * 10; // per mille
    let offset = if span == 0 {
        0
    } else {
        (fnv1a(&[uid, what]) % (2 * span.unsigned_abs() + 1)).cast_signed() - span
    };
    let nanos = duration.as_nanos() * i128::from(1_000 + offset) / 1_000;
    Delay::After(SignedDuration::from_nanos_i128(nanos))
}
