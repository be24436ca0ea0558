//! Why a Plan or a node does not go on, as a chain down to the object that holds it, what would release it, and the
//! command for that.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cause::{Cause, chain_of_message};
use super::plan::{Hold, NodeOverview, PlanOverview, condition};
use super::read::{JobObject, NodeObject, PlanObject, Snapshot};
use super::{maintenance, remedy, stall, time};
use crate::api::selector::{Selector, explain::requirements};
use crate::api::{
    CheckPhase, ConditionType, DrainWait, Holder, OpenEnum, Reason, WavePhase, annotation, limits, names,
};
use crate::rollout::{JobOutcome, PodStage};

/// How many Plans and nodes a chain may pass, because two can wait for each other.
const MAX_DEPTH: usize = 4;
/// Objects of one kind that a chain names.
const MAX_NAMED: usize = 5;
/// Events of a node that its history shows.
const MAX_EVENTS: usize = 10;

/// A link of the chain: an object, and what it says or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Kind and name, such as `PodDisruptionBudget shop/web`.
    pub object: String,
    pub says: String,
}

/// An answer to why something does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub verdict: String,
    pub chain: Vec<Link>,
    /// What would release it.
    pub remedy: String,
    pub commands: Vec<String>,
    /// What happened to the node so far.
    pub history: Vec<String>,
    /// Whether something waits.
    pub held: bool,
}

impl Explanation {
    pub(super) fn new(verdict: String) -> Self {
        Self {
            verdict,
            chain: Vec::new(),
            remedy: String::new(),
            commands: Vec::new(),
            history: Vec::new(),
            held: true,
        }
    }

    pub(super) fn link(&mut self, object: impl Into<String>, says: impl Into<String>) {
        self.chain.push(Link {
            object: object.into(),
            says: says.into(),
        });
    }

    /// Takes the remedy of a reason, unless a link nearer to the cause has given one.
    pub(super) fn release(&mut self, remedy: &str, commands: &[String]) {
        if self.remedy.is_empty() {
            remedy.clone_into(&mut self.remedy);
            self.commands = commands.to_vec();
        }
    }

    pub fn to_text(&self) -> String {
        let mut out = format!("{}\n", self.verdict);
        for (depth, link) in self.chain.iter().enumerate() {
            let _ = writeln!(out, "{}└─ {}: {}", "   ".repeat(depth), link.object, link.says);
        }
        if !self.remedy.is_empty() {
            let _ = writeln!(out, "\nWay out: {}", self.remedy);
        }
        for command in &self.commands {
            let _ = writeln!(out, "  {command}");
        }
        if !self.history.is_empty() {
            let _ = writeln!(out, "\nHistory:");
        }
        for line in &self.history {
            let _ = writeln!(out, "  {line}");
        }
        out
    }

    pub fn to_json(&self) -> Value {
        let chain = self
            .chain
            .iter()
            .map(|link| json!({ "object": link.object, "says": link.says }));
        json!({
            "verdict": self.verdict, "held": self.held, "chain": chain.collect::<Vec<_>>(), "remedy": self.remedy,
            "commands": self.commands, "history": self.history,
        })
    }
}

/// Why a Plan does not go on.
pub fn explain_plan(view: &PlanOverview<'_>) -> Explanation {
    let title = format!("Plan {}", view.title());
    let counts = view.counts;
    let progress = format!("{} of {} nodes are done", counts.done, counts.selected);
    let Some(hold) = &view.hold else {
        let verdict = if view.complete {
            format!("{title} is complete: {progress}")
        } else {
            format!("{title} goes on: {progress}, {} in progress", counts.applying)
        };
        let mut explanation = Explanation::new(verdict);
        explanation.held = false;
        let message = condition(view.plan, ConditionType::Complete).and_then(|it| it.message.clone());
        if let Some(message) = message.filter(|_| view.complete) {
            explanation.link(title, message);
        }
        for node in view.nodes.iter().filter(|node| node.has_slot()).take(MAX_NAMED) {
            let since = node
                .since
                .as_deref()
                .and_then(|since| time::since(since, view.snapshot.now));
            let says = format!(
                "{} for {}",
                node.phase,
                since.unwrap_or_else(|| "an unknown time".to_owned())
            );
            explanation.history.push(format!("Node {}: {says}", node.name));
        }
        return explanation;
    };
    let verdict = match (&hold.node, view.complete) {
        (Some(node), _) => format!("{title} waits because of Node {node}: {}; {progress}", hold.word),
        (None, true) => format!(
            "{title} is complete, and a newer version is held back: {}",
            hold.word
        ),
        (None, false) => format!("{title} is held: {}; {progress}", hold.word),
    };
    let mut explanation = Explanation::new(verdict);
    match &hold.node {
        Some(node) => {
            let known = view.node(node).cloned();
            if let Some(known) = known {
                chain_of_node(view, &known, &mut explanation, 0);
            }
        }
        None => chain_of_hold(view, hold, &mut explanation),
    }
    explanation.release(&hold.remedy, &hold.commands);
    explanation
}

/// Why a node does not go on under a Plan.
pub fn explain_node(view: &PlanOverview<'_>, name: &str) -> Explanation {
    let mut explanation = Explanation::new(String::new());
    let node = view.snapshot.node(name);
    let title = view.title();
    if let Some(reason) = node.and_then(|node| not_selected(view, node)) {
        explanation.verdict = format!("Plan {title} does not concern Node {name}");
        explanation.link(format!("Node {name}"), reason);
        explanation.release(
            "change spec.nodeSelector, or label the node",
            &[format!("kubectl get node {name} --show-labels")],
        );
        explanation.history = history(view, name);
        return explanation;
    }
    let label = node.and_then(|node| {
        node.labels
            .get(&format!("{}{}", names::LABEL_PLAN_PREFIX, view.plan.facts.name))
    });
    let hash = view.plan.facts.status().latest_hash.as_deref();
    let version = view.version().unwrap_or("an unknown version");
    match (label.map(String::as_str), view.node(name)) {
        (Some(names::LABEL_VALUE_DISABLED), _) => {
            explanation.verdict = format!("Plan {title} is disabled on Node {name}");
            let key = format!("{}{}", names::LABEL_PLAN_PREFIX, view.plan.facts.name);
            explanation.link(format!("Node {name}"), format!("has the label {key}=disabled"));
            explanation.release("remove the label", &[format!("kubectl label node {name} {key}-")]);
        }
        (label, known) if label.is_some() && label == hash && known.is_none_or(|known| !known.has_slot()) => {
            explanation.verdict = format!("Node {name} is done: Plan {title} has upgraded it to {version}");
            explanation.held = false;
        }
        (_, Some(known)) if known.has_slot() && known.reason.is_none() => {
            let since = known
                .since
                .as_deref()
                .and_then(|since| time::since(since, view.snapshot.now));
            let since = since.map_or_else(String::new, |since| format!(" for {since}"));
            explanation.verdict = format!("Node {name} goes on: {}{since}", known.phase);
            explanation.held = false;
            chain_of_node(view, &known.clone(), &mut explanation, 0);
        }
        (_, Some(known)) => {
            let reason = known.reason.as_deref().unwrap_or("no reason is known");
            let does = if known.is_failed() {
                "failed"
            } else if known.has_slot() {
                "does not go on"
            } else {
                "does not start"
            };
            explanation.verdict = format!("Node {name} {does} under Plan {title}: {reason}");
            chain_of_node(view, &known.clone(), &mut explanation, 0);
        }
        (_, None) => {
            // Status names only some of the waiting nodes.
            explanation.verdict = format!("Node {name} waits for Plan {title}");
            match &view.hold {
                Some(hold) => {
                    explanation.link(format!("Node {name}"), "waits like the rest of the Plan");
                    chain_of_hold(view, hold, &mut explanation);
                    explanation.release(&hold.remedy, &hold.commands);
                }
                None => no_slot(view, &mut explanation, 0),
            }
        }
    }
    explanation.history = history(view, name);
    explanation
}

/// Why a Plan does not select a node.
pub(super) fn not_selected(view: &PlanOverview<'_>, node: &NodeObject) -> Option<String> {
    let spec = &view.plan.facts.object.spec;
    let Some(selector) = &spec.node_selector else {
        return Some("spec.nodeSelector is absent, which selects no node".to_owned());
    };
    if let Err(error) = Selector::new(Some(selector)) {
        return Some(format!("spec.nodeSelector is invalid: {error}"));
    }
    if !node.labels.contains_key(names::LABEL_HOSTNAME) {
        return Some(format!("lacks the label {}", names::LABEL_HOSTNAME));
    }
    let mut requirements = requirements(selector).into_iter();
    if let Some(unmet) = requirements.find(|one| !one.matches(&node.labels)) {
        return Some(format!("spec.nodeSelector requires {}", unmet.text()));
    }
    // Like a node that is done, one that has begun stays selected whatever it says of itself.
    let plan = &view.plan.facts.name;
    let has_begun = done_label(view, &node.facts.name)
        || node.facts.records.contains_key(plan)
        || view.node(&node.facts.name).is_some_and(NodeOverview::has_slot);
    let info = spec.node_info().ok().filter(|_| !has_begun)?;
    let (field, is) = info.mismatch(node.facts.info())?;
    Some(format!(
        "spec.nodeInfo.{field} does not match {is:?}, which the node has"
    ))
}

/// The chain below a Plan that is held as a whole.
fn chain_of_hold(view: &PlanOverview<'_>, hold: &Hold, explanation: &mut Explanation) {
    explanation.link(format!("Plan {}", view.title()), &*hold.message);
    let status = view.plan.facts.status();
    let reason: OpenEnum<Reason> = hold.word.as_str().into();
    let Some(reason) = reason.known() else { return };
    match Cause::of(reason) {
        Cause::Unavailable => chain_of_unavailable(view, explanation),
        Cause::Channel => {
            let channel = status.channel.as_ref();
            let failed =
                condition(view.plan, ConditionType::Validated).is_some_and(|it| it.status == "False");
            let error = channel.and_then(|channel| Some((channel.url.clone()?, channel.last_error.clone()?)));
            if let Some((url, error)) = error.filter(|_| !failed) {
                explanation.link(format!("channel {url}"), error);
                explanation.release(
                    "make the channel reachable, or set spec.version",
                    &[format!("refit resolve {url}")],
                );
            }
        }
        Cause::Window => chain_of_window(view, reason, &hold.message, explanation),
        Cause::Wave => chain_of_wave(view, explanation, 0),
        Cause::Slots => no_slot(view, explanation, 0),
        cause @ (Cause::NamedNodes | Cause::FailedNodes | Cause::Limits | Cause::Plans) => {
            chain_of_message(view, cause, None, &hold.message, explanation, 0);
        }
        Cause::Checks => chain_of_checks(view, explanation),
        Cause::Candidate => {
            let candidate = status
                .channel
                .as_ref()
                .and_then(|channel| channel.candidate.as_deref());
            if let Some(candidate) = candidate {
                explanation.link(format!("version {candidate}"), "is held back");
            }
        }
        Cause::Busy | Cause::Kubelet | Cause::Job | Cause::Itself => {}
    }
}

/// The checks that do not pass.
fn chain_of_checks(view: &PlanOverview<'_>, explanation: &mut Explanation) {
    let status = view.plan.facts.status();
    let checks = status.checks.iter().flatten();
    for check in checks.filter(|check| check.phase != CheckPhase::Passing) {
        let since = check
            .since
            .as_deref()
            .and_then(|since| time::since(since, view.snapshot.now));
        let since = since.map_or_else(String::new, |since| format!(" for {since}"));
        let message = check
            .message
            .as_deref()
            .map_or_else(String::new, |it| format!(": {it}"));
        explanation.link(
            format!("check {}", check.name),
            format!("{}{since}{message}", check.phase),
        );
    }
}

/// What keeps nodes from starting now, and until when.
fn chain_of_window(view: &PlanOverview<'_>, reason: Reason, message: &str, explanation: &mut Explanation) {
    let spec = &view.plan.facts.object.spec;
    let is_of_all = message.contains(&format!("ConfigMap {}", limits::NAME));
    let object = match reason {
        Reason::Blackout if is_of_all => format!("ConfigMap {}/{}", view.plan.namespace, limits::NAME),
        Reason::Blackout => "spec.blackouts".to_owned(),
        _ if spec.window.is_none() => "spec.windows".to_owned(),
        _ => "spec.window".to_owned(),
    };
    let opens = view.plan.facts.status().next_window.as_deref();
    let says = match opens.and_then(|opens| opens.parse().ok()) {
        Some(opens) if reason == Reason::Blackout => {
            format!("nodes may start again {}", time::until(opens, view.snapshot.now))
        }
        Some(opens) => format!("opens {}", time::until(opens, view.snapshot.now)),
        None => "status does not say when nodes may start again".to_owned(),
    };
    explanation.link(object, says);
}

/// A node that others wait for.
pub(super) fn chain_of_named_node(
    view: &PlanOverview<'_>,
    name: &str,
    explanation: &mut Explanation,
    depth: usize,
) {
    let known = view
        .node(name)
        .filter(|node| node.has_slot() || node.reason.is_some());
    if let Some(known) = known.filter(|_| depth < MAX_DEPTH) {
        chain_of_node(view, &known.clone(), explanation, depth + 1);
        return;
    }
    let why = view.snapshot.node(name).and_then(unavailability);
    let (says, command) = why.unwrap_or_else(|| {
        let waits = format!("is not done under Plan {}", view.title());
        (waits, format!("kubectl describe node {name}"))
    });
    explanation.link(format!("Node {name}"), says);
    explanation.release("repair the node, or wait for it", &[command]);
}

/// A Plan that this one waits for.
pub(super) fn chain_of_dependency(
    view: &PlanOverview<'_>,
    name: &str,
    explanation: &mut Explanation,
    depth: usize,
) {
    let namespace = &view.plan.namespace;
    let is_it = |plan: &&PlanObject| plan.namespace == *namespace && *plan.facts.name == *name;
    let Some(plan) = view.snapshot.plans.iter().find(is_it) else {
        explanation.link(format!("Plan {namespace}/{name}"), "does not exist");
        explanation.release(
            "create the Plan, or correct spec.dependsOn",
            &[format!("kubectl get plans -n {namespace}"), edit(view)],
        );
        return;
    };
    let other = PlanOverview::new(view.snapshot, plan);
    let waits_for_this = plan.facts.object.spec.depends_on.iter().flatten();
    let is_cycle = waits_for_this.clone().any(|it| *it.name == *view.plan.facts.name);
    let counts = other.counts;
    let says = match &other.hold {
        Some(hold) => format!("{}: {}", hold.word, hold.message),
        None if other.complete => {
            format!(
                "is complete at {}",
                other.version().unwrap_or("an unknown version")
            )
        }
        None => format!("goes on: {} of {} nodes are done", counts.done, counts.selected),
    };
    explanation.link(format!("Plan {}", other.title()), says);
    if is_cycle {
        explanation.release("remove one of the entries of spec.dependsOn", &[edit(view)]);
        return;
    }
    if let Some(node) = other.hold.as_ref().and_then(|hold| hold.node.as_deref()) {
        let known = other.node(node).cloned();
        if let Some(known) = known.filter(|_| depth < MAX_DEPTH) {
            chain_of_node(&other, &known, explanation, depth + 1);
        }
    }
    explanation.release(
        "wait for that Plan; if it does not go on, see why",
        &[format!("refit explain -n {namespace} {name}")],
    );
}

fn edit(view: &PlanOverview<'_>) -> String {
    format!(
        "kubectl edit plan -n {} {}",
        view.plan.namespace, view.plan.facts.name
    )
}

/// The wave that later nodes wait for, and a node that holds it.
fn chain_of_wave(view: &PlanOverview<'_>, explanation: &mut Explanation, depth: usize) {
    let Some(wave) = view.wave() else {
        return;
    };
    let now = view.snapshot.now;
    let since = wave.since.as_deref().and_then(|since| time::since(since, now));
    let since = since.map_or_else(String::new, |since| format!(" for {since}"));
    let until = wave.until.as_deref().and_then(|until| until.parse().ok());
    let until = until.map_or_else(String::new, |until| {
        format!("; its soak ends {}", time::until(until, now))
    });
    explanation.link(
        format!("wave {}", wave.name),
        format!("{}{since}{until}", wave.phase),
    );
    if wave.phase != WavePhase::Progressing {
        return;
    }
    let waits_for_wave = |node: &&NodeOverview| node.reason.as_deref() == Some(Reason::WaveInProgress.name());
    let failed = view.nodes.iter().find(|node| node.is_failed());
    let held = || {
        let mut held = view
            .nodes
            .iter()
            .filter(|node| node.reason.is_some() && !waits_for_wave(node));
        held.next()
    };
    let in_progress = || view.nodes.iter().find(|node| node.has_slot());
    let holder = failed.or_else(held).or_else(in_progress);
    if let Some(holder) = holder.filter(|_| depth < MAX_DEPTH) {
        chain_of_node(view, &holder.clone(), explanation, depth + 1);
        return;
    }
    // Nodes that are done are not in status.
    let is_unready = |name: &&String| {
        let node = view.snapshot.node(name);
        done_label(view, name) && node.is_some_and(|node| !node.facts.ready)
    };
    let unready = view
        .snapshot
        .nodes
        .iter()
        .flatten()
        .map(|(name, _)| name)
        .find(is_unready);
    if let Some(node) = unready.and_then(|name| view.snapshot.node(name)) {
        let name = &node.facts.name;
        explanation.link(format!("Node {name}"), not_ready(node));
        explanation.release(
            "repair the node: its wave is over when all upgraded nodes are Ready",
            &[format!("kubectl describe node {name}")],
        );
    }
}

/// Whether the node's label has the present hash.
fn done_label(view: &PlanOverview<'_>, name: &str) -> bool {
    let key = format!("{}{}", names::LABEL_PLAN_PREFIX, view.plan.facts.name);
    let label = view.snapshot.node(name).and_then(|node| node.labels.get(&key));
    label.is_some() && label == view.plan.facts.status().latest_hash.as_ref()
}

/// Some of the nodes that are unavailable: the name, why, and the command for it.
pub(super) fn unavailable(view: &PlanOverview<'_>) -> Vec<(String, String, String)> {
    let is_selected = |node: &&NodeObject| not_selected(view, node).is_none();
    let nodes = view.snapshot.nodes.iter().flatten().map(|(_, node)| node);
    let why = nodes.filter(is_selected).filter_map(|node| {
        let (says, command) = unavailability(node)?;
        Some((node.facts.name.to_string(), says, command))
    });
    why.take(MAX_NAMED).collect()
}

fn chain_of_unavailable(view: &PlanOverview<'_>, explanation: &mut Explanation) {
    let nodes = unavailable(view);
    for (name, says, _) in &nodes {
        explanation.link(format!("Node {name}"), says);
    }
    if !nodes.is_empty() {
        let commands: Vec<_> = nodes.into_iter().map(|(_, _, command)| command).collect();
        explanation.release(
            "repair or uncordon these nodes, or raise spec.maxUnavailable",
            &commands,
        );
    }
}

/// Why a node counts as unavailable, and the command for it.
pub(super) fn unavailability(node: &NodeObject) -> Option<(String, String)> {
    let name = &node.facts.name;
    if !node.facts.ready {
        return Some((not_ready(node), format!("kubectl describe node {name}")));
    }
    if node.facts.unschedulable {
        let by = match &node.facts.ledger {
            Some(ledger) => {
                let is_in_maintenance = ledger.holders.iter().any(Holder::is_of_front_end);
                let holder = |holder: &Holder| {
                    let kind = if holder.is_of_front_end() { "" } else { "Plan " };
                    format!("{kind}{}", holder.plan)
                };
                let holders: Vec<_> = ledger.holders.iter().map(holder).collect();
                let by = format!("is cordoned by refit for {}", holders.join(", "));
                if is_in_maintenance {
                    // refit would cordon it again.
                    return Some((by, format!("refit explain node/{name}")));
                }
                by
            }
            None => "is cordoned, and not by refit".to_owned(),
        };
        return Some((by, format!("kubectl uncordon {name}")));
    }
    node.facts.tainted.then(|| {
        let says = "has the taint of a node that is not ready or unreachable".to_owned();
        (says, format!("kubectl describe node {name}"))
    })
}

fn not_ready(node: &NodeObject) -> String {
    match &node.ready {
        Some((reason, message, since)) => {
            let since = if since.is_empty() {
                String::new()
            } else {
                format!(" since {since}")
            };
            format!("is not Ready{since}: {reason}: {message}")
        }
        None => "has no condition Ready: its kubelet has never reported".to_owned(),
    }
}

/// The chain below a node.
pub(super) fn chain_of_node(
    view: &PlanOverview<'_>,
    node: &NodeOverview,
    explanation: &mut Explanation,
    depth: usize,
) {
    let reason: Option<OpenEnum<Reason>> = node.reason.as_deref().map(Into::into);
    let since = node
        .since
        .as_deref()
        .and_then(|since| time::since(since, view.snapshot.now));
    let since = since.map_or_else(String::new, |since| format!(" for {since}"));
    let message = node.message.as_deref().unwrap_or_default();
    let says = match (&reason, message) {
        (Some(reason), "") => format!("{}{since}, {reason}", node.phase),
        (Some(reason), message) => format!("{}{since}, {reason}: {message}", node.phase),
        (None, "") => format!("{}{since}", node.phase),
        (None, message) => format!("{}{since}: {message}", node.phase),
    };
    explanation.link(format!("Node {}", node.name), says);
    let known = reason.as_ref().and_then(OpenEnum::known);
    let of_plan = || view.hold.as_ref().filter(|hold| hold.node.is_none());
    match known.map(|reason| (reason, Cause::of(reason))) {
        Some((_, Cause::Slots)) => no_slot(view, explanation, depth),
        Some((_, Cause::Busy)) => busy(view, node, explanation, depth),
        Some((_, Cause::Unavailable)) => chain_of_unavailable(view, explanation),
        Some((_, Cause::Wave)) => chain_of_wave(view, explanation, depth),
        Some((_, cause @ (Cause::NamedNodes | Cause::FailedNodes | Cause::Limits | Cause::Plans))) => {
            chain_of_message(view, cause, Some(&node.name), message, explanation, depth);
        }
        Some((_, Cause::Checks)) => chain_of_checks(view, explanation),
        Some((_, Cause::Kubelet)) => {
            if let Some(object) = view
                .snapshot
                .node(&node.name)
                .filter(|object| !object.facts.ready)
            {
                explanation.link(format!("Node {}", node.name), not_ready(object));
            } else {
                chain_of_job(view, node, explanation);
            }
        }
        Some((reason, Cause::Window)) => chain_of_window(view, reason, message, explanation),
        // That of the whole Plan, which has the object.
        Some((reason, Cause::Itself | Cause::Channel | Cause::Candidate)) => {
            let is_of_plan = |hold: &&Hold| hold.word == reason.name() || reason == Reason::NotReady;
            if let Some(hold) = of_plan().filter(is_of_plan) {
                chain_of_hold(view, hold, explanation);
                explanation.release(&hold.remedy, &hold.commands);
            } else {
                chain_of_job(view, node, explanation);
            }
        }
        Some((_, Cause::Job)) | None => chain_of_job(view, node, explanation),
    }
    if let Some(reason) = &reason {
        let (remedy, commands) = remedy::remedy(view, reason, Some(&node.name));
        explanation.release(&remedy, &commands);
    }
}

/// The Job of a node, its pod, and what that waits for.
fn chain_of_job(view: &PlanOverview<'_>, node: &NodeOverview, explanation: &mut Explanation) {
    let jobs = view.snapshot.jobs_on(view.plan, &node.name);
    let Some(job) = jobs.last().filter(|job| {
        // The Job that verifies the node is beside the one that status names.
        let is_named = node.job.as_deref() == Some(&*job.facts.name);
        node.job.is_none() || is_named || job.facts.verifies.is_some()
    }) else {
        return;
    };
    let attempt = job.facts.attempt;
    let object = format!("Job {}/{}", job.namespace, job.facts.name);
    explanation.link(object, format!("attempt {attempt}: {}", outcome(job)));
    let Some(pod) = view.snapshot.pod_of(job) else {
        return;
    };
    if pod.facts.waiting.is_none()
        && job.facts.outcome == JobOutcome::Running
        && let Some(failed) = stall::failed_pods(view.snapshot, job).last()
    {
        let last = failed.facts.termination_message.as_deref().unwrap_or_default();
        explanation.link(
            format!("Pod {}/{}", failed.namespace, failed.facts.name),
            format!("ended: {last}"),
        );
        return;
    }
    let says = match (
        &pod.facts.waiting,
        &pod.facts.termination_message,
        pod.facts.stage,
    ) {
        (Some(why), _, _) => why.clone(),
        (None, Some(last), PodStage::Ended) => format!("ended: {last}"),
        (None, _, stage) => stage.phase().about().trim_end_matches('.').to_owned(),
    };
    explanation.link(format!("Pod {}/{}", pod.namespace, pod.facts.name), says);
    let waits = view
        .snapshot
        .drain_of(pod)
        .into_iter()
        .flat_map(|drain| &drain.waiting);
    for wait in waits.take(1) {
        chain_of_drain(view.snapshot, wait, explanation);
    }
}

fn outcome(job: &JobObject) -> String {
    let created = job.facts.created;
    let took = |at: jiff::Timestamp| time::short(at.duration_since(created));
    match &job.facts.outcome {
        JobOutcome::Running if job.facts.parallelism == 0 => format!("created {created:.0}, suspended"),
        JobOutcome::Running => format!("running since {created:.0}"),
        JobOutcome::Failing { reason, message } => format!("about to fail: {reason}: {message}"),
        JobOutcome::Complete { at } => format!("succeeded at {at:.0} after {}", took(*at)),
        JobOutcome::Failed { at, reason, message } => {
            format!("failed at {at:.0} after {}: {reason}: {message}", took(*at))
        }
    }
}

/// A pod that a drain cannot evict, its budget, and the pods for which that waits.
fn chain_of_drain(snapshot: &Snapshot, wait: &DrainWait, explanation: &mut Explanation) {
    let since = time::short(snapshot.now.duration_since(wait.since));
    explanation.link(
        format!("Pod {}", wait.pod),
        format!("cannot be evicted for {since}: {}", wait.why),
    );
    let (Some(budget), Some((namespace, _))) = (&wait.pdb, wait.pod.split_once('/')) else {
        return;
    };
    let name = budget.rsplit('/').next().unwrap_or(budget);
    let object = format!("PodDisruptionBudget {namespace}/{name}");
    let Some(known) = snapshot
        .budgets
        .iter()
        .find(|one| one.namespace == namespace && one.name == name)
    else {
        explanation.link(object, "refuses the eviction; it could not be read");
        return;
    };
    let says = format!(
        "allows {} disruptions: {} of {} pods are healthy, and {} have to be",
        known.allowed, known.healthy, known.expected, known.desired
    );
    explanation.link(object, says);
    let get = format!("kubectl get pdb,pods -n {namespace}");
    match known.unready.as_slice() {
        [] if known.desired >= known.expected => explanation.release(
            "the budget never allows an eviction: relax it, add replicas, or set drain.disableEviction",
            &[format!("kubectl edit pdb -n {namespace} {name}"), get],
        ),
        [] => explanation.release(
            "wait until a pod of the budget may be evicted, or relax the budget",
            &[get],
        ),
        unready => {
            for (pod, why) in unready.iter().take(MAX_NAMED) {
                explanation.link(format!("Pod {namespace}/{pod}"), format!("is not Ready: {why}"));
            }
            explanation.release(
                "make these pods Ready, or relax the budget",
                &[
                    format!("kubectl describe pods -n {namespace} {}", unready[0].0),
                    get,
                ],
            );
        }
    }
}

/// The nodes that have the slots: failed ones first, because they do not release theirs.
fn no_slot(view: &PlanOverview<'_>, explanation: &mut Explanation, depth: usize) {
    let slots: Vec<_> = view.nodes.iter().filter(|node| node.has_slot()).collect();
    let first = slots
        .iter()
        .find(|node| node.is_failed())
        .or_else(|| slots.iter().find(|node| node.reason.is_some()))
        .or_else(|| slots.first());
    let names: Vec<_> = slots
        .iter()
        .take(MAX_NAMED)
        .map(|node| node.name.as_str())
        .collect();
    if let Some(first) = first {
        explanation.link(
            format!("Plan {}", view.title()),
            format!("its slots are held by {}", names.join(", ")),
        );
        if depth < MAX_DEPTH {
            chain_of_node(view, &(*first).clone(), explanation, depth + 1);
        }
    }
}

/// The maintenance that the node is in, or another Plan that works on it.
fn busy(view: &PlanOverview<'_>, node: &NodeOverview, explanation: &mut Explanation, depth: usize) {
    let (name, message) = (node.name.as_str(), node.message.as_deref().unwrap_or_default());
    let mut maintenances = view.snapshot.maintenances.iter();
    let named = maintenances.find(|it| message.starts_with(&format!("{} ", it.title())));
    if let Some(object) = named {
        explanation.link(object.title(), maintenance::says(view.snapshot, object));
        explanation.release(
            "delete it when the work on the node is done",
            &[
                format!("refit explain nodemaintenance/{}", object.name()),
                maintenance::delete(object),
            ],
        );
        return;
    }
    let others = view
        .snapshot
        .plans
        .iter()
        .filter(|plan| plan.namespace == view.plan.namespace && plan.facts.name != view.plan.facts.name);
    for plan in others {
        let other = PlanOverview::new(view.snapshot, plan);
        let Some(node) = other
            .node(name)
            .filter(|node| node.has_slot() && !node.is_failed())
            .cloned()
        else {
            continue;
        };
        explanation.link(format!("Plan {}", other.title()), "works on the node");
        if depth < MAX_DEPTH {
            chain_of_node(&other, &node, explanation, depth + 1);
        }
        explanation.release(
            "wait until that Plan has finished with the node",
            &[format!(
                "refit explain -n {} {} {name}",
                plan.namespace, plan.facts.name
            )],
        );
        return;
    }
}

/// What happened to a node under a Plan, as far as its record, Jobs and Events still say.
fn history(view: &PlanOverview<'_>, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let node = view.snapshot.node(name);
    if let Some(record) = node.and_then(|node| node.facts.records.get(&view.plan.facts.name)) {
        let why = record
            .message
            .as_deref()
            .map_or_else(String::new, |why| format!(": {why}"));
        lines.push(format!(
            "{:.0} record: {:?}, attempt {} at {}{why}",
            record.at, record.phase, record.attempt, record.version
        ));
    }
    for job in view.snapshot.jobs_on(view.plan, name) {
        let boots = match job.facts.boots.len() {
            0 | 1 => String::new(),
            boots => format!(", {boots} boots"),
        };
        let pod = view.snapshot.pod_of(job);
        let drain = pod.and_then(|pod| view.snapshot.drain_of(pod));
        let evicted = drain.map_or_else(String::new, |drain| {
            format!(", {} of {} pods evicted", drain.evicted, drain.total)
        });
        let last = pod.and_then(|pod| pod.facts.termination_message.clone());
        let last = last.map_or_else(String::new, |last| format!("; last words: {last}"));
        lines.push(format!(
            "{:.0} Job {}: {}, attempt {}, {}{boots}{evicted}{last}",
            job.facts.created,
            job.facts.name,
            job.facts.version,
            job.facts.attempt,
            outcome(job)
        ));
    }
    let names_node = |text: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || "-.".contains(c)))
            .any(|word| word.trim_end_matches('.') == name)
    };
    let events: Vec<_> = view.events().filter(|event| names_node(&event.message)).collect();
    let skipped = events.len().saturating_sub(MAX_EVENTS);
    lines.extend(
        events
            .into_iter()
            .skip(skipped)
            .map(|event| format!("{:.0} {}: {}", event.at, event.reason, event.message)),
    );
    if let Some(skip) = node.and_then(|node| node.facts.skip.as_deref()) {
        let own = annotation::entries(skip).find(|entry| entry.plan == &*view.plan.facts.name);
        lines.extend(own.map(|entry| format!("refit.rs/skip: {}", entry.text)));
    }
    lines
}
