//! The pages of a list.

use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{ListMeta, Request};
use kube::{Client, Error, Resource as _};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};

/// Objects that are read at a time where a tenant or a kubelet writes them: each may have a megabyte and a half.
pub const SMALL: u32 = 8;

/// Selects the pods of a node. The API server has an index for it, so this costs only these pods.
pub fn on_node(node: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.nodeName={node}"))
}

/// A list that is read page by page.
pub struct Pages {
    request: Request,
    /// With the token of the next page.
    params: ListParams,
    metadata_only: bool,
    is_read: bool,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub(super) struct Page<T> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    /// null in an empty list of metadata.
    #[serde(default = "Option::default")]
    pub(super) items: Option<Vec<T>>,
}

impl Pages {
    pub fn new(request: Request, params: ListParams, metadata_only: bool) -> Self {
        Self {
            request,
            params,
            metadata_only,
            is_read: false,
        }
    }

    /// The pods of a node that a label selector selects, in a namespace or in all.
    pub fn of_pods(node: &str, namespace: Option<&str>, selector: &str) -> Self {
        let params = on_node(node).labels(selector).limit(SMALL);
        Self::new(Request::new(Pod::url_path(&(), namespace)), params, false)
    }

    /// The items of the next page, if there is one.
    ///
    /// # Errors
    /// Fails if the request does, if an item cannot be read as `T`, or if the list would never end.
    pub async fn next<T: DeserializeOwned>(&mut self, client: &Client) -> Result<Option<Vec<T>>, Error> {
        if self.is_read {
            return Ok(None);
        }
        let text = self.text(client, u64::MAX).await?.unwrap_or_default();
        let page: Page<T> = serde_json::from_slice(&text).map_err(Error::SerdeError)?;
        self.is_read = !self.advance(page.metadata.continue_)?;
        Ok(Some(page.items.unwrap_or_default()))
    }

    /// The next page as text; `None` if it is longer.
    pub(super) async fn text(&self, client: &Client, longest: u64) -> Result<Option<Vec<u8>>, Error> {
        let request = if self.metadata_only {
            self.request.list_metadata(&self.params)
        } else {
            self.request.list(&self.params)
        };
        let body = client
            .request_stream(request.map_err(Error::BuildRequest)?)
            .await?;
        let (mut text, mut body) = (Vec::new(), body.take(longest));
        body.read_to_end(&mut text).await.map_err(Error::ReadEvents)?;
        Ok((body.limit() > 0).then_some(text))
    }

    /// Goes to the page with this token. Returns whether there is one.
    pub(super) fn advance(&mut self, token: Option<String>) -> Result<bool, Error> {
        let token = token.filter(|token| !token.is_empty());
        if token.is_some() && token == self.params.continue_token {
            let endless = serde_json::Error::custom("the list repeats its page, so it would never end");
            return Err(Error::SerdeError(endless));
        }
        self.params.continue_token = token;
        Ok(self.params.continue_token.is_some())
    }

    /// Changes the number of objects per page. The token stays valid: it has a version and a key, and no page size
    /// (apiserver's storage/continue.go).
    pub(super) fn resize(&mut self, objects: u32) {
        self.params.limit = Some(objects);
    }

    /// Begins anew.
    pub(super) fn restart(&mut self) {
        (self.params.continue_token, self.is_read) = (None, false);
    }
}
