//! The behaviour of a pod: how long its containers run, how they end, and what fails.
//!
//! Annotations with the prefix `fake-kubelet/` on the pod or its node steer it. A Plan's annotations reach its pods
//! (S31), because these keys contain neither `cattle.io/` nor `refit.rs/`. A pod with an unknown key or an invalid
//! value is refused, so that a typo cannot look like success.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, Pod};
use thiserror::Error;

use super::admission::Rejection;
use super::fnv1a;

/// Prefix of steering annotations.
pub const STEERING_PREFIX: &str = "fake-kubelet/";

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
    /// From the end of the last container to the terminal phase; about a second on a real kubelet.
    pub teardown: SignedDuration,
    /// The first back-off of a restarted container, doubled up to five minutes. The first restart is immediate.
    pub backoff: SignedDuration,
    /// From the end of a container to `CrashLoopBackOff`. A kubelet of 1.36 reports it only with another change of the
    /// pod; older ones report it within ten seconds.
    pub resync: Delay,
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
            teardown: SignedDuration::ZERO,
            backoff: SignedDuration::from_secs(10),
            resync: Delay::Never,
            jitter_percent: 0,
            boot: Boot::default(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct PodBehaviour {
    pub(super) start: Delay,
    pub(super) teardown: SignedDuration,
    pub(super) backoff: SignedDuration,
    pub(super) resync: Delay,
    pub(super) reject: Option<Rejection>,
    /// Number of pods of the same owner that ran on this node before.
    pub(super) earlier: i32,
    /// Whether a file requests a reboot.
    pub(super) reboot_required: bool,
    pub(super) boot: Boot,
    pub(super) init: Vec<ContainerBehaviour>,
    pub(super) regular: Vec<ContainerBehaviour>,
}

#[derive(Clone, Debug)]
pub(super) struct ContainerBehaviour {
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
    run: Delay::Never,
    exit_code: 0,
    exit_code_first: None,
    message: None,
    stop: Delay::Never,
    stop_exit_code: TERMINATED,
    reboots: Reboots::Not,
    has_task: false,
};

/// 128 + SIGTERM, the exit code of most processes that are asked to stop.
const TERMINATED: i32 = 143;

/// An invalid steering annotation.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("annotation {key}={value:?}: {wanted}")]
pub struct SteeringError {
    key: String,
    value: String,
    wanted: &'static str,
}

impl PodBehaviour {
    /// Resolves the behaviour of a pod: its own annotations first, then `layers` (nearest first), then `defaults`. A
    /// setting for a named container precedes one for all containers.
    ///
    /// `has_task` tells whether a container has a real effect, so that its end is reported
    /// ([`PodLifecycle::report_exit`](super::PodLifecycle::report_exit)) instead of simulated. A steered exit code
    /// disables the effect.
    ///
    /// # Errors
    /// Fails with the first setting that is invalid.
    pub fn resolve(
        pod: &Pod,
        layers: &[&BTreeMap<String, String>],
        defaults: &Defaults,
        has_task: &dyn Fn(&str) -> bool,
    ) -> Result<Self, SteeringError> {
        let mut behaviour = Self::unsteered(pod, defaults, has_task);
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

    /// The behaviour of a refused pod.
    #[must_use]
    pub fn rejecting(pod: &Pod, reason: &str, message: &str) -> Self {
        let mut behaviour = Self::unsteered(pod, &Defaults::default(), &|_| false);
        behaviour.reject = Some(Rejection::new(reason, message));
        behaviour
    }

    /// The same for a pod whose owner had this many pods on the node before: settings for the first attempt do not
    /// apply to a pod that a Job created as a replacement.
    #[must_use]
    pub fn after_earlier_pods(mut self, pods: i32) -> Self {
        self.earlier = pods;
        self
    }

    /// How the node reboots when one of the containers reboots it.
    #[must_use]
    pub fn boot(&self) -> Boot {
        self.boot
    }

    /// Whether the container has a real effect.
    #[must_use]
    pub fn has_task(&self, pod: &Pod, name: &str) -> bool {
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
            .any(|(container, behaviour)| container.name == name && behaviour.has_task)
    }

    fn unsteered(pod: &Pod, defaults: &Defaults, has_task: &dyn Fn(&str) -> bool) -> Self {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let policy = spec
            .and_then(|spec| spec.restart_policy.as_deref())
            .unwrap_or("Always");
        let jitter = |delay, what: &str| jittered(delay, defaults.jitter_percent, uid, what);
        let container = |container: &Container, run: Delay| ContainerBehaviour {
            run: jitter(run, &container.name),
            stop: jitter(defaults.stop, &container.name),
            has_task: has_task(&container.name),
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
                    _ => return Err("must be true or false"),
                }
            }
            "comes-back" => {
                self.boot.comes_back = match value {
                    "ready" => ComesBack::Ready,
                    "not-ready" => ComesBack::NotReady,
                    "never" => ComesBack::Never,
                    "as-if-nothing" => ComesBack::SameBoot,
                    _ => return Err("must be ready, not-ready, never or as-if-nothing"),
                }
            }
            "boot-delay" => self.boot.off = duration(value)?,
            "ready-delay" => self.boot.not_ready = duration(value)?,
            "reject" => self.reject = Some(Rejection::parse(value)),
            "init-delay" => {
                let delay = delay(value)?;
                // A sidecar runs for ever by default; only a setting with its name changes that.
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
        // A node's annotations may name containers that only some of its pods have.
        let Some(target) = target else { return Ok(()) };
        if matches!(what, "exit-code" | "exit-code-first") {
            target.has_task = false;
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
                    "afterwards" => Reboots::Afterwards,
                    "once" => Reboots::Once,
                    "always" => Reboots::Always,
                    _ => return Err("must be never, afterwards, once or always"),
                }
            }
            _ => return Err("no such key of a container"),
        }
        Ok(())
    }
}

/// Whether an init container is a sidecar (KEP-753).
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
        .ok_or("must be a duration such as 300ms or 1m30s")
}

fn exit_code(value: &str) -> Result<i32, &'static str> {
    value
        .parse::<u8>()
        .map(i32::from)
        .map_err(|_| "must be an exit code from 0 to 255")
}

/// The delay with a deviation of up to `percent`, fixed for a pod and purpose.
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
