//! Notifications of roll-outs, and silences in Alertmanager, in tasks of their own: the loop hands them the Plans
//! after each decision, and waits for nothing. Which notifications were sent is stored on the Plan (`refit.rs/notified`),
//! so each receiver gets each one at least once, and a second time only if this process ends between the answer and that
//! write.

mod deliver;
mod silencer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use url::Url;

use super::events::Source;
use super::metrics::Metrics;
use super::outbox::Outbox;
use deliver::{Delivered, Item, Outcome};
use refit_api::limits::{NOTIFICATIONS, SILENCES};
use refit_api::notified::mark;
use refit_api::{Notified, Reason};
use refit_channel::{Access, Webhooks};
use refit_cluster::clock::Clock;
use refit_cluster::kube::read::get;
use refit_cluster::kube::{Leadership, brief};
use refit_facts::{PlanFacts, PlanName, PlanUid};
use refit_formats::notify::{
    Context, Notice, Problem, Receiver, Running, SilenceRule, notices, receivers, running, silence_rules,
};
use refit_rollout::{Event, Observation};

/// Notifications that wait for a receiver. The others are found again when there is room.
const QUEUE: usize = 64;
/// How long decisions are collected before their Plans are looked at.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often to look for stalled roll-outs.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// The values of the `ConfigMap` `refit` that concern this module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NotifyConfig {
    notifications: String,
    silences: String,
}

impl NotifyConfig {
    pub(super) fn of(data: &BTreeMap<String, String>) -> Self {
        let value = |key: &str| data.get(key).cloned().unwrap_or_default();
        Self {
            notifications: value(NOTIFICATIONS),
            silences: value(SILENCES),
        }
    }
}

/// The Plans at a decision. Before the first one no node would seem to be worked on.
pub(super) type Plans = Vec<Arc<PlanFacts>>;

/// What the tasks share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) webhooks: Webhooks,
    pub(super) leadership: Leadership,
    pub(super) context: Arc<Context>,
    pub(super) clock: Clock,
    pub(super) source: Source,
    pub(super) outbox: Outbox,
    pub(super) metrics: Metrics,
    pub(super) plans: watch::Receiver<Option<Plans>>,
}

impl Shared {
    /// Starts both, in tasks of their own.
    pub(super) fn spawn(
        self,
        tasks: &mut JoinSet<()>,
        config: watch::Receiver<NotifyConfig>,
        observations: mpsc::Sender<Observation>,
    ) {
        tasks.spawn(silence(self.clone(), config.clone()));
        tasks.spawn(notify(self, config, observations));
    }

    /// The URL and the credentials in a Secret. It is read each time, and not kept.
    async fn access(&self, name: &str) -> Result<(Url, Access), String> {
        let secret: Secret = get(&self.client, Some(&self.context.namespace), name)
            .await
            .map_err(|error| format!("secrets {name:?} cannot be read: {}", brief(&error)))?
            .ok_or_else(|| format!("secrets {name:?} not found"))?;
        Access::read_receiver(&secret).map_err(|error| error.to_string())
    }

    /// Tells of the configuration, on the `ConfigMap`.
    fn report(&self, reason: Reason, message: &str) {
        tracing::warn!(reason = reason.name(), "{message}");
        self.outbox
            .put(self.source.limits_event(reason, message, self.clock.now()));
    }

    fn report_problems(&self, known: &mut Vec<Problem>, problems: Vec<Problem>) {
        for problem in problems.iter().filter(|problem| !known.contains(problem)) {
            self.report(Reason::NotificationsInvalid, &problem.to_string());
        }
        *known = problems;
    }
}

/// Sends notifications, until it is dropped.
async fn notify(
    shared: Shared,
    mut config: watch::Receiver<NotifyConfig>,
    observations: mpsc::Sender<Observation>,
) {
    let (results, mut delivered) = mpsc::channel(QUEUE);
    let mut notifier = Notifier {
        shared,
        observations,
        results,
        tasks: JoinSet::new(),
        workers: BTreeMap::new(),
        problems: Vec::new(),
        sent: BTreeMap::new(),
        running: BTreeMap::new(),
    };
    let mut decided = notifier.shared.plans.clone();
    let mut known = None;
    loop {
        let value = config.borrow_and_update().notifications.clone();
        if known.as_ref() != Some(&value) {
            notifier.configure(&value);
            known = Some(value);
        }
        let next = Instant::now() + LOOK_AGAIN;
        let is_idle = notifier.workers.is_empty();
        let plans = decided.borrow_and_update().clone();
        if let Some(plans) = plans.filter(|_| !is_idle) {
            notifier.look(&plans);
        }
        tokio::select! {
            biased;
            changed = config.changed() => if changed.is_err() { return },
            Some(delivered) = delivered.recv() => notifier.finish(delivered).await,
            () = sleep_until(next), if !is_idle => {}
            // Last: in a large roll-out there is always a decision.
            changed = decided.changed(), if !is_idle => {
                if changed.is_err() {
                    return;
                }
                sleep(DEBOUNCE).await;
            }
        }
    }
}

struct Notifier {
    shared: Shared,
    observations: mpsc::Sender<Observation>,
    results: mpsc::Sender<Delivered>,
    tasks: JoinSet<()>,
    /// By name of the receiver.
    workers: BTreeMap<String, Worker>,
    /// What is wrong with the configuration, as reported.
    problems: Vec<Problem>,
    /// What this process has sent, or given up.
    sent: BTreeMap<PlanUid, Notified>,
    running: BTreeMap<PlanName, Running>,
}

/// Sends to one receiver, one notification after the other.
struct Worker {
    receiver: Arc<Receiver>,
    queue: mpsc::Sender<Item>,
    task: AbortHandle,
    /// The marks of what it has to send.
    queued: BTreeSet<String>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Notifier {
    /// Starts a worker for each new or changed receiver, and ends the others.
    fn configure(&mut self, value: &str) {
        let (receivers, problems) = receivers(value);
        self.shared.report_problems(&mut self.problems, problems);
        self.workers
            .retain(|_, worker| receivers.contains(&worker.receiver));
        for receiver in receivers {
            if self.workers.contains_key(&receiver.name) {
                continue;
            }
            let (queue, items) = mpsc::channel(QUEUE);
            let receiver = Arc::new(receiver);
            let work = deliver::work(
                self.shared.clone(),
                Arc::clone(&receiver),
                items,
                self.results.clone(),
            );
            let task = self.tasks.spawn(work);
            let worker = Worker {
                receiver: Arc::clone(&receiver),
                queue,
                task,
                queued: BTreeSet::new(),
            };
            self.workers.insert(receiver.name.clone(), worker);
        }
        // Those that ended, so that they do not pile up.
        while self.tasks.try_join_next().is_some() {}
        self.count_waiting();
    }

    /// Queues the notices that are new.
    fn look(&mut self, plans: &Plans) {
        let now = self.shared.clock.now();
        self.sent
            .retain(|uid, _| plans.iter().any(|plan| plan.uid == *uid));
        self.running
            .retain(|name, _| plans.iter().any(|plan| plan.name == *name));
        for plan in plans {
            let (notices, stored) = (notices(plan, now), plan.notified());
            let known = self.running.remove(&plan.name);
            let running = running(plan, now).map(|running| running.after(known.as_ref()));
            for worker in self.workers.values_mut() {
                let stalled = running
                    .as_ref()
                    .and_then(|running| running.stalled(worker.receiver.stalled_after, now));
                for notice in notices.iter().chain(&stalled) {
                    let sent = self.sent.get(&plan.uid);
                    let is_sent =
                        |mark: &str| stored.contains(mark) || sent.is_some_and(|sent| sent.contains(mark));
                    worker.queue(&plan.name, &plan.uid, notice, is_sent);
                }
            }
            self.running
                .extend(running.map(|running| (plan.name.clone(), running)));
        }
        self.count_waiting();
    }

    fn count_waiting(&self) {
        let waiting = self.workers.values().map(|worker| worker.queued.len()).sum();
        self.shared.metrics.set_notifications_waiting(waiting);
    }

    /// A notification was sent or given up.
    async fn finish(&mut self, delivered: Delivered) {
        let Delivered {
            item,
            receiver,
            outcome,
        } = delivered;
        if let Some(worker) = self.workers.get_mut(&receiver) {
            worker.queued.remove(&item.mark);
        }
        self.count_waiting();
        self.sent
            .entry(item.uid.clone())
            .or_default()
            .add([item.mark.clone()]);
        if let Outcome::Dropped(why) = &outcome {
            let message = format!(
                "receiver {receiver} does not get {} ({}): {why}",
                item.notice.kind,
                item.notice.text()
            );
            tracing::warn!(plan = &*item.plan, "{message}");
            let event = Event::plan(
                &item.plan,
                &item.uid,
                Reason::NotificationDropped,
                message,
                &item.mark,
            );
            self.shared
                .outbox
                .put(self.shared.source.event(&event, self.shared.clock.now()));
        }
        self.shared.metrics.notified(matches!(outcome, Outcome::Sent));
        // Fails only if the loop has ended.
        let _ = self
            .observations
            .send(Observation::Notified(item.plan, item.uid, vec![item.mark]))
            .await;
    }
}

impl Worker {
    fn queue(&mut self, plan: &PlanName, uid: &PlanUid, notice: &Notice, is_sent: impl Fn(&str) -> bool) {
        if !self.receiver.wants(notice.kind, plan) {
            return;
        }
        let mark = mark(&self.receiver.name, &notice.id);
        if self.queued.contains(&mark) || is_sent(&mark) {
            return;
        }
        let item = Item {
            plan: plan.clone(),
            uid: uid.clone(),
            notice: notice.clone(),
            mark: mark.clone(),
            queued: Instant::now(),
        };
        // If there is no room, it is found again later.
        if self.queue.try_send(item).is_ok() {
            self.queued.insert(mark);
        }
    }
}

/// Creates and ends silences, until it is dropped.
async fn silence(shared: Shared, mut config: watch::Receiver<NotifyConfig>) {
    let mut problems = Vec::new();
    let mut running: Vec<(SilenceRule, AbortHandle)> = Vec::new();
    let mut tasks = JoinSet::new();
    loop {
        let value = config.borrow_and_update().silences.clone();
        let (rules, found) = silence_rules(&value);
        shared.report_problems(&mut problems, found);
        running.retain(|(rule, task)| {
            let is_wanted = rules.contains(rule);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for rule in rules {
            if !running.iter().any(|(known, _)| *known == rule) {
                let task = tasks.spawn(silencer::run(shared.clone(), rule.clone()));
                running.push((rule, task));
            }
        }
        while tasks.try_join_next().is_some() {}
        if config.changed().await.is_err() {
            return;
        }
    }
}
