//! Interprets errors of requests: whether a write was applied, and the cause in few words.

use super::client::NotLeader;
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

/// Interprets the error of a write.
pub fn failure(error: &kube::Error) -> Failure {
    match error {
        // A timeout or a crash of the server does not show what was written before. A server sends 503 before it
        // handles a request, but a proxy in front of it may send 503 later.
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 408 => {
            Failure::Refused
        }
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
    let innermost =
        std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source()).last();
    let text = innermost.map_or_else(|| error.to_string(), ToString::to_string);
    shorten(&text, MAX_MESSAGE).into_owned()
}

/// Finds an error of type `E` in a chain of causes.
pub(super) fn find<'a, E: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    let mut error = Some(error);
    while let Some(this) = error {
        if let Some(found) = this.downcast_ref() {
            return Some(found);
        }
        error = this.source();
    }
    None
}
