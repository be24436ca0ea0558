//! How the tasks of this module learn what the loop knows: they ask, and the loop answers between two decisions.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use refit_api::Notified;
use refit_facts::{PlanName, PlanUid};
use refit_formats::notify::{Down, Notice, Running, down, notices, running};
use refit_rollout::ClusterState;

/// How long to wait for the loop, which may be computing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The Plans with their notices, at a time.
#[derive(Debug)]
pub(crate) struct Outlook {
    pub(super) plans: Vec<PlanOutlook>,
    pub(super) now: Timestamp,
}

#[derive(Debug)]
pub(super) struct PlanOutlook {
    pub(super) name: PlanName,
    pub(super) uid: PlanUid,
    pub(super) notices: Vec<Notice>,
    pub(super) running: Option<Running>,
    /// What is stored as sent.
    pub(super) stored: Notified,
    /// The nodes that it works on.
    pub(super) down: Vec<Down>,
}

impl Outlook {
    /// What the stored statuses say.
    pub(crate) fn of(cluster: &ClusterState, now: Timestamp) -> Self {
        let facts = cluster.plan_names().filter_map(|name| cluster.plan(name));
        let plans = facts.filter(|plan| !plan.is_deleting()).map(|plan| PlanOutlook {
            name: plan.name.clone(),
            uid: plan.uid.clone(),
            notices: notices(plan, now),
            running: running(plan),
            stored: plan.notified(),
            down: down(plan),
        });
        Self {
            plans: plans.collect(),
            now,
        }
    }
}

/// A question that waits for the loop.
pub(crate) struct OutlookRequest(oneshot::Sender<Outlook>);

/// The loop's end.
pub(crate) struct OutlookServer {
    questions: mpsc::Receiver<OutlookRequest>,
    decided: watch::Sender<()>,
    has_decided: bool,
}

/// The end of those who ask.
#[derive(Clone)]
pub(crate) struct OutlookClient {
    questions: mpsc::Sender<OutlookRequest>,
    decided: watch::Receiver<()>,
}

pub(crate) fn link() -> (OutlookServer, OutlookClient) {
    let (asks, questions) = mpsc::channel(4);
    let (decided_tx, decided) = watch::channel(());
    let server = OutlookServer {
        questions,
        decided: decided_tx,
        has_decided: false,
    };
    let client = OutlookClient {
        questions: asks,
        decided,
    };
    (server, client)
}

impl OutlookServer {
    /// The next question; `None` if none will come. Cancel-safe.
    pub(crate) async fn next_request(&mut self) -> Option<OutlookRequest> {
        self.questions.recv().await
    }

    pub(crate) fn record_decision(&mut self) {
        self.has_decided = true;
        self.decided.send_replace(());
    }

    /// Answers, unless the cluster is not known yet: then no node would seem to be worked on.
    pub(crate) fn answer(&self, asked: OutlookRequest, cluster: &ClusterState, now: Timestamp) {
        if self.has_decided {
            // The receiver may have given up.
            let _ = asked.0.send(Outlook::of(cluster, now));
        }
    }
}

impl OutlookClient {
    /// Changes with each decision.
    pub(super) fn decided(&self) -> watch::Receiver<()> {
        self.decided.clone()
    }

    pub(super) async fn ask(&self) -> Option<Outlook> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.questions.send(OutlookRequest(reply)).await.ok()?;
            answer.await.ok()
        };
        tokio::time::timeout(PATIENCE, asked).await.ok().flatten()
    }
}
