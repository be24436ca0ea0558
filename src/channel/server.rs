//! Channel servers: a redirect to the version (S45, S46), or the list of all channels.

use http::StatusCode;
use http::header::IF_NONE_MATCH;
use url::Url;

use super::access::Access;
use super::answer;
use super::body::Body;
use super::credentials::{Auth, refuse_plain};
use super::error::ChannelError;
use super::kept::{KeptOffer, etag};
use super::listed;
use super::poller::{Poller, within};
use super::transport::{is_redirect, read};
use refit_api::digest::digest;
use refit_base::version::Offer;

/// Header with the UID of the namespace `kube-system`, which identifies the cluster (S45).
const HEADER_CLUSTER_ID: &str = "x-suc-cluster-id";
/// Header with the current version of the Plan (S45).
const HEADER_LATEST_VERSION: &str = "x-suc-latest-version";

impl Poller {
    /// Polls the channel with this ID in a list, or else a redirect.
    pub(super) async fn server(
        &self,
        url: &Url,
        id: Option<&str>,
        latest_version: Option<&str>,
        access: &Access,
    ) -> Result<Offer, ChannelError> {
        let clients = self.transport.clients(access.ca.as_deref())?;
        clients.hosts.check(url)?;
        let mut target = url.clone();
        let mut identity = vec![url.to_string(), access.ca.clone().unwrap_or_default()];
        let mut auth = None;
        if let Some(credentials) = &access.credentials {
            // The URL and the Secret must not both have credentials.
            if target.set_username("").is_err() || target.set_password(None).is_err() {
                return Err(ChannelError::NotAUrl);
            }
            auth = Some(Auth::new(credentials, &target)?);
            identity.extend(credentials.parts());
        }
        if !target.username().is_empty() || target.password().is_some() {
            // reqwest sends user and password of a URL as `Authorization: Basic`, so the rule for Secrets applies to
            // them, too.
            refuse_plain(&target)?;
        }
        let mut request = clients.once.get(target.clone());
        if let Some(cluster) = &self.cluster_id {
            request = request.header(HEADER_CLUSTER_ID, cluster);
        }
        if let Some(version) = latest_version.filter(|version| !version.is_empty()) {
            request = request.header(HEADER_LATEST_VERSION, version);
        }
        if let Some(auth) = auth {
            request = auth.on(request, &target);
        }
        let key = digest(identity.iter().map(String::as_str));
        // A redirect has nothing to keep.
        let known = id.and_then(|_| self.kept.get(&key));
        if let Some(etag) = known.as_ref().and_then(|known| known.etag.as_deref()) {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let asking = async {
            let response = request
                .send()
                .await
                .map_err(|error| ChannelError::failed(&error))?;
            // A server that redirects has no list. Its Location is read as that of a plain channel.
            let Some(id) = id.filter(|_| !is_redirect(response.status())) else {
                return answer::version(url, response).await.map(Offer::one);
            };
            let id = id.to_owned();
            let latest = move |body: &mut Body| listed::latest(body, &id);
            let (answer, version) = read(target, response, listed::MAX_BODY, latest).await?;
            match (version, known) {
                (Some(version), _) => {
                    let offer = Offer::one(version);
                    let etag = etag(&answer);
                    if etag.is_some() {
                        let (first, offer) = (Vec::new(), offer.clone());
                        self.kept.keep(key, KeptOffer { etag, first, offer });
                    }
                    Ok(offer)
                }
                (None, Some(known)) if answer.status == StatusCode::NOT_MODIFIED => Ok(known.offer.clone()),
                (None, _) => Err(ChannelError::Unexpected(answer.line())),
            }
        };
        within(self.timeout, asking).await
    }
}
