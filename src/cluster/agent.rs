//! `refit agent`: writes to its own Node whether that needs a reboot, and which Kairos it runs. It runs on every node, and
//! decides nothing: a Plan with `trigger: RebootNeeded` does.
//!
//! What says so are files and commands on the host, and the update engine of Flatcar. The Node is read again before each
//! write, and from time to time, because the annotations and labels outlive the agent and people may remove them.

mod command;
mod kairos;
mod metadata;
mod request;
mod source;

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::clock::Clock;
use crate::kube::brief;
pub use command::{BadCommand, SentinelCommand};
use kairos::Distribution;
use metadata::{Change, Metadata};
use refit_api::{RebootRequest, names};
use refit_facts::objects::SlimNode;
pub use request::Boot;
use request::{Finding, request};
pub use source::{Files, KairosFiles, Sources, UpdateEngine};

/// How often the Node is read although nothing has changed on the host.
const RESYNC: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the Node.
    pub node: String,
    /// Time between two looks at the host.
    pub period: Duration,
}

/// What the agent knows of its Node.
struct Known {
    uid: String,
    /// The keys that the agent writes, and others.
    metadata: Metadata,
    read: Instant,
}

/// What was found on the host.
struct Found {
    /// `None` if nothing is to say whether the host needs a reboot, or its boot is unknown.
    reboot: Option<(Boot, Vec<Finding>)>,
    /// `None` if it is not asked for or unknown.
    distribution: Option<Distribution>,
    now: Timestamp,
}

impl Found {
    /// What changes on the Node, one patch each, with what is noted about it. They are apart so that one that is
    /// refused does not keep the other back.
    fn changes(&self, node: &str, metadata: &Metadata) -> Vec<(Change, String)> {
        let reboot = self.reboot.as_ref().and_then(|(boot, findings)| {
            let (change, wanted) = reboot_change(findings, boot, self.now, metadata)?;
            let text = match &wanted {
                Some(request) => format!("Node {node} needs a reboot: {request}"),
                None => format!("Node {node} needs no reboot any more"),
            };
            Some((change, text))
        });
        let kairos = self.distribution.as_ref().map(|host| {
            let change = kairos::change(host, metadata);
            let text = format!("Node {node}: {change}");
            (change, text)
        });
        let all = reboot.into_iter().chain(kairos);
        all.filter(|(change, _)| !change.is_empty()).collect()
    }
}

/// The annotation `refit.rs/reboot-needed` of the Node, and what it says; `None` if it stays.
fn reboot_change(
    findings: &[Finding],
    boot: &Boot,
    now: Timestamp,
    node: &Metadata,
) -> Option<(Change, Option<RebootRequest>)> {
    let key = names::ANNOTATION_REBOOT_NEEDED;
    let text = node.annotations.get(key);
    // One that cannot be read is replaced, or removed.
    let known = text.map(|text| RebootRequest::parse(text).unwrap_or_default());
    let wanted = request(findings, known.as_ref(), boot, now);
    (wanted != known).then(|| {
        let text = wanted.as_ref().map(RebootRequest::to_text);
        let change = Change {
            annotations: [(key.to_owned(), text)].into(),
            ..Change::default()
        };
        (change, wanted)
    })
}

/// Runs until `stop` completes. `note` receives what happens, one line each.
pub async fn run(
    client: Client,
    sources: &Sources,
    options: &Options,
    note: &dyn Fn(&str),
    stop: impl Future<Output = ()>,
) {
    let clock = Clock::system();
    let work = async {
        let mut known = None;
        let mut reported = Vec::new();
        loop {
            let problems = RefCell::new(Vec::new());
            let problem = |text: &str| problems.borrow_mut().push(text.to_owned());
            let found = look(sources, options, &clock, &problem).await;
            update(&client, &found, options, &mut known, note, &problem).await;
            // One that repeats is reported once.
            let problems = problems.into_inner();
            let fresh = problems.iter().filter(|problem| !reported.contains(*problem));
            fresh.for_each(|problem| note(problem));
            reported = problems;
            sleep(options.period).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = stop => {}
    }
}

/// An error, for the log.
fn retrying(error: &str, options: &Options) -> String {
    format!("{error}; retrying every {} s", options.period.as_secs())
}

/// Looks at the host once. `problem` receives what could not be found out.
async fn look(sources: &Sources, options: &Options, clock: &Clock, problem: &dyn Fn(&str)) -> Found {
    // Without any source a request is that of a person or of another program.
    let boot = sources.has_reboot_sources().then(|| sources.boot());
    let reboot = match boot {
        Some(Ok(boot)) => Some((boot, sources.look(problem).await)),
        Some(Err(error)) => {
            problem(&retrying(&error.to_string(), options));
            None
        }
        None => None,
    };
    let distribution = sources.kairos.as_ref().and_then(|files| {
        let found = files.look(&sources.own);
        found
            .map_err(|error| problem(&retrying(&error.to_string(), options)))
            .ok()
    });
    Found {
        reboot,
        distribution,
        now: clock.now(),
    }
}

/// Writes the Node if the host says something else. `problem` receives what failed.
async fn update(
    client: &Client,
    found: &Found,
    options: &Options,
    known: &mut Option<Known>,
    note: &dyn Fn(&str),
    problem: &dyn Fn(&str),
) {
    if let Some(known) = known.as_ref()
        && known.read.elapsed() < RESYNC
        && found.changes(&options.node, &known.metadata).is_empty()
    {
        return;
    }
    *known = None; // unknown until the responses have come
    let mut fresh = match read(client, &options.node).await {
        Ok(fresh) => fresh,
        Err(error) => return problem(&retrying(&error, options)),
    };
    let mut all_written = true;
    for (change, text) in found.changes(&options.node, &fresh.metadata) {
        match write(client, &options.node, &fresh.uid, &change).await {
            Ok(()) => {
                note(&text);
                change.apply(&mut fresh.metadata);
            }
            Err(error) => {
                problem(&retrying(&error, options));
                all_written = false;
            }
        }
    }
    if all_written {
        *known = Some(fresh);
    }
}

/// The part of a Node that the agent reads.
#[derive(Deserialize)]
struct NodeMetadata {
    metadata: kube::core::ObjectMeta,
}

async fn read(client: &Client, node: &str) -> Result<Known, String> {
    let failed = |error: &kube::Error| format!("Node {node} cannot be read: {}", brief(error));
    let uri = format!("/api/v1/nodes/{node}");
    let get = http::Request::get(uri).body(Vec::new());
    let get = get.map_err(|error| failed(&kube::Error::HttpError(error)))?;
    let read = client.request::<NodeMetadata>(get).await;
    let metadata = read.map_err(|error| failed(&error))?.metadata;
    Ok(Known {
        uid: metadata.uid.unwrap_or_default(),
        metadata: Metadata {
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
        },
        read: Instant::now(),
    })
}

async fn write(client: &Client, node: &str, uid: &str, change: &Change) -> Result<(), String> {
    let nodes = Api::<SlimNode>::all(client.clone());
    let written = nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(change.patch(uid)))
        .await;
    written
        .map(drop)
        .map_err(|error| format!("Node {node} cannot be written: {}", brief(&error)))
}
