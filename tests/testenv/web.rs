//! Requests over plain HTTP to servers on loopback.

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Status and body of a GET.
pub async fn get(address: SocketAddr, path: &str) -> Result<(u16, String), String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri = format!("http://{address}{path}")
        .parse()
        .map_err(|error| format!("{error}"))?;
    let response = client.get(uri).await.map_err(|error| format!("{error:?}"))?;
    let status = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}
