//! What the kubelets write: in turn, a bounded number at a time, and none while the server cannot.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Hub;
use crate::support::kubelet::api::{Answer, MERGE, Request, STRATEGIC};
use crate::support::kubelet::machine::Node;
use crate::support::kubelet::remote::{Done, tell};
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;

/// Writes that are under way at the same time: what two cores can do, with something left for the others.
const WRITES: usize = 16;
/// First and longest pause of all writes after one that the server could not do.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// Deletion of a pod whose kubelet will not end it.
const AT_ONCE: &[u8] = br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;

/// A write.
pub(super) enum Errand {
    Status(String),
    Remove(String),
    Lease(String),
    Register(String, Done),
    /// There is such a Node: its kubelet goes on where the last one left off.
    Adopt(String, Done),
    NodeStatus(String, Done),
    NodeDelete(String, Done),
    PodDelete(String),
}

#[derive(Default)]
pub(super) struct Writes {
    queue: VecDeque<Errand>,
    pub(super) under_way: FuturesUnordered<LocalBoxFuture<'static, (Errand, Answer)>>,
    /// No write is begun before.
    paused_until: Option<Instant>,
    /// How long the last pause was.
    pause: Duration,
}

impl Writes {
    pub(super) fn are_done(&self) -> bool {
        self.queue.is_empty() && self.under_way.is_empty()
    }

    /// To be written before all else.
    pub(super) fn first(&mut self, errand: Errand) {
        self.queue.push_front(errand);
    }

    /// To be written when all before it has been.
    pub(super) fn last(&mut self, errand: Errand) {
        self.queue.push_back(errand);
    }

    /// The server could not: nothing is begun for a while.
    fn hold(&mut self, why: &str) {
        if self.paused_until.is_none() {
            if self.pause.is_zero() {
                eprintln!("fake kubelet: {why}");
            }
            self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
            self.paused_until = Some(Instant::now() + self.pause);
        }
    }
}

impl Hub {
    /// Begins as many writes as may be under way; when to look again.
    pub(super) fn begin_writes(&mut self) -> Instant {
        let now = Instant::now();
        self.writes.paused_until = self.writes.paused_until.filter(|until| *until > now);
        while self.writes.paused_until.is_none() && self.writes.under_way.len() < WRITES {
            let Some(errand) = self.writes.queue.pop_front() else {
                break;
            };
            self.begin(errand);
        }
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let soonest = [timer, self.writes.paused_until].into_iter().flatten().min();
        soonest.unwrap_or(now + Duration::from_secs(60))
    }

    /// Begins a write, with what is to be written now. One whose object has gone meanwhile is dropped.
    fn begin(&mut self, errand: Errand) {
        if let Some(request) = self.request(&errand) {
            let requests = self.requests.clone();
            let write = async move { (errand, requests.write(request).await) };
            self.writes.under_way.push(Box::pin(write));
        }
    }

    fn request(&self, errand: &Errand) -> Option<Request> {
        let now = self.clock.now();
        Some(match errand {
            Errand::Status(uid) => {
                let pod = self.pods.get(uid)?;
                Request::patch(format!("{}/status", pod.path()), STRATEGIC, pod.status_patch())
            }
            Errand::Remove(uid) => {
                let pod = self.pods.get(uid)?;
                Request::delete(pod.path(), pod.removal())
            }
            Errand::PodDelete(path) => Request::delete(path.clone(), AT_ONCE.to_vec()),
            Errand::Lease(name) => {
                let node = self.nodes.get(name)?;
                if node.leased {
                    Request::patch(format!("{LEASES}/{name}"), MERGE, Node::renewal(now))
                } else {
                    Request::post(LEASES.to_owned(), node.lease(now))
                }
            }
            Errand::Register(name, _) => {
                let node = self.nodes.get(name)?;
                Request::post("/api/v1/nodes".to_owned(), node.object(now))
            }
            Errand::Adopt(name, _) => Request::get(format!("/api/v1/nodes/{name}")),
            Errand::NodeStatus(name, _) => {
                let node = self.nodes.get(name).filter(|node| node.uid.is_some())?;
                Request::patch(
                    format!("/api/v1/nodes/{name}/status"),
                    STRATEGIC,
                    node.status_patch(now),
                )
            }
            Errand::NodeDelete(name, _) => Request::delete(format!("/api/v1/nodes/{name}"), Vec::new()),
        })
    }

    pub(super) fn written(&mut self, errand: Errand, answer: &Answer) {
        match answer {
            Answer::Later(why) => {
                self.writes.hold(why);
                return self.writes.first(errand);
            }
            Answer::Refused(why) => eprintln!("fake kubelet: {why}"),
            Answer::Done(_) | Answer::Gone | Answer::Exists => self.writes.pause = Duration::ZERO,
        }
        match errand {
            Errand::Status(uid) => {
                // A pod that is gone stays busy until the watch says so, too.
                if let (Answer::Done(_), Some(pod)) = (answer, self.pods.get_mut(&uid)) {
                    pod.busy = false;
                    self.step(&uid);
                }
            }
            // What is left of it, if there is a finalizer, is not the kubelet's business.
            Errand::Remove(_) | Errand::PodDelete(_) => {}
            Errand::Lease(name) => {
                if let Some(node) = self.nodes.get_mut(&name) {
                    node.leased = matches!(answer, Answer::Done(_) | Answer::Exists);
                }
            }
            Errand::Register(name, done) if matches!(answer, Answer::Exists) => {
                self.writes.first(Errand::Adopt(name, done));
            }
            Errand::Register(name, done) => {
                self.registered(&name, answer);
                tell(done);
            }
            Errand::Adopt(name, done) => {
                self.adopted(&name, answer);
                self.writes.first(Errand::NodeStatus(name, done));
            }
            Errand::NodeStatus(_, done) | Errand::NodeDelete(_, done) => tell(done),
        }
    }
}
