//! Writes of the kubelets: in order, a bounded number at a time, with pauses after errors.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Hub;
use crate::testenv::kubelet::api::{Answer, MERGE, Request, STRATEGIC};
use crate::testenv::kubelet::machine::Node;
use crate::testenv::kubelet::remote::{Done, notify};
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;

/// Maximum number of writes in flight, which leaves two cores time for other work.
const WRITES: usize = 16;
/// First and longest pause of all writes after a temporary error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// Deletion of a pod without its kubelet.
const AT_ONCE: &[u8] = br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;

pub(super) enum WriteRequest {
    Status(String),
    Remove(String),
    Lease(String),
    Register(String, Done),
    /// The Node exists: its kubelet continues from it.
    Adopt(String, Done),
    NodeStatus(String, Done),
    NodeDelete(String, Done),
    PodDelete(String),
}

#[derive(Default)]
pub(super) struct Writes {
    queue: VecDeque<WriteRequest>,
    pub(super) under_way: FuturesUnordered<LocalBoxFuture<'static, (WriteRequest, Answer)>>,
    /// No write starts before.
    paused_until: Option<Instant>,
    /// The last pause.
    pause: Duration,
}

impl Writes {
    pub(super) fn are_done(&self) -> bool {
        self.queue.is_empty() && self.under_way.is_empty()
    }

    /// Queues a write before all others.
    pub(super) fn push_front(&mut self, write: WriteRequest) {
        self.queue.push_front(write);
    }

    /// Queues a write.
    pub(super) fn push_back(&mut self, write: WriteRequest) {
        self.queue.push_back(write);
    }

    /// Pauses all writes after a temporary error.
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
    /// Starts writes up to the maximum. Returns the end of a pause.
    pub(super) fn begin_writes(&mut self) -> Instant {
        let now = Instant::now();
        self.writes.paused_until = self.writes.paused_until.filter(|until| *until > now);
        while self.writes.paused_until.is_none() && self.writes.under_way.len() < WRITES {
            let Some(write) = self.writes.queue.pop_front() else {
                break;
            };
            self.begin(write);
        }
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let soonest = [timer, self.writes.paused_until].into_iter().flatten().min();
        soonest.unwrap_or(now + Duration::from_secs(60))
    }

    /// Starts a write with the current content, unless its object is gone.
    fn begin(&mut self, write: WriteRequest) {
        if let Some(request) = self.request(&write) {
            let requests = self.requests.clone();
            let write = async move { (write, requests.write(request).await) };
            self.writes.under_way.push(Box::pin(write));
        }
    }

    fn request(&self, write: &WriteRequest) -> Option<Request> {
        let now = self.clock.now();
        Some(match write {
            WriteRequest::Status(uid) => {
                let pod = self.pods.get(uid)?;
                Request::patch(format!("{}/status", pod.path()), STRATEGIC, pod.status_patch())
            }
            WriteRequest::Remove(uid) => {
                let pod = self.pods.get(uid)?;
                Request::delete(pod.path(), pod.removal())
            }
            WriteRequest::PodDelete(path) => Request::delete(path.clone(), AT_ONCE.to_vec()),
            WriteRequest::Lease(name) => {
                let node = self.nodes.get(name)?;
                if node.leased {
                    Request::patch(format!("{LEASES}/{name}"), MERGE, Node::renewal(now))
                } else {
                    Request::post(LEASES.to_owned(), node.lease(now))
                }
            }
            WriteRequest::Register(name, _) => {
                let node = self.nodes.get(name)?;
                Request::post("/api/v1/nodes".to_owned(), node.object(now))
            }
            WriteRequest::Adopt(name, _) => Request::get(format!("/api/v1/nodes/{name}")),
            WriteRequest::NodeStatus(name, _) => {
                let node = self.nodes.get(name).filter(|node| node.uid.is_some())?;
                Request::patch(
                    format!("/api/v1/nodes/{name}/status"),
                    STRATEGIC,
                    node.status_patch(now),
                )
            }
            WriteRequest::NodeDelete(name, _) => Request::delete(format!("/api/v1/nodes/{name}"), Vec::new()),
        })
    }

    pub(super) fn written(&mut self, write: WriteRequest, answer: &Answer) {
        match answer {
            Answer::Later(why) => {
                self.writes.hold(why);
                return self.writes.push_front(write);
            }
            Answer::Refused(why) => eprintln!("fake kubelet: {why}"),
            Answer::Done(_) | Answer::Gone | Answer::Exists => self.writes.pause = Duration::ZERO,
        }
        match write {
            WriteRequest::Status(uid) => {
                // Stays busy until the watch reports the deletion.
                if let (Answer::Done(_), Some(pod)) = (answer, self.pods.get_mut(&uid)) {
                    pod.busy = false;
                    self.step(&uid);
                }
            }
            // Finalizers may keep the object, but the kubelet is done with it.
            WriteRequest::Remove(_) | WriteRequest::PodDelete(_) => {}
            WriteRequest::Lease(name) => {
                if let Some(node) = self.nodes.get_mut(&name) {
                    node.leased = matches!(answer, Answer::Done(_) | Answer::Exists);
                }
            }
            WriteRequest::Register(name, done) if matches!(answer, Answer::Exists) => {
                self.writes.push_front(WriteRequest::Adopt(name, done));
            }
            WriteRequest::Register(name, done) => {
                self.registered(&name, answer);
                notify(done);
            }
            WriteRequest::Adopt(name, done) => {
                self.adopted(&name, answer);
                self.writes.push_front(WriteRequest::NodeStatus(name, done));
            }
            WriteRequest::NodeStatus(_, done) | WriteRequest::NodeDelete(_, done) => notify(done),
        }
    }
}
