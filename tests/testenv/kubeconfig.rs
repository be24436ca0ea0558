//! Kubeconfig files: where the API server is, and who one is.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::pki::{Identity, write_private};

/// How one proves who one is, as the `user` of a kubeconfig.
pub fn token(token: &str) -> Value {
    json!({ "token": token })
}

/// As [`token`], with a certificate and its key in files.
pub fn certificate(certificate: &str, key: &str) -> Value {
    json!({ "client-certificate": certificate, "client-key": key })
}

/// A server whose CA is in a file.
pub fn cluster(server: &str, authority: &str) -> Cluster {
    Cluster {
        server: Some(server.to_owned()),
        certificate_authority: Some(authority.to_owned()),
        ..Cluster::default()
    }
}

/// As [`certificate`], with all in the kubeconfig itself: for a reader who sees other files.
pub fn inline_certificate(identity: &Identity) -> Value {
    json!({
        "client-certificate-data": BASE64.encode(&identity.certificate),
        "client-key-data": BASE64.encode(&identity.key),
    })
}

/// As [`cluster`], likewise.
pub fn inline_cluster(server: &str, authority: &str) -> Cluster {
    Cluster {
        server: Some(server.to_owned()),
        certificate_authority_data: Some(BASE64.encode(authority)),
        ..Cluster::default()
    }
}

/// Writes a kubeconfig with one context. JSON is YAML, too.
pub fn write(path: &Path, cluster: &Cluster, user: &Value, namespace: &str) -> Result<()> {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": "test", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": namespace } }],
        "current-context": "test",
    });
    write_private(path, &serde_json::to_string_pretty(&text)?)
}

/// The cluster of the current context.
pub fn cluster_of(path: &Path) -> Result<Cluster> {
    let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let current = file
        .current_context
        .context("the kubeconfig has no current context")?;
    let name = file
        .contexts
        .iter()
        .find(|context| context.name == current)
        .and_then(|context| Some(&context.context.as_ref()?.cluster))
        .context("the current context is missing")?;
    file.clusters
        .iter()
        .find(|cluster| cluster.name == *name)
        .and_then(|cluster| cluster.cluster.clone())
        .context("the cluster of the current context is missing")
}

/// What a kubeconfig says, with a name for the User-Agent, which the audit log records.
pub async fn load(path: &Path, user_agent: &str) -> Result<Config> {
    let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.proxy_url = None; // a proxy of the machine is for other hosts
    config
        .headers
        .push((http::header::USER_AGENT, user_agent.parse()?));
    Ok(config)
}

/// A client for the runtime that asks: its connections live there, so tests never share one.
pub async fn client(path: &Path, user_agent: &str) -> Result<Client> {
    Ok(Client::try_from(load(path, user_agent).await?)?)
}
