//! The objects of a test context, for the report of a failed test.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Once;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use refit_api::Plan;

use super::TestContext;
use crate::testenv::process::tail;

/// Of each kind, at most so many: a roll-out of 1,000 nodes would bury what matters.
const MOST: usize = 40;
/// Lines of each log.
const LOG_LINES: usize = 60;

/// Length of a failure that is printed again, in characters.
const AGAIN: usize = 2_000;

thread_local! {
    /// Why the test of this thread failed.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Remembers why tests fail, for [`repeat_panic`].
pub(super) fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANIC.with_borrow_mut(|panic| *panic = info.to_string());
            before(info);
        }));
    });
}

/// Prints why the test has failed again: thousands of lines of a report are between that and the end, which is what
/// people and services look at.
pub(super) fn repeat_panic() {
    // What an assertion says of its values is at the end.
    let text = PANIC.with_borrow(|panic| {
        let skipped = panic.chars().count().saturating_sub(AGAIN);
        panic.chars().skip(skipped).collect::<String>()
    });
    eprintln!("---- this is why it failed: {text}");
}

impl TestContext {
    /// Plans in full; Jobs, pods, nodes and events a line each; the ends of the logs.
    pub async fn report(&self, client: &Client) -> String {
        let mut out = String::new();
        let here = ListParams::default();
        if let Ok(mut plans) = Api::<Plan>::namespaced(client.clone(), &self.id)
            .list(&here)
            .await
        {
            for plan in &mut plans.items {
                plan.metadata.managed_fields = None;
                let _ = writeln!(
                    out,
                    "---\n{}",
                    serde_saphyr::to_string(plan).unwrap_or_default().trim_end()
                );
            }
        }
        if let Ok(jobs) = Api::<Job>::namespaced(client.clone(), &self.id).list(&here).await {
            section(&mut out, "Jobs", jobs.items.iter().map(job));
        }
        if let Ok(pods) = Api::<Pod>::namespaced(client.clone(), &self.id).list(&here).await {
            section(&mut out, "Pods", pods.items.iter().map(pod));
        }
        if let Ok(nodes) = Api::<Node>::all(client.clone()).list(&self.my_node_list()).await {
            section(&mut out, "Nodes", nodes.items.iter().map(node));
        }
        if let Ok(mut events) = Api::<Event>::namespaced(client.clone(), &self.id)
            .list(&here)
            .await
        {
            events
                .items
                .sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
            section(&mut out, "Events", events.items.iter().map(event));
        }
        // Real nodes have folders of their own.
        let files = |dir: &std::path::Path| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let (nodes, here): (Vec<_>, Vec<_>) = files(&self.dir).into_iter().partition(|path| path.is_dir());
        for path in here.into_iter().chain(nodes.iter().flat_map(|dir| files(dir))) {
            if path.extension().is_some_and(|extension| extension == "log") {
                let text = std::fs::read(&path).unwrap_or_default();
                let _ = writeln!(
                    out,
                    "---- {}\n{}",
                    path.display(),
                    tail(&String::from_utf8_lossy(&text), LOG_LINES)
                );
            }
        }
        out
    }
}

fn section(out: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    let more = lines.len().saturating_sub(MOST);
    let _ = writeln!(out, "---- {title}: {}", lines.len());
    for line in lines.take(MOST) {
        let _ = writeln!(out, "{line}");
    }
    if more > 0 {
        let _ = writeln!(out, "… and {more} more");
    }
}

fn job(job: &Job) -> String {
    let status = job.status.clone().unwrap_or_default();
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|it| {
            format!(
                "{}={} {}",
                it.type_,
                it.status,
                it.reason.as_deref().unwrap_or_default()
            )
        })
        .collect();
    format!(
        "{} parallelism={:?} active={:?} succeeded={:?} failed={:?} ttl={:?} [{}] annotations={:?}",
        job.metadata.name.as_deref().unwrap_or_default(),
        job.spec.as_ref().and_then(|spec| spec.parallelism),
        status.active,
        status.succeeded,
        status.failed,
        job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished),
        conditions.join(", "),
        job.metadata.annotations.clone().unwrap_or_default(),
    )
}

fn pod(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    format!(
        "{} on {} {} {} {}{}",
        pod.metadata.name.as_deref().unwrap_or_default(),
        pod.spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .unwrap_or("no node"),
        status.phase.as_deref().unwrap_or_default(),
        status.reason.as_deref().unwrap_or_default(),
        status
            .conditions
            .iter()
            .flatten()
            .filter(|it| it.status == "False")
            .filter_map(|it| it.message.as_deref())
            .collect::<Vec<_>>()
            .join("; "),
        if pod.metadata.deletion_timestamp.is_some() {
            " (being deleted)"
        } else {
            ""
        },
    )
}

fn node(node: &Node) -> String {
    let spec = node.spec.clone().unwrap_or_default();
    let ready = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .find(|it| it.type_ == "Ready")
        .map_or("-", |it| it.status.as_str());
    let ours = |map: &Option<std::collections::BTreeMap<String, String>>| {
        let entries = map
            .iter()
            .flatten()
            .filter(|(name, _)| name.contains("cattle.io/") || name.contains("refit.rs/"));
        entries
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    format!(
        "{} Ready={ready} unschedulable={} taints={:?} {} {}",
        node.metadata.name.as_deref().unwrap_or_default(),
        spec.unschedulable.unwrap_or(false),
        spec.taints
            .iter()
            .flatten()
            .map(|taint| taint.key.as_str())
            .collect::<Vec<_>>(),
        ours(&node.metadata.labels),
        ours(&node.metadata.annotations),
    )
}

fn event(event: &Event) -> String {
    format!(
        "{} {}/{} {} x{}: {}",
        event.type_.as_deref().unwrap_or_default(),
        event.involved_object.kind.as_deref().unwrap_or_default(),
        event.involved_object.name.as_deref().unwrap_or_default(),
        event.reason.as_deref().unwrap_or_default(),
        event.count.unwrap_or(1),
        event.message.as_deref().unwrap_or_default(),
    )
}
