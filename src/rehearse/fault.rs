//! What an API server says when it does not do what was asked: `Status` objects with the words, codes and causes of
//! Kubernetes 1.36.

use super::resources::Kind;
use crate::rehearse::json::{Value, json};

/// A request that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// HTTP status.
    pub code: u16,
    /// `reason`.
    pub reason: &'static str,
    /// `message`.
    pub message: String,
    /// `details`; null where there are none.
    pub details: Value,
}

impl Fault {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            details: Value::Null,
        }
    }

    fn about(mut self, kind: Kind, name: &str) -> Self {
        self.details = json!({ "name": name, "kind": kind.facts().plural });
        if !kind.facts().group.is_empty() {
            self.details["group"] = kind.facts().group.into();
        }
        self
    }

    /// There is no such object.
    pub fn not_found(kind: Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.facts().qualified());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    /// There is such an object already.
    pub fn already_exists(kind: Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.facts().qualified());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    /// The object is not the one that was meant.
    pub fn conflict(kind: Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            kind.facts().qualified()
        );
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// The object was written in between.
    pub fn modified(kind: Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// Another object has the name by now.
    pub fn other_uid(kind: Kind, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(kind, name, &why)
    }

    /// What is to be deleted is not what was meant. Here Kubernetes names the kind where it names the type elsewhere.
    pub fn not_in_record(kind: Kind, name: &str, what: &str, wanted: &str, found: &str) -> Self {
        let qualified = kind.facts().qualified_kind();
        let end = if what == "UID" {
            "deleted and then recreated"
        } else {
            "modified"
        };
        let message = format!(
            "Operation cannot be fulfilled on {qualified} {name:?}: the {what} in the precondition ({wanted}) does not \
             match the {what} in record ({found}). The object might have been {end}"
        );
        let mut fault = Self::new(409, "Conflict", message).about(kind, name);
        fault.details["kind"] = kind.facts().kind.into();
        fault
    }

    /// The object cannot be like that: causes are a field, a reason and a message each.
    pub fn invalid(kind: Kind, name: &str, causes: &[(String, &str, String)]) -> Self {
        let parts: Vec<String> = causes
            .iter()
            .map(|(field, _, message)| format!("{field}: {message}"))
            .collect();
        let why = match parts.as_slice() {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {why}", kind.facts().qualified_kind());
        let mut fault = Self::new(422, "Invalid", message).about(kind, name);
        fault.details["kind"] = kind.facts().kind.into();
        fault.details["causes"] = causes
            .iter()
            .map(|(field, reason, message)| json!({ "reason": reason, "message": message, "field": field }))
            .collect();
        fault
    }

    /// A field that cannot be changed was.
    pub fn immutable(kind: Kind, name: &str, field: &str, value: &Value) -> Self {
        let message = format!("Invalid value: {value}: field is immutable");
        Self::invalid(kind, name, &[(field.to_owned(), "FieldValueInvalid", message)])
    }

    /// A patch has fields that the object has not.
    pub fn strict(patch: &Value, unknown: &str) -> Self {
        let why = format!(
            "Invalid value: {:?}: strict decoding error: {unknown}",
            patch.to_string()
        );
        let message = format!(" \"\" is invalid: patch: {why}");
        let mut fault = Self::new(422, "Invalid", message);
        let cause = json!({ "reason": "FieldValueInvalid", "message": why, "field": "patch" });
        fault.details = json!({ "causes": [cause] });
        fault
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    /// The version that is asked about is forgotten.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message.into())
    }

    /// What was asked about is not there yet.
    pub fn timeout(message: String) -> Self {
        Self::new(504, "Timeout", message)
    }

    /// The server cannot do it.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message.into())
    }

    /// A PodDisruptionBudget says no.
    pub fn budget(cause: &str, retry_after: Option<u32>) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
        let mut fault = Self::new(429, "TooManyRequests", message);
        fault.details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": cause }] });
        if let Some(seconds) = retry_after {
            fault.details["retryAfterSeconds"] = seconds.into();
        }
        fault
    }

    /// Nothing that this cluster can play. Whoever sees it has found a hole in the rehearsal.
    pub fn not_played(what: &str) -> Self {
        let message = format!("the rehearsal's cluster does not play this request: {what}");
        Self::new(501, "NotImplemented", message)
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
