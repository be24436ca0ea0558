//! A Plan in the index with everything derived from it: the parsed spec, the resolved version, the selected nodes. Each
//! change updates it, so a decision need not look at every node again.

pub(super) mod secrets;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::blocker::Blocker;
use super::checks::{Checks, Progress};
use super::completion::CompletionPolicy;
use super::digests::Digests;
use super::event::Event;
use super::order::Order;
use super::reboot_needed::RebootNeeded;
use super::resolve::{self, HashCache, Resolution, Resolved};
use super::settings::Defaults;
use super::targets::{Selection, Targets};
use super::world::World;
use refit_api::image::ImageAnswer;
use refit_api::selector::Selector;
use refit_api::validate::ParsedSpec;
use refit_api::{
    ChannelRef, DrainSpec, Hook, NodeLimit, NodeProgress, Notified, PlanSpec, PlanStatus, annotation, names,
};
use refit_base::go::GoDuration;
use refit_base::version::Version;
use refit_base::version::policy::{Choice, Offered, PolicyInputs, choose};
use refit_facts::{ChannelFacts, NodeFacts, NodeUid, PlanFacts, Record, Text};

use secrets::PlanSecrets;

/// A Plan with everything derived from it.
#[derive(Debug, Default)]
pub(super) struct DerivedPlan {
    pub(super) version: u64,
    pub(super) facts: Arc<PlanFacts>,
    /// A list has returned the Plan without refit's status, so its fields may have been pruned. No node starts before a
    /// status of refit is stored, whose response has all fields.
    pub(super) unproven: bool,
    /// Why the Plan is invalid, except for missing Secrets (S53).
    pub(super) invalid: Option<String>,
    /// What has a form of its own, apart from what is moved into the fields below: `order`, `waves`, `checks` and `node_info`.
    pub(super) parsed: ParsedSpec,
    /// The length of the longest of its `windows`. Computed once, because a cron expression may take thousands of steps.
    longest_window: OnceLock<Option<SignedDuration>>,
    /// Maximum time from the start of a node to its end; `None` if its Job has no limit.
    pub(super) time_limit: Option<SignedDuration>,
    /// Conditions for a node to be done after its Job.
    pub(super) completion: CompletionPolicy,
    /// Whether nodes start only if their drains would end.
    pub(super) checks_drains: bool,
    pub(super) channel: Option<ChannelRef>,
    /// The chosen version; `None` while the channel's offer is not known.
    chosen: Option<Chosen>,
    /// Value of `refit.rs/poll-now` at the last requested poll, as far as this process knows.
    pub(super) polled_for: Option<String>,
    pub(super) resolution: Resolution,
    pub(super) hashes: HashCache,
    pub(super) secrets: PlanSecrets,
    /// The version and the hash, once resolved.
    pub(super) resolved: Option<Resolved>,
    /// Digest of the user's part of the template at that version.
    pub(super) inputs: Text,
    /// The same of each hook that the Plan has. The names of its Jobs differ by it.
    pub(super) hooks: BTreeMap<Hook, Text>,
    /// What registries say about the images at that version.
    pub(super) digests: Digests,
    /// The digest of refit's own fields in the spec (`pruning.rs`), once it is needed.
    pub(super) own_fields: OnceLock<Option<String>>,
    /// Errors that every Job would have at that version.
    pub(super) job_errors: Vec<refit_job::JobError>,
    pub(super) targets: Targets,
    /// When this process last saw a done node that was not Ready. It may only delay a wave.
    pub(super) last_unready: Option<Timestamp>,
    pub(super) checks: Checks,
    /// When the response to the last status write arrived.
    pub(super) written: Option<Timestamp>,
    /// A status that was sent, and may be stored by now.
    pub(super) sent: Option<SentStatus>,
    /// The nodes to which this process has given a slot, and for which it has created no Job since.
    pub(super) unstarted_slots: BTreeSet<NodeUid>,
    /// Key of the last event about why the Plan is not written.
    pub(super) event_sent: Option<String>,
    /// Notifications that were sent, and are not stored yet.
    pub(super) notified: Notified,
    /// How the Plan selects and orders nodes.
    pub(super) selection: Selection,
    /// Why `nodeSelector` is invalid. It selects no node then.
    pub(super) selector_error: Option<String>,
    stale: bool,
}

/// A choice of version, and its inputs.
#[derive(Debug)]
struct Chosen {
    choice: Choice,
    offer: Arc<Offered>,
    based_on: Basis,
    from: Timestamp,
}

/// What a choice depends on besides the offer. From the stored status: the current version, when versions were first seen, and
/// the one that was withdrawn. From the nodes: the oldest kubelet, and that of the Plans that follow.
type Basis = (
    Option<String>,
    BTreeMap<String, Timestamp>,
    Option<String>,
    Option<(String, String)>,
    Option<(String, String)>,
);

/// A status that was sent and may be stored.
#[derive(Debug)]
pub(super) struct SentStatus {
    /// Version of the Plan that it replaces. At any other version the write fails.
    version: u64,
    /// UIDs of the nodes that have a slot in every status that may be stored.
    nodes: BTreeSet<String>,
}

impl DerivedPlan {
    pub(super) fn new(version: u64, facts: PlanFacts, defaults: &Defaults) -> Self {
        let mut plan_state = Self {
            version,
            facts: Arc::new(facts),
            ..Self::default()
        };
        plan_state.read_spec(defaults);
        plan_state
    }

    /// Records a status in flight. If an earlier one may be stored instead, a node keeps its slot only if both name it.
    pub(super) fn record_sent_status(&mut self, status: &PlanStatus) {
        let mut nodes: BTreeSet<_> = status.slots().filter_map(|node| node.uid.clone()).collect();
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

    /// That event was the last one of its kind, and the status has not been written since.
    pub(super) fn has_sent(&self, event: &Event) -> bool {
        self.event_sent.as_ref() == Some(&event.key)
    }

    /// Notifications were sent, which is to be stored.
    pub(super) fn add_notified(&mut self, marks: Vec<String>) -> bool {
        let stored = self.facts.notified();
        self.notified.retain(|mark| !stored.contains(mark));
        self.notified
            .add(marks.into_iter().filter(|mark| !stored.contains(mark)));
        true
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
        // Jobs inherit labels and annotations of the Plan, and an annotation names fields of its hash.
        let same_spec = self.facts.uid == facts.uid
            && self.facts.object.spec == facts.object.spec
            && self.facts.malformed == facts.malformed
            && self.facts.object.metadata.labels == facts.object.metadata.labels
            && self.facts.object.metadata.annotations == facts.object.metadata.annotations;
        if self.facts.uid != facts.uid {
            self.notified = Notified::default();
        }
        self.facts = Arc::new(facts);
        // Status is no input of the hash, unless `upgrade.cattle.io/digest` names it. It changes far more often
        // than the spec.
        if !same_spec || !refit_job::digest::is_of_spec(&self.facts.object) {
            self.hashes.clear();
        }
        if !same_spec {
            self.read_spec(defaults);
        }
    }

    pub(super) fn choice(&self) -> Option<&Choice> {
        self.chosen.as_ref().map(|chosen| &chosen.choice)
    }

    /// Whether no other Plan may work on its nodes at the same time.
    pub(super) fn is_disruptive(&self) -> bool {
        let spec = self.spec();
        let excludes = spec.cordon.unwrap_or_default() || spec.exclusive.unwrap_or_default();
        excludes || spec.drain.is_some() || spec.may_reboot()
    }

    /// Whether it keeps remediation operators off nodes.
    pub(super) fn pauses_remediation(&self) -> bool {
        self.spec().pause_remediation.unwrap_or_default()
    }

    /// Whether it keeps pods off nodes that have joined.
    pub(super) fn taints_new_nodes(&self) -> bool {
        self.spec().taint_new_nodes.unwrap_or_default()
    }

    /// The record of a node, if it is about what the Plan would run now.
    pub(super) fn current_record<'n>(&self, node: &'n NodeFacts) -> Option<&'n Record> {
        self.facts.record(node).filter(|record| self.is_at(&record.hash))
    }

    /// Whether this is the hash of what the Plan would run now.
    pub(super) fn is_at(&self, hash: &str) -> bool {
        self.resolved
            .as_ref()
            .is_some_and(|resolved| *resolved.hash == *hash)
    }

    pub(super) fn spec(&self) -> &PlanSpec {
        &self.facts.object.spec
    }

    fn read_spec(&mut self, defaults: &Defaults) {
        self.stale = true;
        self.inputs = "".into();
        let spec = &self.facts.object.spec;
        let (mut parsed, mut errors) = ParsedSpec::parse(&self.facts.name, spec, &defaults.local_zone);
        errors.take(refit_job::digest::check_fields(&self.facts.object));
        let invalid = || (!errors.is_empty()).then(|| errors.to_string());
        self.invalid = self.facts.malformed.clone().or_else(invalid);
        self.longest_window = OnceLock::new();
        self.own_fields = OnceLock::new();
        let checks = |drain: &DrainSpec| drain.check_first.unwrap_or(defaults.checks_drains);
        self.checks_drains = spec.drain.as_ref().is_some_and(checks);
        self.time_limit = time_limit(spec, parsed.post_complete_delay, &defaults.job);
        self.completion = CompletionPolicy::of(spec);
        self.checks
            .read(mem::take(&mut parsed.checks), self.facts.status());
        self.channel = resolve::channel_of(spec);
        self.secrets = PlanSecrets::of(spec);
        self.chosen = None;
        let (selector, error) = match spec.selector() {
            Ok(selector) => (selector, None),
            Err(error) => (Selector::nothing(), Some(error.to_string())),
        };
        self.selector_error = error;
        let own_node = spec.order.is_some().then(|| defaults.own_node.clone());
        self.selection = Selection {
            selector,
            info: mem::take(&mut parsed.node_info),
            skips_at_version: spec.skips_at_version(),
            counts_kubelets: spec.max_minor_skip().is_some(),
            claims_kubelets: spec.installs_kubernetes(),
            tolerates_not_ready: spec.tolerates_not_ready(),
            reboot_needed: RebootNeeded::of(spec),
            order: Order::new(mem::take(&mut parsed.order), own_node),
            waves: mem::take(&mut parsed.waves),
        };
        self.parsed = parsed;
    }

    /// The Secrets to read and to watch.
    pub(super) fn watched_secrets(&self) -> Arc<BTreeSet<Text>> {
        if self.facts.is_deleting() {
            return secrets::no_names();
        }
        Arc::clone(self.secrets.names())
    }

    /// The settings of Jobs have changed: what depends on them is computed again.
    pub(super) fn settings_changed(&mut self) {
        self.stale = true;
    }

    /// Looks at the nodes on which the choice of a version depends: the own ones, and those of Plans that follow. `refresh` looks
    /// at them again, at the version that was found.
    pub(super) fn count_kubelets(&mut self, world: &World) {
        if self.stale && self.selection.counts_kubelets {
            let nodes = world.nodes.table();
            self.targets.rebuild(None, &self.facts, &self.selection, nodes);
        }
    }

    /// Whether both take their versions from one channel.
    pub(super) fn follows_channel_of(&self, other: &Self) -> bool {
        let url = |plan: &Self| plan.channel.as_ref().map(|channel| channel.url.clone());
        url(self).is_some() && url(self) == url(other)
    }

    /// Updates the resolution and the selected nodes if their inputs may have changed.
    pub(super) fn refresh(
        &mut self,
        world: &World,
        defaults: &Defaults,
        oldest_follower: Option<&(Version, String)>,
        now: Timestamp,
    ) {
        let (nodes, channels) = (world.nodes.table(), &world.channels);
        self.choose(channels, oldest_follower, now);
        let resolution = resolve::resolve(
            &self.facts,
            self.channel.as_ref(),
            self.chosen.as_ref().map(|chosen| &chosen.choice),
            self.parsed
                .version_policy
                .as_ref()
                .and_then(|policy| policy.range.as_ref()),
            self.secrets
                .look_up(&self.facts.object.spec, world.secrets.table()),
            channels,
            &mut self.hashes,
        );
        if self.stale || resolution != self.resolution {
            let target = match &resolution {
                Resolution::Resolved(resolved) => Some(resolved.clone()),
                // While the Plan is not resolved, nodes are counted at its last hash.
                Resolution::Pending
                | Resolution::Reading
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
                let target = self
                    .resolved
                    .as_ref()
                    .map(|r| (r.hash.clone(), r.version.clone()));
                self.targets.rebuild(target, &self.facts, &self.selection, nodes);
            }
            self.resolution = resolution;
            self.stale = false;
        }
        self.digests.refresh(self.facts.status(), self.resolved.as_ref());
        if self.targets.take_unready() {
            self.last_unready = Some(now);
        }
        if self.spec().checks.is_some() {
            let status = self.facts.status();
            let progress = Progress {
                hash: self.resolved.as_ref().map(|resolved| resolved.hash.clone()),
                done: self.targets.done,
                applying: status.applying.clone().unwrap_or_default(),
                failed: status.nodes.map_or(0, |nodes| nodes.failed),
            };
            self.checks.refresh(progress, now);
        }
    }

    /// The time of day was set by so much.
    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Timestamp) + Copy) {
        self.written.iter_mut().for_each(shift);
        self.last_unready.iter_mut().for_each(shift);
        self.checks.shift_times(shift);
        // By the new time the soak began later. If the clock was set back, the soak only takes longer.
        let wave = self.facts.status().wave.as_ref();
        let since: Option<Timestamp> = wave.and_then(|wave| wave.since.as_deref()?.parse().ok());
        let mut shifted = since;
        shifted.iter_mut().for_each(shift);
        if shifted > since {
            self.last_unready = self.last_unready.max(shifted);
        }
    }

    /// Chooses from the channel's offer if an input has changed.
    fn choose(
        &mut self,
        channels: &BTreeMap<ChannelRef, ChannelFacts>,
        oldest_follower: Option<&(Version, String)>,
        now: Timestamp,
    ) {
        let known = self.channel.as_ref().and_then(|channel| channels.get(channel));
        let Some((known, offer)) = known.and_then(|known| Some((known, known.offer.as_ref()?))) else {
            self.chosen = None;
            return;
        };
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let text = |version: &Version| version.text().to_owned();
        let oldest = self.targets.oldest_kubelet(|_| true);
        let based_on = (
            owned(resolve::current(&self.facts)),
            resolve::first_seen(&self.facts, self.channel.as_ref()),
            owned(resolve::withdrawn(&self.facts, self.channel.as_ref())),
            oldest.map(|(version, node)| (text(&version), format!("node {node}"))),
            oldest_follower.map(|(version, node)| (text(version), node.clone())),
        );
        let is_current = self.chosen.as_ref().is_some_and(|chosen| {
            Arc::ptr_eq(&chosen.offer, offer)
                && chosen.based_on == based_on
                // A choice in the future was made before the clock was set back.
                && chosen.from <= now
                && chosen.choice.due.is_none_or(|due| now < due)
        });
        if is_current {
            return;
        }
        let choice = match &self.parsed.version_policy {
            Some(policy) => {
                let (current, seen, withdrawn, oldest, oldest_follower) = &based_on;
                let inputs = PolicyInputs {
                    current: current.as_deref(),
                    oldest: oldest.as_ref().map(|(version, node)| (&**version, &**node)),
                    oldest_follower: oldest_follower
                        .as_ref()
                        .map(|(version, node)| (&**version, &**node)),
                    seen,
                    approved: self.facts.annotation(names::ANNOTATION_APPROVE),
                    installed: self.facts.object.spec.installed(),
                    withdrawn: withdrawn.as_deref(),
                    polled: known.polled,
                    now,
                };
                choose(policy, offer, &inputs)
            }
            None => Choice::default(),
        };
        self.chosen = Some(Chosen {
            choice,
            offer: Arc::clone(offer),
            based_on,
            from: now,
        });
    }

    /// Adds what the registry says about an image.
    pub(super) fn apply_image(&mut self, hash: &str, image: String, answer: ImageAnswer, now: Timestamp) {
        if self.is_at(hash) {
            self.digests.read(hash, image, answer, now);
        }
    }

    fn read_target(&mut self, defaults: &Defaults) {
        let version = self.resolved.as_ref().map_or("", |r| &*r.version);
        let spec = &self.facts.object.spec;
        self.inputs = refit_job::inputs::inputs(spec, version).into();
        let of_hook = |hook| Some((hook, refit_job::inputs::hook_inputs(spec, hook, version)?.into()));
        self.hooks = Hook::ALL.into_iter().filter_map(of_hook).collect();
        self.digests.want(spec, version, defaults);
        self.job_errors = if self.resolved.is_some() && self.facts.malformed.is_none() {
            refit_job::check(&self.job_input(defaults), &defaults.job).errors
        } else {
            Vec::new()
        };
    }

    pub(super) fn job_input<'a>(&'a self, defaults: &'a Defaults) -> refit_job::PlanInput<'a> {
        refit_job::PlanInput {
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
            self.targets.node_changed(&self.facts, &self.selection, node);
        }
    }

    /// The length of the longest of `spec.windows`; `None` if there are none, or one never closes.
    pub(super) fn longest_window(&self, now: Timestamp) -> Option<SignedDuration> {
        let longest = || {
            self.parsed
                .windows
                .as_ref()
                .and_then(|windows| windows.longest(now))
        };
        *self.longest_window.get_or_init(longest)
    }

    /// What blocks the Job of a node, before it is requested.
    pub(super) fn job_blocker(&self, windows: bool) -> Option<Blocker> {
        self.job_errors.iter().find_map(|error| match error {
            refit_job::JobError::KubectlImageWindows => windows.then_some(Blocker::SettingMissing {
                name: "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS",
            }),
            refit_job::JobError::OwnImage => (!windows).then_some(Blocker::OwnImageUnknown),
            error if error.is_for_windows() && !windows => None,
            refit_job::JobError::Image { .. } => Some(Blocker::ImageInvalid {
                why: error.to_string(),
            }),
            _ => Some(Blocker::JobRefused {
                why: error.to_string(),
            }),
        })
    }

    /// `postCompleteDelay` as Go prints it.
    pub(super) fn delay_text(&self) -> String {
        let nanos = i64::try_from(self.parsed.post_complete_delay.as_nanos()).unwrap_or(i64::MAX);
        GoDuration::from_nanos(nanos).to_string()
    }

    /// Maximum number of nodes in progress.
    pub(super) fn limit(&self) -> i64 {
        self.spec().slots(self.targets.selected())
    }

    /// A node limit as a number of nodes; 0 if it is invalid, which validation reports.
    pub(super) fn nodes_of(&self, limit: &IntOrString) -> i64 {
        NodeLimit::nodes_of(limit, self.targets.selected())
    }

    /// The longest time that a node has taken at the current hash.
    pub(super) fn longest_run(&self) -> Option<SignedDuration> {
        let status = self.facts.status();
        let is_current = self.resolved.as_ref().map(|it| &*it.hash) == status.latest_hash.as_deref();
        let text = status.longest_run.as_deref().filter(|_| is_current)?;
        let longest = text.parse::<GoDuration>().ok()?;
        Some(SignedDuration::from_nanos(longest.as_nanos()))
    }

    /// Whether it is not known which nodes the Plan selects. It then selects none, but it deselects none either.
    pub(super) fn selects_unknown(&self) -> bool {
        self.selector_error.is_some() || self.facts.malformed.is_some()
    }

    /// A user has aborted the roll-out: no node starts, and drains stop.
    pub(super) fn is_aborted(&self) -> bool {
        self.facts.annotation(names::ANNOTATION_ABORT).is_some()
    }

    /// Who wrote an annotation for users, and when.
    pub(super) fn author(&self, key: &str) -> Option<String> {
        let text = self.facts.annotation(key)?;
        annotation::author(text).map(Cow::into_owned)
    }

    /// Whether no new node may start.
    pub(super) fn is_suspended(&self) -> bool {
        self.spec().suspend.unwrap_or_default()
    }
}

/// The sum of the limits of all that a node goes through.
fn time_limit(
    spec: &PlanSpec,
    delay: SignedDuration,
    settings: &refit_job::JobSettings,
) -> Option<SignedDuration> {
    let job = refit_job::render::active_deadline_seconds(spec, settings).map(SignedDuration::from_secs)?;
    let reboot = spec.may_reboot().then(|| spec.reboot_or_default().timeout());
    let settle = spec.settle.as_deref().map(refit_api::reboot::SettleSpec::timeout);
    let parts = reboot.into_iter().chain(settle).flatten();
    let parts = parts.map(|part| SignedDuration::from_nanos(part.as_nanos()));
    // A Job of its own, with a deadline of its own.
    let parts = parts.chain(spec.verify.is_some().then_some(job));
    Some(parts.fold(job.saturating_add(delay), SignedDuration::saturating_add))
}
