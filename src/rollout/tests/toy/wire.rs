//! The watches: each kind tells in order, no kind waits for another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Toy;
use crate::rollout::facts::Text;
use crate::rollout::{JobFacts, Kind, NodeFacts, PlanFacts, PodFacts, World};

/// Something that a watch tells.
#[derive(Clone, Debug)]
pub(super) enum News {
    Ends(Kind),
    Node(u64, NodeFacts),
    NodeGone(Text, Text),
    Job(u64, JobFacts),
    JobGone(Text, Text),
    Pod(u64, PodFacts),
    PodGone(Text, Text),
    Plan(u64, Box<PlanFacts>),
    PlanGone(Text, Text),
    Secret(u64, Text),
}

impl News {
    pub(super) fn object(&self) -> Option<(Kind, &Text)> {
        match self {
            Self::Node(_, facts) => Some((Kind::Node, &facts.name)),
            Self::Job(_, facts) => Some((Kind::Job, &facts.name)),
            Self::Pod(_, facts) => Some((Kind::Pod, &facts.name)),
            Self::Plan(_, facts) => Some((Kind::Plan, &facts.name)),
            Self::Secret(_, name) => Some((Kind::Secret, name)),
            _ => None,
        }
    }

    fn brief(&self) -> String {
        match self {
            Self::Node(_, n) => format!(
                "Node {} {} ready {} unschedulable {} {:?} {:?}",
                n.name,
                n.uid,
                n.ready,
                n.unschedulable,
                n.records.values(),
                n.ledger
            ),
            Self::Job(_, j) => {
                format!(
                    "Job {} {} {:?} recorded {} p{}",
                    j.name, j.uid, j.outcome, j.recorded, j.parallelism
                )
            }
            Self::Pod(_, p) => format!("Pod {} {:?}", p.name, p.stage),
            Self::Plan(version, p) => format!("Plan {} {} in {version}", p.name, p.uid),
            other => format!("{other:?}"),
        }
    }

    /// True when it is news indeed.
    pub(super) fn tell(self, world: &mut World) -> bool {
        match self {
            Self::Ends(kind) => world.list_ends(kind),
            Self::Node(version, facts) => world.node_seen(version, facts),
            Self::NodeGone(name, uid) => world.node_gone(&name, &uid),
            Self::Job(version, facts) => world.job_seen(version, facts),
            Self::JobGone(name, uid) => world.job_gone(&name, &uid),
            Self::Pod(version, facts) => world.pod_seen(version, facts),
            Self::PodGone(name, uid) => world.pod_gone(&name, &uid),
            Self::Plan(version, facts) => world.plan_seen(version, *facts),
            Self::PlanGone(name, uid) => world.plan_gone(&name, &uid),
            Self::Secret(version, name) => world.secret_seen(&name, version),
        }
    }
}

/// What watches have seen and not told.
#[derive(Debug, Default)]
pub(super) struct Wire {
    open: BTreeSet<Kind>,
    listed: BTreeSet<Kind>,
    queues: BTreeMap<Kind, VecDeque<News>>,
}

impl Wire {
    pub(super) fn emit(&mut self, kind: Kind, news: News) {
        if self.open.contains(&kind) {
            self.queues.entry(kind).or_default().push_back(news);
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.listed.len() == 5
    }

    /// Kinds of which something is to be told.
    pub(super) fn waiting(&self) -> Vec<Kind> {
        self.queues
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(kind, _)| *kind)
            .collect()
    }
}

impl Toy {
    pub(in super::super) fn kinds_waiting(&self) -> Vec<Kind> {
        self.wire.waiting()
    }

    pub(in super::super) fn is_listed(&self) -> bool {
        self.wire.is_ready()
    }

    /// A watch begins, or begins anew: what it had not told is lost, and all is listed.
    pub(in super::super) fn list(&mut self, kind: Kind) {
        self.note(|| format!("list of {kind:?}"));
        self.world.list_begins(kind);
        let mut queue: VecDeque<News> = match kind {
            Kind::Node => self
                .nodes
                .values()
                .map(|n| News::Node(n.version, n.it.facts.clone()))
                .collect(),
            Kind::Job => {
                let ours = self.jobs.values().filter(|job| job.it.ours);
                ours.map(|job| News::Job(job.version, job.it.facts.clone()))
                    .collect()
            }
            Kind::Pod => self
                .pods
                .values()
                .map(|p| News::Pod(p.version, p.it.facts.clone()))
                .collect(),
            Kind::Plan => self
                .plans
                .values()
                .map(|p| News::Plan(p.version, self.reads(&p.it)))
                .collect(),
            Kind::Secret => self
                .secrets
                .iter()
                .map(|(name, s)| News::Secret(s.version, name.as_str().into()))
                .collect(),
        };
        queue.push_back(News::Ends(kind));
        self.wire.open.insert(kind);
        self.wire.queues.insert(kind, queue);
    }

    /// The watch of a kind tells one thing. True when it is news.
    pub(in super::super) fn tell(&mut self, kind: Kind) -> bool {
        let Some(news) = self.wire.queues.get_mut(&kind).and_then(VecDeque::pop_front) else {
            return false;
        };
        if !matches!(news, News::Ends(_)) && self.wire.listed.contains(&kind) {
            self.note(|| format!("told: {}", news.brief()));
        }
        let ends = matches!(news, News::Ends(_));
        let shown = news.object().map(|(kind, name)| (kind, name.clone()));
        let is_news = news.tell(&mut self.world);
        if let Some((kind, name)) = shown {
            self.world.is_shown(kind, &name);
        }
        if ends {
            self.wire.listed.insert(kind);
            self.lists_next();
        }
        is_news || ends
    }

    /// Nodes are listed after Jobs, and Plans after Nodes.
    fn lists_next(&mut self) {
        let has = |wire: &Wire, kinds: &[Kind]| kinds.iter().all(|kind| wire.listed.contains(kind));
        if has(&self.wire, &[Kind::Secret, Kind::Pod, Kind::Job]) && !self.wire.open.contains(&Kind::Node) {
            self.list(Kind::Node);
        }
        if has(&self.wire, &[Kind::Node]) && !self.wire.open.contains(&Kind::Plan) {
            self.list(Kind::Plan);
        }
    }
}
