//! `drain.waitFor`: pods that end by themselves before a node is drained. The doc comments of the fields are what
//! `kubectl explain` prints.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_enum::field_enum;
use super::invalid::{ErrorList, FieldPath, at};
use super::pod_blocker::{namespace, selects_all};
use super::selector::{Selector, is_dns_label};
use refit_base::go::GoDuration;

/// Maximum number of entries. The pods of a node are listed once for each, at intervals.
const MAX_ENTRIES: usize = 16;
/// First and longest time until a node has its turn again that was released because its pods had not ended.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// Pods that the drain waits for once the node is cordoned, before it evicts anything.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitForSpec {
    /// Labels of the pods. Required, and must not be empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Namespace of the pods. If absent, those of all namespaces count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How long to wait, as a Go duration such as `2h`. Required.
    ///
    /// Comes before `drain.timeout`, and in addition to the deadline of the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// What happens if such a pod still runs after `timeout`: `Evict`, `Skip` the node, or `Fail`. Defaults to `Evict`.
    ///
    /// `Evict` begins the drain, which evicts it like others; `Skip` releases the node as it was, and its turn comes
    /// again after 5 minutes, then after 10, 20, 40, and then every hour; `Fail` fails the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_timeout: Option<AfterWait>,
}

field_enum! {
    /// What happens if pods have not ended in time.
    #[derive(Default)]
    AfterWait {
        /// The drain begins, and evicts them.
        #[default]
        Evict,
        /// The node is released, and has its turn later.
        Skip,
        /// The drain fails.
        Fail,
    }
}

/// A valid entry. As text it is the value of `refit drain --wait-for`.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitFor {
    pub selector: Selector,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub timeout: GoDuration,
    pub after_timeout: AfterWait,
}

/// How long a node waits for its turn that was released so often in a row.
pub fn pause(released: i64) -> SignedDuration {
    let doublings = u32::try_from(released.saturating_sub(1).clamp(0, 8)).unwrap_or_default();
    let pause = FIRST_PAUSE.checked_mul(2_i32.saturating_pow(doublings));
    pause.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
}

/// The time that all entries take together: they begin at the same time.
pub fn longest(waits: &[WaitFor]) -> GoDuration {
    let longest = waits.iter().map(|wait| wait.timeout).max();
    longest.unwrap_or(GoDuration::ZERO)
}

impl WaitForSpec {
    fn parse(&self, entry: &FieldPath) -> Result<WaitFor, ErrorList> {
        let mut errors = ErrorList::default();
        let field = entry.field("podSelector");
        let given = self
            .pod_selector
            .as_ref()
            .filter(|selector| !selects_all(selector));
        if given.is_none() {
            errors.push(field.invalid(
                "is empty, so that the drain would wait for every pod of the node: write the labels of those that end by themselves",
            ));
        }
        let selector = given.and_then(|selector| errors.take(field.selector(selector)));
        let namespace = namespace(self.namespace.as_deref(), entry, &mut errors);
        let field = entry.field("timeout");
        let timeout = match self.timeout.as_deref() {
            None => {
                errors.push(field.invalid("is required: a Go duration such as 30m"));
                None
            }
            Some(text) => errors.take(field.parse::<GoDuration>(text)),
        };
        if let Some(timeout) = timeout.filter(|timeout| *timeout <= GoDuration::ZERO) {
            errors.push(field.invalid(format_args!("is {timeout}: it must be longer than 0s")));
        }
        let after_timeout = self.after_timeout.unwrap_or_default();
        let parsed = selector.zip(timeout).map(|(selector, timeout)| WaitFor {
            selector,
            namespace,
            timeout,
            after_timeout,
        });
        errors.finish(parsed)
    }
}

/// The parsed `spec.drain.waitFor`.
///
/// # Errors
/// Fails with all invalid entries; `validate` has reported them.
pub(super) fn parse(specs: &[WaitForSpec]) -> Result<Vec<WaitFor>, ErrorList> {
    at("drain.waitFor").each(specs, MAX_ENTRIES, "entries", WaitForSpec::parse)
}

const FORMAT: &str =
    "it must be like app=runner;timeout=30m, and may have ;after=evict, skip or fail, and ;namespace=NAME";

impl fmt::Display for WaitFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            selector,
            namespace,
            timeout,
            after_timeout,
        } = self;
        write!(f, "{selector};timeout={timeout}")?;
        if *after_timeout != AfterWait::default() {
            write!(f, ";after={}", after_timeout.as_str().to_lowercase())?;
        }
        // No selector has a semicolon: keys and values of labels have none.
        namespace
            .as_ref()
            .map_or(Ok(()), |namespace| write!(f, ";namespace={namespace}"))
    }
}

impl FromStr for WaitFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(';');
        let selector = parts.next().unwrap_or_default();
        let selector = selector
            .parse::<Selector>()
            .map_err(|error| format!("must begin with a valid label selector: {error}"))?;
        if selector.is_everything() {
            return Err(format!("has no labels; {FORMAT}"));
        }
        let (mut timeout, mut after_timeout, mut namespace) = (None, AfterWait::default(), None);
        let mut keys = BTreeSet::new();
        for part in parts {
            let key_and_value = part.split_once('=');
            if let Some((key, _)) = key_and_value.filter(|(key, _)| !keys.insert(*key)) {
                return Err(format!("has {key:?} twice; {FORMAT}"));
            }
            match key_and_value {
                Some(("timeout", value)) => {
                    let read = value.parse::<GoDuration>();
                    let read = read.map_err(|error| format!("has an invalid timeout: {error}"))?;
                    if read <= GoDuration::ZERO {
                        return Err(format!("has timeout={read}: it must be longer than 0s"));
                    }
                    timeout = Some(read);
                }
                Some(("after", "evict")) => after_timeout = AfterWait::Evict,
                Some(("after", "skip")) => after_timeout = AfterWait::Skip,
                Some(("after", "fail")) => after_timeout = AfterWait::Fail,
                Some(("namespace", name)) if is_dns_label(name) => namespace = Some(name.to_owned()),
                _ => return Err(format!("has {part:?}; {FORMAT}")),
            }
        }
        Ok(Self {
            selector,
            namespace,
            timeout: timeout.ok_or_else(|| format!("has no timeout; {FORMAT}"))?,
            after_timeout,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DrainSpec;
    use crate::plan::PlanSpec;

    fn read(yaml: &str) -> Result<Vec<WaitFor>, String> {
        let drain: DrainSpec = serde_saphyr::from_str(&format!("{{waitFor: {yaml}}}")).unwrap();
        let spec = PlanSpec {
            drain: Some(drain),
            ..PlanSpec::default()
        };
        spec.drain_waits().map_err(|error| error.to_string())
    }

    #[test]
    fn an_entry_is_labels_and_a_time_and_is_passed_to_the_drain_as_text() {
        let yaml = "[{podSelector: {matchLabels: {app: runner}}, timeout: 30m}, {podSelector: {matchExpressions: [{key: a/job, \
                    operator: In, values: [x, y]}]}, namespace: ci, timeout: 2h, afterTimeout: Skip}]";
        let waits = read(yaml).unwrap();
        let texts: Vec<_> = waits.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "app=runner;timeout=30m0s",
                "a/job in (x,y);timeout=2h0m0s;after=skip;namespace=ci"
            ]
        );
        let again: Vec<WaitFor> = texts.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(again, waits);
        assert_eq!(longest(&waits).to_string(), "2h0m0s");
        assert_eq!(longest(&[]), GoDuration::ZERO);
    }

    #[test]
    fn an_entry_that_would_never_end_or_wait_for_all_is_refused_with_its_place() {
        for (yaml, says) in [
            ("[{timeout: 1m}]", "spec.drain.waitFor[0].podSelector is empty"),
            (
                "[{podSelector: {matchLabels: {a: b}}}]",
                "spec.drain.waitFor[0].timeout is required",
            ),
            (
                "[{podSelector: {matchLabels: {a: b}}, timeout: 0s}]",
                "spec.drain.waitFor[0].timeout is 0s: it must be longer than 0s",
            ),
            (
                "[{podSelector: {matchLabels: {a: b}}, timeout: soon}]",
                "spec.drain.waitFor[0].timeout is invalid",
            ),
            (
                "[{podSelector: {matchLabels: {a: b}}, timeout: 1m, namespace: A_b}]",
                "spec.drain.waitFor[0].namespace is \"A_b\"",
            ),
        ] {
            let error = read(yaml).unwrap_err();
            assert!(error.starts_with(says), "{yaml}: {error}");
        }
        for (text, says) in [
            ("", "has no labels"),
            ("a=b", "has no timeout"),
            ("a=b;timeout=0", "has timeout=0s: it must be longer than 0s"),
            ("a=b;timeout=5m;timeout=6m", "has \"timeout\" twice"),
            ("a=b;timeout=5m;after=skip;after=skip", "has \"after\" twice"),
            ("a=b;timeout=x", "has an invalid timeout"),
            ("a=b;timeout=1m;after=wait", "has \"after=wait\""),
            ("a b;timeout=1m", "must begin with a valid label selector"),
        ] {
            let error = text.parse::<WaitFor>().unwrap_err();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_an_hour() {
        let minutes = [0, 1, 2, 3, 4, 5, i64::MAX].map(|released| pause(released).as_mins());
        assert_eq!(minutes, [5, 5, 10, 20, 40, 60, 60]);
    }
}
