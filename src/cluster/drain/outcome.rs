//! Interprets responses to evictions and deletions. Pure.
//!
//! 429 has three meanings: a PodDisruptionBudget refuses the eviction, a webhook does, or the server is overloaded. For a
//! pod with two budgets the response is 201 with a Status of code 500.

use std::time::Duration;

use kube::core::Status;

use crate::kube::{Answer, brief};

/// Reason of the cause that distinguishes a refusal from overload (policy/v1 `DisruptionBudgetCause`).
const DISRUPTION_BUDGET: &str = "DisruptionBudget";
/// Reason of the cause if the namespace is being deleted. An eviction is a create, which the admission plugin
/// `NamespaceLifecycle` forbids there.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
/// Message for a pod with two budgets. Nothing else identifies that response.
const TWO_BUDGETS: &str = "more than one PodDisruptionBudget";
/// Text before the budget's name in the cause of a refusal.
const BUDGET: &str = "The disruption budget ";
/// How the API server begins and joins the refusal of a webhook (`ToStatusErr` in
/// staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors).
const WEBHOOK: (&str, &str) = ("admission webhook \"", "\" denied the request: ");
/// How `KubeVirt` names the virtual machine that it moves instead of evicting its pod (pod-eviction-admitter.go).
const VIRTUAL_MACHINE: &str = "VMI \"";
/// Delay for an overloaded server that sends no Retry-After.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum delay for an overloaded server.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a pod cannot be evicted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the PodDisruptionBudget.
    pub pdb: Option<String>,
    /// Name of the virtual machine in the pod, which moves instead.
    pub virtual_machine: Option<String>,
    /// Message of the API server.
    pub why: String,
}

impl Refusal {
    /// One that names nothing.
    pub(super) fn of(why: String) -> Self {
        Self {
            pdb: None,
            virtual_machine: None,
            why,
        }
    }

    fn of_webhook(message: &str) -> Option<Self> {
        let (name, why) = message.strip_prefix(WEBHOOK.0)?.split_once(WEBHOOK.1)?;
        let machine = why.split_once(VIRTUAL_MACHINE);
        let machine = machine.and_then(|(_, path)| path.split('"').next()?.split_once('/'));
        Some(Self {
            pdb: None,
            virtual_machine: machine.map(|(_, name)| name.to_owned()),
            why: format!("the webhook {name} says: {why}"),
        })
    }
}

/// The meaning of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod is being deleted.
    Accepted,
    /// The pod is gone.
    Gone,
    /// A budget or a webhook refuses the eviction for now.
    Refused(Refusal),
    /// The namespace is being deleted: its pods are deleted with it, and cannot be evicted.
    Terminating(String),
    Overloaded(Duration),
    /// The pod was replaced or changed; a list shows which.
    Conflict,
    /// The outcome is unknown; retry.
    Unclear(String),
    /// The pod has two budgets, so that every eviction fails.
    TwoBudgets(String),
    /// A retry would not help.
    Fatal(String),
}

/// Interprets a response.
pub fn judge(answer: Result<Status, kube::Error>) -> EvictionOutcome {
    match answer {
        // The response to a delete is the pod, whose `status` is another type.
        Ok(status) if status.is_failure() => of_status(&status),
        Ok(_) => EvictionOutcome::Accepted,
        Err(kube::Error::Api(status)) => of_status(&status),
        Err(error) => EvictionOutcome::Unclear(brief(&error)),
    }
}

fn of_status(status: &Status) -> EvictionOutcome {
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    let cause = |reason: &str| causes().find(|cause| cause.reason == reason);
    let message = || match status.message.as_str() {
        "" => format!("HTTP status {}", status.code),
        message => message.to_owned(),
    };
    match Answer::of_status(status) {
        // Someone else deleted the pod, or it ended by itself. kubectl ignores 404 as well.
        Answer::NotFound => EvictionOutcome::Gone,
        Answer::Conflict | Answer::Exists => EvictionOutcome::Conflict,
        // The code alone does not tell a refusal of a budget or a webhook from the priority and fairness queues of the API
        // server, which also answer 429. kubectl treats all as a refusal, and would report an overloaded server as a budget.
        Answer::Overload => match cause(DISRUPTION_BUDGET) {
            Some(cause) => EvictionOutcome::Refused(Refusal {
                pdb: budget_name(&cause.message).map(str::to_owned),
                virtual_machine: None,
                why: match cause.message.as_str() {
                    "" => message(),
                    cause => cause.to_owned(),
                },
            }),
            None => Refusal::of_webhook(&status.message).map_or_else(
                || EvictionOutcome::Overloaded(retry_after(status)),
                EvictionOutcome::Refused,
            ),
        },
        Answer::Forbidden if cause(NAMESPACE_TERMINATING).is_some() => {
            EvictionOutcome::Terminating(message())
        }
        _ if status.message.contains(TWO_BUDGETS) => EvictionOutcome::TwoBudgets(message()),
        // The request may have taken effect, so neither success nor failure is known. The next attempt finds out.
        Answer::Unknown => EvictionOutcome::Unclear(message()),
        _ => EvictionOutcome::Fatal(message()),
    }
}

/// The delay that an overloaded server requests.
fn retry_after(status: &Status) -> Duration {
    let asked = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(asked.into()).clamp(DEFAULT_RETRY_AFTER, MAX_RETRY_AFTER)
}

/// The name in `The disruption budget NAME …`.
fn budget_name(cause: &str) -> Option<&str> {
    let name = cause.strip_prefix(BUDGET)?.split(' ').next()?;
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(status: Value) -> EvictionOutcome {
        judge(Err(kube::Error::Api(Box::new(
            serde_json::from_value(status).unwrap(),
        ))))
    }

    /// As sent by Kubernetes 1.36.
    fn budget(message: &str) -> Value {
        json!({
            "status": "Failure", "reason": "TooManyRequests", "code": 429,
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": { "causes": [{ "reason": "DisruptionBudget", "message": message }] },
        })
    }

    #[test]
    fn a_budget_that_refuses_is_named() {
        for why in [
            "The disruption budget web needs 3 healthy pods and has 3 currently",
            "The disruption budget web is still being processed by the server.",
            "The disruption budget web does not allow evicting pods currently",
            "The disruption budget web does not allow evicting pods currently because it failed sync: x",
        ] {
            let expected = Refusal {
                pdb: Some("web".to_owned()),
                virtual_machine: None,
                why: why.to_owned(),
            };
            assert_eq!(refused(budget(why)), EvictionOutcome::Refused(expected));
        }
        let EvictionOutcome::Refused(nameless) = refused(budget("")) else {
            panic!("not refused")
        };
        assert_eq!(nameless.pdb, None);
        assert!(nameless.why.contains("disruption budget"), "{}", nameless.why);
    }

    #[test]
    fn an_overloaded_server_is_no_refusal() {
        let plain = json!({ "code": 429, "message": "Too many requests, please try again later." });
        assert_eq!(
            refused(plain),
            EvictionOutcome::Overloaded(Duration::from_secs(1))
        );
        let asked = |seconds: u32| {
            refused(
                json!({ "code": 429, "reason": "TooManyRequests", "details": { "retryAfterSeconds": seconds } }),
            )
        };
        assert_eq!(asked(3), EvictionOutcome::Overloaded(Duration::from_secs(3)));
        assert_eq!(asked(600), EvictionOutcome::Overloaded(Duration::from_secs(5)));
    }

    /// As the API server passes on the answer of `KubeVirt` (pod-eviction-admitter.go), and that of another webhook.
    #[test]
    fn a_webhook_that_refuses_for_now_is_named_with_its_words_and_its_virtual_machine() {
        let of = |name: &str, says: &str| {
            let message = format!("admission webhook \"{name}\" denied the request: {says}");
            let EvictionOutcome::Refused(refusal) = refused(json!({ "code": 429, "message": message }))
            else {
                panic!("not refused: {message}")
            };
            assert_eq!(
                (refusal.pdb, refusal.why),
                (None, format!("the webhook {name} says: {says}"))
            );
            refusal.virtual_machine
        };
        let kubevirt = "virt-launcher-eviction-interceptor.kubevirt.io";
        let says = r#"Eviction triggered evacuation of VMI "shop/web-0""#;
        assert_eq!(of(kubevirt, says).as_deref(), Some("web-0"));
        assert_eq!(of("storage.example.com", "a volume is rebuilt"), None);
        // Whatever its code, any other refusal of a webhook stays one.
        let message = format!("admission webhook \"{kubevirt}\" denied the request: {says}");
        let fatal = refused(json!({ "code": 403, "message": message }));
        assert_eq!(fatal, EvictionOutcome::Fatal(message));
    }

    #[test]
    fn two_budgets_are_known_however_they_are_sent() {
        let status = json!({
            "status": "Failure", "code": 500,
            "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        });
        assert!(matches!(refused(status.clone()), EvictionOutcome::TwoBudgets(_)));
        let with_201 = judge(Ok(serde_json::from_value(status).unwrap()));
        assert!(matches!(with_201, EvictionOutcome::TwoBudgets(_)));
    }

    #[test]
    fn a_transient_eviction_error_is_retried_and_a_permanent_one_is_not() {
        let of = |code: u16| refused(json!({ "code": code, "message": "m" }));
        assert_eq!(of(404), EvictionOutcome::Gone);
        assert_eq!(of(409), EvictionOutcome::Conflict);
        for code in [408, 500, 503, 504] {
            assert_eq!(of(code), EvictionOutcome::Unclear("m".to_owned()), "{code}");
        }
        for code in [400, 401, 403, 405, 422] {
            assert_eq!(of(code), EvictionOutcome::Fatal("m".to_owned()), "{code}");
        }
        let dying = json!({
            "code": 403, "message": "m", "details": { "causes": [{ "reason": "NamespaceTerminating" }] },
        });
        assert_eq!(refused(dying), EvictionOutcome::Terminating("m".to_owned()));
        assert_eq!(judge(Ok(Status::success())), EvictionOutcome::Accepted);
    }
}
