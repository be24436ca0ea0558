//! One run of `refit cordon`, `uncordon` or `drain`: the order in which things are done.

use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt as _;
use kube::Client;
use tokio::sync::watch;

use super::cordon::{self, Act, Changed, CordonError};
use super::event::{DryRun, Event};
use super::evict::Evictor;
use super::failure::{Failure, all_or, last_line};
use super::find::{self, Finder};
use super::pods::Found;
use super::publish::Publisher;
use super::run::{End, Loop};
use super::{Options, PlanRun, Which, permissions};
use crate::clock::Clock;
use crate::controller::client::brief;
use crate::rollout::Cancelled;

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
        all_or("cordon", &failed)
    }

    /// Makes nodes schedulable again.
    pub async fn uncordon(&self, which: &Which) -> Result<(), Failure> {
        let nodes = self.or_stop(self.names(which, 0)).await?;
        let mut failed = Vec::new();
        for node in &nodes {
            let done = self.or_stop(self.uncordon_one(node)).await;
            failed.extend(done.err().map(|error| (node.clone(), error)));
        }
        all_or("uncordon", &failed)
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
        all_or("drain", &failed)
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
            self.note_workloads(node, &found).await?;
            self.evict(node, options, evictor, found).await?;
        }
        if self.dry_run == DryRun::None && self.plan.is_some() {
            let confirm = cordon::cordon(&self.client, &node.name, self.plan.as_ref(), Act::Confirm, false);
            self.or_stop(async { Ok(confirm.await?) }).await?;
        }
        self.tell_node(&node.name, "drained");
        Ok(())
    }

    /// Writes down whose pods are about to be evicted, where the Plan waits for them later: nobody could tell afterwards.
    async fn note_workloads(&self, node: &Node, found: &Found) -> Result<(), Failure> {
        let plan = self.plan.clone().filter(|plan| plan.notes_workloads);
        let Some(mut plan) = plan.filter(|_| self.dry_run == DryRun::None && !found.workloads.is_empty())
        else {
            return Ok(());
        };
        plan.holder.evicted.clone_from(&found.workloads);
        let written = cordon::cordon(&self.client, &node.name, Some(&plan), Act::Begin, false);
        self.or_stop(async { Ok(written.await.map(|_| ())?) }).await
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
            cancelled: cordon::cancelled(self.client.clone(), node.name.clone(), self.plan.clone()).boxed(),
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
            End::Cancelled => Cancelled.to_string(),
            End::Blind(why) => format!("the pods of the node cannot be listed: {why}"),
        };
        let so_far = board.note();
        (self.tell)(Event::NotDrained {
            node: node.name.clone(),
            evicted: so_far.evicted,
            total: so_far.total,
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
