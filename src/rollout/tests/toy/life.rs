//! What the cluster does by itself: Job controller, scheduler, kubelets, TTL and garbage collection.

use jiff::SignedDuration;

use super::objects::{Cordon, ToyPod};
use super::{Toy, Who};
use crate::rollout::{Outcome, PodFacts, Stage};

/// One thing that the cluster may do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Move {
    /// The Job controller makes a pod.
    MakePod(String),
    /// The scheduler binds a pod.
    Bind(String),
    /// The kubelet goes on with a pod.
    Go(String),
    /// The Job controller sees that a Job has ended, or is about to.
    EndJob(String),
    /// A pod that is to go is gone.
    RemovePod(String),
    /// The TTL of a Job is over.
    Ttl(String),
    /// The owner of a Job is gone.
    Collect(String),
    /// The owner of a pod that reboots a node is gone.
    CollectPod(String),
    /// A node reboots that was asked to.
    Reboot(String),
    /// The kubelet of a node is back after a boot.
    Return(String),
}

impl Toy {
    /// All that may happen next.
    pub(in super::super) fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (name, job) in &self.jobs {
            let facts = &job.it.facts;
            if job.it.ours && !self.plans.values().any(|plan| plan.it.uid == facts.plan_uid) {
                moves.push(Move::Collect(name.clone()));
            }
            if let (Some(ended), Some(ttl)) = (facts.outcome.ended(), job.it.ttl)
                && ended.checked_add(SignedDuration::from_secs(ttl)).unwrap() <= self.now
            {
                moves.push(Move::Ttl(name.clone()));
            }
            if facts.outcome.ended().is_some() || !job.it.ours {
                continue;
            }
            let pods: Vec<_> = self
                .pods
                .values()
                .filter(|pod| pod.it.facts.job_uid == facts.uid)
                .collect();
            let alive = pods.iter().any(|pod| !pod.it.has_ended());
            let succeeded = pods.iter().any(|pod| pod.it.succeeded == Some(true));
            let failing = matches!(facts.outcome, Outcome::Failing { .. });
            let over = facts.failures > facts.backoff_limit;
            if !failing && (succeeded || over) || failing && !alive {
                moves.push(Move::EndJob(name.clone()));
            } else if !alive && !failing && facts.parallelism > 0 {
                moves.push(Move::MakePod(name.clone()));
            }
        }
        for (name, node) in &self.nodes {
            if node.it.is_away {
                moves.push(Move::Return(name.clone()));
            } else if node.it.goes_down {
                moves.push(Move::Reboot(name.clone()));
            }
        }
        for (name, pod) in &self.pods {
            let node = self.nodes.get(&pod.it.target);
            let runs = node.is_some_and(|node| node.it.facts.ready && !node.it.is_away);
            let owned = self.plans.values().any(|plan| plan.it.uid == pod.it.plan_uid);
            if pod.it.facts.reboot.is_some() && !owned && !pod.it.terminating {
                moves.push(Move::CollectPod(name.clone()));
            }
            if pod.it.terminating && (runs || node.is_none() || !pod.it.is_at_work()) {
                moves.push(Move::RemovePod(name.clone()));
            } else if pod.it.terminating || pod.it.has_ended() {
            } else if node.is_none() && pod.it.facts.node.is_some() {
                moves.push(Move::RemovePod(name.clone())); // by the pod garbage collector
            } else if pod.it.facts.stage == Stage::Unbound {
                // The pods of a Plan keep off each other's hosts.
                let other = self.pods.values().any(|other| {
                    other.it.is_at_work()
                        && other.it.target == pod.it.target
                        && other.it.facts.plan == pod.it.facts.plan
                });
                if runs && !other {
                    moves.push(Move::Bind(name.clone()));
                }
            } else if runs && !pod.it.sleeps && !self.waits(&pod.it) {
                moves.push(Move::Go(name.clone()));
            }
        }
        moves
    }

    pub(in super::super) fn play(&mut self, next: &Move) {
        self.note(|| format!("{next:?}"));
        match next {
            Move::MakePod(job) => self.make_pod(job),
            Move::Bind(pod) => self.change_pod(pod, |pod| {
                pod.facts.node = Some(pod.target.as_str().into());
                pod.facts.stage = Stage::Starting;
            }),
            Move::Go(pod) if self.pods[pod].it.facts.reboot.is_some() => self.reboot_pod_goes_on(pod),
            Move::Go(pod) => self.pod_goes_on(pod),
            Move::EndJob(job) => self.job_ends(job),
            Move::RemovePod(pod) => {
                let job = self.pods[pod].it.facts.job_uid.clone();
                let lost = !self.pods[pod].it.has_ended();
                self.pod_goes(pod);
                if lost {
                    self.job_counts_a_failure(&job);
                }
            }
            Move::Ttl(job) | Move::Collect(job) => self.job_goes(job),
            Move::CollectPod(pod) => self.pod_is_told_to_go(pod),
            Move::Reboot(node) => self.power_cycle(node),
            Move::Return(node) => self.kubelet_returns(node),
        }
    }

    /// A drain that is let through by nobody, and that nobody has told to stop.
    fn waits(&self, pod: &ToyPod) -> bool {
        let wanted = match &pod.cordon {
            Cordon::Refit(holder) => self.nodes[&pod.target].it.lets_in(holder),
            Cordon::Kubectl | Cordon::None => true,
        };
        pod.facts.stage == Stage::Drain && wanted && self.guarded.contains(&pod.target)
    }

    fn make_pod(&mut self, job: &str) {
        let job = self.jobs[job].it.clone();
        self.pod_is_made(&job);
        let uid = self.next_uid("pod");
        self.create_pod(ToyPod {
            facts: PodFacts {
                name: format!("{}-{uid}", job.facts.name).as_str().into(),
                uid: uid.as_str().into(),
                job_uid: job.facts.uid.clone(),
                plan: job.facts.plan.clone(),
                node: None,
                stage: Stage::Unbound,
                waiting: None,
                drain: None,
                last_words: None,
                upgraded: false,
                found: None,
                reboot: None,
                deleting: false,
            },
            target: job.facts.node.to_string(),
            cordon: job.cordon,
            drains: job.drains,
            terminating: false,
            succeeded: None,
            sentinel: job.facts.sentinel.then(|| job.facts.hash.clone()),
            plan_uid: job.facts.plan_uid.clone(),
            sleeps: false,
        });
    }

    fn pod_goes_on(&mut self, name: &str) {
        let pod = self.pods[name].it.clone();
        let stage = match pod.facts.stage {
            Stage::Starting => Stage::Prepare,
            Stage::Prepare if pod.cordon == Cordon::None => Stage::Upgrade,
            Stage::Prepare if pod.drains => Stage::Drain,
            Stage::Prepare => Stage::Cordon,
            Stage::Drain if !self.drain_ends(&pod) => return self.pod_ends(name, false),
            Stage::Cordon | Stage::Drain => Stage::Upgrade,
            Stage::Upgrade if self.reboots_by_itself(&pod.target) => return,
            Stage::Upgrade => {
                let well = !self.fails_on.contains(&pod.target);
                if well {
                    self.leaves_a_sentinel(name);
                }
                return self.pod_ends(name, well);
            }
            Stage::Unbound | Stage::Ended => panic!("{name} cannot go on"),
        };
        if matches!(stage, Stage::Cordon | Stage::Drain) {
            if matches!(&pod.cordon, Cordon::Refit(holder) if !self.nodes[&pod.target].it.lets_in(holder)) {
                return self.pod_ends(name, false);
            }
            self.change_node(&pod.target, |node| match &pod.cordon {
                Cordon::Refit(holder) => {
                    node.cordon(holder, stage == Stage::Cordon);
                    if stage == Stage::Drain {
                        node.evicts(holder);
                    }
                }
                Cordon::Kubectl if !node.facts.unschedulable => {
                    node.facts.unschedulable = true;
                    node.cordoned_by = Who::Kubectl;
                }
                Cordon::Kubectl | Cordon::None => {}
            });
        }
        self.change_pod(name, |pod| {
            pod.facts.stage = stage;
            pod.facts.upgraded |= stage == Stage::Upgrade;
        });
        if stage == Stage::Upgrade {
            self.upgrade_starts(&pod.facts.job_uid);
        }
    }

    /// The main container ends, or an init container fails.
    pub(in super::super) fn pod_ends(&mut self, name: &str, well: bool) {
        self.change_pod(name, |pod| {
            pod.facts.stage = Stage::Ended;
            pod.succeeded = Some(well);
            if let Some(it) = pod.facts.reboot.as_mut() {
                it.succeeded = well;
            } else if !well {
                pod.facts.last_words = Some("container upgrade exited with 1: no space left".to_owned());
            }
        });
        let job = self.pods[name].it.facts.job_uid.clone();
        if !well {
            self.job_counts_a_failure(&job);
        }
    }

    pub(super) fn job_counts_a_failure(&mut self, uid: &str) {
        let job = self.jobs.iter().find(|(_, job)| *job.it.facts.uid == *uid);
        if let Some(job) = job.map(|(name, _)| name.clone()) {
            self.change_job(&job, |job| job.facts.failures += 1);
        }
    }

    /// The last act of a drain: the word of the ledger, which says that it cannot be told to stop any more.
    fn drain_ends(&mut self, pod: &ToyPod) -> bool {
        let Cordon::Refit(holder) = &pod.cordon else {
            return true;
        };
        let node = &self.nodes[&pod.target].it;
        let through = node.lets_through(holder);
        if through && node.facts.unschedulable {
            self.change_node(&pod.target, |node| node.cordon(holder, true));
        }
        through
    }

    fn job_ends(&mut self, name: &str) {
        let uid = self.jobs[name].it.facts.uid.clone();
        let pods = || self.pods.values().filter(|pod| pod.it.facts.job_uid == uid);
        let succeeded = pods().any(|pod| pod.it.succeeded == Some(true));
        let alive = pods().any(|pod| !pod.it.has_ended());
        let now = self.now;
        self.change_job(name, |job| {
            job.facts.outcome = match &job.facts.outcome {
                Outcome::Failing { reason, message } if !alive => Outcome::Failed {
                    at: now,
                    reason: reason.clone(),
                    message: message.clone(),
                },
                Outcome::Running if succeeded => Outcome::Complete { at: now },
                Outcome::Running => Outcome::Failing {
                    reason: "BackoffLimitExceeded".to_owned(),
                    message: "Job has reached the specified backoff limit".to_owned(),
                },
                other => other.clone(),
            };
        });
        match self.jobs[name].it.facts.outcome {
            Outcome::Failing { .. } => self.stop_pods(&uid),
            Outcome::Complete { .. } => self.job_succeeds(name),
            Outcome::Running | Outcome::Failed { .. } => {}
        }
    }

    /// The deadline of a Job is over: its pods are told to go.
    pub(in super::super) fn deadline(&mut self, name: &str) {
        self.note(|| format!("deadline of {name}"));
        let uid = self.jobs[name].it.facts.uid.clone();
        self.change_job(name, |job| {
            job.facts.outcome = Outcome::Failing {
                reason: "DeadlineExceeded".to_owned(),
                message: "Job was active longer than specified deadline".to_owned(),
            };
        });
        self.stop_pods(&uid);
    }

    fn stop_pods(&mut self, job_uid: &str) {
        let pods = self
            .pods
            .values_mut()
            .filter(|pod| *pod.it.facts.job_uid == *job_uid && !pod.it.has_ended());
        pods.for_each(|pod| pod.it.terminating = true);
    }

    /// The cluster and the controller go on until nothing is left to do before the clock moves on.
    pub(in super::super) fn runs(&mut self) {
        for _ in 0..10_000 {
            self.settle();
            let moves = self.moves();
            let Some(next) = moves.first() else { return };
            self.play(&next.clone());
        }
        self.law(false, || "the cluster goes on for ever".to_owned());
    }

    /// The Job of a node comes to its end, and the controller deals with it.
    pub(in super::super) fn job_of(&mut self, node: &str) -> String {
        self.settle();
        let live =
            |job: &&String| *self.jobs[*job].it.facts.node == *node && self.jobs[*job].it.facts.is_live();
        self.jobs
            .keys()
            .find(live)
            .unwrap_or_else(|| panic!("no Job on {node}"))
            .clone()
    }

    /// The pod of the Job on a node comes to a stage.
    pub(in super::super) fn comes_to(&mut self, node: &str, stage: Stage) {
        let job = self.job_of(node);
        for _ in 0..20 {
            let uid = self.jobs[&job].it.facts.uid.clone();
            let pod = self
                .pods
                .values()
                .find(|pod| pod.it.facts.job_uid == uid && !pod.it.has_ended());
            let Some((name, at)) = pod.map(|pod| (pod.it.facts.name.to_string(), pod.it.facts.stage)) else {
                self.play(&Move::MakePod(job.clone()));
                continue;
            };
            if at >= stage {
                break;
            }
            let next = if at == Stage::Unbound {
                Move::Bind(name)
            } else {
                Move::Go(name)
            };
            self.play(&next);
        }
        self.settle();
    }

    /// The Job on a node succeeds.
    pub(in super::super) fn succeeds(&mut self, node: &str) {
        self.succeeds_unseen(node);
        self.settle();
    }

    /// The Job on a node succeeds; it is told, and nothing is decided yet.
    pub(in super::super) fn succeeds_unseen(&mut self, node: &str) {
        let ready = self.nodes[node].it.facts.ready;
        self.comes_to(node, Stage::Upgrade);
        self.nodes.get_mut(node).unwrap().it.facts.ready = true;
        self.job_comes_to_its_end(node);
        self.nodes.get_mut(node).unwrap().it.facts.ready = ready;
    }

    /// The Job on a node fails, at its first pod.
    pub(in super::super) fn fails(&mut self, node: &str) {
        self.fails_unseen(node);
        self.settle();
    }

    pub(in super::super) fn fails_unseen(&mut self, node: &str) {
        self.comes_to(node, Stage::Upgrade);
        let job = self.job_of(node);
        self.change_job(&job, |job| job.facts.backoff_limit = 0);
        let before = self.fails_on.insert(node.to_owned());
        self.job_comes_to_its_end(node);
        if before {
            self.fails_on.remove(node);
        }
    }

    fn job_comes_to_its_end(&mut self, node: &str) {
        let job = self.job_of(node);
        let uid = self.jobs[&job].it.facts.uid.clone();
        for _ in 0..20 {
            if self
                .jobs
                .get(&job)
                .is_none_or(|known| known.it.facts.uid != uid || !known.it.facts.is_live())
            {
                break;
            }
            let mine = |next: &Move| match next {
                Move::EndJob(name) | Move::MakePod(name) => *name == job,
                Move::Go(name) | Move::Bind(name) | Move::RemovePod(name) => {
                    self.pods[name].it.facts.job_uid == uid
                }
                _ => false,
            };
            let Some(next) = self.moves().into_iter().find(mine) else {
                break;
            };
            self.play(&next);
        }
        self.tell_all();
    }
}
