//! Output: messages, and below them a line for each node. On a terminal the lines change in place; in a pipe a line is
//! written for each step of a node.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use refit_api::names::{LABEL_NODE, LABEL_PLAN, LABEL_VERSION, plan_label};
use refit_api::{NodeProgress, Plan};

/// Prints a line on standard output, and ignores errors such as a closed pipe.
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

    /// Keeps the current lines, and draws new ones below later messages.
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
        // The cursor goes up by one row per node, so that no line may wrap.
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

/// The state of a node in a few words.
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
        let done = plan_label(plan_name);
        let done = label(node.metadata.labels.as_ref(), &done);
        if done.is_some() && done == status.latest_hash.as_deref() {
            let version = status.latest_version.as_deref().unwrap_or_default();
            return format!("done: {plan_name} {version}");
        }
        let of_node = |pod: &&Pod| {
            let labels = pod.metadata.labels.as_ref();
            label(labels, LABEL_PLAN) == Some(plan_name) && label(labels, LABEL_NODE) == Some(name)
        };
        let created = |pod: &&Pod| pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
        if let Some(pod) = pods.iter().filter(of_node).max_by_key(created) {
            let version = label(pod.metadata.labels.as_ref(), LABEL_VERSION).unwrap_or_default();
            return format!("{plan_name} {version}: {}", pod_step(pod));
        }
        if let Some(active) = status.active.iter().flatten().find(|active| active.name == name) {
            return format!("{plan_name}: {}", reason(active));
        }
    }
    "waiting".to_owned()
}

/// The container that a pod runs.
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
        (Some(reason), None) => reason.to_string(),
        (None, _) => active.phase.to_string(),
    }
}

fn label<'a>(labels: Option<&'a BTreeMap<String, String>>, name: &str) -> Option<&'a str> {
    labels?.get(name).map(String::as_str)
}
