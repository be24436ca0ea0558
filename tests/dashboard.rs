//! The page of a real control plane: its data, and the page itself in a headless Chromium.

mod browser;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::harness::Harness;
use crate::recording;
use crate::steering::viewer;
use crate::testenv::wait::SOON;
use crate::testenv::web::get;

/// The events of the page, one after the other.
struct Events {
    body: Incoming,
    pending: String,
}

impl Events {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let uri = format!("http://{address}/events").parse().unwrap();
        let response = client.get(uri).await.map_err(|error| error.to_string())?;
        if response.status() != 200 {
            let status = response.status();
            let text = response
                .into_body()
                .collect()
                .await
                .map_err(|error| error.to_string())?;
            return Err(format!("{status}: {}", String::from_utf8_lossy(&text.to_bytes())));
        }
        Ok(Self {
            body: response.into_body(),
            pending: String::new(),
        })
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.pending.find("\n\n") {
                let event: String = self.pending.drain(..end + 2).collect();
                return serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            }
            let frame = self.body.frame().await.expect("events go on").unwrap();
            let data = frame.into_data().unwrap();
            self.pending += std::str::from_utf8(&data).unwrap();
        }
    }
}

/// `refit dashboard`, which ends when it is dropped.
struct Dashboard {
    _process: Child,
    address: SocketAddr,
    /// What it has printed.
    printed: String,
}

impl Dashboard {
    async fn start(harness: &Harness, kubeconfig: &Path) -> Self {
        let mut process = command(harness, kubeconfig, "--port 0").spawn().unwrap();
        let mut printed = String::new();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        tokio::time::timeout(SOON, out.read_line(&mut printed))
            .await
            .expect("an address")
            .unwrap();
        let address = printed
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_suffix("/\n"));
        let address = address.unwrap_or_else(|| panic!("{printed:?}"));
        Self {
            address: address.parse().unwrap(),
            printed,
            _process: process,
        }
    }
}

fn command(harness: &Harness, kubeconfig: &Path, flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command
        .args(["dashboard", "-n", harness.ctx.namespace()])
        .args(flags.split(' '))
        .env("KUBECONFIG", kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn events_of_the_page_follow_a_roll_out_from_its_first_node_to_its_end() {
    let harness = Harness::new(["a", "b", "c"]).await;
    let _controller = harness.ctx.start_and_warm_up().await;
    let viewer = viewer(&harness, &["list", "watch"]).await;
    let dashboard = Dashboard::start(&harness, &viewer).await;
    let port = dashboard.address.port().to_string();
    recording::check("docs/dashboard.md", "refit dashboard", |_| {
        dashboard.printed.replace(&port, "8090")
    });
    let (status, page) = get(dashboard.address, "/").await.unwrap();
    assert!(status == 200 && page.contains("id=\"data\">null<"), "{status}");
    let mut events = Events::open(dashboard.address).await.unwrap();
    let first = events.next().await;
    assert_eq!(first["reset"], true);
    assert!(!first["notes"].to_string().contains("Not shown"), "{first:#}");
    harness.plan("p", json!({})).await;

    let mut rows = std::collections::BTreeMap::new();
    let card = loop {
        let event = tokio::time::timeout(SOON, events.next()).await.expect("an event");
        for row in event["rows"].as_array().unwrap() {
            rows.insert(row["node"].as_str().unwrap().to_owned(), row.clone());
        }
        let all_done = rows.len() == 3 && rows.values().all(|row| row["state"] == "done");
        match event["plans"].as_array().unwrap().first() {
            Some(card) if card["state"] == "Complete" && all_done => break card.clone(),
            _ => {}
        }
    };
    assert_eq!(
        (&card["done"], &card["selected"]),
        (&json!(3), &json!(3)),
        "{card}"
    );
    for row in rows.values() {
        let spans = row["spans"].as_array().unwrap();
        assert!(
            !spans.is_empty() && spans.iter().all(|span| span["to"].is_i64()),
            "{row:#}"
        );
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_and_a_file_needs_no_watch() {
    let harness = Harness::new(["a"]).await;
    let viewer = viewer(&harness, &["list"]).await;
    let ran = command(&harness, &viewer, "--port 0").output().await.unwrap();
    let error = String::from_utf8(ran.stderr).unwrap();
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{error}");
    for part in [
        "Plans cannot be watched",
        "cannot watch resource \"plans\"",
        harness.ctx.namespace(),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let ran = command(&harness, &viewer, "--html -").output().await.unwrap();
    let page = String::from_utf8(ran.stdout).unwrap();
    assert!(
        ran.status.success() && page.contains("\"source\":\"cluster\""),
        "{page}"
    );
}
