//! The doors through which facts come in. Each says whether what came in is news.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::super::facts::{
    ChannelFacts, JobFacts, Missing, NodeFacts, Outcome, PlanFacts, PodFacts, Schema, SecretFacts, Text,
    WorkloadFacts,
};
use super::super::node::Workload;
use super::super::plan::{PlanView, Written};
use super::super::status::WAITING;
use super::super::step::{Key, Step};
use super::table::Put;
use super::{Kind, Making, Reading, Trouble, World, is_live};
use crate::api::{PlanStatus, names};
use crate::channel::{Named, Offer};
use crate::job::digest;
use crate::rollout::fields;
use crate::version::policy::Offered;

impl World {
    /// A Node was seen in this version. True when a fact is new.
    pub fn node_seen(&mut self, version: u64, facts: NodeFacts) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        match self.nodes.put(&name, &uid, version, facts) {
            Put::Known => return false,
            Put::New => {}
            Put::Instead(old) => self.unindex_node(&old),
        }
        if let Some(new) = self.nodes.get(&name) {
            for plan in new.records.keys() {
                self.recorded_on.add(plan, &name);
            }
            if new.ledger.is_some() {
                self.ledgers.insert(name.clone());
            }
            for view in self.plans.values_mut() {
                view.node_changed(new);
            }
            if !new.is_fit() {
                self.is_not_fit(&name);
            }
        }
        self.take_up_on(&name);
        true
    }

    /// A Node is gone.
    pub fn node_gone(&mut self, name: &str, uid: &str) -> bool {
        let Some(old) = self.nodes.remove(name, uid, |n| &n.uid) else {
            return false;
        };
        self.unindex_node(&old);
        for view in self.plans.values_mut() {
            view.node_gone(&old.name);
        }
        self.take_up_on(name);
        true
    }

    fn unindex_node(&mut self, old: &NodeFacts) {
        for plan in old.records.keys() {
            self.recorded_on.drop(plan, &old.name);
        }
        self.ledgers.remove(&old.name);
    }

    /// A Job of ours was seen in this version. True when a fact is new.
    pub fn job_seen(&mut self, version: u64, mut facts: JobFacts) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        // It is there, or was: an answer that comes when it may have ended holds no slot.
        // One for another node had the name before, and says nothing of a request that is still to be answered.
        self.making.retain(|(_, node), making| {
            let is_another = *node != facts.node && making.under_way && !making.unknown;
            making.job != name || is_another
        });
        // A delete that was answered stays true while the watch is still telling of what came before it.
        facts.deleting |= self
            .jobs
            .get(&name)
            .is_some_and(|known| known.uid == facts.uid && known.deleting);
        match self.jobs.put(&name, &uid, version, facts) {
            Put::Known => return false,
            Put::New => {}
            Put::Instead(old) => {
                if old.uid != uid {
                    self.forget_job(&old.uid);
                }
                self.unindex_job(&old);
            }
        }
        if let Some(new) = self.jobs.get(&name) {
            if new.recorded {
                self.marking.remove(&new.uid);
            } else {
                self.open_jobs.add(&new.plan, &name);
            }
            self.jobs_on.add(&new.node, &name);
            let (plan, node) = (&new.plan, &new.node);
            self.fresh
                .retain(|(of, uid)| of != plan || self.nodes.get(node).is_none_or(|node| node.uid != *uid));
        }
        self.taken.remove(&name);
        true
    }

    /// A delete of a Job was answered; it is gone once a watch says so, which may have been faster.
    pub fn job_leaving(&mut self, name: &str, uid: &str) -> bool {
        if self.outlived.contains(uid) {
            return false;
        }
        self.jobs.alter(name, |job| {
            let change = *job.uid == *uid && !job.deleting;
            job.deleting |= change;
            change
        })
    }

    /// A Job is gone. One that was seen to end, and whose result is not recorded, stays known until that is done: its
    /// upgrade has run and is not to run again. It goes when the step that marks it finds it gone.
    pub fn job_gone(&mut self, name: &str, uid: &str) -> bool {
        if let Some(job) = self.jobs.get(name)
            && *job.uid == *uid
            && self.is_needed(job)
            && self.outlived.insert(uid.into())
        {
            return self.jobs.alter(name, |job| std::mem::take(&mut job.deleting));
        }
        self.forget_job(uid);
        let Some(old) = self.jobs.remove(name, uid, |j| &j.uid) else {
            return false;
        };
        self.unindex_job(&old);
        true
    }

    fn forget_job(&mut self, uid: &str) {
        self.outlived.remove(uid);
        self.marking.remove(uid);
        self.words.remove(uid);
    }

    /// Its result has come, and is not recorded on the machine that it was for.
    fn is_needed(&self, job: &JobFacts) -> bool {
        let plan = self.plans.get(&job.plan);
        let node = self.nodes.get(&job.node);
        !job.recorded
            && (!self.marking.contains(&job.uid) || self.put_off.contains(&job.name))
            && job.outcome.ended().is_some()
            && plan.is_some_and(|plan| plan.facts.uid == job.plan_uid)
            && node.is_some_and(|node| job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid))
    }

    fn unindex_job(&mut self, old: &JobFacts) {
        self.open_jobs.drop(&old.plan, &old.name);
        self.put_off.remove(&old.name);
        self.jobs_on.drop(&old.node, &old.name);
    }

    /// A pod of a Job was seen in this version. True when a fact is new.
    pub fn pod_seen(&mut self, version: u64, mut facts: PodFacts) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        facts.deleting |= self
            .pods
            .get(&name)
            .is_some_and(|known| known.uid == facts.uid && known.deleting);
        match self.pods.put(&name, &uid, version, facts) {
            Put::Known => return false,
            Put::New => {}
            Put::Instead(old) => self.unindex_pod(&old),
        }
        if let Some(new) = self.pods.get(&name) {
            self.pods_of.add(&new.job_uid, &name);
            if new.reboot.is_some() {
                self.reboot_pods.insert(name.clone());
            }
            if let Some(node) = new.node.as_ref().filter(|_| is_live(new)) {
                self.live_pods_on.add(node, &name);
            }
        }
        true
    }

    /// A delete of a pod was answered; it is gone once a watch says so.
    pub fn pod_leaving(&mut self, name: &str, uid: &str) -> bool {
        self.pods.alter(name, |pod| {
            let change = *pod.uid == *uid && !pod.deleting;
            pod.deleting |= change;
            change
        })
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, name: &str, uid: &str) -> bool {
        let Some(old) = self.pods.remove(name, uid, |p| &p.uid) else {
            return false;
        };
        self.unindex_pod(&old);
        // Kept for as long as its Job is.
        if let Some(words) = old.last_words
            && let Some(node) = &old.node
            && self.jobs_on(node).any(|job| job.uid == old.job_uid)
        {
            self.words.insert(old.job_uid, words);
        }
        true
    }

    fn unindex_pod(&mut self, old: &PodFacts) {
        self.pods_of.drop(&old.job_uid, &old.name);
        self.reboot_pods.remove(&old.name);
        if let Some(node) = &old.node {
            self.live_pods_on.drop(node, &old.name);
        }
    }

    /// A Plan was seen in this version. True when a fact is new.
    pub fn plan_seen(&mut self, version: u64, facts: PlanFacts) -> bool {
        if self.gone_plans.contains(&facts.uid) {
            return false;
        }
        let name = facts.name.clone();
        let is_listed = self.is_wary && !self.plan_lists.is_multiple_of(2);
        match self.plans.get_mut(&name) {
            Some(view) if view.version > version && version != 0 => false,
            // Of two readings of one version, the poorer one was pruned.
            Some(view)
                if view.version == version && version != 0 && !fields::is_richer(&facts, &view.facts) =>
            {
                view.is_read(is_listed);
                false
            }
            Some(view) => {
                view.seen_in(version);
                if view.facts == facts {
                    view.is_read(is_listed);
                    return false;
                }
                view.change(facts, &self.defaults);
                view.is_read(is_listed);
                true
            }
            None => {
                let mut view = PlanView::new(version, facts, &self.defaults);
                view.is_read(is_listed);
                self.plans.insert(name, view);
                true
            }
        }
    }

    /// A step is being carried out. Until its answer is here, what it changes may be as it was or as it will be.
    pub fn sends(&mut self, step: &Step) {
        match step {
            Step::WriteStatus { plan, status, .. } => {
                if let Some(view) = self.plans.get_mut(plan) {
                    view.status_sent(status);
                }
                self.slots_given(plan, status);
            }
            Step::CreateJob { plan, node, job, .. } => {
                let view = self.plans.get(plan);
                let plan_uid = view.map(|it| it.facts.uid.clone());
                let node_uid = self.nodes.get(node).map(|it| it.uid.clone());
                let making = Making {
                    job: job.clone(),
                    plan_uid: plan_uid.unwrap_or_default(),
                    node_uid: node_uid.unwrap_or_default(),
                    disruptive: view.is_some_and(|it| it.disruptive),
                    under_way: true,
                    unknown: false,
                };
                self.making.insert((plan.clone(), node.clone()), making);
            }
            Step::MarkRecorded { job, uid, .. } => {
                let job = self.jobs.get(job);
                if job.is_some_and(|job| matches!(job.outcome, Outcome::Complete { .. })) {
                    self.marking.insert(uid.clone());
                }
            }
            Step::LookForJob { plan, node, .. } => {
                if let Some(making) = self.making.get_mut(&(plan.clone(), node.clone())) {
                    making.under_way = true;
                }
            }
            Step::PatchNode { node, change, .. }
                if change.annotations.contains_key(names::ANNOTATION_CORDON) =>
            {
                self.ledgers_sent.insert(node.clone());
            }
            Step::ReadPlans => self.reading = Reading::Asked,
            _ => {}
        }
    }

    /// A status is on its way: who has a slot in it without a Job has never had one, as far as this process knows.
    fn slots_given(&mut self, plan: &Text, status: &PlanStatus) {
        let view = self.plans.get(plan);
        if !view.is_some_and(|view| view.spec().may_reboot()) {
            return;
        }
        let has_job = |node: &str| {
            self.jobs_on(node)
                .any(|job| job.plan == *plan && !self.is_spent(job))
        };
        let mut slots = Vec::new();
        for slot in status
            .active
            .iter()
            .flatten()
            .filter(|slot| slot.phase != WAITING)
        {
            let Some(uid) = &slot.uid else { continue };
            let is_fresh = slot.job.is_none() && !has_job(&slot.name);
            slots.push(((plan.clone(), Text::from(uid.as_str())), is_fresh));
        }
        for (place, is_fresh) in slots {
            if is_fresh {
                self.fresh.insert(place);
            } else {
                self.fresh.remove(&place);
            }
        }
    }

    /// A step has come to its end, well or not, and what it has told is known.
    pub fn answered(&mut self, key: &Key) {
        if let Key::Node(node) = key {
            self.ledgers_sent.remove(node);
        }
        if let Key::NextJob(plan, node) = key {
            let place = (plan.clone(), node.clone());
            match self.making.get_mut(&place) {
                // A watch says whether it is there, or somebody has to look: for a Plan that is gone, nobody has.
                Some(making) if making.unknown && self.plans.contains_key(plan) => {
                    making.under_way = false;
                }
                _ => {
                    self.making.remove(&place);
                }
            }
        }
    }

    /// The status of a Plan was written.
    pub fn status_written(&mut self, plan: &str, written: Written) {
        self.pruned = None;
        if let Some(view) = self.plans.get_mut(plan) {
            view.written = Some(written);
            view.sent = None;
        }
    }

    /// An API server does not keep our own fields: it has refused a write for their sake, or its answer lacked them. What
    /// was read of Plans may lack them too. True when that is new.
    pub fn status_pruned(&mut self, now: Timestamp) -> bool {
        self.reading = Reading::Due;
        self.is_wary = true;
        self.pruned.replace(now).is_none()
    }

    /// The CRD was changed just now: an API server may not have taken that up.
    pub fn is_wary_of_lists(&mut self) {
        self.is_wary = true;
    }

    /// Plans are listed only to be told why nothing happens, before what they are to be compared with: they have to be listed
    /// once more.
    pub fn plans_read_early(&mut self) {
        self.reading = Reading::Due;
    }

    /// The watch of Plans begins anew, as [`Step::ReadPlans`] asked for: what is listed from now on was read since.
    pub fn plans_read_again(&mut self) {
        if self.reading == Reading::Asked {
            self.reading = Reading::UnderWay;
        }
    }

    /// An event of this key has been written, on this Plan, about why it is not written.
    pub fn told(&mut self, plan: Text, key: String) {
        self.told.insert(plan, key);
    }

    /// A Plan is gone.
    pub fn plan_gone(&mut self, name: &str, uid: &str) -> bool {
        if self.plans.get(name).is_none_or(|p| *p.facts.uid != *uid) {
            return false;
        }
        if let Some(plan) = self.plans.remove(name) {
            self.told.remove(name);
            self.fresh.retain(|(plan, _)| **plan != *name);
            self.gone_plans.insert(plan.facts.uid);
            self.making
                .retain(|(plan, _), making| making.under_way || **plan != *name);
        }
        true
    }

    /// The metadata of a Secret was seen in this version: it has to be read again.
    pub fn secret_seen(&mut self, name: &Text, version: u64) -> bool {
        if self.secrets.get(name) == Some(&SecretFacts::Missing) {
            self.secrets.forget(name);
        }
        // Seen in the version in which it was read: its hash stands.
        self.secrets.version(name) != Some(version)
            && !matches!(
                self.secrets.put(name, "", version, SecretFacts::Unread),
                Put::Known
            )
    }

    /// A Secret was read in this version. One that is gone by now stays gone.
    pub fn secret_read(&mut self, name: &Text, version: u64, hash: String) -> bool {
        match (self.secrets.get(name), self.secrets.version(name)) {
            (Some(SecretFacts::Missing), _) => false,
            (Some(_), Some(known)) if known > version => false,
            (Some(_), _) => self.secrets.replace(name, version, SecretFacts::Hash(hash)),
            (None, _) => {
                self.is_hashed(name)
                    && matches!(
                        self.secrets.put(name, "", version, SecretFacts::Hash(hash)),
                        Put::New
                    )
            }
        }
    }

    /// A Secret that was not known was asked for, and is not there. If it is known by now, the watch knows better.
    pub fn secret_missing(&mut self, name: &Text) -> bool {
        self.secrets.get(name).is_none()
            && matches!(self.secrets.put(name, "", 0, SecretFacts::Missing), Put::New)
    }

    /// A Secret is gone.
    pub fn secret_gone(&mut self, name: &str) -> bool {
        if self.is_hashed(name) {
            return self.secrets.alter(name, |known| {
                std::mem::replace(known, SecretFacts::Missing) != SecretFacts::Missing
            });
        }
        self.secrets.forget(name)
    }

    /// A Plan has the Secret in its hash.
    fn is_hashed(&self, name: &str) -> bool {
        let mut plans = self.plans.values();
        plans.any(|plan| digest::hashed_secrets(plan.spec()).any(|secret| secret == name))
    }

    /// A controller whose pods were evicted was read.
    pub fn workload_read(&mut self, workload: Text, facts: WorkloadFacts) {
        let before = self.workloads.get(&workload).and_then(|known| known.whole_since);
        let whole_since = facts.is_whole().then(|| before.unwrap_or(facts.seen));
        self.workloads.insert(workload, Workload { facts, whole_since });
    }

    /// A channel was asked: what it offers, or why nothing.
    pub fn channel_answered(
        &mut self,
        channel: &Named,
        polled: Timestamp,
        answer: Result<Offer, String>,
        asked_by: &BTreeMap<Text, String>,
    ) {
        let known = self.channels.get(channel);
        let facts = match answer {
            Ok(offer) => ChannelFacts {
                polled,
                failures: 0,
                offer: Some(Arc::new(Offered::from(&offer))),
                error: None,
            },
            Err(error) => ChannelFacts {
                polled,
                failures: known.map_or(0, |k| k.failures).saturating_add(1),
                offer: known.and_then(|k| k.offer.clone()),
                error: Some(error),
            },
        };
        self.channels.insert(channel.clone(), facts);
        for (plan, value) in asked_by {
            if let Some(view) = self.plans.get_mut(plan) {
                view.polled_for = Some(value.clone());
            }
        }
        let asked: BTreeSet<_> = self
            .plans
            .values()
            .filter_map(|plan| plan.channel.as_ref())
            .collect();
        self.channels.retain(|channel, _| asked.contains(channel));
    }

    /// A registry has said what the tag of an image of a Plan stands for, at this hash.
    pub fn digest_read(&mut self, plan: &str, hash: &str, image: String, digest: String) {
        if let Some(view) = self.plans.get_mut(plan) {
            view.digest_read(hash, image, digest);
        }
    }

    /// What is known of the served CRD; each time that it is made or changed is another edition. True when that is new.
    pub fn schema_seen(&mut self, schema: Schema, edition: Text) -> bool {
        let change = self.schema != schema || self.edition != edition;
        // What was read while another one was served may lack our fields.
        if change && schema == Schema::Current && self.plan_lists > 0 {
            self.reading = Reading::Due;
            self.is_wary = true;
        }
        let change = change || self.pruned.is_some();
        self.schema = schema;
        self.edition = edition;
        self.pruned = None;
        change
    }

    /// What the controller may not do.
    pub fn permissions_seen(&mut self, missing: Missing) {
        self.permissions = Some(missing);
    }

    /// Something was refused for want of a permission. If it is not known already that some are missing, it has to be
    /// asked which.
    pub fn permissions_doubted(&mut self) {
        self.permissions.take_if(|missing| missing.is_empty());
    }

    /// What the controller may do is another thing now, and has to be asked.
    pub fn permissions_changed(&mut self) {
        self.permissions = None;
    }

    /// A step went wrong.
    pub fn troubled(&mut self, key: Key, trouble: Trouble) {
        self.troubles.insert(key, trouble);
    }

    /// A step went well, or is not asked for any more.
    pub fn untroubled(&mut self, key: &Key) {
        self.troubles.remove(key);
    }

    /// A Job was asked for, and whether it has been made is not known.
    pub fn job_unknown(&mut self, job: &str) {
        if self.jobs.get(job).is_some() {
            return;
        }
        let asked = self.making.values_mut().filter(|making| *making.job == *job);
        asked.for_each(|making| making.unknown = true);
    }

    /// Somebody has looked for a Job, and it was not there.
    pub fn job_absent(&mut self, job: &str) {
        let asked = self.making.values_mut().filter(|making| *making.job == *job);
        asked.for_each(|making| making.unknown = false);
    }

    /// Somebody else's Job had this name at that time.
    pub fn name_taken(&mut self, job: Text, now: Timestamp) {
        self.making.retain(|_, making| making.job != job);
        self.taken.insert(job, now);
    }

    /// A list begins: what it does not show is gone when it ends.
    pub fn list_begins(&mut self, kind: Kind) {
        match kind {
            Kind::Node => self.nodes.begin(),
            Kind::Job => self.jobs.begin(),
            Kind::Pod => self.pods.begin(),
            Kind::Secret => self.secrets.begin(),
            Kind::Plan => {
                self.plan_lists += u64::from(self.plan_lists.is_multiple_of(2));
                self.plans.values_mut().for_each(|p| p.listed = false);
            }
        }
    }

    /// A list or a watch has shown this object, which an answer to an own write does not count for: it may be older than
    /// the list.
    pub fn is_shown(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Node => self.nodes.show(name),
            Kind::Job => self.jobs.show(name),
            Kind::Pod => self.pods.show(name),
            Kind::Secret => self.secrets.show(name),
            Kind::Plan => {
                if let Some(plan) = self.plans.get_mut(name) {
                    plan.listed = true;
                }
            }
        }
    }

    /// A list ends. True when something is gone.
    pub fn list_ends(&mut self, kind: Kind) -> bool {
        let mut read_again = false;
        let gone = match kind {
            Kind::Node => self.nodes.end(|name, node| (name.clone(), node.uid.clone())),
            Kind::Job => self.jobs.end(|name, job| (name.clone(), job.uid.clone())),
            Kind::Pod => self.pods.end(|name, pod| (name.clone(), pod.uid.clone())),
            Kind::Secret => self.secrets.end(|name, _| (name.clone(), name.clone())),
            Kind::Plan => {
                self.plan_lists += 1;
                if self.reading == Reading::UnderWay {
                    self.reading = Reading::Done;
                    read_again = true;
                }
                let unlisted = self.plans.iter().filter(|(_, plan)| !plan.listed);
                unlisted
                    .map(|(name, plan)| (name.clone(), plan.facts.uid.clone()))
                    .collect()
            }
        };
        for (name, uid) in &gone {
            match kind {
                Kind::Node => self.node_gone(name, uid),
                Kind::Job => self.job_gone(name, uid),
                Kind::Pod => self.pod_gone(name, uid),
                Kind::Secret => self.secret_gone(name),
                Kind::Plan => self.plan_gone(name, uid),
            };
        }
        // Whether a Job is there that was asked for may be known now.
        read_again || !gone.is_empty() || kind == Kind::Job && !self.making.is_empty()
    }
}
