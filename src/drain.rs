//! Cordon, uncordon and drain as kubectl does them, for the init containers of Jobs and for people.
//!
//! Everything is looked at first: the node, its pods by kubectl's rules, and what one may do. Only then the node is
//! cordoned, its pods are listed again, and evicted. For a Plan the cordon is written down in the node's ledger, and a
//! patch of that ledger is the last act. It never decides about another node than those it was given, and it gives no node
//! back: that is the controller's, by level.

pub mod answer;
pub mod board;
mod cordon;
pub mod event;
mod evict;
mod find;
mod permissions;
pub mod pods;
mod publish;
mod run;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

pub use cordon::{Changed, CordonError};
pub use event::{DryRun, Event};

use crate::api::duration::GoDuration;
use crate::api::names;
use crate::clock::Clock;
use crate::controller::client::brief;
use crate::rollout::Holder;
use board::Board;
use cordon::Act;
use evict::Evictor;
use find::Finder;
use pods::{Found, Rules};
use publish::Publisher;
use run::{End, Loop};

/// How much the last line says of single pods, in bytes. The controller shows the last 512 bytes of a failed container.
const LAST_LINE: usize = 400;

/// What a drain is to do, as kubectl's flags say it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--pod-selector`, as text.
    pub pod_selector: String,
    /// Which pods may go.
    pub rules: Rules,
    /// `--grace-period` in seconds; absent means each pod's own.
    pub grace_period: Option<u32>,
    /// `--timeout`; absent means for ever.
    pub timeout: Option<GoDuration>,
    /// `--disable-eviction`.
    pub disable_eviction: bool,
    /// `--chunk-size`; 0 is all at once.
    pub chunk_size: u32,
}

/// Which nodes are meant.
#[derive(Clone, Debug)]
pub enum Which {
    /// By name.
    Names(Vec<String>),
    /// By label selector.
    Selector(String),
}

/// The pod that this process runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// For which Plan this process runs, where it runs for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRun {
    /// Who holds the node.
    pub holder: Holder,
    /// The machine that is meant.
    pub node_uid: String,
    /// Where progress is written.
    pub pod: Option<OwnPod>,
}

impl PlanRun {
    /// Reads it from the environment that the controller gives its containers. `lookup` reads a variable.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let text = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let plan_uid = text(names::ENV_PLAN_UID)?;
        let namespace = text(names::ENV_PLAN_NAMESPACE)?;
        let pod = || {
            Some(OwnPod {
                namespace: namespace.clone(),
                name: text(names::ENV_POD_NAME)?,
                uid: text(names::ENV_POD_UID)?,
            })
        };
        Some(Self {
            pod: pod(),
            node_uid: text(names::ENV_NODE_UID).unwrap_or_default(),
            holder: Holder {
                controller: text(names::ENV_CONTROLLER_NAME).unwrap_or_default(),
                plan: text(names::ENV_PLAN_NAME).unwrap_or_default(),
                plan_uid,
                namespace,
                cancelled: false,
                passed: false,
            },
        })
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// As the text says.
    #[error("{0}")]
    Failed(String),
    /// It was told to stop, by this signal.
    #[error("{message}")]
    Stopped {
        /// Name of the signal.
        signal: &'static str,
        /// What was done until then.
        message: String,
    },
}

impl From<CordonError> for Failure {
    fn from(error: CordonError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        CordonError::from(error).into()
    }
}

/// One run of `refit cordon`, `uncordon` or `drain`.
pub struct Session {
    /// Handle on the API server that tries no write twice.
    pub client: Client,
    /// The time of day.
    pub clock: Clock,
    /// For which Plan.
    pub plan: Option<PlanRun>,
    /// `--dry-run`.
    pub dry_run: DryRun,
    /// Who is told what happens.
    pub tell: Arc<dyn Fn(Event) + Send + Sync>,
    /// Name of the signal that ends it.
    pub stop: watch::Receiver<Option<&'static str>>,
}

/// A node on the way.
struct Node {
    name: String,
    finder: Finder,
}

impl Session {
    /// Cordons nodes. One that cannot be is told, and the others are done all the same.
    pub async fn cordon(&self, which: &Which) -> Result<(), Failure> {
        let nodes = self.or_stop(self.names(which, 0)).await?;
        let mut failed = Vec::new();
        for node in &nodes {
            let done = self.or_stop(self.cordon_one(node, Act::Whole)).await;
            failed.extend(done.err().map(|error| (node.clone(), error)));
        }
        all_or("cordon", failed)
    }

    /// Makes nodes schedulable again.
    pub async fn uncordon(&self, which: &Which) -> Result<(), Failure> {
        let nodes = self.or_stop(self.names(which, 0)).await?;
        let mut failed = Vec::new();
        for node in &nodes {
            let done = self.or_stop(self.uncordon_one(node)).await;
            failed.extend(done.err().map(|error| (node.clone(), error)));
        }
        all_or("uncordon", failed)
    }

    /// Drains nodes, one after the other, once all are cordoned.
    pub async fn drain(&self, which: &Which, options: &Options) -> Result<(), Failure> {
        let nodes = self.or_stop(self.names(which, options.chunk_size)).await?;
        let evictor = Evictor {
            client: self.client.clone(),
            by_delete: options.disable_eviction,
            grace_period: options.grace_period,
            dry_run: self.dry_run == DryRun::Server,
        };
        let mut failed = Vec::new();
        let mut fit = Vec::new();
        for name in nodes {
            let node = self.node(&name, options);
            match self.or_stop(self.examine(&node, options, &evictor)).await {
                Ok(()) => fit.push(node),
                Err(error) => failed.push((name, error)),
            }
        }
        let mut cordoned = Vec::new();
        for node in fit {
            match self.or_stop(self.cordon_one(&node.name, Act::Begin)).await {
                Ok(()) => cordoned.push(node),
                Err(error) => failed.push((node.name, error)),
            }
        }
        for node in cordoned {
            if let Err(error) = self.drain_one(&node, options, &evictor).await {
                let stopped = matches!(error, Failure::Stopped { .. });
                failed.push((node.name, error));
                if stopped {
                    break;
                }
            }
        }
        all_or("drain", failed)
    }

    fn node(&self, name: &str, options: &Options) -> Node {
        Node {
            name: name.to_owned(),
            finder: Finder {
                client: self.client.clone(),
                node: name.to_owned(),
                selector: options.pod_selector.clone(),
                chunk: options.chunk_size,
            },
        }
    }

    /// The nodes that are meant; all of them are there.
    async fn names(&self, which: &Which, chunk: u32) -> Result<Vec<String>, Failure> {
        match which {
            Which::Names(names) => {
                for name in names {
                    cordon::look(&self.client, name, self.plan.as_ref()).await?;
                }
                Ok(names.clone())
            }
            Which::Selector(selector) => Ok(find::nodes(&self.client, selector, chunk).await?),
        }
    }

    /// Finds out, before anything is changed, whether the node can be drained.
    async fn examine(&self, node: &Node, options: &Options, evictor: &Evictor) -> Result<(), Failure> {
        let found = self.find(node, options).await?;
        if self.dry_run == DryRun::Client {
            return Ok(());
        }
        match permissions::missing(&self.client, &node.name, true, &found.pods, evictor).await {
            Ok(missing) if missing.is_empty() => Ok(()),
            Ok(missing) => Err(CordonError::Forbidden(missing.join("; ")).into()),
            Err(error) => Err(Failure::Failed(brief(&error))),
        }
    }

    async fn find(&self, node: &Node, options: &Options) -> Result<Found, Failure> {
        let found = node.finder.find(options.rules, self.clock.now()).await?;
        let errors = found.errors();
        if errors.is_empty() {
            Ok(found)
        } else {
            Err(Failure::Failed(errors.join("; ")))
        }
    }

    async fn cordon_one(&self, node: &str, act: Act) -> Result<(), Failure> {
        let dry_run = self.dry_run == DryRun::Server;
        let changed = if self.dry_run == DryRun::Client {
            cordon::is_cordoned(&self.client, node).await?
        } else {
            cordon::cordon(&self.client, node, self.plan.as_ref(), act, dry_run).await?
        };
        self.tell_node(
            node,
            match changed {
                Changed::Yes => "cordoned",
                Changed::Already => "already cordoned",
            },
        );
        Ok(())
    }

    async fn uncordon_one(&self, node: &str) -> Result<(), Failure> {
        let changed = match self.dry_run {
            DryRun::Client => match cordon::is_cordoned(&self.client, node).await? {
                Changed::Yes => Changed::Already,
                Changed::Already => Changed::Yes,
            },
            dry_run => cordon::uncordon(&self.client, node, dry_run == DryRun::Server).await?,
        };
        self.tell_node(
            node,
            match changed {
                Changed::Yes => "uncordoned",
                Changed::Already => "already uncordoned",
            },
        );
        Ok(())
    }

    fn tell_node(&self, node: &str, is: &'static str) {
        (self.tell)(Event::Node {
            node: node.to_owned(),
            is,
        });
    }

    async fn drain_one(&self, node: &Node, options: &Options, evictor: &Evictor) -> Result<(), Failure> {
        let found = self.or_stop(self.find(node, options)).await?;
        if let Some(message) = found.warning() {
            (self.tell)(Event::Warning { message });
        }
        if self.dry_run == DryRun::Client {
            for pod in found.pods {
                (self.tell)(Event::Evicting { pod });
            }
        } else if !found.pods.is_empty() {
            self.evict(node, options, evictor, found).await?;
        }
        if self.dry_run == DryRun::None && self.plan.is_some() {
            let confirm = cordon::cordon(&self.client, &node.name, self.plan.as_ref(), Act::Confirm, false);
            self.or_stop(async { Ok(confirm.await?) }).await?;
        }
        self.tell_node(&node.name, "drained");
        Ok(())
    }

    async fn evict(
        &self,
        node: &Node,
        options: &Options,
        evictor: &Evictor,
        found: Found,
    ) -> Result<(), Failure> {
        let pod = self.plan.as_ref().and_then(|plan| plan.pod.clone());
        let publisher = pod.map(|pod| Publisher::start(self.client.clone(), pod));
        let work = Loop {
            finder: &node.finder,
            evictor,
            rules: options.rules,
            timeout: options
                .timeout
                .map(|timeout| timeout.to_std().unwrap_or(Duration::ZERO)),
            clock: &self.clock,
            tell: &*self.tell,
            publisher: publisher.as_ref(),
            stop: self.stop.clone(),
        };
        let (end, board) = work.run(found.pods).await;
        let reached = options
            .timeout
            .map_or_else(String::new, |timeout| timeout.to_string());
        let why = match &end {
            End::Over if board.failures().next().is_none() => return Ok(()),
            End::Over => "not all pods can be evicted".to_owned(),
            End::TimeUp => format!("global timeout reached: {reached}"),
            End::Signal(signal) => format!("ended by {signal}"),
            End::Blind(why) => format!("the pods of the node cannot be listed: {why}"),
        };
        let note = board.note();
        (self.tell)(Event::NotDrained {
            node: node.name.clone(),
            evicted: note.evicted,
            total: note.total,
            pending: board.pending().map(|(pod, _)| pod.path()).collect(),
            message: why.clone(),
        });
        let message = last_line(&why, &board);
        Err(match end {
            End::Signal(signal) => Failure::Stopped { signal, message },
            _ => Failure::Failed(message),
        })
    }

    /// Does something that ends at once when the process is told to stop.
    async fn or_stop<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let mut stop = self.stop.clone();
        let stopped = async {
            match stop.wait_for(Option::is_some).await {
                Ok(signal) => *signal,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            signal = stopped => Err(Failure::Stopped {
                signal: signal.unwrap_or_default(),
                message: format!("ended by {}", signal.unwrap_or_default()),
            }),
        }
    }
}

/// What was evicted, what was not, and why: as many pods as a termination message shows.
fn last_line(why: &str, board: &Board) -> String {
    let note = board.note();
    let mut line = format!("{why}; {} of {} pods are gone", note.evicted, note.total);
    let failures = board
        .failures()
        .map(|(pod, why)| format!("{}: {why}", pod.path()));
    let waits = note.waiting.iter().map(ToString::to_string);
    let waiting: Vec<_> = note.waiting.iter().map(|wait| wait.pod.as_str()).collect();
    let failed: Vec<_> = board.failures().map(|(pod, _)| pod).collect();
    let others = board
        .pending()
        .filter(|(pod, _)| !failed.contains(pod) && !waiting.contains(&pod.path().as_str()))
        .map(|(pod, leaving)| match leaving {
            true => format!("{} is still terminating", pod.path()),
            false => format!("{} was not evicted", pod.path()),
        });
    let mut left = 0;
    for part in failures.chain(waits).chain(others) {
        if line.len() + part.len() <= LAST_LINE {
            line = format!("{line}; {part}");
        } else {
            left += 1;
        }
    }
    match left + note.more {
        0 => line,
        more => format!("{line}; and {more} more"),
    }
}

/// One failure for all nodes that failed.
fn all_or(act: &str, failed: Vec<(String, Failure)>) -> Result<(), Failure> {
    let message = |nodes: &[(String, Failure)]| {
        let lines: Vec<_> = nodes
            .iter()
            .map(|(node, why)| format!("unable to {act} node {node:?}: {why}"))
            .collect();
        lines.join("\nerror: ")
    };
    let signal = failed.iter().find_map(|(_, failure)| match failure {
        Failure::Stopped { signal, .. } => Some(*signal),
        Failure::Failed(_) => None,
    });
    match signal {
        _ if failed.is_empty() => Ok(()),
        Some(signal) => Err(Failure::Stopped {
            signal,
            message: message(&failed),
        }),
        None => Err(Failure::Failed(message(&failed))),
    }
}

#[cfg(test)]
mod tests;
