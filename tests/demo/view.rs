//! What the person in front of the terminal sees: sentences, and below them a line for each node. On a
//! terminal those lines change in place; in a pipe a line is written when a node has come a step further.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use refit::api::names::{LABEL_NODE, LABEL_PLAN, LABEL_PLAN_PREFIX, LABEL_VERSION};
use refit::api::{NodeProgress, Plan};

/// A line on standard output. That nobody reads it is no reason to stop.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The nodes, as last shown.
pub(crate) struct Nodes {
    since: Instant,
    terminal: bool,
    lines: BTreeMap<String, String>,
    /// Whether the cursor is just below them.
    drawn: bool,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            terminal: std::io::stdout().is_terminal(),
            lines: BTreeMap::new(),
            drawn: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Leaves the lines where they are, and draws them anew below what has been said since.
    pub(crate) fn start_afresh(&mut self) {
        self.drawn = false;
    }

    /// Shows what has changed.
    pub(crate) fn show(&mut self, nodes: &[Node], pods: &[Pod], plans: &[Plan]) {
        let now: BTreeMap<_, _> = nodes
            .iter()
            .filter_map(|node| Some((node.metadata.name.clone()?, state(node, pods, plans))))
            .collect();
        if now == self.lines {
            return;
        }
        let mut out = std::io::stdout();
        if self.terminal && self.drawn {
            let _ = write!(out, "\x1b[{}A", self.lines.len());
        }
        // A line that wraps would be two when the cursor goes back up.
        let width = rustix::termios::tcgetwinsize(&out).map_or(usize::MAX, |size| size.ws_col.into());
        for (name, state) in &now {
            let line = format!("{name:<12} {state}");
            if self.terminal {
                let line: String = line.chars().take(width.saturating_sub(3)).collect();
                let _ = writeln!(out, "\x1b[2K  {line}");
            } else if self.lines.get(name) != Some(state) {
                let _ = writeln!(out, "{:6.1} s  {line}", self.since.elapsed().as_secs_f64());
            }
        }
        let _ = out.flush();
        self.lines = now;
        self.drawn = true;
    }
}

/// Where a node is, in a few words.
fn state(node: &Node, pods: &[Pod], plans: &[Plan]) -> String {
    let cordoned = node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or(false);
    let suffix = if cordoned { "  (cordoned)" } else { "" };
    format!("{}{suffix}", step(node, pods, plans))
}

fn step(node: &Node, pods: &[Pod], plans: &[Plan]) -> String {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    for plan in plans {
        let plan_name = plan.metadata.name.as_deref().unwrap_or_default();
        let Some(status) = &plan.status else { continue };
        let done = label(
            node.metadata.labels.as_ref(),
            &format!("{LABEL_PLAN_PREFIX}{plan_name}"),
        );
        if done.is_some() && done == status.latest_hash.as_deref() {
            return format!(
                "done: {plan_name} {}",
                status.latest_version.as_deref().unwrap_or_default()
            );
        }
        let of_node = |pod: &&Pod| {
            let labels = pod.metadata.labels.as_ref();
            label(labels, LABEL_PLAN) == Some(plan_name) && label(labels, LABEL_NODE) == Some(name)
        };
        if let Some(pod) = pods
            .iter()
            .filter(of_node)
            .max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|t| t.0))
        {
            let version = label(pod.metadata.labels.as_ref(), LABEL_VERSION).unwrap_or_default();
            return format!("{plan_name} {version}: {}", pod_step(pod));
        }
        if let Some(active) = status.active.iter().flatten().find(|active| active.name == name) {
            return format!("{plan_name}: {}", reason(active));
        }
    }
    "waiting".to_owned()
}

/// The container that a pod has come to.
fn pod_step(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    let running = |it: &&ContainerStatus| it.state.as_ref().is_some_and(|state| state.running.is_some());
    match (containers.clone().find(running), status.phase.as_deref()) {
        (Some(container), _) => container.name.clone(),
        (None, Some("Succeeded")) => "Job ends".to_owned(),
        (None, Some("Failed")) => "failed".to_owned(),
        (None, _) => "pod starts".to_owned(),
    }
}

fn reason(active: &NodeProgress) -> String {
    match (&active.reason, &active.message) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(reason), None) => reason.clone(),
        (None, _) => active.phase.clone(),
    }
}

fn label<'a>(labels: Option<&'a BTreeMap<String, String>>, name: &str) -> Option<&'a str> {
    labels?.get(name).map(String::as_str)
}
