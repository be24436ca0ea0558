//! `refit agent`: writes to its own Node whether that needs a reboot. It runs on every node, and decides nothing: a Plan with
//! `trigger: RebootNeeded` does.
//!
//! What says so are files and commands on the host, and the update engine of Flatcar. The Node is read again before each
//! write, and from time to time, because the annotation outlives the agent and people may remove it.

mod command;
mod request;
mod source;

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::api::{RebootRequest, names};
use crate::clock::Clock;
use crate::kube::brief;
use crate::kube::objects::SlimNode;
pub use command::{BadCommand, SentinelCommand};
pub use request::Boot;
use request::request;
pub use source::{Files, Sources, UpdateEngine};

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
    request: Option<RebootRequest>,
    read: Instant,
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
            if let Err(error) = look(&client, sources, options, &clock, &mut known, note, &problem).await {
                problem(&format!("{error}; retrying every {} s", options.period.as_secs()));
            }
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

/// Looks at the host once, and writes the Node if it says something else. `problem` receives what could not be found out.
async fn look(
    client: &Client,
    sources: &Sources,
    options: &Options,
    clock: &Clock,
    known: &mut Option<Known>,
    note: &dyn Fn(&str),
    problem: &dyn Fn(&str),
) -> Result<(), String> {
    let boot = sources.boot().map_err(|error| error.to_string())?;
    let findings = sources.look(problem).await;
    let now = clock.now();
    let next = |known: &Known| request(&findings, known.request.as_ref(), &boot, now);
    if let Some(known) = known.as_ref()
        && known.read.elapsed() < RESYNC
        && next(known) == known.request
    {
        return Ok(());
    }
    let fresh = read(client, &options.node).await?;
    let wanted = next(&fresh);
    if wanted == fresh.request {
        *known = Some(fresh);
        return Ok(());
    }
    *known = None; // unknown until the response has come
    write(client, &options.node, &fresh.uid, wanted.as_ref()).await?;
    note(&match &wanted {
        Some(request) => format!("Node {} needs a reboot: {request}", options.node),
        None => format!("Node {} needs no reboot any more", options.node),
    });
    *known = Some(Known {
        request: wanted,
        read: Instant::now(),
        ..fresh
    });
    Ok(())
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
    let annotation = metadata.annotations.as_ref();
    let annotation = annotation.and_then(|all| all.get(names::ANNOTATION_REBOOT_NEEDED));
    Ok(Known {
        uid: metadata.uid.unwrap_or_default(),
        // One that cannot be read is replaced, or removed.
        request: annotation.map(|text| RebootRequest::parse(text).unwrap_or_default()),
        read: Instant::now(),
    })
}

async fn write(
    client: &Client,
    node: &str,
    uid: &str,
    request: Option<&RebootRequest>,
) -> Result<(), String> {
    let text = request.map(RebootRequest::to_text);
    // With its UID: another machine may have taken the name.
    let patch = json!({ "metadata": {
        "uid": uid, "annotations": { names::ANNOTATION_REBOOT_NEEDED: text },
    } });
    let nodes = Api::<SlimNode>::all(client.clone());
    let written = nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    written
        .map(drop)
        .map_err(|error| format!("Node {node} cannot be written: {}", brief(&error)))
}

/// A time of a file, if the clock can name it.
fn timestamp(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}
