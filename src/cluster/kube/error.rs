//! Interprets errors of requests: whether a write was applied, and the cause in few words.

use kube::core::Status;

use super::causes::{find, innermost};
use super::client::{NotLeader, Unreachable};
use refit_api::text::{MAX_MESSAGE, shorten};

/// What is known about a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API server refused it, and nothing was written.
    Refused,
    /// It was never sent.
    NotSent,
    /// It may have been applied: read the object before a retry.
    Unknown,
}

/// What an API server says to a request that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 400 or 422: the content of the request.
    Invalid,
    /// 403.
    Forbidden,
    /// 404: of the object, or of the whole kind.
    NotFound,
    /// 409: the object has another version.
    Conflict,
    /// 409: there is an object of this name.
    Exists,
    /// 410: the resource version is too old.
    Expired,
    /// 429.
    Overload,
    /// Another refusal.
    Refused,
    /// A timeout or a crash, which does not show what was written before. A server sends 503 before it handles a request,
    /// but a proxy in front of it may send 503 later.
    Unknown,
    /// None came, or none of an API server.
    None,
}

impl Answer {
    /// The one classification of the API server's answers.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            _ => Self::None,
        }
    }

    pub fn of_status(status: &Status) -> Self {
        match status.code {
            400 | 422 => Self::Invalid,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 if status.is_already_exists() => Self::Exists,
            409 => Self::Conflict,
            410 => Self::Expired,
            429 => Self::Overload,
            408 | 500.. => Self::Unknown,
            _ => Self::Refused,
        }
    }
}

/// What only the words of the API server tell.
fn says(error: &kube::Error, text: &str) -> bool {
    // Not `brief`: the message may begin with the whole patch.
    matches!(error, kube::Error::Api(status) if status.message.contains(text))
}

/// Whether the authorizer refuses the request, and not an admission plugin
/// (kubernetes/kubernetes, `apiserver/pkg/endpoints/handlers/responsewriters/errors.go`).
pub fn is_unauthorized(error: &kube::Error) -> bool {
    Answer::of(error) == Answer::Forbidden && says(error, " is forbidden: User ")
}

/// Whether etcd refuses the object for its size, which is a 500.
pub fn is_too_large(error: &kube::Error) -> bool {
    Answer::of(error) == Answer::Unknown && ["too large", "too long"].iter().any(|text| says(error, text))
}

/// Whether the API server refuses a patch under strict validation rather than drop fields that it does not know.
pub fn would_prune(error: &kube::Error) -> bool {
    Answer::of(error) == Answer::Invalid && says(error, "strict decoding error: unknown field")
}

/// Whether the server does not have the resource version yet (apiserver's storage/errors.go). Its code, 504, has other causes, too.
pub(super) fn is_version_ahead(status: &Status) -> bool {
    status.message.contains("Too large resource version")
}

/// Whether what came instead of an object is the status of a failure.
pub(super) fn is_failure(status: &Status) -> bool {
    status.code >= 400
}

/// Interprets the error of a write.
pub fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if Answer::of_status(status) != Answer::Unknown => Failure::Refused,
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => Failure::NotSent,
        kube::Error::Service(cause) => {
            let connecting = find::<hyper_util::client::legacy::Error>(cause.as_ref())
                .is_some_and(hyper_util::client::legacy::Error::is_connect);
            let not_leader = find::<NotLeader>(cause.as_ref()).is_some();
            if connecting || not_leader {
                Failure::NotSent
            } else {
                Failure::Unknown
            }
        }
        _ => Failure::Unknown,
    }
}

/// A short message for logs, conditions and events: the API server's message, or the innermost cause. kube would print
/// the server's whole Status twice.
pub fn brief(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return if status.message.is_empty() {
            format!("HTTP status {}", status.code)
        } else {
            shorten(&status.message, MAX_MESSAGE).into_owned()
        };
    }
    let text = match find::<Unreachable>(error) {
        Some(unreachable) => unreachable.to_string(),
        None => innermost(error),
    };
    shorten(&text, MAX_MESSAGE).into_owned()
}

/// Whether to read the object again before the next attempt to patch it: after a conflict, or if it is unknown whether the patch
/// was applied, and applying it twice does no harm.
pub(crate) fn should_reread(error: &kube::Error) -> bool {
    matches!(Answer::of(error), Answer::Conflict | Answer::Overload) || failure(error) != Failure::Refused
}
