//! The assumptions of a rehearsal: how long things take, and what fails. Values are derived from the seed and the
//! node's name, so another node changes nothing for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;

use super::fault::Fault;
use super::ids::{Ids, fnv1a};
use super::kubelets::DefaultBehaviour;
use super::pod_lifecycle::{Delay, STEERING_PREFIX};
use refit_api::Hook;
use refit_base::go::GoDuration;
use refit_base::nearest::nearest;

/// Termination message of a container that `--fail` selects.
pub const FAIL_MESSAGE: &str = "made to fail by --fail";
/// Answer of a check that `--fail-check` names.
pub const FAILING_CHECK: &str = "made to fail by --fail-check";
/// Maximum duration that may be assumed; a longer one is probably a typo.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 7);

/// A duration, or a range of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    least: SignedDuration,
    most: SignedDuration,
}

/// Why a text is not a span.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    #[error("{0:?} is not a duration such as 90s, 5m or 1h30m (a range is written 4m..9m)")]
    NotADuration(String),
    #[error("the range ends before it begins; write the shorter time first")]
    Backwards,
    #[error("{0} is longer than a week")]
    TooLong(String),
}

impl Span {
    pub const fn of(duration: SignedDuration) -> Self {
        Self {
            least: duration,
            most: duration,
        }
    }

    pub const fn between(least: SignedDuration, most: SignedDuration) -> Self {
        Self { least, most }
    }

    /// The longest possible duration.
    pub const fn most(self) -> SignedDuration {
        self.most
    }

    /// The duration for this purpose; in whole seconds if it is a range.
    fn draw(self, seed: u64, what: &[&str]) -> SignedDuration {
        let choices = (self.most - self.least).as_secs().unsigned_abs() + 1;
        let drawn = i64::try_from(seeded_random(seed, what) % choices).unwrap_or_default();
        self.least + SignedDuration::from_secs(drawn)
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let duration = |text: &str| {
            let parsed: GoDuration = text
                .trim()
                .parse()
                .map_err(|_| SpanError::NotADuration(text.to_owned()))?;
            if parsed.is_negative() {
                return Err(SpanError::NotADuration(text.to_owned()));
            }
            let duration = SignedDuration::from_nanos(parsed.as_nanos());
            if duration > LONGEST {
                return Err(SpanError::TooLong(text.to_owned()));
            }
            Ok(duration)
        };
        let (least, most) = match text.split_once("..") {
            Some((least, most)) => (duration(least)?, duration(most)?),
            None => (duration(text)?, duration(text)?),
        };
        if most < least {
            return Err(SpanError::Backwards);
        }
        Ok(Self { least, most })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |duration: SignedDuration| {
            let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
            GoDuration::from_nanos(nanos).short()
        };
        if self.least == self.most {
            write!(f, "{}", text(self.least))
        } else {
            write!(f, "{}..{}", text(self.least), text(self.most))
        }
    }
}

/// What a value of `--fail` may be.
const FAIL_ALLOWED: &str = "the name of a node, a share such as 5%, before or after";

/// What fails: the upgrade on nodes, or `before` or `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fail {
    Node(String),
    /// A percentage, at least one node.
    Percent(u8),
    Hook(Hook),
}

impl FromStr for Fail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(number) = text.strip_suffix('%') else {
            return if text.is_empty() {
                Err(format!("write {FAIL_ALLOWED}"))
            } else {
                let node = || Self::Node(text.to_owned());
                Ok(Hook::named(text).map_or_else(node, Self::Hook))
            };
        };
        let percent = number.parse().ok().filter(|percent| (1..=100).contains(percent));
        percent
            .map(Self::Percent)
            .ok_or_else(|| format!("{text:?} is not a share from 1% to 100%"))
    }
}

/// `--fail` names nodes that do not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--fail {name}: the cluster has no such node{}", hint(near.as_ref()))]
pub struct UnknownNode {
    name: String,
    near: Option<String>,
}

fn hint(near: Option<&String>) -> String {
    near.map_or_else(
        || format!("; write {FAIL_ALLOWED}"),
        |near| format!("; did you mean {near}?"),
    )
}

#[derive(Clone, Debug)]
pub struct Assumptions {
    /// The seed of everything random.
    pub seed: u64,
    /// Duration of `prepare` after its wait.
    pub prepare: Span,
    /// Time that an evicted pod takes to terminate, up to its grace period.
    pub drain: Span,
    pub upgrade: Span,
    /// Time from the reboot until the node is Ready.
    pub reboot: Span,
    pub pod_start: Span,
    /// Duration of `before` and of `after`.
    pub hook: Span,
    pub fail: Vec<Fail>,
    pub faults: Vec<Fault>,
}

impl Assumptions {
    pub fn new(seed: u64) -> Self {
        let minutes = SignedDuration::from_mins;
        Self {
            seed,
            prepare: Span::of(SignedDuration::from_secs(5)),
            drain: Span::of(SignedDuration::from_secs(20)),
            upgrade: Span::between(minutes(2), minutes(5)),
            reboot: Span::between(minutes(2), minutes(4)),
            pod_start: Span::of(SignedDuration::from_secs(5)),
            hook: Span::of(SignedDuration::from_secs(30)),
            fail: Vec::new(),
            faults: Vec::new(),
        }
    }

    pub fn longest(&self) -> SignedDuration {
        let all = [
            self.prepare,
            self.drain,
            self.upgrade,
            self.reboot,
            self.pod_start,
            self.hook,
        ];
        let late = self.faults.iter().filter_map(Fault::late);
        all.into_iter()
            .map(Span::most)
            .chain(late)
            .max()
            .unwrap_or_default()
    }

    /// The nodes that fail. Percentages refer to the nodes that Plans select.
    ///
    /// # Errors
    /// Fails if a named node does not exist.
    pub fn failing<'n>(
        &self,
        nodes: &BTreeSet<&'n str>,
        selected: &BTreeSet<&'n str>,
    ) -> Result<BTreeSet<&'n str>, UnknownNode> {
        let hooks = Hook::ALL.map(Hook::as_str);
        let mut failing = BTreeSet::new();
        for fail in &self.fail {
            match fail {
                Fail::Node(name) => {
                    let node = nodes.get(name.as_str()).ok_or_else(|| UnknownNode {
                        name: name.clone(),
                        near: nearest(name, nodes.iter().copied().chain(hooks)).map(str::to_owned),
                    })?;
                    failing.insert(*node);
                }
                Fail::Percent(percent) => {
                    let share = (selected.len() * usize::from(*percent)).div_ceil(100);
                    let mut drawn: Vec<_> = selected
                        .iter()
                        .map(|node| (seeded_random(self.seed, &["fail", node]), *node))
                        .collect();
                    drawn.sort_unstable();
                    failing.extend(drawn.into_iter().take(share).map(|(_, node)| node));
                }
                Fail::Hook(_) => {}
            }
        }
        Ok(failing)
    }

    /// Annotations of a node that give its containers their durations and failures.
    pub fn steering(&self, node: &str, fails: bool) -> BTreeMap<String, String> {
        let draw = |what: &str, span: Span| {
            let drawn = span.draw(self.seed, &[what, node]);
            (
                format!("{STEERING_PREFIX}{what}"),
                format!("{}ms", drawn.as_millis()),
            )
        };
        let mut steering = BTreeMap::from([
            draw("preflight.run-delay", self.prepare),
            draw("prepare.run-delay", self.prepare),
            draw("verify.run-delay", self.prepare),
            draw("upgrade.run-delay", self.upgrade),
            draw("boot-delay", self.reboot),
            draw("delete-delay", self.drain),
            draw("start-delay", self.pod_start),
        ]);
        let mut say = |what: &str, value: &str| {
            steering.insert(format!("{STEERING_PREFIX}{what}"), value.to_owned());
        };
        say("reboot-required", "true");
        if fails {
            say("upgrade.exit-code", "1");
            say("upgrade.message", FAIL_MESSAGE);
        }
        let faults = self.faults.iter().filter(|fault| fault.node == node);
        steering.extend(faults.flat_map(Fault::steering));
        steering
    }

    pub fn fails_hook(&self, hook: Hook) -> bool {
        self.fail.contains(&Fail::Hook(hook))
    }

    /// Annotations of a node that give `before` or `after` its duration there, and its failure.
    pub fn hook_steering(&self, node: &str, hook: Hook) -> Vec<(String, String)> {
        let drawn = self.hook.draw(self.seed, &[hook.as_str(), node]);
        let mut all = vec![("run-delay", format!("{}ms", drawn.as_millis()))];
        if self.fails_hook(hook) {
            all.push(("exit-code", "1".to_owned()));
            all.push(("message", FAIL_MESSAGE.to_owned()));
        }
        let key = |what: &str| format!("{STEERING_PREFIX}{}.{what}", hook.as_str());
        all.into_iter().map(|(what, value)| (key(what), value)).collect()
    }

    /// The assumption about `before` or `after` as text.
    pub fn describe_hook(&self, hook: Hook) -> String {
        let verb = if self.fails_hook(hook) {
            "fails after"
        } else {
            "takes"
        };
        format!("`{}` {verb} {}", hook.as_str(), self.hook)
    }

    /// The behaviour that all nodes share.
    pub fn default_behaviour(&self) -> DefaultBehaviour {
        let mut default_behaviour = DefaultBehaviour::default();
        default_behaviour.defaults.boot.off = self.reboot.most();
        default_behaviour.defaults.start = Delay::After(self.pod_start.most());
        default_behaviour.defaults.stop = Delay::After(self.drain.most());
        default_behaviour
    }

    /// The assumptions as text.
    pub fn describe(&self) -> String {
        format!(
            "prepare {}, upgrade {}, reboot {}, a pod starts in {} and ends in {}",
            self.prepare, self.upgrade, self.reboot, self.pod_start, self.drain
        )
    }
}

/// A number derived from a seed and a purpose.
pub(super) fn seeded_random(seed: u64, what: &[&str]) -> u64 {
    Ids::new(seed ^ fnv1a(what)).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(text: &str) -> Result<Span, String> {
        text.parse::<Span>().map_err(|error| error.to_string())
    }

    #[test]
    fn a_span_is_a_time_or_a_range() {
        for (text, expected) in [
            ("5m", "5m"),
            ("4m..9m", "4m..9m"),
            ("90s", "1m30s"),
            ("0", "0s"),
            ("1h..2h30m", "1h..2h30m"),
        ] {
            assert_eq!(span(text).map(|span| span.to_string()), Ok(expected.to_owned()));
        }
        for (text, why) in [
            (
                "9m..4m",
                "the range ends before it begins; write the shorter time first",
            ),
            (
                "5",
                "\"5\" is not a duration such as 90s, 5m or 1h30m (a range is written 4m..9m)",
            ),
            (
                "4m..",
                "\"\" is not a duration such as 90s, 5m or 1h30m (a range is written 4m..9m)",
            ),
            (
                "-1m",
                "\"-1m\" is not a duration such as 90s, 5m or 1h30m (a range is written 4m..9m)",
            ),
            ("200h", "200h is longer than a week"),
        ] {
            assert_eq!(span(text), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_drawn_duration_is_in_its_range_and_follows_from_seed_and_node() {
        let range = span("4m..9m").unwrap();
        let mut drawn = BTreeSet::new();
        for node in 0..200 {
            let node = format!("node-{node}");
            let time = range.draw(7, &["upgrade", &node]);
            assert!((240..=540).contains(&time.as_secs()), "{time:?}");
            assert_eq!(time, range.draw(7, &["upgrade", &node]));
            drawn.insert(time);
        }
        assert!(drawn.len() > 100, "{}", drawn.len());
        assert_ne!(range.draw(7, &["a"]), range.draw(8, &["a"]));
    }

    #[test]
    fn nodes_fail_by_name_or_by_share() {
        let names: Vec<String> = (0..40).map(|number| format!("node-{number}")).collect();
        let nodes: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let failing = |texts: &[&str], seed| {
            let mut assumptions = Assumptions::new(seed);
            assumptions.fail = texts.iter().map(|text| text.parse().unwrap()).collect();
            assumptions.failing(&nodes, &nodes)
        };
        assert_eq!(failing(&["node-3"], 1), Ok(["node-3"].into()));
        assert_eq!(failing(&["5%"], 1).unwrap().len(), 2);
        assert_eq!(failing(&["1%"], 1).unwrap().len(), 1, "at least one");
        assert_eq!(failing(&["100%"], 1).unwrap().len(), 40);
        assert_eq!(failing(&["5%"], 1), failing(&["5%"], 1));
        assert_ne!(failing(&["5%"], 1), failing(&["5%"], 2));
        assert_eq!(
            failing(&["nod-3"], 1).unwrap_err().to_string(),
            "--fail nod-3: the cluster has no such node; did you mean node-3?"
        );
        for wrong in ["0%", "101%", "x%", ""] {
            assert!(wrong.parse::<Fail>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_kubelet_understands_the_steering_of_the_assumptions() {
        let mut assumptions = Assumptions::new(1);
        let faults = ["away", "reboot", "drain", "prepare", "late"];
        assumptions.faults = faults
            .map(|fault| format!("node-1:{fault}").parse().unwrap())
            .into();
        let steering = assumptions.steering("node-1", true);
        let pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "p", "uid": "u" },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "upgrade" }] },
        }))
        .unwrap();
        let default_behaviour = assumptions.default_behaviour();
        let behaviour = crate::pod_lifecycle::PodBehaviour::resolve(
            &pod,
            &[&steering, &default_behaviour.steering],
            &default_behaviour.defaults,
            &|_| false,
        );
        assert!(behaviour.is_ok(), "{behaviour:?}");
    }
}
