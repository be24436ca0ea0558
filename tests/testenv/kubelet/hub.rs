//! All simulated kubelets of one API server: a thread, a watch of pods, a watch of Nodes, and a bounded number of writes
//! in flight. A thousand kubelets with a watch each would cost more than the roll-outs under test.

mod nodes;
mod pods;
mod writes;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

use futures::stream::StreamExt as _;
use kube::Config;
use refit_cluster::clock::Clock;
use tokio::sync::{mpsc, oneshot};

use super::api::Requests;
use super::machine::Node;
use super::nodeset::NodeSet;
use super::pod::Pod;
use super::remote::Command;
use super::watch::{self, WatchEvent};
use writes::{WriteRequest, Writes};

/// All bound pods.
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName!%3D";
/// Maximum time of the last writes. The API server may be down, too.
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
    /// UIDs of the pods of the current list.
    listed: HashSet<String>,
    pod_events: mpsc::UnboundedSender<WatchEvent>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    writes: Writes,
}

struct Set {
    set: NodeSet,
    /// Notified when all nodes exist.
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
        let (pod_events, mut pods) = mpsc::unbounded_channel();
        let (tell_nodes, mut nodes) = mpsc::unbounded_channel();
        tokio::task::spawn_local(watch::follow(requests.clone(), NODES, tell_nodes));
        tokio::task::spawn_local(watch::follow(requests.clone(), PODS, pod_events.clone()));
        let mut hub = Self {
            requests,
            clock: Clock::system(),
            own,
            sets: HashMap::new(),
            next_set: 0,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            listed: HashSet::new(),
            pod_events,
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
                    Some(command) => hub.handle_command(command),
                    None => closed = Some(Instant::now()),
                },
                Some((write, answer)) = hub.writes.under_way.next() => hub.written(write, &answer),
                Some(event) = nodes.recv() => hub.handle_node_event(&event),
                Some(event) = pods.recv() => hub.handle_pod_event(&event),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Register { set, done } => self.register(set, done),
            Command::Leave { set, remove, done } => self.leave(set, remove, done),
            Command::Change { node, change, done } => self.change(&node, change, done),
            Command::Read { node, read } => {
                if let Some(node) = self.nodes.get(&node) {
                    read(node);
                }
            }
            Command::Acted { pod, started, exit } => {
                if let Some(known) = self.pods.get_mut(&pod) {
                    known.lifecycle.report_exit(started, exit);
                    self.step(&pod);
                }
            }
        }
    }

    /// Runs the timers that are due.
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
