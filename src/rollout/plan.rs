//! A Plan in the index with everything derived from it: the parsed spec, the resolved version, the selected nodes. Each
//! change updates it, so a decision need not look at every node again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::blocker::Blocker;
use super::completion::CompletionPolicy;
use super::digests::Digests;
use super::facts::{ChannelFacts, NodeFacts, NodeName, NodeUid, PlanFacts, SecretFacts, Text};
use super::resolve::{self, HashCache, Resolution, Resolved};
use super::state::{Defaults, Table};
use super::targets::Targets;
use crate::api::selector::{Selector, SelectorError};
use crate::api::validate::validate;
use crate::api::window::Window;
use crate::api::{NodeLimit, NodePhase, NodeProgress, PlanSpec, PlanStatus, names};
use crate::channel::ChannelRef;
use crate::go::GoDuration;
use crate::job;
use crate::version::policy::{Choice, Circumstances, Offered, Policy, choose};

/// A Plan with everything derived from it.
#[derive(Debug)]
pub(super) struct PlanState {
    pub(super) version: u64,
    pub(super) listed: bool,
    pub(super) facts: PlanFacts,
    /// A list has returned the Plan without refit's status, so its fields may have been pruned. No node starts before a
    /// status of refit is stored, whose response has all fields.
    pub(super) unproven: bool,
    /// Why the Plan is invalid, except for missing Secrets (S53).
    pub(super) invalid: Option<String>,
    pub(super) window: Option<Window>,
    pub(super) delay: SignedDuration,
    /// Conditions for a node to be done after its Job.
    pub(super) completion: CompletionPolicy,
    pub(super) disruptive: bool,
    pub(super) tolerates_not_ready: bool,
    pub(super) channel: Option<ChannelRef>,
    /// The parsed `versionPolicy`; `None` if it is invalid, and then no version is taken.
    pub(super) policy: Option<Policy>,
    /// The chosen version; `None` while the channel's offer is not known.
    pub(super) choice: Option<Choice>,
    chosen: Option<Chosen>,
    /// Value of `refit.rs/poll-now` at the last requested poll, as far as this process knows.
    pub(super) polled_for: Option<String>,
    pub(super) resolution: Resolution,
    pub(super) hashes: HashCache,
    /// The version and the hash, once resolved.
    pub(super) resolved: Option<Resolved>,
    /// Digest of the user's part of the template at that version.
    pub(super) inputs: Text,
    /// Digests of the images at that version, with `pinDigest`.
    pub(super) digests: Digests,
    /// Errors that every Job would have at that version.
    pub(super) job_errors: Vec<job::JobError>,
    /// The selected nodes.
    pub(super) targets: Targets,
    /// When the response to the last status write arrived.
    pub(super) written: Option<Timestamp>,
    /// A status that was sent, and may be stored by now.
    pub(super) sent: Option<SentStatus>,
    selector: Selector,
    /// Why `nodeSelector` is invalid. It selects no node then.
    pub(super) selector_error: Option<String>,
    stale: bool,
}

/// The inputs of a choice of version.
#[derive(Debug)]
struct Chosen {
    offer: Arc<Offered>,
    /// From the stored status: the current version, and when versions were first seen.
    based_on: (Option<String>, BTreeMap<String, Timestamp>, Option<String>),
    from: Timestamp,
    /// When the choice changes without new inputs.
    until: Option<Timestamp>,
}

/// A status that was sent and may be stored.
#[derive(Debug)]
pub(super) struct SentStatus {
    /// Version of the Plan that it replaces. At any other version the write fails.
    version: u64,
    /// UIDs of the nodes that have a slot in every status that may be stored.
    nodes: BTreeSet<String>,
}

impl PlanState {
    pub(super) fn new(version: u64, facts: PlanFacts, defaults: &Defaults) -> Self {
        let mut plan_state = Self {
            version,
            listed: true,
            facts,
            unproven: false,
            invalid: None,
            window: None,
            delay: SignedDuration::ZERO,
            completion: CompletionPolicy::default(),
            disruptive: false,
            tolerates_not_ready: false,
            channel: None,
            policy: None,
            choice: None,
            chosen: None,
            polled_for: None,
            resolution: Resolution::Pending,
            hashes: HashCache::default(),
            resolved: None,
            inputs: "".into(),
            digests: Digests::default(),
            job_errors: Vec::new(),
            targets: Targets::default(),
            written: None,
            sent: None,
            selector: Selector::nothing(),
            selector_error: None,
            stale: true,
        };
        plan_state.read_spec(defaults);
        plan_state
    }

    /// Records a status in flight. If an earlier one may be stored instead, a node keeps its slot only if both name it.
    pub(super) fn record_sent_status(&mut self, status: &PlanStatus) {
        let active = status.active.iter().flatten();
        let mut nodes: BTreeSet<_> = active
            .filter(|node| node.phase != NodePhase::Waiting)
            .filter_map(|node| node.uid.clone())
            .collect();
        if let Some(earlier) = self.sent.take() {
            nodes.retain(|node| earlier.nodes.contains(node));
        }
        self.sent = Some(SentStatus {
            version: self.version,
            nodes,
        });
    }

    /// Sets the version of the Plan. Statuses that were to replace an earlier version have done so, or never will.
    pub(super) fn set_version(&mut self, version: u64) {
        self.version = version;
        self.sent = self.sent.take().filter(|sent| sent.version == version);
    }

    /// Records that the Plan was read, by a list or otherwise.
    pub(super) fn note_read(&mut self, listed: bool) {
        let is_ours = self.facts.status().observed_generation.is_some();
        self.unproven = !is_ours && (listed || self.unproven);
    }

    /// Whether the node has its slot in every status that may be stored.
    pub(super) fn keeps_slot(&self, entry: &NodeProgress) -> bool {
        let named = |nodes: &BTreeSet<String>| entry.uid.as_ref().is_some_and(|uid| nodes.contains(uid));
        self.sent.as_ref().is_none_or(|sent| named(&sent.nodes))
    }

    /// Applies a change of the Plan.
    pub(super) fn change(&mut self, facts: PlanFacts, defaults: &Defaults) {
        let same_spec = self.facts.uid == facts.uid
            && self.facts.object.spec == facts.object.spec
            && self.facts.malformed == facts.malformed
            && self.facts.object.metadata.labels == facts.object.metadata.labels
            && self.facts.object.metadata.annotations == facts.object.metadata.annotations;
        self.facts = facts;
        if !same_spec || !job::digest::is_of_spec(&self.facts.object) {
            self.hashes.clear();
        }
        if !same_spec {
            self.read_spec(defaults);
        }
    }

    pub(super) fn spec(&self) -> &PlanSpec {
        &self.facts.object.spec
    }

    fn read_spec(&mut self, defaults: &Defaults) {
        self.stale = true;
        self.inputs = "".into();
        let spec = &self.facts.object.spec;
        self.invalid = self.facts.malformed.clone().or_else(|| {
            let invalid = validate(&self.facts.name, spec).err();
            let fields = || job::digest::check_fields(&self.facts.object).err();
            let invalid = invalid.map(|invalid| invalid.to_string());
            invalid.or_else(|| fields().map(|error| error.to_string()))
        });
        self.window = spec
            .window
            .as_ref()
            .and_then(|w| Window::parse(w, &defaults.local_zone).ok());
        self.delay = spec
            .post_complete_delay
            .as_deref()
            .and_then(|text| text.parse::<GoDuration>().ok())
            .map_or(SignedDuration::ZERO, |d| SignedDuration::from_nanos(d.as_nanos()));
        self.disruptive = spec.cordon.unwrap_or_default()
            || spec.drain.is_some()
            || spec.exclusive.unwrap_or_default()
            || spec.may_reboot();
        self.completion = CompletionPolicy::of(spec);
        self.channel = resolve::channel_of(spec);
        self.policy = spec.version_policy().ok();
        self.chosen = None;
        self.tolerates_not_ready = tolerates_not_ready(spec);
        (self.selector, self.selector_error) = match node_selector(spec) {
            Ok(selector) => (selector, None),
            Err(error) => (Selector::nothing(), Some(error.to_string())),
        };
    }

    /// Updates the resolution and the selected nodes if their inputs may have changed.
    pub(super) fn refresh(
        &mut self,
        nodes: &Table<NodeName, NodeUid, NodeFacts>,
        secrets: &Table<Text, Text, SecretFacts>,
        channels: &BTreeMap<ChannelRef, ChannelFacts>,
        defaults: &Defaults,
        now: Timestamp,
    ) {
        self.choose(channels, now);
        let resolution = resolve::resolve(
            &self.facts,
            self.channel.as_ref(),
            self.choice.as_ref(),
            self.policy.as_ref().and_then(|policy| policy.range.as_ref()),
            secrets,
            channels,
            &mut self.hashes,
        );
        if self.stale || resolution != self.resolution {
            let target = match &resolution {
                Resolution::Resolved(resolved) => Some(resolved.clone()),
                // While the Plan is not resolved, nodes are counted at its last hash.
                Resolution::Pending
                | Resolution::Reading(_)
                | Resolution::Failed(_)
                | Resolution::Held(_)
                | Resolution::MissingSecrets(_) => resolve::stored(&self.facts),
            };
            let same = match (&self.resolved, &target) {
                (Some(known), Some(target)) => known.is_at(target),
                (known, target) => known.is_none() && target.is_none(),
            };
            self.resolved = target;
            if self.stale || !same {
                self.read_target(defaults);
                let hash = self.resolved.as_ref().map(|r| r.hash.clone());
                self.targets
                    .rebuild(hash, &self.facts, &self.selector, self.tolerates_not_ready, nodes);
            }
            self.resolution = resolution;
            self.stale = false;
        }
        self.digests.refresh(self.facts.status(), self.resolved.as_ref());
    }

    /// Chooses from the channel's offer if an input has changed.
    fn choose(&mut self, channels: &BTreeMap<ChannelRef, ChannelFacts>, now: Timestamp) {
        let known = self.channel.as_ref().and_then(|channel| channels.get(channel));
        let Some((known, offer)) = known.and_then(|known| Some((known, known.offer.as_ref()?))) else {
            (self.choice, self.chosen) = (None, None);
            return;
        };
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let based_on = (
            owned(resolve::current(&self.facts)),
            resolve::first_seen(&self.facts, self.channel.as_ref()),
            owned(resolve::withdrawn(&self.facts, self.channel.as_ref())),
        );
        let is_current = self.chosen.as_ref().is_some_and(|chosen| {
            Arc::ptr_eq(&chosen.offer, offer)
                && chosen.based_on == based_on
                && chosen.from <= now
                && chosen.until.is_none_or(|until| now < until)
        });
        if is_current {
            return;
        }
        let choice = match &self.policy {
            Some(policy) => {
                let (current, seen, withdrawn) = &based_on;
                let circumstances = Circumstances {
                    current: current.as_deref(),
                    seen,
                    approved: self.facts.annotation(names::ANNOTATION_APPROVE),
                    distribution: self.facts.object.spec.distribution(),
                    withdrawn: withdrawn.as_deref(),
                    polled: known.polled,
                    now,
                };
                choose(policy, offer, &circumstances)
            }
            None => Choice::default(),
        };
        self.chosen = Some(Chosen {
            offer: Arc::clone(offer),
            based_on,
            from: now,
            until: choice.due,
        });
        self.choice = Some(choice);
    }

    /// Adds the digest of an image.
    pub(super) fn apply_digest(&mut self, hash: &str, image: String, digest: String) {
        if self
            .resolved
            .as_ref()
            .is_some_and(|resolved| *resolved.hash == *hash)
        {
            self.digests.read(hash, image, digest);
        }
    }

    fn read_target(&mut self, defaults: &Defaults) {
        let version = self.resolved.as_ref().map_or("", |r| &*r.version);
        self.inputs = job::inputs::inputs(&self.facts.object.spec, version).into();
        self.digests.want(&self.facts.object.spec, version);
        self.job_errors = if self.resolved.is_some() && self.facts.malformed.is_none() {
            job::check(&self.job_input(defaults), &defaults.job).errors
        } else {
            Vec::new()
        };
    }

    /// The Plan's inputs of a Job.
    pub(super) fn job_input<'a>(&'a self, defaults: &'a Defaults) -> job::PlanInput<'a> {
        job::PlanInput {
            name: &self.facts.name,
            namespace: &defaults.namespace,
            uid: &self.facts.uid,
            labels: self.facts.object.metadata.labels.as_ref(),
            annotations: self.facts.object.metadata.annotations.as_ref(),
            spec: &self.facts.object.spec,
            latest_version: self.resolved.as_ref().map_or("", |r| &*r.version),
            latest_hash: self.resolved.as_ref().map_or("", |r| &*r.hash),
            inputs: &self.inputs,
            digests: &self.digests.known,
        }
    }

    pub(super) fn node_changed(&mut self, node: &NodeFacts) {
        if !self.stale {
            self.targets
                .node_changed(&self.facts, &self.selector, self.tolerates_not_ready, node);
        }
    }

    pub(super) fn remove_node(&mut self, name: &NodeName) {
        self.targets.remove(name);
    }

    /// What blocks the Job of a node, before it is requested.
    pub(super) fn job_blocker(&self, windows: bool) -> Option<Blocker> {
        self.job_errors.iter().find_map(|error| match error {
            job::JobError::KubectlImageWindows => windows.then_some(Blocker::SettingMissing {
                name: "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS",
            }),
            error if error.is_for_windows() && !windows => None,
            job::JobError::Image { .. } => Some(Blocker::ImageInvalid {
                why: error.to_string(),
            }),
            _ => Some(Blocker::JobRefused {
                why: error.to_string(),
            }),
        })
    }

    /// `postCompleteDelay` as Go prints it.
    pub(super) fn delay_text(&self) -> String {
        let nanos = i64::try_from(self.delay.as_nanos()).unwrap_or(i64::MAX);
        GoDuration::from_nanos(nanos).to_string()
    }

    /// Maximum number of nodes in progress.
    pub(super) fn limit(&self) -> i64 {
        let spec = self.spec();
        match &spec.max_concurrent {
            Some(limit) => self.nodes_of(limit),
            None => spec.concurrency.unwrap_or(0).max(0),
        }
    }

    /// How many of the selected nodes a limit is; none where it is not valid, which is said elsewhere.
    pub(super) fn nodes_of(&self, limit: &IntOrString) -> i64 {
        let selected = usize::try_from(self.targets.selected()).unwrap_or_default();
        let nodes = NodeLimit::parse(limit).map_or(0, |limit| limit.of(selected));
        i64::try_from(nodes).unwrap_or(i64::MAX)
    }

    /// No new node is to start.
    pub(super) fn is_suspended(&self) -> bool {
        self.spec().suspend.unwrap_or_default()
    }
}

/// Whether the Plan tolerates the taints of nodes that are not Ready by name, which means that it repairs such nodes. A
/// toleration of all taints does not mean that.
fn tolerates_not_ready(spec: &PlanSpec) -> bool {
    spec.tolerations.iter().flatten().any(|toleration| {
        matches!(
            toleration.key.as_deref(),
            Some("node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
        )
    })
}

/// Selected nodes must also have the hostname label (S13).
fn node_selector(spec: &PlanSpec) -> Result<Selector, SelectorError> {
    let selector = Selector::new(spec.node_selector.as_ref())?;
    Ok(selector.and(Selector::exists(names::LABEL_HOSTNAME)?))
}
