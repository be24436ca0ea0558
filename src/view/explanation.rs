//! An explanation: a chain of objects down to the one that holds a Plan or a node.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// How many Plans and nodes a chain may pass, because two can wait for each other.
pub(super) const MAX_DEPTH: usize = 4;
/// Objects of one kind that a chain names.
pub(super) const MAX_NAMED: usize = 5;
/// Events of a node that its history shows.
pub(super) const MAX_EVENTS: usize = 10;

/// A link of the chain: an object, and what it says or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Kind and name, such as `PodDisruptionBudget shop/web`.
    pub object: String,
    pub says: String,
}

/// Why something is blocked, or that it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
            held: true,
            ..Self::default()
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

    /// The chain, and the one command to begin with.
    pub(super) fn brief(&self) -> String {
        let mut out = self.chain();
        if !self.remedy.is_empty() {
            let _ = writeln!(out, "Remedy: {}", self.remedy);
        }
        if let Some(command) = self.commands.first() {
            let _ = writeln!(out, "  {command}");
        }
        out
    }

    fn chain(&self) -> String {
        let mut out = format!("{}\n", self.verdict);
        for (depth, link) in self.chain.iter().enumerate() {
            let _ = writeln!(out, "{}└─ {}: {}", "   ".repeat(depth), link.object, link.says);
        }
        out
    }

    pub fn to_text(&self) -> String {
        let mut out = self.chain();
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
