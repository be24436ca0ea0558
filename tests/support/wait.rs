//! Waiting for what is going to be true, and making sure that something does not become true. No fixed
//! sleeps.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use kube::Api;
use kube::runtime::wait::await_condition;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often a question is asked again. The API server is on loopback and answers in about a millisecond.
const POLL: Duration = Duration::from_millis(25);

/// For what takes a moment on an idle machine: long enough for one that is not.
pub const SOON: Duration = Duration::from_secs(30);

/// Asks until the answer is `Ok`, and returns it. Fails the test after `limit`, with the last `Err`: say
/// there what was seen.
pub async fn eventually<T>(what: &str, limit: Duration, ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    try_eventually(what, limit, ask)
        .await
        .unwrap_or_else(|why| panic!("{why}"))
}

/// As [`eventually`], for what is no test.
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
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Asks again and again for as long as `during`, and fails the test as soon as the answer is `Err`.
pub async fn always(what: &str, during: Duration, mut ask: impl AsyncFnMut() -> Result<(), String>) {
    let started = Instant::now();
    while started.elapsed() < during {
        if let Err(seen) = ask().await {
            panic!(
                "for {} s {what}, but after {:.3} s: {seen}",
                during.as_secs_f64(),
                started.elapsed().as_secs_f64()
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Watches an object until it is as the test wants it, and returns it. Fails the test after `limit`, with the
/// object as it is. A watch that breaks is begun again: the API server may be down for a while.
pub async fn object<K>(api: Api<K>, name: &str, what: &str, limit: Duration, good: impl Fn(&K) -> bool) -> K
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let watch = async {
        loop {
            match await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&good)).await {
                Ok(Some(object)) => return object,
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
