//! The requests for the Lease. A client that may write it can set times that Go accepts and [`jiff::Timestamp`] does not,
//! also in `managedFields`. They must neither end the leadership nor keep all replicas from leading, so responses are read with
//! their times brought into range.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::core::request::Error as RequestError;
use kube::{Client, Error, Resource as _, Result};
use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::kube::read::read;

/// The requests for one Lease.
pub(super) struct LeaseApi {
    client: Client,
    request: Request,
    name: String,
}

impl LeaseApi {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            client,
            request: Request::new(Lease::url_path(&(), Some(namespace))),
            name: name.to_owned(),
        }
    }

    /// The Lease, if it exists.
    pub(super) async fn get(&self) -> Result<Option<Lease>> {
        let request = self.request.get(&self.name, &GetParams::default());
        match self.send(request).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn create(&self, lease: &Lease) -> Result<Lease> {
        let body = serde_json::to_vec(lease).map_err(Error::SerdeError)?;
        self.send(self.request.create(&PostParams::default(), body)).await
    }

    /// Replaces the Lease in the version that was read, which is what makes it a lock.
    pub(super) async fn replace(&self, lease: &Lease) -> Result<Lease> {
        let body = serde_json::to_vec(lease).map_err(Error::SerdeError)?;
        let request = self.request.replace(&self.name, &PostParams::default(), body);
        self.send(request).await
    }

    async fn send(&self, request: Result<http::Request<Vec<u8>>, RequestError>) -> Result<Lease> {
        let request = request.map_err(Error::BuildRequest)?;
        let response: Box<RawValue> = self.client.request(request).await?;
        read(&response).map_err(|unreadable| Error::SerdeError(serde_json::Error::custom(unreadable.why)))
    }
}
