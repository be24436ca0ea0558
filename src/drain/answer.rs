//! What the API server means by its answer to an eviction or a delete. Pure.
//!
//! 429 is two things: a PodDisruptionBudget that refuses, which is an answer, and a server that is short of breath, which is
//! not. And a pod with two budgets is answered with 201 and a Status that says 500.

use std::time::Duration;

use kube::core::Status;

use crate::controller::client::brief;

/// Reason of the cause that tells a refusal from overload (policy/v1 `DisruptionBudgetCause`).
const DISRUPTION_BUDGET: &str = "DisruptionBudget";
/// Reason of the cause that tells of a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
/// What is said of a pod with two budgets; there is nothing else to know it by.
const TWO_BUDGETS: &str = "more than one PodDisruptionBudget";
/// What comes before the budget's name in the cause of a refusal.
const BUDGET: &str = "The disruption budget ";
/// How long an overloaded server is left alone that does not say how long.
const BREATHER: Duration = Duration::from_secs(1);
/// How long it is left alone at most.
const LONGEST_BREATHER: Duration = Duration::from_secs(5);

/// Why a pod may not go yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the PodDisruptionBudget.
    pub pdb: Option<String>,
    /// Why, in the API server's words.
    pub why: String,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pod is told to go.
    Accepted,
    /// It is gone.
    Gone,
    /// A budget does not let it go now.
    Refused(Refusal),
    /// The namespace is being deleted: its pods go by themselves, and cannot be evicted.
    Terminating(String),
    /// The server is overloaded.
    Overloaded(Duration),
    /// The pod is another one by now, or was changed meanwhile: a list tells.
    Conflict,
    /// It is not known what became of it; try again.
    Unclear(String),
    /// The pod has two budgets, which no eviction can keep.
    TwoBudgets(String),
    /// Trying again would not help.
    Fatal(String),
}

/// Judges an answer.
pub fn judge(answer: Result<Status, kube::Error>) -> Answer {
    match answer {
        // The answer to a delete is the pod, which has another kind of status.
        Ok(status) if status.is_failure() => of_status(&status),
        Ok(_) => Answer::Accepted,
        Err(kube::Error::Api(status)) => of_status(&status),
        Err(error) => Answer::Unclear(brief(&error)),
    }
}

fn of_status(status: &Status) -> Answer {
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    let cause = |reason: &str| causes().find(|cause| cause.reason == reason);
    let message = || match status.message.as_str() {
        "" => format!("HTTP status {}", status.code),
        message => message.to_owned(),
    };
    match status.code {
        404 => Answer::Gone,
        409 => Answer::Conflict,
        429 => cause(DISRUPTION_BUDGET).map_or_else(
            || Answer::Overloaded(breather(status)),
            |cause| {
                Answer::Refused(Refusal {
                    pdb: budget_name(&cause.message).map(str::to_owned),
                    why: match cause.message.as_str() {
                        "" => message(),
                        cause => cause.to_owned(),
                    },
                })
            },
        ),
        403 if cause(NAMESPACE_TERMINATING).is_some() => Answer::Terminating(message()),
        _ if status.message.contains(TWO_BUDGETS) => Answer::TwoBudgets(message()),
        408 | 500.. => Answer::Unclear(message()),
        _ => Answer::Fatal(message()),
    }
}

/// How long an overloaded server wants to be left alone.
fn breather(status: &Status) -> Duration {
    let asked = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(asked.into()).clamp(BREATHER, LONGEST_BREATHER)
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

    fn refused(status: Value) -> Answer {
        judge(Err(kube::Error::Api(Box::new(
            serde_json::from_value(status).unwrap(),
        ))))
    }

    /// As Kubernetes 1.36 sends it.
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
                why: why.to_owned(),
            };
            assert_eq!(refused(budget(why)), Answer::Refused(expected));
        }
        let Answer::Refused(nameless) = refused(budget("")) else {
            panic!("not refused")
        };
        assert_eq!(nameless.pdb, None);
        assert!(nameless.why.contains("disruption budget"), "{}", nameless.why);
    }

    #[test]
    fn overload_is_no_refusal() {
        let plain = json!({ "code": 429, "message": "Too many requests, please try again later." });
        assert_eq!(refused(plain), Answer::Overloaded(Duration::from_secs(1)));
        let asked = |seconds: u32| {
            refused(
                json!({ "code": 429, "reason": "TooManyRequests", "details": { "retryAfterSeconds": seconds } }),
            )
        };
        assert_eq!(asked(3), Answer::Overloaded(Duration::from_secs(3)));
        assert_eq!(asked(600), Answer::Overloaded(Duration::from_secs(5)));
    }

    #[test]
    fn two_budgets_are_known_however_they_are_sent() {
        let status = json!({
            "status": "Failure", "code": 500,
            "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        });
        assert!(matches!(refused(status.clone()), Answer::TwoBudgets(_)));
        let with_201 = judge(Ok(serde_json::from_value(status).unwrap()));
        assert!(matches!(with_201, Answer::TwoBudgets(_)));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_will_not_is_not() {
        let of = |code: u16| refused(json!({ "code": code, "message": "m" }));
        assert_eq!(of(404), Answer::Gone);
        assert_eq!(of(409), Answer::Conflict);
        for code in [408, 500, 503, 504] {
            assert_eq!(of(code), Answer::Unclear("m".to_owned()), "{code}");
        }
        for code in [400, 401, 403, 405, 422] {
            assert_eq!(of(code), Answer::Fatal("m".to_owned()), "{code}");
        }
        let dying = json!({
            "code": 403, "message": "m", "details": { "causes": [{ "reason": "NamespaceTerminating" }] },
        });
        assert_eq!(refused(dying), Answer::Terminating("m".to_owned()));
        assert_eq!(judge(Ok(Status::success())), Answer::Accepted);
    }
}
