//! The kubelets of all nodes that this process plays on one API server: one thread, one watch of the pods, one of the
//! nodes, and a bounded number of writes under way. A thousand kubelets with a watch each would cost the machine more than
//! the roll-out that they are there for.

mod nodes;
mod pods;
mod writes;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

use futures::stream::StreamExt as _;
use kube::Config;
use refit::clock::Clock;
use tokio::sync::{mpsc, oneshot};

use super::api::Requests;
use super::machine::Node;
use super::nodeset::NodeSet;
use super::pod::Pod;
use super::remote::Command;
use super::watch::{self, News};
use writes::{Errand, Writes};

/// All pods that are bound to a node.
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName!%3D";
/// How long it may take to write what is left when nobody listens any more. The API server may be gone, too.
const LAST_WRITES: Duration = Duration::from_secs(10);
const NODES: &str = "/api/v1/nodes?timeoutSeconds=3600";

pub(super) struct Hub {
    requests: Requests,
    clock: Clock,
    own: mpsc::WeakUnboundedSender<Command>,
    sets: HashMap<u64, Set>,
    next_set: u64,
    nodes: HashMap<String, Node>,
    pods: HashMap<String, Pod>,
    /// UIDs of the pods of a list that is being told.
    listed: HashSet<String>,
    tell_pods: mpsc::UnboundedSender<News>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    writes: Writes,
}

struct Set {
    set: NodeSet,
    /// Told when all nodes are there.
    done: Option<oneshot::Sender<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Pod(String),
    Lease(String),
}

impl Hub {
    pub(super) async fn run(
        config: Config,
        mut commands: mpsc::UnboundedReceiver<Command>,
        own: mpsc::WeakUnboundedSender<Command>,
    ) {
        let requests = Requests::new(config).unwrap_or_else(|error| panic!("fake kubelet: {error:#}"));
        let (tell_pods, mut pods) = mpsc::unbounded_channel();
        let (tell_nodes, mut nodes) = mpsc::unbounded_channel();
        tokio::task::spawn_local(watch::follow(requests.clone(), NODES, tell_nodes));
        tokio::task::spawn_local(watch::follow(requests.clone(), PODS, tell_pods.clone()));
        let mut hub = Self {
            requests,
            clock: Clock::system(),
            own,
            sets: HashMap::new(),
            next_set: 0,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            listed: HashSet::new(),
            tell_pods,
            timers: BinaryHeap::new(),
            writes: Writes::default(),
        };
        let mut closed: Option<Instant> = None;
        while !closed.is_some_and(|closed| hub.writes.are_done() || closed.elapsed() > LAST_WRITES) {
            hub.timers_due();
            let wake = hub.begin_writes();
            tokio::select! {
                biased;
                command = commands.recv(), if closed.is_none() => match command {
                    Some(command) => hub.obey(command),
                    None => closed = Some(Instant::now()),
                },
                Some((errand, answer)) = hub.writes.under_way.next() => hub.written(errand, &answer),
                Some(news) = nodes.recv() => hub.node_news(&news),
                Some(news) = pods.recv() => hub.pod_news(&news),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Register { set, done } => self.register(set, done),
            Command::Leave { set, remove, done } => self.leave(set, remove, done),
            Command::Change { node, change, done } => self.change(&node, change, done),
            Command::Ask { node, question } => {
                if let Some(node) = self.nodes.get(&node) {
                    question(node);
                }
            }
            Command::Acted { pod, started, exit } => {
                if let Some(known) = self.pods.get_mut(&pod) {
                    known.life.report(started, exit);
                    self.step(&pod);
                }
            }
        }
    }

    /// Does what has become due.
    fn timers_due(&mut self) {
        let now = Instant::now();
        while self.timers.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((at, timer))) = self.timers.pop() else {
                return;
            };
            match timer {
                Timer::Pod(uid) => {
                    if self.pods.get(&uid).is_some_and(|pod| pod.wake == Some(at)) {
                        self.step(&uid);
                    }
                }
                Timer::Lease(name) => self.lease_due(name, at),
            }
        }
    }
}
