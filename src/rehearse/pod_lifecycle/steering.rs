//! Annotations with the prefix `fake-kubelet/` on a pod or its node steer its behaviour. A Plan's annotations reach its
//! pods (S31), because these keys contain neither `cattle.io/` nor `refit.rs/`. A pod with an unknown key or an invalid
//! value is refused, so that a typo cannot look like success.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

use super::behaviour::{ComesBack, ContainerBehaviour, Defaults, Delay, PLAIN, PodBehaviour, Reboots};

/// Prefix of steering annotations.
pub const STEERING_PREFIX: &str = "fake-kubelet/";

type Layer = BTreeMap<String, String>;

impl PodBehaviour {
    /// Resolves the behaviour of a pod: its own annotations first, then `layers` (nearest first), then `defaults`. A
    /// setting for a named container precedes one for all containers.
    ///
    /// `has_task` tells whether a container has a real effect, so that its end is reported
    /// ([`PodLifecycle::report_exit`](super::PodLifecycle::report_exit)) instead of simulated. An exit code for the
    /// container by name disables the effect.
    ///
    /// # Errors
    /// Fails with the first setting that is invalid.
    pub fn resolve(
        pod: &Pod,
        layers: &[&Layer],
        defaults: &Defaults,
        has_task: &dyn Fn(&str) -> bool,
    ) -> Result<Self, String> {
        let mut behaviour = Self::unsteered(pod, defaults, has_task);
        let own = pod.metadata.annotations.iter();
        let layers: Vec<&Layer> = own.chain(layers.iter().copied()).collect();
        for is_named in [false, true] {
            for (key, value) in layers.iter().rev().flat_map(|layer| layer.iter()) {
                let Some(setting) = key.strip_prefix(STEERING_PREFIX) else {
                    continue;
                };
                let steered = match setting.split_once('.') {
                    None if !is_named => behaviour.steer(setting, value),
                    Some((name, setting)) if is_named => behaviour.steer_container(name, setting, value),
                    _ => Ok(()),
                };
                steered.map_err(|wanted| format!("annotation {key}={value:?}: {wanted}"))?;
            }
        }
        Ok(behaviour)
    }

    fn steer(&mut self, setting: &str, value: &str) -> Result<(), &'static str> {
        match setting {
            "start-delay" => self.start = delay(value)?,
            "backoff" => self.backoff = duration(value)?,
            "reject" => self.reject = Some(value.to_owned()),
            "boot-delay" => self.boot.off = duration(value)?,
            "reboot-required" => {
                self.reboot_required = value.parse().map_err(|_| "must be true or false")?;
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
            _ => {
                PLAIN.clone().steer(setting, value)?;
                let all = setting == "delete-delay";
                let containers = self.containers.iter_mut().filter(|one| all || !one.is_init);
                for container in containers {
                    container.steer(setting, value)?;
                }
            }
        }
        Ok(())
    }

    fn steer_container(&mut self, name: &str, setting: &str, value: &str) -> Result<(), &'static str> {
        PLAIN.clone().steer(setting, value)?;
        // A node's annotations may name containers that only some of its pods have.
        if let Some(container) = self.containers.iter_mut().find(|one| one.name == name) {
            container.has_task &= !matches!(setting, "exit-code" | "exit-code-first");
            container.steer(setting, value)?;
        }
        Ok(())
    }
}

impl ContainerBehaviour {
    fn steer(&mut self, setting: &str, value: &str) -> Result<(), &'static str> {
        match setting {
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
            _ => return Err("no such key"),
        }
        Ok(())
    }
}

fn delay(value: &str) -> Result<Delay, &'static str> {
    match value {
        "never" => Ok(Delay::Never),
        _ => duration(value).map(Delay::After),
    }
}

fn duration(value: &str) -> Result<SignedDuration, &'static str> {
    let parsed = match value {
        "0" => Some(SignedDuration::ZERO),
        _ => value.parse::<SignedDuration>().ok(),
    };
    parsed
        .filter(|duration| !duration.is_negative())
        .ok_or("must be a duration such as 300ms or 1m30s")
}

fn exit_code(value: &str) -> Result<i32, &'static str> {
    let code = value.parse::<u8>();
    code.map(i32::from)
        .map_err(|_| "must be an exit code from 0 to 255")
}
