//! Why a Plan or a node is blocked, as a chain down to the object that holds it, what would release it, and the
//! command for that.

mod history;
mod job;
mod node;
mod plan;

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::differs::differs;
use super::plan::{PlanOverview, condition};
use super::read::NodeObject;
use super::remedy::remedy;
use super::time;
use history::history;
use node::no_slot;
pub(super) use node::{chain_of_node, unavailability, unavailable};
use plan::chain_of_obstacle;
pub(super) use plan::{chain_of_dependency, chain_of_named_node};
use refit_api::selector::Selector;
use refit_api::selector::explain::requirements;
use refit_api::{ConditionType, NodeProgress, names};

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

/// Why something is blocked, or that it is not.
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
    pub(super) fn set_remedy(&mut self, remedy: &str, commands: &[String]) {
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
            let _ = writeln!(out, "\nRemedy: {}", self.remedy);
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

/// Why a Plan is blocked.
pub fn explain_plan(view: &PlanOverview<'_>) -> Explanation {
    let title = format!("Plan {}", view.title());
    let counts = view.counts;
    let progress = format!("{} of {} nodes are done", counts.done, counts.selected);
    let Some(obstacle) = &view.obstacle else {
        let verdict = if view.complete {
            format!("{title} is complete: {progress}")
        } else {
            format!("{title} continues: {progress}, {} in progress", counts.applying)
        };
        let mut explanation = Explanation::new(verdict);
        explanation.held = false;
        let message = condition(view.plan, ConditionType::Complete).and_then(|it| it.message.clone());
        if let Some(message) = message.filter(|_| view.complete) {
            explanation.link(&*title, message);
        }
        if let Some(repeats) = view.repeats().filter(|_| view.complete) {
            explanation.link(title, format!("repeats: {repeats}"));
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
    let verdict = match (&obstacle.node, view.complete) {
        (Some(node), _) => format!(
            "{title} waits because of Node {node}: {}; {progress}",
            obstacle.reason
        ),
        (None, true) => format!(
            "{title} is complete, and a newer version is held back: {}",
            obstacle.reason
        ),
        (None, false) => format!("{title} is held: {}; {progress}", obstacle.reason),
    };
    let mut explanation = Explanation::new(verdict);
    match &obstacle.node {
        Some(node) => {
            let known = view.node(node).cloned();
            if let Some(known) = known {
                chain_of_node(view, &known, &mut explanation, 0);
            }
        }
        None => chain_of_obstacle(view, obstacle, &mut explanation),
    }
    explanation.set_remedy(&obstacle.remedy, &obstacle.commands);
    explanation
}

/// Why a node is blocked under a Plan.
pub fn explain_node(view: &PlanOverview<'_>, name: &str) -> Explanation {
    let mut explanation = Explanation::new(String::new());
    let node = view.snapshot.node(name);
    let title = view.title();
    if let Some(reason) = node.and_then(|node| not_selected(view, node)) {
        explanation.verdict = format!("Plan {title} does not concern Node {name}");
        explanation.link(format!("Node {name}"), reason);
        explanation.set_remedy(
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
            explanation.set_remedy("remove the label", &[format!("kubectl label node {name} {key}-")]);
        }
        (label, known) if label.is_some() && label == hash && known.is_none_or(|known| !known.has_slot()) => {
            done(view, name, version, &mut explanation);
        }
        (_, Some(known)) if known.has_slot() && known.reason.is_none() => {
            let since = time::lasting(known.since.as_deref(), view.snapshot.now);
            explanation.verdict = format!("Node {name} continues: {}{since}", known.phase);
            explanation.held = false;
            chain_of_node(view, &known.clone(), &mut explanation, 0);
        }
        (_, Some(known)) => {
            let reason = known.reason.as_deref().unwrap_or("no reason is known");
            let does = if known.is_failed() {
                "failed"
            } else if known.has_slot() {
                "does not progress"
            } else {
                "does not start"
            };
            explanation.verdict = format!("Node {name} {does} under Plan {title}: {reason}");
            chain_of_node(view, &known.clone(), &mut explanation, 0);
        }
        (_, None) => {
            // Status names only some of the waiting nodes.
            explanation.verdict = format!("Node {name} waits for Plan {title}");
            match &view.obstacle {
                Some(obstacle) => {
                    explanation.link(format!("Node {name}"), "waits like the rest of the Plan");
                    chain_of_obstacle(view, obstacle, &mut explanation);
                    explanation.set_remedy(&obstacle.remedy, &obstacle.commands);
                }
                None => no_slot(view, &mut explanation, 0),
            }
        }
    }
    explanation.history = history(view, name);
    explanation
}

/// A node whose label says that it is done.
fn done(view: &PlanOverview<'_>, name: &str, version: &str, explanation: &mut Explanation) {
    let title = view.title();
    let Some(differs) = differs(view, name) else {
        explanation.verdict = format!("Node {name} is done: Plan {title} has upgraded it to {version}");
        explanation.held = false;
        return;
    };
    let Some(reason) = differs.reason else {
        explanation.verdict = format!("Node {name} is done under Plan {title}; {} yet", differs.text);
        explanation.held = false;
        return;
    };
    explanation.verdict = format!(
        "Node {name} counts as done under Plan {title}, and {}: {reason}",
        differs.text
    );
    explanation.link(format!("Node {name}"), reason.about());
    let (remedy, commands) = remedy(view, &reason.into(), &[], Some(name));
    explanation.set_remedy(&remedy, &commands);
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
    // As under system-upgrade-controller, a Plan selects only nodes with this label.
    if !node.labels.contains_key(names::LABEL_HOSTNAME) {
        return Some(format!("lacks the label {}", names::LABEL_HOSTNAME));
    }
    let mut requirements = requirements(selector).into_iter();
    if let Some(unmet) = requirements.find(|one| !one.matches(&node.labels)) {
        return Some(format!("spec.nodeSelector requires {}", unmet.text()));
    }
    // Like a node that is done, one that has begun stays selected whatever it says of itself.
    let plan = &view.plan.facts.name;
    let has_begun = has_done_label(view, &node.facts.name)
        || node.facts.records.contains_key(plan)
        || view.node(&node.facts.name).is_some_and(NodeProgress::has_slot);
    let info = spec.node_info().ok().filter(|_| !has_begun)?;
    let (field, is) = info.mismatch(node.facts.info())?;
    Some(format!(
        "spec.nodeInfo.{field} does not match {is:?}, which the node has"
    ))
}

/// Whether the node's label has the current hash.
fn has_done_label(view: &PlanOverview<'_>, name: &str) -> bool {
    let key = format!("{}{}", names::LABEL_PLAN_PREFIX, view.plan.facts.name);
    let label = view.snapshot.node(name).and_then(|node| node.labels.get(&key));
    label.is_some() && label == view.plan.facts.status().latest_hash.as_ref()
}
