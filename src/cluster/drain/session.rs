//! One run of `refit cordon`, `uncordon` or `drain`: the order of the steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::changes::{Changes, LastAnswer};
use super::conditions::{self, Says};
use super::cordon::{self, Changed, CordonError, CordonMode};
use super::event::{DryRun, Event};
use super::evict::Evictor;
use super::failure::{Failure, SKIPPED, all_or, last_line};
use super::lister::{self, PodLister};
use super::options::{NodeSelection, Options};
use super::plan_run::PlanRun;
use super::pods::{Found, PodId};
use super::publish::Publisher;
use super::run::{End, Loop};
use super::tracker::{EvictionTracker, MAX_OUTAGE};
use super::waiter::Waiter;
use super::{detach, permissions, wait_for};
use crate::clock::Clock;
use crate::scale::ScaleReader;
use refit_api::{AfterTimeout, Cancelled, DrainNote, WaitFor};
use refit_base::go::GoDuration;

pub struct Session {
    /// Client that sends each write only once.
    pub client: Client,
    pub clock: Clock,
    /// The Plan for which it runs, if any.
    pub plan: Option<PlanRun>,
    pub dry_run: DryRun,
    /// Receives the messages.
    pub report: Arc<dyn Fn(Event) + Send + Sync>,
    /// Tells what has changed, if the cluster can.
    pub changes: Option<Changes>,
    /// Name of the signal that stops it.
    pub stop: watch::Receiver<Option<&'static str>>,
}

/// A node to drain.
struct Node {
    name: String,
    lister: PodLister,
    /// Whether it was this drain that cordoned it.
    cordoned: Changed,
}

impl Session {
    /// Cordons nodes. If one fails, it reports that and continues with the others.
    ///
    /// # Errors
    /// Fails with all nodes that are not cordoned, or if a signal stops it.
    pub async fn cordon(&self, which: &NodeSelection) -> Result<(), Failure> {
        let nodes = self.or_stop(self.names(which, 0)).await?;
        let mut failed = Vec::new();
        for node in &nodes {
            let done = self.or_stop(self.cordon_one(node, CordonMode::Whole)).await;
            failed.extend(done.err().map(|error| (node.clone(), error)));
        }
        all_or("cordon", &failed)
    }

    /// # Errors
    /// Fails with all nodes that are not uncordoned, or if a signal stops it.
    pub async fn uncordon(&self, which: &NodeSelection) -> Result<(), Failure> {
        let nodes = self.or_stop(self.names(which, 0)).await?;
        let mut failed = Vec::new();
        for node in &nodes {
            let done = self.or_stop(self.uncordon_one(node)).await;
            failed.extend(done.err().map(|error| (node.clone(), error)));
        }
        all_or("uncordon", &failed)
    }

    /// Cordons all nodes, then drains them one after the other.
    ///
    /// # Errors
    /// Fails with all nodes that are not drained, or if a signal stops it.
    pub async fn drain(&self, which: &NodeSelection, options: &Options) -> Result<(), Failure> {
        let nodes = self.or_stop(self.names(which, options.chunk_size)).await?;
        let evictor = Evictor {
            client: self.client.clone(),
            by_delete: options.disable_eviction,
            grace_period: options.grace_period,
            dry_run: self.dry_run == DryRun::Server,
        };
        let mut failed = Vec::new();
        let mut fit = Vec::new();
        // All checks come before the first cordon: kubectl cordons first, and leaves a node cordoned that it then
        // refuses to drain.
        for name in nodes {
            let node = self.node(&name, options);
            match self.or_stop(self.examine(&node, options)).await {
                Ok(()) => fit.push(node),
                Err(error) => failed.push((name, error)),
            }
        }
        let mut cordoned = Vec::new();
        // All nodes are cordoned before the first is drained, so that no evicted pod is scheduled to the next one.
        // kubectl does the same.
        for node in fit {
            match self.or_stop(self.cordon_one(&node.name, CordonMode::Begin)).await {
                Ok(changed) => cordoned.push(Node {
                    cordoned: changed,
                    ..node
                }),
                Err(error) => failed.push((node.name, error)),
            }
        }
        for node in cordoned {
            self.say(&node.name, options, Says::Draining).await;
            let drained = self.drain_one(&node, options, &evictor).await;
            let says = if drained.is_ok() {
                Says::Drained
            } else {
                Says::Nothing
            };
            self.say(&node.name, options, says).await;
            if let Err(error) = drained {
                let stopped = error.is_stopped();
                failed.push((node.name, error));
                // A signal concerns the whole process, and the kubelet kills it soon.
                if stopped {
                    break;
                }
            }
        }
        all_or("drain", &failed)
    }

    /// Writes the conditions of the node, with `--conditions`. Without them the node is drained all the same.
    async fn say(&self, node: &str, options: &Options, says: Says) {
        if options.conditions {
            self.write_conditions(node, says).await;
        }
    }

    async fn write_conditions(&self, node: &str, says: Says) {
        if self.dry_run != DryRun::None {
            return;
        }
        let is_hurried = says == Says::Draining || self.stop.borrow().is_some();
        let patience = if is_hurried { conditions::BRIEF } else { MAX_OUTAGE };
        if let Err(why) = conditions::write(&self.client, &self.clock, node, says, patience).await {
            let message = format!("the conditions of node {node} cannot be written: {why}");
            (self.report)(Event::Warning { message });
        }
    }

    fn node(&self, name: &str, options: &Options) -> Node {
        Node {
            cordoned: Changed::Already,
            name: name.to_owned(),
            lister: PodLister {
                client: self.client.clone(),
                node: name.to_owned(),
                selector: options.pod_selector.clone(),
                chunk: options.chunk_size,
                evict_last: options.evict_last.clone(),
                changes: self.changes.clone(),
                last: LastAnswer::default(),
            },
        }
    }

    /// The names of the selected nodes, all of which exist.
    async fn names(&self, which: &NodeSelection, chunk: u32) -> Result<Vec<String>, Failure> {
        match which {
            NodeSelection::Names(names) => {
                for name in names {
                    cordon::check(&self.client, name, self.plan.as_ref()).await?;
                }
                Ok(names.clone())
            }
            NodeSelection::Selector(selector) => Ok(lister::nodes(&self.client, selector, chunk).await?),
        }
    }

    /// Checks whether the node can be drained, before anything is changed.
    async fn examine(&self, node: &Node, options: &Options) -> Result<(), Failure> {
        let found = self.find(node, options, &options.wait_for).await?;
        // A client-side dry run sends no write, so it needs none of the permissions below.
        if self.dry_run == DryRun::Client {
            return Ok(());
        }
        let missing = permissions::missing(&self.client, options, &found.pods).await?;
        if !missing.is_empty() {
            return Err(CordonError::Forbidden(missing.join("; ")).into());
        }
        if options.wait_for_detach {
            // Fails here, before the cordon, if the account may not read claims and volumes.
            detach::kept(&node.lister, &found.pods).await?;
        }
        Ok(())
    }

    /// `awaited` may be gone before the drain begins, so that they are no reason to refuse it.
    async fn find(&self, node: &Node, options: &Options, awaited: &[WaitFor]) -> Result<Found, Failure> {
        let found = node.lister.find(options.rules, self.clock.now(), awaited).await?;
        let errors = found.errors();
        if errors.is_empty() {
            Ok(found)
        } else {
            Err(Failure::new(errors.join("; ")))
        }
    }

    async fn cordon_one(&self, node: &str, mode: CordonMode) -> Result<Changed, Failure> {
        let changed = cordon::cordon(&self.client, node, self.plan.as_ref(), mode, self.dry_run).await?;
        self.report_node(
            node,
            match changed {
                Changed::Yes => "cordoned",
                Changed::Already => "already cordoned",
            },
        );
        Ok(changed)
    }

    async fn uncordon_one(&self, node: &str) -> Result<(), Failure> {
        let (changed, has_conditions) = cordon::uncordon(&self.client, node, self.dry_run).await?;
        if has_conditions {
            self.write_conditions(node, Says::NothingOfRefit).await;
        }
        self.report_node(
            node,
            match changed {
                Changed::Yes => "uncordoned",
                Changed::Already => "already uncordoned",
            },
        );
        Ok(())
    }

    /// Uncordons the node that this drain has cordoned, unless a Plan holds it by now.
    async fn undo_cordon(&self, node: &str) -> Result<(), Failure> {
        match cordon::undo(&self.client, node).await? {
            None => self.report_node(node, "uncordoned"),
            Some(plan) => {
                let message = format!("node {node} stays cordoned: Plan {plan} holds it");
                (self.report)(Event::Warning { message });
            }
        }
        Ok(())
    }

    fn report_node(&self, node: &str, is: &'static str) {
        (self.report)(Event::Node {
            node: node.to_owned(),
            is,
        });
    }

    async fn drain_one(&self, node: &Node, options: &Options, evictor: &Evictor) -> Result<(), Failure> {
        self.delay(node, options.load_balancer_delay, "for load balancers")
            .await?;
        self.await_ends(node, options).await?;
        // Pods may have come and gone between the check and the cordon. Since the cordon, no new ones are scheduled.
        let deadline = options.timeout.map(|timeout| {
            let limit = timeout.to_std().unwrap_or(Duration::ZERO);
            // Pods that are deleted get as long again, each group of them.
            let deletes = options.after_timeout == AfterTimeout::Delete;
            let groups = u32::try_from(options.evict_last.len()).unwrap_or_default() + 1;
            let times = if deletes { 1 + groups } else { 1 };
            Instant::now() + limit.saturating_mul(times)
        });
        // A dry run does not wait, so that they are still there.
        let awaited = Some(&*options.wait_for).filter(|_| self.dry_run != DryRun::None);
        let found = self
            .or_stop(self.find(node, options, awaited.unwrap_or_default()))
            .await?;
        let evicted = found.pods.len();
        if let Some(message) = found.warning() {
            (self.report)(Event::Warning { message });
        }
        if self.dry_run == DryRun::Client {
            for pod in found.pods {
                (self.report)(Event::Evicting { pod });
            }
        } else if !found.pods.is_empty() {
            self.note_workloads(node, &found).await?;
            self.evict(node, options, evictor, found).await?;
        }
        if self.dry_run == DryRun::None && options.wait_for_detach {
            self.await_detached(node, options, evicted, deadline).await?;
        }
        self.delay(node, options.settle_delay, "before the upgrade")
            .await?;
        if self.dry_run == DryRun::None && self.plan.is_some() {
            // The last patch is the point of no return: it conflicts with a cancellation, which is written to the
            // same annotation, so exactly one of the two takes effect.
            let confirm = cordon::cordon(
                &self.client,
                &node.name,
                self.plan.as_ref(),
                CordonMode::Confirm,
                DryRun::None,
            );
            self.or_stop(async { Ok(confirm.await?) }).await?;
        }
        self.report_node(&node.name, "drained");
        Ok(())
    }

    /// Writes the controllers of the pods to the ledger before the evictions, with the number of their ready pods, for a
    /// Plan that waits for them. Once the pods are gone, nothing shows which controllers they had, nor whether these were
    /// broken before.
    async fn note_workloads(&self, node: &Node, found: &Found) -> Result<(), Failure> {
        let plan = self.plan.clone().filter(|plan| plan.notes_workloads);
        let Some(mut plan) = plan.filter(|_| self.dry_run == DryRun::None && !found.workloads.is_empty())
        else {
            return Ok(());
        };
        let reader = ScaleReader::of_drain(self.client.clone());
        let read = async { Ok(reader.noted(&found.workloads).await) };
        plan.holder.evicted = self.or_stop(read).await?;
        if plan.holder.evicted.is_empty() {
            return Ok(());
        }
        let written = cordon::cordon(
            &self.client,
            &node.name,
            Some(&plan),
            CordonMode::Begin,
            DryRun::None,
        );
        self.or_stop(async { Ok(written.await.map(|_| ())?) }).await
    }

    /// Waits until the pods of `--wait-for` have ended.
    async fn await_ends(&self, node: &Node, options: &Options) -> Result<(), Failure> {
        if options.wait_for.is_empty() || self.dry_run != DryRun::None {
            return Ok(());
        }
        let mut waiter = self.waiter(node);
        let wait = wait_for::wait(&mut waiter, &options.wait_for, options.rules);
        let ended = self.or_stop(wait).await;
        waiter.stop().await;
        match ended {
            Ok(None) => Ok(()),
            Ok(Some(pods)) => {
                let message = format!("the drain begins: {pods}");
                (self.report)(Event::Warning { message });
                Ok(())
            }
            Err(failure) => {
                // The controller releases the nodes of Plans, whose ledger says what they were before.
                let releases = failure.exit_code == SKIPPED && self.plan.is_none();
                if releases && node.cordoned == Changed::Yes {
                    self.undo_cordon(&node.name).await?;
                }
                Err(failure)
            }
        }
    }

    /// Waits, unless a signal or the controller ends the drain.
    async fn delay(&self, node: &Node, delay: GoDuration, why: &'static str) -> Result<(), Failure> {
        let time = delay.to_std().filter(|time| !time.is_zero());
        let Some(time) = time.filter(|_| self.dry_run == DryRun::None) else {
            return Ok(());
        };
        (self.report)(Event::Waits {
            node: node.name.clone(),
            duration: delay.to_string(),
            why,
        });
        let cancelled = self.cancellation(node);
        let wait = async {
            tokio::select! {
                () = sleep(time) => Ok(()),
                () = cancelled => Err(Failure::new(Cancelled.to_string())),
            }
        };
        self.or_stop(wait).await
    }

    async fn evict(
        &self,
        node: &Node,
        options: &Options,
        evictor: &Evictor,
        found: Found,
    ) -> Result<(), Failure> {
        let reached = options.reached();
        let continues = options.after_timeout == AfterTimeout::Continue;
        let (mut pods, mut deletes) = (found.pods, BTreeSet::new());
        // The evictions, and the deletions of each group: also a timeout in which no request is sent comes to an end.
        let mut rounds = options.evict_last.len() + 2;
        let (end, tracker) = loop {
            let work = self.run(node, options, evictor, (pods, &found.later), &deletes);
            let (end, tracker) = work.await;
            let is_final = self.dry_run != DryRun::None || options.after_timeout == AfterTimeout::Fail;
            if is_final || end != End::TimeUp {
                break (end, tracker);
            }
            // Those of later groups that were never asked do not block: their turn comes, in its order.
            let left = tracker
                .pending()
                .filter(|(pod, _)| continues || tracker.was_tried(pod));
            let left: Vec<_> = left.map(|(pod, leaving)| (pod.clone(), leaving)).collect();
            let does = if continues { "stays" } else { "is deleted" };
            for (pod, _) in left
                .iter()
                .filter(|(pod, leaving)| !leaving && !deletes.contains(pod))
            {
                let message = format!(
                    "pod {} {does}: it could not be evicted within {reached}",
                    pod.path()
                );
                let announced = async {
                    evictor.announce(pod, &message, self.clock.now()).await;
                    Ok(())
                };
                self.or_stop(announced).await?;
                (self.report)(Event::Warning { message });
            }
            if continues {
                return Ok(());
            }
            let (known, is_stuck) = (deletes.len(), !left.is_empty());
            deletes.extend(left.into_iter().map(|(pod, _)| pod));
            rounds -= 1;
            if rounds == 0 || is_stuck && deletes.len() == known {
                break (end, tracker);
            }
            pods = tracker.pending().map(|(pod, _)| pod.clone()).collect();
        };
        let why = match &end {
            End::Over if tracker.failures().next().is_none() => return Ok(()),
            End::Over => "not all pods can be evicted".to_owned(),
            End::TimeUp => format!("global timeout reached: {reached}"),
            End::Signal(signal) => format!("ended by {signal}"),
            End::Cancelled => Cancelled.to_string(),
            End::ListFailed(why) => format!("the pods of the node cannot be listed: {why}"),
        };
        let so_far = tracker.note();
        (self.report)(Event::NotDrained {
            node: node.name.clone(),
            evicted: so_far.evicted,
            total: so_far.total,
            pending: tracker.pending().map(|(pod, _)| pod.path()).collect(),
            message: why.clone(),
        });
        let message = last_line(&why, &tracker);
        Err(match end {
            End::Signal(signal) => Failure::stopped(signal, message),
            _ => Failure::new(message),
        })
    }

    /// Removes these pods within the timeout. `later` has those that come after others.
    async fn run(
        &self,
        node: &Node,
        options: &Options,
        evictor: &Evictor,
        (pods, later): (Vec<PodId>, &BTreeMap<PodId, usize>),
        deletes: &BTreeSet<PodId>,
    ) -> (End, EvictionTracker) {
        let work = Loop {
            waiter: self.waiter(node),
            evictor,
            deletes,
            is_patient: self.dry_run == DryRun::None
                && options.timeout.is_some()
                && options.after_timeout != AfterTimeout::Fail,
            rules: options.rules,
            timeout: options
                .timeout
                .map(|timeout| timeout.to_std().unwrap_or(Duration::ZERO)),
            stop: self.stop.clone(),
        };
        work.run(pods, later).await
    }

    /// Waits until the volumes of the evicted pods are detached.
    async fn await_detached(
        &self,
        node: &Node,
        options: &Options,
        evicted: usize,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        let so_far = DrainNote {
            evicted,
            total: evicted,
            ..DrainNote::default()
        };
        let mut waiter = self.waiter(node);
        let ended = self.or_stop(detach::wait(&mut waiter, deadline, so_far)).await;
        waiter.stop().await;
        let left = ended?.filter(|_| options.after_timeout != AfterTimeout::Continue);
        let Some(left) = left else {
            return Ok(());
        };
        let left: Vec<_> = left.into_iter().collect();
        Err(Failure::new(format!(
            "global timeout reached: {}; still attached: {}",
            options.reached(),
            left.join(", ")
        )))
    }

    /// For a wait that ends when the controller has cancelled the drain of the node.
    fn waiter<'a>(&'a self, node: &'a Node) -> Waiter<'a> {
        let publisher = self
            .plan
            .as_ref()
            .and_then(|plan| Publisher::start(self.client.clone(), &node.name, plan));
        Waiter {
            lister: &node.lister,
            clock: &self.clock,
            report: &*self.report,
            publisher,
            cancelled: self.cancellation(node),
            failing_since: None,
        }
    }

    fn cancellation(&self, node: &Node) -> BoxFuture<'static, ()> {
        cordon::cancelled(
            self.client.clone(),
            node.name.clone(),
            self.plan.clone(),
            self.changes.clone(),
        )
        .boxed()
    }

    /// Runs a future that a stop signal interrupts.
    async fn or_stop<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let mut stop = self.stop.clone();
        let stopped = async {
            // Not held while it waits: it is a lock.
            let signal = stop.wait_for(Option::is_some).await.map(|signal| *signal);
            match signal {
                Ok(signal) => signal,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            // Work that is done is done, also if a signal arrives at the same time.
            biased;
            done = work => done,
            signal = stopped => {
                let signal = signal.unwrap_or_default();
                Err(Failure::stopped(signal, format!("ended by {signal}")))
            }
        }
    }
}
