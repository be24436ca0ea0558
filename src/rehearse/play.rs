//! A rehearsal from the first object to the verdict: a cluster is set up, the controller runs on it, and whoever watches says
//! when nothing will come of it any more.
//!
//! Nothing here prints, and no time passes but the cluster's.

mod end;
mod furnish;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use end::budgets;
pub use end::{BudgetSeen, Ending, Outcome, PlanEnd};
pub use furnish::secrets;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;
use tokio::time::{Instant, sleep_until};

use super::assume::{Assumptions, UnknownNode};
use super::cluster::{Cluster, Options};
use super::in_virtual_time;
use super::journal::What;
use super::json::{Value, json};
use super::record::{Effect, Happening, Recorder};
use super::resources::Kind;
use super::snapshot::Snapshot;
use super::state::State;
use crate::api::selector::Selector;
use crate::api::window::Window;
use crate::api::{PlanSpec, TimeWindowSpec};
use crate::channel::{ChannelClient, ChannelError, Offer};
use crate::controller::settings::Settings;
use crate::controller::{Surroundings, run_in};

/// What a rehearsal waits beside the longest thing that it knows of before it says that nothing will come any more.
const PATIENCE: SignedDuration = SignedDuration::from_mins(30);
/// Windows that may pass without anything coming of them.
const WINDOWS: u32 = 2;
/// How long the cluster is let settle before the controller starts, beside the start of pods.
const CALM: SignedDuration = SignedDuration::from_mins(1);
/// Changes of a kind that the API server remembers.
const HISTORY: usize = 100;

/// What a channel gives, by its URL.
pub type Answers = Arc<dyn Fn(&str) -> Result<Offer, ChannelError> + Send + Sync>;

/// Where a rehearsal takes place.
#[derive(Clone, Debug)]
pub enum Stage {
    /// On nodes that were made up, with what runs on them.
    Generated {
        /// The nodes.
        nodes: Vec<Value>,
        /// What runs on them.
        workloads: Vec<Value>,
    },
    /// On a cluster as it was.
    Snapshot(Box<Snapshot>),
}

impl Stage {
    /// Names of its nodes.
    pub fn nodes(&self) -> BTreeSet<&str> {
        self.node_objects()
            .filter_map(|node| node["metadata"]["name"].as_str())
            .collect()
    }

    fn node_objects(&self) -> impl Iterator<Item = &Value> {
        let objects = match self {
            Self::Generated { nodes, .. } => nodes,
            Self::Snapshot(snapshot) => &snapshot.objects,
        };
        objects.iter().filter(|one| one["kind"] == "Node")
    }
}

/// What is to be rehearsed.
#[derive(Clone)]
pub struct Rehearsal {
    /// Plans as they would be applied.
    pub plans: Vec<Value>,
    /// What is applied beside them.
    pub objects: Vec<Value>,
    /// Where.
    pub stage: Stage,
    /// What is taken for granted.
    pub assumptions: Assumptions,
    /// The controller's settings.
    pub settings: Settings,
    /// What channels give.
    pub answers: Answers,
    /// When the controller starts.
    pub start: Timestamp,
    /// How long is looked into the future.
    pub limit: SignedDuration,
}

/// Why there was no rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The operating system gives no runtime.
    #[error("the runtime cannot be started")]
    Runtime(#[from] std::io::Error),
    /// A node is to fail that is not there.
    #[error(transparent)]
    UnknownNode(#[from] UnknownNode),
    /// The cluster does not take an object.
    #[error("{what} is refused: {why}")]
    Refused {
        /// Kind and name.
        what: String,
        /// The API server's words.
        why: String,
    },
    /// The controller asked for something that is not played.
    #[error(
        "the rehearsal met what it cannot play, and proves nothing: {}; this is a mistake of refit's, please report it",
        .0.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    )]
    NotPlayed(BTreeSet<String>),
    /// The controller ended by itself.
    #[error("the controller ended by itself: {0}")]
    Controller(String),
}

/// Plays it. `tell` hears of everything as it happens.
///
/// # Errors
/// There is nothing to be learnt from it.
pub fn play(rehearsal: &Rehearsal, tell: &mut dyn FnMut(&Happening)) -> Result<Outcome, PlayError> {
    in_virtual_time(Box::pin(rehearsal.play(tell)))?
}

impl Rehearsal {
    async fn play(&self, tell: &mut dyn FnMut(&Happening)) -> Result<Outcome, PlayError> {
        let calm = CALM + self.assumptions.pod_start.most();
        let begin = self.start.checked_sub(calm).unwrap_or(self.start);
        let mut options = Options::new(self.assumptions.seed, begin);
        options.habits = self.assumptions.habits();
        options.history = HISTORY;
        let cluster = Cluster::new(options);
        self.furnish(&cluster)?;
        let calm = Duration::try_from(calm).unwrap_or_default();
        cluster.during(tokio::time::sleep(calm)).await;
        let budgets = cluster.with(|state| budgets(state));

        cluster.with(|state| state.journal = Some(Vec::new()));
        let mut recorder = Recorder::new(self.start);
        for plan in &self.plans {
            Self::apply(&cluster, plan)?;
        }
        let surroundings = Surroundings {
            server: cluster.server(),
            clock: cluster.clock(),
            channels: Some({
                let answers = self.answers.clone();
                ChannelClient::given(move |url, _| answers(url))
            }),
        };
        let controller = Box::pin(run_in(
            surroundings,
            self.settings.clone(),
            std::future::pending(),
        ));
        let watching = self.watch(&cluster, &mut recorder, tell);
        let ending = cluster
            .during(async {
                tokio::select! {
                    biased;
                    ending = watching => Ok(ending),
                    ended = controller => Err(match ended {
                        Ok(()) => "without a reason".to_owned(),
                        Err(error) => error.to_string(),
                    }),
                }
            })
            .await;
        let ending = ending.map_err(PlayError::Controller)?;
        let holes = cluster.with(|state| state.holes().to_vec());
        if !holes.is_empty() {
            return Err(PlayError::NotPlayed(holes.into_iter().collect()));
        }
        Ok(self.outcome(&cluster, ending, recorder, budgets))
    }

    /// Names of the nodes whose upgrade is to fail.
    ///
    /// # Errors
    /// One is named that is not there.
    pub fn failing(&self) -> Result<BTreeSet<&str>, UnknownNode> {
        let selectors = self.plans.iter().filter_map(|plan| {
            let selector = LabelSelector::deserialize(plan["spec"].get("nodeSelector")?).ok();
            Selector::new(selector.as_ref()).ok()
        });
        let selectors: Vec<Selector> = selectors.collect();
        let is_selected = |node: &&Value| {
            let label = |key: &str| node["metadata"]["labels"].get(key)?.as_str();
            selectors.iter().any(|one| one.matches_by(label))
        };
        let name =
            |node: &'_ Value| -> Option<String> { Some(node["metadata"]["name"].as_str()?.to_owned()) };
        let selected: BTreeSet<String> = self
            .stage
            .node_objects()
            .filter(is_selected)
            .filter_map(name)
            .collect();
        let all = self.stage.nodes();
        let selected = all
            .iter()
            .copied()
            .filter(|node| selected.contains(*node))
            .collect();
        self.assumptions.failing(&all, &selected)
    }

    /// Watches until all is complete, or nothing will come any more.
    async fn watch(
        &self,
        cluster: &Cluster,
        recorder: &mut Recorder,
        tell: &mut dyn FnMut(&Happening),
    ) -> Ending {
        let clock = cluster.clock();
        let wanted: Vec<&str> = self
            .plans
            .iter()
            .filter_map(|plan| plan["metadata"]["name"].as_str())
            .collect();
        let quiet = self.quiet();
        let limit = self.start.checked_add(self.limit).unwrap_or(Timestamp::MAX);
        let (mut windows, mut counted) = (0, recorder.progress());
        let mut deadline = later(counted, quiet);
        loop {
            let until = deadline.min(limit).duration_since(clock.now());
            let until = Instant::now() + Duration::try_from(until).unwrap_or_default();
            tokio::select! {
                biased;
                () = cluster.until(|state| state.journal.as_ref().is_some_and(|news| !news.is_empty())) => {
                    let mut plans_changed = false;
                    for entry in cluster.with(State::take_journal) {
                        let What::Change(kind, change) = entry.what else { continue };
                        plans_changed |= kind == Kind::Plan;
                        let effect = recorder.see(kind, &change, entry.at);
                        if let Some(Effect::Upgraded { node, version }) = effect {
                            upgraded(cluster, &node, &version);
                        }
                    }
                    recorder.news().iter().for_each(&mut *tell);
                    let through = plans_changed && wanted.iter().all(|plan| recorder.is_complete(plan));
                    if through && !wanted.is_empty() {
                        return Ending::Complete;
                    }
                }
                () = sleep_until(until) => {
                    let now = clock.now();
                    if now >= limit {
                        return Ending::Limit(self.limit);
                    }
                    if recorder.progress() > counted {
                        (counted, windows) = (recorder.progress(), 0);
                    } else if let Some(opens) = Self::next_window(cluster, recorder, now)
                        && windows < WINDOWS
                    {
                        windows += 1;
                        deadline = later(opens, quiet);
                        continue;
                    } else {
                        return Ending::Quiet(quiet);
                    }
                }
            }
            if recorder.progress() > counted {
                (counted, windows) = (recorder.progress(), 0);
                deadline = later(counted, quiet);
            }
        }
    }

    /// For how long nothing may happen before nothing will.
    fn quiet(&self) -> SignedDuration {
        let stored = match &self.stage {
            Stage::Snapshot(snapshot) => snapshot.plans.as_slice(),
            Stage::Generated { .. } => &[],
        };
        let plans = self.plans.iter().chain(stored);
        let specs = plans.filter_map(|plan| PlanSpec::deserialize(&plan["spec"]).ok());
        let deadline = SignedDuration::from_secs(self.settings.jobs.active_deadline_seconds.max(0));
        let longest = specs.map(|spec| longest_wait(&spec)).max().unwrap_or_default();
        let longest = longest.max(deadline).max(self.assumptions.longest());
        PATIENCE + longest.saturating_mul(2)
    }

    /// When the next window opens of the Plans that are not complete and whose window is closed.
    fn next_window(cluster: &Cluster, recorder: &Recorder, now: Timestamp) -> Option<Timestamp> {
        cluster.with(|state| {
            let open = state.all(Kind::Plan).filter(|plan| {
                let name = plan["metadata"]["name"].as_str().unwrap_or_default();
                !recorder.is_complete(name)
            });
            let windows = open.filter_map(window).filter(|window| !window.contains(now));
            windows.filter_map(|window| window.next_open(now)).min()
        })
    }
}

/// The longest that a Plan lets something wait by its own words.
fn longest_wait(spec: &PlanSpec) -> SignedDuration {
    let go = |text: Option<&String>| -> SignedDuration {
        let parsed = text.and_then(|text| text.parse::<crate::api::duration::GoDuration>().ok());
        parsed.map_or(SignedDuration::ZERO, |it| {
            SignedDuration::from_nanos(it.as_nanos())
        })
    };
    let job = SignedDuration::from_secs(spec.job_active_deadline_secs.unwrap_or_default().max(0));
    let drain = match spec.drain.as_ref().and_then(|drain| drain.timeout.as_ref()) {
        Some(crate::api::DrainTimeout::Nanoseconds(nanos)) => SignedDuration::from_nanos(*nanos),
        Some(crate::api::DrainTimeout::Text(text)) => go(Some(text)),
        None => SignedDuration::ZERO,
    };
    let texts = |value: Value| -> SignedDuration {
        let longest =
            ["timeout", "minReady"].map(|field| go(value[field].as_str().map(str::to_owned).as_ref()));
        longest.into_iter().max().unwrap_or_default()
    };
    let reboot = texts(serde_json::to_value(&spec.reboot).unwrap_or_default().into());
    let settle = texts(serde_json::to_value(&spec.settle).unwrap_or_default().into());
    let all = [job, drain, go(spec.post_complete_delay.as_ref()), reboot, settle];
    all.into_iter().max().unwrap_or_default()
}

/// The window of a Plan, if it has one that can be read.
fn window(plan: &Value) -> Option<Window> {
    let spec = TimeWindowSpec::deserialize(plan["spec"].get("window")?).ok()?;
    Window::parse(&spec, &TimeZone::system()).ok()
}

/// A node whose upgrade has succeeded runs the new version, where that can be one of a kubelet.
fn upgraded(cluster: &Cluster, node: &str, version: &str) {
    if !is_kubelet_version(version) {
        return;
    }
    let status = json!({ "status": { "nodeInfo": { "kubeletVersion": unmunged(version) } } });
    // A node that is gone has no version.
    let _ = cluster.patch_status(Kind::Node, "", node, &status);
}

/// `v1.33.4`, with whatever a distribution adds.
pub fn is_kubelet_version(version: &str) -> bool {
    let parsed = version
        .strip_prefix('v')
        .and_then(|version| semver::Version::parse(version).ok());
    parsed.is_some_and(|version| version.major == 1)
}

/// The version as it was released: what a distribution adds stands behind a `+`, which neither a tag nor a label can hold.
fn unmunged(version: &str) -> String {
    for distribution in ["k3s", "rke2"] {
        if let Some((upstream, rest)) = version.split_once(&format!("-{distribution}")) {
            return format!("{upstream}+{distribution}{rest}");
        }
    }
    version.to_owned()
}

fn later(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}
