//! The requests for the Lease. A client that may write it can set times that Go accepts and [`jiff::Timestamp`] does
//! not, also in `managedFields`. They must neither end the leadership nor keep all replicas from leading, so responses
//! are read with their times brought into range.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Error, Resource as _, Result};

use refit_cluster::kube::read::{get, send};

/// The requests for one Lease.
pub(super) struct LeaseApi {
    client: Client,
    request: Request,
    namespace: String,
    name: String,
}

impl LeaseApi {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            client,
            request: Request::new(Lease::url_path(&(), Some(namespace))),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The Lease, if it exists.
    pub(super) async fn get(&self) -> Result<Option<Lease>> {
        get(&self.client, Some(&self.namespace), &self.name).await
    }

    pub(super) async fn create(&self, lease: &Lease) -> Result<Lease> {
        let body = serde_json::to_vec(lease).map_err(Error::SerdeError)?;
        send(&self.client, self.request.create(&PostParams::default(), body)).await
    }

    /// Replaces the Lease in the version that was read, which is what makes it a lock.
    pub(super) async fn replace(&self, lease: &Lease) -> Result<Lease> {
        let body = serde_json::to_vec(lease).map_err(Error::SerdeError)?;
        let request = self.request.replace(&self.name, &PostParams::default(), body);
        send(&self.client, request).await
    }
}
