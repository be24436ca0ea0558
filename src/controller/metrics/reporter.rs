//! The loop's end: follows its decisions, and answers scrapes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::sample::{Sample, Samples};
use super::tracker::Tracker;
use super::{Metrics, list, plans};
use refit_api::ChannelRef;
use refit_facts::PlanName;
use refit_rollout::{ClusterState, PlanPicture};

/// Figures of the loop itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopFigures {
    /// Steps in flight in the lanes interactive, background, external and secrets.
    pub in_flight: [usize; 5],
    pub background_waiting: usize,
    pub backing_off: usize,
    pub observations_waiting: usize,
    pub events_waiting: usize,
    pub events_dropped: u64,
}

/// Follows the decisions of a loop.
pub struct Reporter {
    metrics: Option<Metrics>,
    requests: mpsc::Receiver<Scrape>,
    tracker: Tracker,
    /// Of the last decision.
    pictures: BTreeMap<PlanName, PlanPicture>,
}

/// A request that waits for the loop.
pub struct Scrape(pub(super) oneshot::Sender<Samples>);

impl Reporter {
    pub(super) fn new(metrics: Metrics, requests: mpsc::Receiver<Scrape>) -> Self {
        Self {
            metrics: Some(metrics),
            requests,
            tracker: Tracker::default(),
            pictures: BTreeMap::new(),
        }
    }

    /// One without a reader.
    pub fn unused() -> Self {
        Self {
            metrics: None,
            requests: mpsc::channel(1).1,
            tracker: Tracker::default(),
            pictures: BTreeMap::new(),
        }
    }

    /// The next scrape; `None` if none will come. Cancel-safe.
    pub async fn next_request(&mut self) -> Option<Scrape> {
        self.requests.recv().await
    }

    pub fn record_decision(
        &mut self,
        cluster: &ClusterState,
        pictures: BTreeMap<PlanName, PlanPicture>,
        took: Duration,
        now: Timestamp,
    ) {
        let Some(metrics) = &self.metrics else { return };
        metrics.record_decision(took);
        self.tracker.follow(cluster, &pictures, Instant::now(), now);
        self.pictures = pictures;
    }

    pub fn record_poll(&mut self, channel: &ChannelRef, at: Timestamp, is_success: bool) {
        if self.metrics.is_some() {
            self.tracker.record_poll(channel, at, is_success);
        }
    }

    pub fn answer(&mut self, scrape: Scrape, cluster: &ClusterState, figures: LoopFigures, now: Timestamp) {
        // The client may have given up.
        let _ = scrape.0.send(self.samples(cluster, figures, now));
    }

    fn samples(&mut self, cluster: &ClusterState, figures: LoopFigures, now: Timestamp) -> Samples {
        let mut samples = of_loop(figures);
        samples.push(Sample::count(&list::PLANS, cluster.plan_names().count()));
        samples.push(Sample::count(&list::CLUSTER_NODES, cluster.node_count()));
        self.tracker.advance(Instant::now());
        samples.extend(self.tracker.samples());
        samples.extend(plans::samples(cluster, &self.pictures, &self.tracker, now));
        samples
    }
}

fn of_loop(figures: LoopFigures) -> Samples {
    let LoopFigures {
        in_flight,
        background_waiting,
        backing_off,
        observations_waiting,
        events_waiting,
        events_dropped,
    } = figures;
    let lanes = ["interactive", "background", "external", "secrets", "drains"]
        .into_iter()
        .zip(in_flight);
    let lanes = lanes.map(|(lane, count)| Sample::count(&list::STEPS_IN_FLIGHT, count).with(lane));
    let rest = [
        Sample::count(&list::STEPS_WAITING, background_waiting),
        Sample::count(&list::STEPS_BACKING_OFF, backing_off),
        Sample::count(&list::OBSERVATIONS_WAITING, observations_waiting),
        Sample::count(&list::EVENTS_WAITING, events_waiting),
        Sample::total(&list::EVENTS_DROPPED, events_dropped),
    ];
    lanes.chain(rest).collect()
}
