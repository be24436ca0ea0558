//! Error responses of the API server: `Status` objects with the messages, codes and causes of Kubernetes 1.36.

use super::resources::Kind;
use crate::json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub struct StatusError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// Null if there are none.
    pub details: Value,
}

impl StatusError {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            details: Value::Null,
        }
    }

    fn about(mut self, kind: Kind, name: &str) -> Self {
        self.details = json!({ "name": name, "kind": kind.resource_type().plural });
        if !kind.resource_type().group.is_empty() {
            self.details["group"] = kind.resource_type().group.into();
        }
        self
    }

    pub fn not_found(kind: Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.resource_type().qualified());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    pub fn already_exists(kind: Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.resource_type().qualified());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    pub fn conflict(kind: Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            kind.resource_type().qualified()
        );
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// The object was modified since it was read.
    pub fn modified(kind: Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// Another object has the name now.
    pub fn other_uid(kind: Kind, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(kind, name, &why)
    }

    /// A precondition of a deletion failed. Kubernetes names the kind here, and the resource elsewhere.
    pub fn not_in_record(kind: Kind, name: &str, what: &str, wanted: &str, found: &str) -> Self {
        let qualified = kind.resource_type().qualified_kind();
        let end = if what == "UID" {
            "deleted and then recreated"
        } else {
            "modified"
        };
        let message = format!(
            "Operation cannot be fulfilled on {qualified} {name:?}: the {what} in the precondition ({wanted}) does not \
             match the {what} in record ({found}). The object might have been {end}"
        );
        let mut status_error = Self::new(409, "Conflict", message).about(kind, name);
        status_error.details["kind"] = kind.resource_type().kind.into();
        status_error
    }

    /// The object is invalid; a cause is a field, a reason and a message.
    pub fn invalid(kind: Kind, name: &str, causes: &[(String, &str, String)]) -> Self {
        let parts: Vec<String> = causes
            .iter()
            .map(|(field, _, message)| format!("{field}: {message}"))
            .collect();
        let why = match parts.as_slice() {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let message = format!(
            "{} {name:?} is invalid: {why}",
            kind.resource_type().qualified_kind()
        );
        let mut status_error = Self::new(422, "Invalid", message).about(kind, name);
        status_error.details["kind"] = kind.resource_type().kind.into();
        status_error.details["causes"] = causes
            .iter()
            .map(|(field, reason, message)| json!({ "reason": reason, "message": message, "field": field }))
            .collect();
        status_error
    }

    /// An immutable field was changed.
    pub fn immutable(kind: Kind, name: &str, field: &str, value: &Value) -> Self {
        let message = format!("Invalid value: {value}: field is immutable");
        Self::invalid(kind, name, &[(field.to_owned(), "FieldValueInvalid", message)])
    }

    /// A patch has unknown fields, under strict validation.
    pub fn strict(patch: &Value, unknown: &str) -> Self {
        let why = format!(
            "Invalid value: {:?}: strict decoding error: {unknown}",
            patch.to_string()
        );
        let message = format!(" \"\" is invalid: patch: {why}");
        let mut status_error = Self::new(422, "Invalid", message);
        let cause = json!({ "reason": "FieldValueInvalid", "message": why, "field": "patch" });
        status_error.details = json!({ "causes": [cause] });
        status_error
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    /// The resource version is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message.into())
    }

    /// The resource version is newer than the server's.
    pub fn timeout(message: String) -> Self {
        Self::new(504, "Timeout", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message.into())
    }

    /// The request has more bytes than an API server reads.
    pub fn entity_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// A PodDisruptionBudget refuses the eviction.
    pub fn budget(cause: &str, retry_after: Option<u32>) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
        let mut status_error = Self::new(429, "TooManyRequests", message);
        status_error.details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": cause }] });
        if let Some(seconds) = retry_after {
            status_error.details["retryAfterSeconds"] = seconds.into();
        }
        status_error
    }

    /// A request that is not simulated.
    pub fn unsupported(what: &str) -> Self {
        let message = format!("the rehearsal's cluster does not simulate this request: {what}");
        Self::new(501, "NotImplemented", message)
    }

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
