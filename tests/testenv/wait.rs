//! Waits for conditions.

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::runtime::wait::await_condition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// Pause between polls. The API server on loopback responds in about a millisecond.
const POLL: Duration = Duration::from_millis(25);
/// The longest pause: after long waits, which are cheap in virtual time but for their number, a question is asked less
/// often.
const MAX_POLL: Duration = Duration::from_millis(250);

/// A watch that starts while a CRD is replaced may use the previous one for minutes, without its new fields and without
/// an error.
const WATCH_AGAIN: Duration = Duration::from_secs(20);

/// When a test gives up. Only failures wait for so long, so this is longer than anything takes on a busy machine.
pub const SOON: Duration = Duration::from_secs(180);

/// Polls until the result is `Ok`. Fails the test after `limit`, with the last `Err`.
pub async fn eventually<T>(what: &str, limit: Duration, ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    try_eventually(what, limit, ask)
        .await
        .unwrap_or_else(|why| panic!("{why}"))
}

/// Polls until the result satisfies `good`. Fails the test after [`SOON`], with the last result.
pub async fn until<T: Debug>(what: &str, mut ask: impl AsyncFnMut() -> T, good: impl Fn(&T) -> bool) -> T {
    eventually(what, SOON, async || {
        let answer = ask().await;
        if good(&answer) {
            Ok(answer)
        } else {
            Err(format!("{answer:#?}"))
        }
    })
    .await
}

/// Polls until the result is true. Fails the test after [`SOON`].
pub async fn holds(what: &str, ask: impl AsyncFnMut() -> bool) {
    until(what, ask, |it| *it).await;
}

/// Like [`eventually`], without a panic.
pub async fn try_eventually<T>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, String> {
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(seen) if started.elapsed() > limit => {
                return Err(format!(
                    "waited {} s until {what}; last seen: {seen}",
                    limit.as_secs_f64()
                ));
            }
            Err(_) => tokio::time::sleep((started.elapsed() / 20).clamp(POLL, MAX_POLL)).await,
        }
    }
}

/// Watches an object until it satisfies `good`. Fails the test after `limit`, with the object. A broken watch is repeated,
/// because the API server may be down for a while.
pub async fn object<K>(api: Api<K>, name: &str, what: &str, limit: Duration, good: impl Fn(&K) -> bool) -> K
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let watch = async {
        loop {
            let seen = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&good));
            match tokio::time::timeout(WATCH_AGAIN, seen).await {
                Ok(Ok(Some(object))) => return object,
                _ => tokio::time::sleep(POLL).await,
            }
        }
    };
    if let Ok(object) = tokio::time::timeout(limit, watch).await {
        return object;
    }
    let now = match api.get_opt(name).await {
        Ok(Some(object)) => serde_saphyr::to_string(&object).unwrap_or_else(|error| error.to_string()),
        Ok(None) => "it does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    panic!(
        "waited {} s until {} {name} {what}; now:\n{now}",
        limit.as_secs_f64(),
        K::kind(&())
    );
}

/// Waits until an object is gone.
pub async fn gone<K>(api: Api<K>, name: &str, limit: Duration)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let what = format!("{} {name} is gone", K::kind(&()));
    eventually(&what, limit, async || match api.get_metadata_opt(name).await {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err("it is there".to_owned()),
        Err(error) => Err(error.to_string()),
    })
    .await;
}
