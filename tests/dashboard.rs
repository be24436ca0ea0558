//! The page: its data from a controller on a real control plane, and the page itself in a headless Chromium.

mod browser;

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::harness::Harness;
use crate::recording;
use crate::testenv::wait::{self, SOON};
use crate::testenv::web::get;

/// The events of a controller, one after the other.
struct Events {
    body: Incoming,
    pending: String,
}

impl Events {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let uri = format!("http://{address}/dashboard/events").parse().unwrap();
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

/// The line of a log that says where the page is, with the time and the port of the documents.
fn started(log: &str) -> String {
    let line = log
        .lines()
        .find(|line| line.contains("dashboard=true"))
        .unwrap_or_else(|| panic!("{log}"));
    let time = regex::Regex::new(r"\d{4}-\d\d-\d\dT[0-9:.]+Z").unwrap();
    let port = regex::Regex::new(r"127\.0\.0\.1:\d+").unwrap();
    let line = time.replace(line, "2026-01-01T09:00:00.000000Z");
    format!("{}\n", port.replace(&line, "127.0.0.1:8080"))
}

#[tokio::test]
async fn events_of_the_page_follow_a_roll_out_from_its_first_node_to_its_end() {
    let harness = Harness::new(["a", "b", "c"]).await;
    let controller = harness
        .ctx
        .controller()
        .with_metrics()
        .env("REFIT_DASHBOARD", "true")
        .start();
    let address = controller.metrics_address().await;
    let (status, page) = get(address, "/dashboard").await.unwrap();
    assert!(status == 200 && page.contains("id=\"data\">null<"), "{status}");
    controller.leading().await;
    let log = controller.log();
    recording::check("docs/dashboard.md", "refit controller --dashboard", |_| {
        started(&log)
    });
    let mut events = wait::eventually("the controller gives events", SOON, || Events::open(address)).await;
    assert_eq!(events.next().await["reset"], true);
    harness.plan("p", json!({})).await;

    let mut rows = std::collections::BTreeMap::new();
    let card = loop {
        let event = tokio::time::timeout(SOON, events.next()).await.expect("an event");
        for row in event["rows"].as_array().unwrap() {
            rows.insert(row["node"].as_str().unwrap().to_owned(), row.clone());
        }
        match event["plans"].as_array().unwrap().first() {
            Some(card) if card["state"] == "Complete" => break card.clone(),
            _ => {}
        }
    };
    assert_eq!(
        (&card["done"], &card["selected"]),
        (&json!(3), &json!(3)),
        "{card}"
    );
    assert_eq!(rows.len(), 3, "{rows:#?}");
    for row in rows.values() {
        assert_eq!(row["state"], "done", "{row:#}");
        let spans = row["spans"].as_array().unwrap();
        assert!(
            !spans.is_empty() && spans.iter().all(|span| span["to"].is_i64()),
            "{row:#}"
        );
    }
}
