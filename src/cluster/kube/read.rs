//! Requests that read single objects and lists, each object by itself ([`refit_facts::read`]).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{GetParams, ListParams};
use kube::core::request::Error as RequestError;
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Error, Resource};
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;

use super::error::Answer;
use super::pages::Pages;
use refit_facts::read::{Unreadable, read};

/// Sends a request, and reads the object of the response.
///
/// # Errors
/// Fails if the request does, or with [`Error::SerdeError`] if the object cannot be read.
pub async fn send<K: DeserializeOwned>(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, RequestError>,
) -> Result<K, Error> {
    let request = request.map_err(Error::BuildRequest)?;
    let response: Box<RawValue> = client.request(request).await?;
    read(&response).map_err(|unreadable| Error::SerdeError(serde_json::Error::custom(unreadable.why)))
}

/// The object of this name, if it exists. `Api::get_opt` fails for a time out of range in `managedFields`, which whoever may
/// write the object can set.
///
/// # Errors
/// As [`send`].
pub async fn get<K>(client: &Client, namespace: Option<&str>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let request = Request::new(K::url_path(&(), namespace)).get(name, &GetParams::default());
    optional(send(client, request).await)
}

/// How often to restart a list whose continue token has expired.
const RESTARTS: u32 = 3;

/// All pages of a list.
///
/// # Errors
/// Fails if a request does, or if an item cannot be read as `T`.
pub async fn list<T: DeserializeOwned>(
    client: &Client,
    request: &Request,
    params: ListParams,
    metadata_only: bool,
) -> Result<Vec<T>, Error> {
    list_pages(client, request, params, metadata_only, usize::MAX).await
}

/// The first pages of a list: at most so many, and at least one.
///
/// # Errors
/// As [`list`].
pub async fn list_pages<T: DeserializeOwned>(
    client: &Client,
    request: &Request,
    params: ListParams,
    metadata_only: bool,
    pages: usize,
) -> Result<Vec<T>, Error> {
    let mut list = Pages::new(request.clone(), params, metadata_only);
    let (mut all, mut restarts, mut read) = (Vec::new(), 0, 0);
    while read == 0 || read < pages {
        match list.next(client).await {
            Ok(Some(items)) => all.extend(items),
            Ok(None) => break,
            // A continue token holds a resource version, and etcd is compacted every five minutes by default
            // (kube-apiserver, `--etcd-compaction-interval`).
            Err(error) if Answer::of(&error) == Answer::Expired && restarts < RESTARTS => {
                restarts += 1;
                list.restart();
                read = 0;
                all.clear();
                continue;
            }
            Err(error) => return Err(error),
        }
        read += 1;
    }
    Ok(all)
}

/// The metadata of the objects of a list. One that cannot be read is left out, and does not fail the others.
///
/// # Errors
/// Fails if a request does.
pub async fn list_metadata<K>(
    client: &Client,
    namespace: Option<&str>,
    params: ListParams,
) -> Result<Vec<ObjectMeta>, Error>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), namespace));
    let listed = list::<Box<RawValue>>(client, &request, params, true).await?;
    let of = |raw: Box<RawValue>| match read::<PartialObjectMeta<K>>(&raw) {
        Ok(object) => Some(object.metadata),
        Err(unreadable) => {
            let Unreadable { name, why, .. } = unreadable;
            tracing::warn!(kind = %K::kind(&()), name, why, "left out of a list, because its metadata cannot be read");
            None
        }
    };
    Ok(listed.into_iter().filter_map(of).collect())
}

/// The metadata of the object of this name, if it exists.
///
/// # Errors
/// As [`send`].
pub async fn get_metadata<K>(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<ObjectMeta>, Error>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), namespace)).get_metadata(name, &GetParams::default());
    let object = optional(send::<PartialObjectMeta<K>>(client, request).await)?;
    Ok(object.map(|object| object.metadata))
}

fn optional<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(error) if Answer::of(&error) == Answer::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
