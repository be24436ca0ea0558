//! A Plan in the index: what its spec means, what it resolves to, and which nodes it is for. Kept up to date with each
//! change, so that a decision need not look at every node again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::digests::Digests;
use super::facts::{ChannelFacts, NodeFacts, PlanFacts, SecretFacts, Text};
use super::resolve::{self, Resolution, Resolved};
use super::status::WAITING;
use super::terms::Terms;
use super::view::View;
use super::world::{Defaults, Table};
use crate::api::duration::GoDuration;
use crate::api::selector::{Selector, SelectorError};
use crate::api::validate::{MaxConcurrent, validate};
use crate::api::window::Window;
use crate::api::{NodeProgress, PlanSpec, PlanStatus, names};
use crate::channel::Named;
use crate::job;
use crate::version::policy::{Choice, Circumstances, Offered, Policy, choose};

/// A Plan with all that follows from it.
#[derive(Debug)]
pub(super) struct PlanView {
    pub(super) version: u64,
    pub(super) listed: bool,
    pub(super) facts: PlanFacts,
    /// A list has shown it without our status, so that our fields may have been pruned from what was read: no node is
    /// started before a status of ours is stored, whose answer has them.
    pub(super) unproven: bool,
    /// Why the Plan is not valid, secrets aside (S53).
    pub(super) invalid: Option<String>,
    pub(super) window: Option<Window>,
    pub(super) delay: SignedDuration,
    /// What it asks of its nodes after their Jobs.
    pub(super) terms: Terms,
    pub(super) disruptive: bool,
    pub(super) tolerates_not_ready: bool,
    /// The channel that decides the version.
    pub(super) channel: Option<Named>,
    /// What the Plan asks of a version. Nothing where it cannot be read: then none is taken.
    pub(super) policy: Option<Policy>,
    /// What the Plan makes of what the channel offers; nothing while that is not known.
    pub(super) choice: Option<Choice>,
    chosen: Option<Chosen>,
    /// The value of the annotation that the channel was asked for last, as far as this process knows.
    pub(super) polled_for: Option<String>,
    /// What the Plan resolves to.
    pub(super) resolution: Resolution,
    /// The version and hash, as far as it is resolved.
    pub(super) resolved: Option<Resolved>,
    /// Digest of the user's part of the template at that version.
    pub(super) inputs: Text,
    /// What the tags of its images stand for at that version, where they are pinned.
    pub(super) digests: Digests,
    /// What is wrong with its Jobs at that version.
    pub(super) job_errors: Vec<job::JobError>,
    /// The nodes that it is for.
    pub(super) nodes: View,
    /// The status that this process wrote last.
    pub(super) written: Option<Written>,
    /// A status that was sent, and may be the stored one by now.
    pub(super) sent: Option<SentStatus>,
    selector: Selector,
    /// Why `nodeSelector` cannot be read; it selects none then.
    pub(super) selector_error: Option<String>,
    stale: bool,
}

/// For how long nodes may begin that status names as next. A status is accepted only if the Plan is as the controller knows
/// it; what somebody edits afterwards is heeded as soon as the watch tells of it, and after this time in any case.
const SURE_FOR: SignedDuration = SignedDuration::from_secs(1);

/// For what a choice was made.
#[derive(Debug)]
struct Chosen {
    offer: Arc<Offered>,
    /// What status said that takes part: what the Plan was at, and what is remembered of the channel.
    told: (Option<String>, BTreeMap<String, Timestamp>, Option<String>),
    from: Timestamp,
    /// When time alone makes it another one.
    until: Option<Timestamp>,
}

/// A status that was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// When it was sent.
    pub sent: Timestamp,
    /// When the answer was heard.
    pub at: Timestamp,
    /// From the first of the events that go before it to the answer.
    pub took: SignedDuration,
}

/// A status of which it is not known whether it is stored.
#[derive(Debug)]
pub(super) struct SentStatus {
    /// Version of the Plan that it replaces, and no other.
    version: u64,
    /// UIDs of the nodes that have a slot in it, and in each that may still arrive in its place.
    nodes: BTreeSet<String>,
    /// UIDs and names of the nodes that have a slot in any of them.
    any: BTreeMap<String, String>,
}

impl PlanView {
    pub(super) fn new(version: u64, facts: PlanFacts, defaults: &Defaults) -> Self {
        let mut view = Self {
            version,
            listed: true,
            facts,
            unproven: false,
            invalid: None,
            window: None,
            delay: SignedDuration::ZERO,
            terms: Terms::default(),
            disruptive: false,
            tolerates_not_ready: false,
            channel: None,
            policy: None,
            choice: None,
            chosen: None,
            polled_for: None,
            resolution: Resolution::Pending,
            resolved: None,
            inputs: "".into(),
            digests: Digests::default(),
            job_errors: Vec::new(),
            nodes: View::default(),
            written: None,
            sent: None,
            selector: Selector::nothing(),
            selector_error: None,
            stale: true,
        };
        view.read_spec(defaults);
        view
    }

    /// A status is on its way. If an earlier one may still arrive in its place, nodes have their slot that both name.
    pub(super) fn status_sent(&mut self, status: &PlanStatus) {
        let active = status.active.iter().flatten();
        let mut any: BTreeMap<_, _> = active
            .filter(|node| node.phase != WAITING)
            .filter_map(|node| Some((node.uid.clone()?, node.name.clone())))
            .collect();
        let mut nodes: BTreeSet<_> = any.keys().cloned().collect();
        if let Some(earlier) = self.sent.take() {
            nodes.retain(|node| earlier.nodes.contains(node));
            any.extend(earlier.any);
        }
        self.sent = Some(SentStatus {
            version: self.version,
            nodes,
            any,
        });
    }

    /// The Plan was seen in this version: what was to replace an earlier one has done so, or never will.
    pub(super) fn seen_in(&mut self, version: u64) {
        self.version = version;
        self.sent = self.sent.take().filter(|sent| sent.version == version);
    }

    /// The Plan was read as it is known now, by a list or otherwise.
    pub(super) fn is_read(&mut self, listed: bool) {
        let is_ours = self.facts.status().observed_generation.is_some();
        self.unproven = !is_ours && (listed || self.unproven);
    }

    /// The node has its slot whichever status is the stored one.
    pub(super) fn keeps_slot(&self, told: &NodeProgress) -> bool {
        let named = |nodes: &BTreeSet<String>| told.uid.as_ref().is_some_and(|uid| nodes.contains(uid));
        self.sent.as_ref().is_none_or(|sent| named(&sent.nodes))
    }

    /// UIDs and names of the nodes that have a slot as soon as a status has arrived that is on its way.
    pub(super) fn slots_on_their_way(&self) -> impl Iterator<Item = (&str, &str)> {
        let sent = self.sent.iter().flat_map(|sent| &sent.any);
        sent.map(|(uid, name)| (uid.as_str(), name.as_str()))
    }

    /// Stored status was sent a moment ago, from this process, and accepted: the Plan was then as it is known here.
    pub(super) fn is_sure(&self, now: Timestamp) -> bool {
        self.written.is_some_and(|written| {
            let until = written.sent.checked_add(SURE_FOR);
            written.sent <= now && until.is_ok_and(|until| now < until)
        })
    }

    /// The Plan has changed.
    pub(super) fn change(&mut self, facts: PlanFacts, defaults: &Defaults) {
        let same_spec = self.facts.uid == facts.uid
            && self.facts.object.spec == facts.object.spec
            && self.facts.malformed == facts.malformed
            && self.facts.object.metadata.labels == facts.object.metadata.labels
            && self.facts.object.metadata.annotations == facts.object.metadata.annotations;
        self.facts = facts;
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
        self.invalid = match &self.facts.malformed {
            Some(why) => Some(why.clone()),
            None => validate(&self.facts.name, spec)
                .err()
                .map(|invalid| invalid.to_string()),
        };
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
        self.terms = Terms::of(spec);
        self.channel = resolve::channel_of(spec);
        self.policy = spec.version_policy().ok();
        self.chosen = None;
        self.tolerates_not_ready = tolerates_not_ready(spec);
        (self.selector, self.selector_error) = match node_selector(spec) {
            Ok(selector) => (selector, None),
            Err(error) => (Selector::nothing(), Some(error.to_string())),
        };
    }

    /// Looks again at what the Plan resolves to and which nodes it is for, where that may have changed.
    pub(super) fn settle(
        &mut self,
        nodes: &Table<NodeFacts>,
        secrets: &Table<SecretFacts>,
        channels: &BTreeMap<Named, ChannelFacts>,
        defaults: &Defaults,
        now: Timestamp,
    ) {
        self.choose(channels, now);
        let resolution = resolve::resolve(self, secrets, channels);
        if self.stale || resolution != self.resolution {
            let target = match &resolution {
                Resolution::Resolved(resolved) => Some(resolved.clone()),
                // While the Plan is not resolved, the nodes are counted by what it was at.
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
                self.nodes
                    .rebuild(hash, &self.facts, &self.selector, self.tolerates_not_ready, nodes);
            }
            self.resolution = resolution;
            self.stale = false;
        }
        self.digests.settle(self.facts.status(), self.resolved.as_ref());
    }

    /// Chooses from what the channel offers, where something has changed since.
    fn choose(&mut self, channels: &BTreeMap<Named, ChannelFacts>, now: Timestamp) {
        let known = self.channel.as_ref().and_then(|channel| channels.get(channel));
        let Some((known, offer)) = known.and_then(|known| Some((known, known.offer.as_ref()?))) else {
            (self.choice, self.chosen) = (None, None);
            return;
        };
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let told = (
            owned(resolve::current(&self.facts)),
            resolve::seen(&self.facts, self.channel.as_ref()),
            owned(resolve::withdrawn(&self.facts, self.channel.as_ref())),
        );
        let stands = self.chosen.as_ref().is_some_and(|chosen| {
            Arc::ptr_eq(&chosen.offer, offer)
                && chosen.told == told
                && chosen.from <= now
                && chosen.until.is_none_or(|until| now < until)
        });
        if stands {
            return;
        }
        let choice = match &self.policy {
            Some(policy) => {
                let (current, seen, withdrawn) = &told;
                let circumstances = Circumstances {
                    current: current.as_deref(),
                    seen,
                    approved: self.facts.annotation(names::ANNOTATION_APPROVE),
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
            told,
            from: now,
            until: choice.due,
        });
        self.choice = Some(choice);
    }

    /// A registry has said what the tag of an image stands for.
    pub(super) fn digest_read(&mut self, hash: &str, image: String, digest: String) {
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

    /// The Plan's side of a Job.
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

    /// A Node has changed.
    pub(super) fn node_changed(&mut self, node: &NodeFacts) {
        if !self.stale {
            self.nodes
                .node_changed(&self.facts, &self.selector, self.tolerates_not_ready, node);
        }
    }

    /// A Node is gone.
    pub(super) fn node_gone(&mut self, name: &Text) {
        self.nodes.remove(name);
    }

    /// What stands in the way of a Job for a node, before it is asked for.
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

    /// `postCompleteDelay`, as Go prints it.
    pub(super) fn delay_text(&self) -> String {
        let nanos = i64::try_from(self.delay.as_nanos()).unwrap_or(i64::MAX);
        GoDuration::from_nanos(nanos).to_string()
    }

    /// How many nodes may be worked on at a time.
    pub(super) fn limit(&self) -> i64 {
        let spec = self.spec();
        match spec.max_concurrent.as_ref().map(MaxConcurrent::parse) {
            Some(Ok(limit)) => {
                let selected = usize::try_from(self.nodes.selected()).unwrap_or_default();
                i64::try_from(limit.of(selected)).unwrap_or(i64::MAX)
            }
            Some(Err(_)) => 0, // not valid, which is said elsewhere
            None => spec.concurrency.unwrap_or(0).max(0),
        }
    }

    /// No new node is to start.
    pub(super) fn is_suspended(&self) -> bool {
        self.spec().suspend.unwrap_or_default()
    }
}

/// The Plan names the taints of a node that is not Ready, so it is for repairing such nodes. A toleration of everything
/// does not say so.
fn tolerates_not_ready(spec: &PlanSpec) -> bool {
    spec.tolerations.iter().flatten().any(|toleration| {
        matches!(
            toleration.key.as_deref(),
            Some("node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
        )
    })
}

/// The nodes that a Plan is for have the hostname label too (S13).
fn node_selector(spec: &PlanSpec) -> Result<Selector, SelectorError> {
    let selector = Selector::new(spec.node_selector.as_ref())?;
    Ok(selector.and(Selector::exists(names::LABEL_HOSTNAME)?))
}
