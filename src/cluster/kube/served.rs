//! Kinds that a cluster may not have.

use kube::Client;

/// Whether a list failed because the API server does not know the kind, so that there are no objects. `path` is that of
/// the list.
///
/// Who may not list the objects of a kind gets 403 whether there is such a kind or not. Discovery says which, and is open to
/// everybody by default.
pub async fn is_unknown(client: &Client, path: &str, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    if status.code != 403 {
        return status.code == 404;
    }
    let Some((version, _)) = path.rsplit_once('/') else {
        return false;
    };
    let Ok(request) = http::Request::get(version).body(Vec::new()) else {
        return false;
    };
    let answer = client.request::<serde_json::Value>(request).await;
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
}
