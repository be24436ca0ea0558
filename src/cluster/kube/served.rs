//! Kinds that a cluster may not have.

use kube::Client;

use super::error::Answer;

/// Whether a list failed because the API server does not know the kind, so that there are no objects. `path` is that of
/// the list.
///
/// Who may not list the objects of a kind gets 403 whether there is such a kind or not. Discovery says which, and is open to
/// everybody by default.
pub async fn is_unknown(client: &Client, path: &str, error: &kube::Error) -> bool {
    if Answer::of(error) != Answer::Forbidden {
        return Answer::of(error) == Answer::NotFound;
    }
    let Some((version, _)) = path.rsplit_once('/') else {
        return false;
    };
    let Ok(request) = http::Request::get(version).body(Vec::new()) else {
        return false;
    };
    let discovered = client.request::<serde_json::Value>(request).await;
    discovered.is_err_and(|error| Answer::of(&error) == Answer::NotFound)
}
