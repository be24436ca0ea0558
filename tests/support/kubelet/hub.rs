//! The kubelets of all nodes that this process plays on one API server: one thread, one watch of the pods, one of the
//! nodes, and a bounded number of writes under way. A thousand kubelets with a watch each would cost the machine more than
//! the roll-out that they are there for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use http::Method;
use k8s_openapi::api::core::v1::Taint;
use kube::Config;
use refit::clock::Clock;
use refit::rehearse::podlife::{ContainerStart, Exit, Power, Started, Write};
use tokio::sync::{mpsc, oneshot};

use super::act::Act;
use super::api::{Answer, JSON, MERGE, Requests, STRATEGIC};
use super::machine::{Health, Node};
use super::nodeset::NodeSet;
use super::pod::{Change, Pod};
use super::watch::{self, Head, News};

/// Writes that are under way at the same time: what two cores can do, with something left for the others.
const WRITES: usize = 16;
/// First and longest pause of all writes after one that the server could not do.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// All pods that are bound to a node.
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName!%3D";
const NODES: &str = "/api/v1/nodes?timeoutSeconds=3600";

/// The hubs of this process, by the API server's address.
static HUBS: LazyLock<Mutex<HashMap<String, mpsc::WeakUnboundedSender<Command>>>> =
    LazyLock::new(Mutex::default);

/// Told when something is done.
type Done = Option<oneshot::Sender<()>>;

fn tell(done: Done) {
    let _ = done.map(|done| done.send(()));
}

/// What a test wants from its nodes. An answer is given when it is done, on the API server too.
pub(super) enum Command {
    Register {
        set: NodeSet,
        done: oneshot::Sender<u64>,
    },
    /// The kubelets of a set vanish; with their nodes and pods if that is wanted.
    Leave { set: u64, remove: bool, done: Done },
    Change {
        node: String,
        change: NodeChange,
        done: oneshot::Sender<()>,
    },
    Ask {
        node: String,
        question: Box<dyn FnOnce(&Node) + Send>,
    },
    Acted {
        pod: String,
        started: Started,
        exit: Exit,
    },
}

/// What happens to a node.
pub(super) enum NodeChange {
    Power(Power),
    /// The machine starts anew.
    Boot,
    /// What the Node's conditions say from now on, whoever says it.
    Say(Health),
    KubeletVersion(String),
    /// The Node object is deleted, and the machine is gone.
    Delete,
    /// The Node object is made again, for a new machine.
    Recreate,
    Steer(BTreeMap<String, String>),
}

/// A hand on the hub of an API server.
#[derive(Clone)]
pub(super) struct Remote(mpsc::UnboundedSender<Command>);

impl Remote {
    /// The hub of that API server, which is started if there is none yet.
    pub(super) fn connect(config: Config) -> Self {
        let mut hubs = HUBS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let address = config.cluster_url.to_string();
        if let Some(commands) = hubs.get(&address).and_then(mpsc::WeakUnboundedSender::upgrade) {
            return Self(commands);
        }
        let (commands, received) = mpsc::unbounded_channel();
        hubs.insert(address, commands.downgrade());
        let own = commands.downgrade();
        std::thread::Builder::new()
            .name("fake-kubelets".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime.expect("a runtime"), Hub::run(config, received, own));
            })
            .expect("a thread");
        Self(commands)
    }

    pub(super) fn send(&self, command: Command) {
        assert!(
            self.0.send(command).is_ok(),
            "the thread of the fake kubelets has ended"
        );
    }

    /// Does something to a node, and waits until it is done.
    pub(super) async fn change(&self, node: &str, change: NodeChange) {
        let (done, answer) = oneshot::channel();
        self.send(Command::Change {
            node: node.to_owned(),
            change,
            done,
        });
        answer
            .await
            .unwrap_or_else(|_| panic!("the fake kubelets know no node {node}, or could not do it"));
    }

    /// What a node's kubelet knows.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        node: &str,
        question: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> T {
        let (tell, answer) = oneshot::channel();
        let question = Box::new(move |node: &Node| drop(tell.send(question(node))));
        self.send(Command::Ask {
            node: node.to_owned(),
            question,
        });
        answer
            .await
            .unwrap_or_else(|_| panic!("the fake kubelets know no node {node}"))
    }

    /// Off for a while, then on again with a new boot ID; NotReady in between.
    pub(super) async fn reboot(&self, node: &str, off: Duration, not_ready: Duration) {
        self.change(node, NodeChange::Power(Power::Off)).await;
        self.change(node, NodeChange::Say(Health::NotReady)).await;
        tokio::time::sleep(off).await;
        self.change(node, NodeChange::Boot).await;
        tokio::time::sleep(not_ready).await;
        self.change(node, NodeChange::Say(Health::Ready)).await;
    }
}

struct Hub {
    requests: Requests,
    clock: Clock,
    own: mpsc::WeakUnboundedSender<Command>,
    tell_pods: mpsc::UnboundedSender<News>,
    sets: HashMap<u64, Set>,
    next_set: u64,
    nodes: HashMap<String, Node>,
    pods: HashMap<String, Pod>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    queue: VecDeque<Errand>,
    writes: FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = (Errand, Answer)>>>>,
    /// No write is begun before.
    paused_until: Option<Instant>,
    pause: Duration,
    listed: HashSet<String>,
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

/// A write.
enum Errand {
    Status {
        pod: String,
    },
    Remove {
        pod: String,
    },
    Lease {
        node: String,
    },
    Register {
        node: String,
        done: Done,
    },
    /// There is such a Node: its kubelet goes on where the last one left off.
    Adopt {
        node: String,
        done: Done,
    },
    NodeStatus {
        node: String,
        done: Done,
    },
    NodeDelete {
        node: String,
        done: Done,
    },
    PodDelete {
        path: String,
    },
}

impl Hub {
    async fn run(
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
            tell_pods,
            sets: HashMap::new(),
            next_set: 0,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            timers: BinaryHeap::new(),
            queue: VecDeque::new(),
            writes: FuturesUnordered::new(),
            paused_until: None,
            pause: PAUSE.0,
            listed: HashSet::new(),
        };
        let mut open = true;
        while open || !hub.queue.is_empty() || !hub.writes.is_empty() {
            hub.timers_due();
            let wake = hub.begin_writes();
            tokio::select! {
                biased;
                command = commands.recv(), if open => match command {
                    Some(command) => hub.obey(command),
                    None => open = false,
                },
                Some((errand, answer)) = hub.writes.next(), if !hub.writes.is_empty() => hub.written(errand, answer),
                Some(news) = nodes.recv() => hub.node_news(&news),
                Some(news) = pods.recv() => hub.pod_news(&news),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    // -- what a test wants

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

    fn register(&mut self, set: NodeSet, done: oneshot::Sender<u64>) {
        if let Some(known) = set.nodes.iter().find(|spec| self.nodes.contains_key(&spec.name)) {
            eprintln!("fake kubelet: node {} is played already", known.name);
            return;
        }
        let id = self.next_set;
        self.next_set += 1;
        let now = self.clock.now();
        for (number, spec) in set.nodes.iter().enumerate() {
            self.nodes
                .insert(spec.name.clone(), Node::new(id, spec.clone(), number, now));
            self.queue.push_back(Errand::Register {
                node: spec.name.clone(),
                done: None,
            });
        }
        self.sets.insert(
            id,
            Set {
                set,
                done: Some(done),
            },
        );
        self.tell_if_registered(id);
    }

    fn tell_if_registered(&mut self, id: u64) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        if set.done.is_none() {
            return;
        }
        let until_schedulable = set.set.until_schedulable;
        let there = |node: &Node| {
            if until_schedulable {
                node.is_schedulable()
            } else {
                node.uid.is_some()
            }
        };
        let names = set.set.nodes.iter().map(|spec| &spec.name);
        if names
            .into_iter()
            .all(|name| self.nodes.get(name).is_some_and(there))
        {
            let _ = set.done.take().map(|done| done.send(id));
        }
    }

    fn leave(&mut self, id: u64, remove: bool, done: Done) {
        self.sets.remove(&id);
        let names: Vec<String> = self
            .nodes
            .values()
            .filter(|node| node.set == id)
            .map(|node| node.spec.name.clone())
            .collect();
        let mut waiting = Vec::new();
        for name in names {
            let Some(node) = self.nodes.remove(&name) else {
                continue;
            };
            for uid in node.pods {
                if let Some(pod) = self.pods.remove(&uid)
                    && remove
                {
                    self.queue.push_back(Errand::PodDelete { path: pod.path() });
                }
            }
            if remove {
                let (tell, gone) = oneshot::channel();
                waiting.push(gone);
                self.queue.push_back(Errand::NodeDelete {
                    node: name,
                    done: Some(tell),
                });
            }
        }
        tokio::task::spawn_local(async move {
            for gone in waiting {
                let _ = gone.await;
            }
            tell(done);
        });
    }

    fn change(&mut self, name: &str, change: NodeChange, done: oneshot::Sender<()>) {
        let now = self.clock.now();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let mut done = Some(done);
        match change {
            NodeChange::Power(power) => node.machine.power = power,
            NodeChange::Boot => {
                node.boot(now);
                self.queue.push_front(Errand::NodeStatus {
                    node: name.to_owned(),
                    done: done.take(),
                });
            }
            NodeChange::Say(health) => {
                node.say(health, now);
                self.queue.push_front(Errand::NodeStatus {
                    node: name.to_owned(),
                    done: done.take(),
                });
            }
            NodeChange::KubeletVersion(version) => {
                node.spec.kubelet_version = version;
                self.queue.push_front(Errand::NodeStatus {
                    node: name.to_owned(),
                    done: done.take(),
                });
            }
            NodeChange::Delete => {
                node.machine.power = Power::Off;
                node.leased = false;
                self.queue.push_front(Errand::NodeDelete {
                    node: name.to_owned(),
                    done: done.take(),
                });
            }
            NodeChange::Recreate => {
                node.uid = None;
                node.leased = false;
                node.say(Health::Ready, now);
                node.boot(now);
                self.queue.push_front(Errand::Register {
                    node: name.to_owned(),
                    done: done.take(),
                });
            }
            NodeChange::Steer(overrides) => node.overrides = overrides,
        }
        self.steer_pods(name);
        tell(done);
    }

    /// The machine or the steering has changed: all pods are looked at.
    fn steer_pods(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let uids: Vec<String> = node.pods.iter().cloned().collect();
        if let Some(set) = self.sets.get(&node.set) {
            for uid in &uids {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.steer(node, &set.set);
                }
            }
        }
        uids.iter().for_each(|uid| self.step(uid));
    }

    // -- what the API server tells

    fn node_news(&mut self, news: &News) {
        let Some((head, gone)) = news.head() else { return };
        let Some(node) = self.nodes.get_mut(head.metadata.name.as_ref()) else {
            return;
        };
        if gone {
            if node.uid.as_deref() == Some(head.metadata.uid.as_ref()) {
                node.uid = None;
                node.leased = false;
            }
            return;
        }
        let steering = |annotations: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            let prefix = refit::rehearse::podlife::STEERING_PREFIX;
            let ours = annotations.iter().filter(|(key, _)| key.starts_with(prefix));
            ours.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let annotations = steering(&head.metadata.annotations);
        let steered = node.annotations != annotations;
        node.annotations = annotations;
        node.machine.labels = head.metadata.labels;
        let given_up = |taints: &[Taint]| {
            taints
                .iter()
                .any(|taint| taint.key == "node.kubernetes.io/unreachable")
        };
        let was_given_up = given_up(&node.machine.taints);
        node.machine.taints = head.spec.taints;
        let (id, name) = (node.set, node.spec.name.clone());
        // The node controller had not heard of the kubelet for too long, as while the API server was down. It is there.
        let lives = node.machine.power != Power::Off && node.health() != Health::Unknown;
        if lives && !was_given_up && given_up(&node.machine.taints) {
            self.queue.push_back(Errand::NodeStatus { node: name.clone(), done: None });
        }
        if steered {
            self.steer_pods(&name);
        }
        self.tell_if_registered(id);
    }

    fn pod_news(&mut self, news: &News) {
        match news {
            News::Listing => self.listed.clear(),
            News::Listed => {
                let listed = std::mem::take(&mut self.listed);
                let lost: Vec<String> = self
                    .pods
                    .keys()
                    .filter(|uid| !listed.contains(*uid))
                    .cloned()
                    .collect();
                lost.iter().for_each(|uid| self.forget(uid));
            }
            News::Item(_) | News::Event(_) => self.pod_told(news),
        }
    }

    fn pod_told(&mut self, news: &News) {
        let Some((head, gone)) = news.head() else { return };
        let Some(node) = head
            .spec
            .node_name
            .as_deref()
            .and_then(|name| self.nodes.get_mut(name))
        else {
            return;
        };
        let uid = head.metadata.uid.as_ref();
        if gone {
            let uid = uid.to_owned();
            self.forget(&uid);
            return;
        }
        if matches!(news, News::Item(_)) {
            self.listed.insert(uid.to_owned());
        }
        let Some(set) = self.sets.get(&node.set) else {
            return;
        };
        let change = if let Some(pod) = self.pods.get_mut(uid) {
            let change = pod.update(&head);
            if change == Change::Steering {
                pod.steer(node, &set.set);
            }
            change
        } else {
            let Some(object) = news.object() else { return };
            node.pods.insert(uid.to_owned());
            self.pods.insert(uid.to_owned(), Pod::new(object, node, &set.set));
            Change::Life
        };
        if change != Change::Nothing {
            let uid = uid.to_owned();
            self.step(&uid);
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid)
            && let Some(node) = self.nodes.get_mut(&pod.node)
        {
            node.pods.remove(uid);
        }
    }

    // -- the pods' lives

    /// Looks at a pod, unless a write of it is under way.
    fn step(&mut self, uid: &str) {
        let now = self.clock.now();
        let Some(pod) = self.pods.get_mut(uid).filter(|pod| !pod.busy) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&pod.node) else {
            return;
        };
        let step = pod.life.step(&pod.object, &node.machine, &pod.behaviour, now);
        if !step.started.is_empty() && !std::mem::replace(&mut pod.counted, true) {
            let owner = pod.owner().unwrap_or_default().to_owned();
            *node.pods_of_owners.entry(owner).or_default() += 1;
        }
        for started in &step.started {
            *node.runs.entry(started.container.clone()).or_default() += 1;
        }
        if step.reboots && !node.rebooting {
            node.rebooting = true;
            let (own, name) = (self.own.clone(), node.spec.name.clone());
            tokio::task::spawn_local(async move {
                if let Some(commands) = own.upgrade() {
                    Remote(commands)
                        .reboot(&name, Duration::from_secs(1), Duration::ZERO)
                        .await;
                }
            });
        }
        match step.write {
            Some(Write::Status(_)) => {
                pod.busy = true;
                self.queue.push_back(Errand::Status { pod: uid.to_owned() });
            }
            Some(Write::Remove) => {
                pod.busy = true;
                self.queue.push_back(Errand::Remove { pod: uid.to_owned() });
            }
            None => {
                if let Some(at) = step.wake {
                    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    self.wake_pod(uid, Instant::now() + wait);
                }
            }
        }
        self.act(uid);
    }

    fn wake_pod(&mut self, uid: &str, at: Instant) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.wake = Some(at);
            self.timers.push(Reverse((at, Timer::Pod(uid.to_owned()))));
        }
    }

    /// Starts what runs and has a real effect, and ends what does not run any more.
    fn act(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let Some(set) = self
            .nodes
            .get(&pod.node)
            .and_then(|node| self.sets.get(&node.set))
        else {
            return;
        };
        let wanted: Vec<Started> = pod
            .life
            .running()
            .filter(|running| pod.behaviour.is_acted(&pod.object, &running.container))
            .collect();
        pod.acts.retain(|(started, act)| {
            let runs = wanted.contains(started);
            if !runs {
                act.abort();
            }
            runs
        });
        for started in wanted {
            if pod.acts.iter().any(|(known, _)| *known == started) {
                continue;
            }
            let mut object = pod.object.clone();
            object.status = Some(pod.life.status().clone());
            let Some(start) = ContainerStart::render(&object, &started.container, started.attempt) else {
                continue;
            };
            let running = set.set.act.run(Act {
                node: pod.node.clone(),
                namespace: pod.namespace().to_owned(),
                pod: pod.name().to_owned(),
                pod_uid: uid.to_owned(),
                start,
                client: self.requests.client.clone(),
            });
            let (own, uid, ended) = (self.own.clone(), uid.to_owned(), started.clone());
            let task = tokio::task::spawn_local(async move {
                let exit = running.await;
                if let Some(commands) = own.upgrade() {
                    let _ = commands.send(Command::Acted {
                        pod: uid,
                        started: ended,
                        exit,
                    });
                }
            });
            pod.acts.push((started, task.abort_handle()));
        }
    }

    fn timers_due(&mut self) {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
        }
        while let Some(Reverse((at, _))) = self.timers.peek() {
            if *at > now {
                return;
            }
            let Some(Reverse((at, timer))) = self.timers.pop() else {
                return;
            };
            match timer {
                Timer::Pod(uid) => {
                    if self.pods.get(&uid).is_some_and(|pod| pod.wake == Some(at)) {
                        self.step(&uid);
                    }
                }
                Timer::Lease(name) => {
                    let Some(node) = self.nodes.get(&name) else {
                        continue;
                    };
                    let interval = self
                        .sets
                        .get(&node.set)
                        .map_or(Duration::from_secs(20), |set| set.set.lease_interval);
                    if node.uid.is_some() && node.machine.power != Power::Off {
                        self.queue.push_back(Errand::Lease { node: name.clone() });
                    }
                    self.timers.push(Reverse((at + interval, Timer::Lease(name))));
                }
            }
        }
    }

    // -- writes

    /// Begins as many writes as may be under way; when to look again.
    fn begin_writes(&mut self) -> Instant {
        let idle = Instant::now() + Duration::from_secs(60);
        if self.paused_until.is_none() {
            while self.writes.len() < WRITES {
                let Some(errand) = self.queue.pop_front() else {
                    break;
                };
                self.begin(errand);
            }
        }
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [timer, self.paused_until]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(idle)
    }

    /// Begins a write, with what is to be written now.
    fn begin(&mut self, errand: Errand) {
        let now = self.clock.now();
        let node = |name: &str| self.nodes.get(name);
        let prepared = match &errand {
            Errand::Status { pod } => self.pods.get(pod).map(|pod| {
                (
                    Method::PATCH,
                    format!("{}/status", pod.path()),
                    STRATEGIC,
                    pod.status_patch(),
                )
            }),
            Errand::Remove { pod } => self
                .pods
                .get(pod)
                .map(|pod| (Method::DELETE, pod.path(), JSON, pod.removal())),
            Errand::Lease { node: name } => node(name).map(|node| {
                let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
                if node.leased {
                    (
                        Method::PATCH,
                        format!("{leases}/{name}"),
                        MERGE,
                        Node::renewal(now),
                    )
                } else {
                    (Method::POST, leases.to_owned(), JSON, node.lease(now))
                }
            }),
            Errand::Register { node: name, .. } => node(name).map(|node| {
                let object = node.spec.object(&node.status(now)).to_string().into_bytes();
                (Method::POST, "/api/v1/nodes".to_owned(), JSON, object)
            }),
            Errand::Adopt { node: name, .. } => {
                Some((Method::GET, format!("/api/v1/nodes/{name}"), JSON, Vec::new()))
            }
            Errand::NodeStatus { node: name, .. } => {
                node(name).filter(|node| node.uid.is_some()).map(|node| {
                    (
                        Method::PATCH,
                        format!("/api/v1/nodes/{name}/status"),
                        STRATEGIC,
                        node.status_patch(now),
                    )
                })
            }
            Errand::NodeDelete { node: name, .. } => {
                Some((Method::DELETE, format!("/api/v1/nodes/{name}"), JSON, Vec::new()))
            }
            Errand::PodDelete { path } => {
                let body = br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;
                Some((Method::DELETE, path.clone(), JSON, body.to_vec()))
            }
        };
        let Some((method, path, content, body)) = prepared else {
            return;
        };
        let requests = self.requests.clone();
        self.writes.push(Box::pin(async move {
            let answer = requests.write(method, &path, content, body).await;
            (errand, answer)
        }));
    }

    fn written(&mut self, errand: Errand, answer: Answer) {
        match answer {
            Answer::Later(why) => {
                if self.paused_until.is_none() {
                    eprintln!("fake kubelet: {why}");
                    self.paused_until = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(PAUSE.1);
                }
                self.queue.push_front(errand);
                return;
            }
            Answer::Refused(ref why) => eprintln!("fake kubelet: {why}"),
            _ => self.pause = PAUSE.0,
        }
        match errand {
            Errand::Status { pod } | Errand::Remove { pod } => match answer {
                Answer::Done(_) => {
                    if let Some(known) = self.pods.get_mut(&pod) {
                        known.busy = false;
                    }
                    self.step(&pod);
                }
                // What is gone stays busy: its end is told by the watch.
                _ => {}
            },
            Errand::Lease { node } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.leased = matches!(answer, Answer::Done(_) | Answer::Exists);
                }
            }
            Errand::Register { node, done } if matches!(answer, Answer::Exists) => {
                self.queue.push_front(Errand::Adopt { node, done });
            }
            Errand::Register { node, done } => {
                self.registered(&node, &answer);
                tell(done);
            }
            Errand::Adopt { node, done } => {
                self.adopted(&node, &answer);
                self.queue.push_front(Errand::NodeStatus { node, done });
            }
            Errand::NodeStatus { done, .. } | Errand::NodeDelete { done, .. } => tell(done),
            Errand::PodDelete { .. } => {}
        }
    }

    fn registered(&mut self, name: &str, answer: &Answer) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let Answer::Done(object) = answer else { return };
        let Ok(head) = serde_json::from_slice::<Head<'_>>(object) else {
            return;
        };
        node.uid = Some(head.metadata.uid.to_string());
        node.machine.labels = head.metadata.labels;
        node.machine.taints = head.spec.taints;
        let (id, number) = (node.set, node.number);
        if let Some(set) = self.sets.get(&id) {
            // The Leases of a set are renewed evenly over the interval.
            let share = u32::try_from(set.set.nodes.len()).unwrap_or(u32::MAX).max(1);
            let after = set.set.lease_interval / share * u32::try_from(number + 1).unwrap_or(u32::MAX);
            self.timers
                .push(Reverse((Instant::now() + after, Timer::Lease(name.to_owned()))));
        }
        self.tell_if_registered(id);
    }

    fn adopted(&mut self, name: &str, answer: &Answer) {
        self.registered(name, answer);
        let (Some(node), Answer::Done(object)) = (self.nodes.get_mut(name), answer) else {
            return;
        };
        let Ok(found) = serde_json::from_slice::<k8s_openapi::api::core::v1::Node>(object) else {
            return;
        };
        if let Some(info) = found
            .status
            .and_then(|status| status.node_info)
            .filter(|info| !info.boot_id.is_empty())
        {
            node.machine.boot_id = info.boot_id;
        }
        let (requests, tell) = (self.requests.clone(), self.tell_pods.clone());
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}");
        tokio::task::spawn_local(async move {
            if let Err(error) = watch::tell_list(&requests, &path, &tell).await {
                eprintln!("fake kubelet: {error:#}");
            }
        });
    }
}
