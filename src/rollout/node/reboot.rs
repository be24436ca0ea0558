//! A node that has to reboot after its upgrade. The record says which boot has to end, and since when; the Node says in which
//! one it is. Between the two there is a pod that requests the reboot, whose life proves nothing: it is made again whenever
//! it is missing, and what it does by itself is nothing in a boot that is not the one to end.
//!
//! What is written, in order: the record, before anything else can go wrong; the pod; and at the end label and cordon in one
//! patch, which takes the record away. A controller that comes in anywhere finds what was written and goes on from there.

use jiff::{SignedDuration, Timestamp};

use super::settle::later;
use super::success::Success;
use super::{Next, Question, Stand, Standing, patch, record_key};
use crate::api::names;
use crate::job::name::{ask_pod_name, reboot_pod_name};
use crate::rollout::blocker::Blocker;
use crate::rollout::event::EventType;
use crate::rollout::facts::{Found, JobFacts, NodeFacts, PodFacts, RebootPod, Stage, Text};
use crate::rollout::record::{Phase, Reboot, Record};
use crate::rollout::step::{Key, NodeChange, Step};

/// How long the pod of a Job that has succeeded may be told of later than the Job.
const EVIDENCE_PAUSE: SignedDuration = SignedDuration::from_secs(5);
/// How long a pod that has ended is left alone before it is made again: a node that shuts down refuses all.
const AGAIN_PAUSE: SignedDuration = SignedDuration::from_secs(5);
/// Status has this reason where a pod that was to reboot the node has failed; the message has its words.
const POD_FAILED: &str = "RebootPod";
/// Where the kubelet cannot start it.
const POD_WAITING: &str = "PodWaiting";

/// Why a pod has not rebooted its node.
struct PodTrouble<'a> {
    reason: &'static str,
    text: &'a str,
}

impl<'a> PodTrouble<'a> {
    /// What has failed says more than that it is to be tried again.
    fn of(pod: &'a PodFacts) -> Option<Self> {
        let failed = pod.last_words.as_deref().map(|text| Self {
            reason: POD_FAILED,
            text,
        });
        failed.or_else(|| {
            Some(Self {
                reason: POD_WAITING,
                text: pod.waiting.as_deref()?,
            })
        })
    }
}

/// What is known of the boot in which an upgrade succeeded.
pub(super) enum Evidence {
    /// The pod that says so is still to be told of.
    Awaited { until: Timestamp },
    /// The node need not reboot.
    NoReboot,
    /// The node has to leave this boot; without one, the node has to be asked which one it is.
    Reboot { boot_id: Option<Text> },
}

impl Question<'_> {
    /// What the sentinel of a Job that has succeeded says.
    pub(super) fn evidence(&self, job: &JobFacts) -> Evidence {
        let found = self.world.pods_of(&job.uid).find_map(|pod| match &pod.found {
            Some(Found::Success { boot_id, required }) => Some((boot_id, *required)),
            _ => None,
        });
        match found {
            Some((_, false)) => Evidence::NoReboot,
            Some((boot_id, true)) => Evidence::Reboot {
                boot_id: Some(boot_id.clone()),
            },
            None => {
                let since = self.world.success_since(job).unwrap_or(self.now);
                let until = later(since, EVIDENCE_PAUSE);
                if until > self.now {
                    Evidence::Awaited { until }
                } else {
                    Evidence::Reboot { boot_id: None }
                }
            }
        }
    }

    /// The node has to reboot: that is written down before anything is done about it.
    pub(super) fn is_to_reboot(
        &self,
        node: &NodeFacts,
        success: &Success<'_>,
        boot_id: Option<&Text>,
    ) -> Stand {
        let record = Record {
            reboot: Some(Reboot {
                boot_id: boot_id.map(ToString::to_string),
                since: self.now,
            }),
            ..self.success_record(node, success)
        };
        let standing = rebooting(node, &record);
        let text = match boot_id {
            Some(boot_id) if *boot_id != node.boot_id => {
                format!("Job completed on Node {}, which has rebooted since", node.name)
            }
            _ => format!("Job completed on Node {}, which is rebooted", node.name),
        };
        let event = self.job_event(EventType::Normal, "JobCompleteReboot", text, success.job_uid);
        Stand::slot(standing.then(self.patch_record(node, &record, vec![event])))
    }

    /// Where a node stands that is in for a reboot; nothing where it is not, or where that is over.
    pub(super) fn reboot(&self, node: &NodeFacts, record: &Record) -> Option<Stand> {
        let reboot = record.reboot.as_ref()?;
        // A controller that was away has requested nothing meanwhile.
        let since = self.world.known_since(node, record).unwrap_or(self.now);
        let deadline = later(since.max(reboot.since), self.plan.terms.reboot_timeout);
        let late = deadline <= self.now;
        let Some(boot_id) = reboot.boot_id.as_deref() else {
            return Some(self.asked(node, record, deadline));
        };
        let mut standing = rebooting(node, record);
        standing.wake = Some(deadline);
        let over = !node.boot_id.is_empty() && *node.boot_id != *boot_id;
        if over {
            if node.is_fit() {
                return None;
            }
            let why = if node.ready {
                "the node is Ready in its new boot, but its taint node.kubernetes.io/not-ready or unreachable is not gone"
            } else {
                "the node is in its new boot and not Ready"
            };
            return Some(if late {
                self.has_not_rebooted(node, record, "NotReadyAfterReboot", why)
            } else {
                Stand::slot(standing.held_up(Blocker::NodeNotReady.reason(), why.to_owned()))
            });
        }
        let boot_id = Some(Text::from(boot_id));
        let pod = self
            .reboot_pod(node, &record.hash, boot_id.as_ref())
            .map(|(pod, _)| pod);
        if let Some(pod) = pod
            && matches!(pod.found, Some(Found::Nothing { .. }))
        {
            let why = "nothing on the node says that its upgrade has succeeded in this boot, so that it is not rebooted: \
                       somebody has removed the file";
            return Some(self.has_not_rebooted(node, record, "SentinelMissing", why));
        }
        let trouble = pod
            .and_then(PodTrouble::of)
            .or_else(|| self.trouble_of_before(node, record));
        if late {
            return Some(self.never_came_back(node, record, trouble.as_ref()));
        }
        standing = self.with_pod(node, standing, &record.hash, boot_id, deadline);
        if standing.reason.is_none() {
            standing = match trouble {
                // What a kubelet waited for is over where it says so no more.
                Some(PodTrouble { reason, text })
                    if reason == POD_FAILED || pod.is_some_and(|it| it.waiting.is_some()) =>
                {
                    standing.held_up(reason, text.to_owned())
                }
                _ if !node.ready => standing.goes_on("the node is not Ready".to_owned()),
                _ => standing,
            };
        }
        Some(Stand::slot(standing))
    }

    /// What stored status says of the pods of this reboot: one that has been replaced, or whose time was up, says no more why
    /// it has failed.
    fn trouble_of_before(&self, node: &NodeFacts, record: &Record) -> Option<PodTrouble<'_>> {
        let active = self.plan.facts.status().active.as_deref()?;
        let told = active.iter().find(|told| {
            told.uid.as_deref() == Some(&*node.uid)
                && told.job.as_deref() == Some(record.job.as_str())
                && told.attempt == Some(record.attempt)
        })?;
        let reason = [POD_FAILED, POD_WAITING]
            .into_iter()
            .find(|reason| told.reason.as_deref() == Some(reason))?;
        let text = told.message.as_deref()?;
        Some(PodTrouble { reason, text })
    }

    /// The pod of the Plan that is to end this boot of the machine for this hash; without one, that asks for it.
    pub(super) fn reboot_pod(
        &self,
        node: &NodeFacts,
        hash: &str,
        boot_id: Option<&Text>,
    ) -> Option<(&PodFacts, &RebootPod)> {
        let pod = self
            .world
            .pods
            .get(&self.pod_name(node, hash, boot_id.is_some()))?;
        let it = pod.reboot.as_deref()?;
        let mine = it.plan_uid == self.plan.facts.uid && it.node_uid == node.uid && *it.hash == *hash;
        (mine && it.boot_id.as_ref() == boot_id).then_some((pod, it))
    }

    fn pod_name(&self, node: &NodeFacts, hash: &str, reboots: bool) -> String {
        let plan = &self.plan.facts;
        let name = if reboots { reboot_pod_name } else { ask_pod_name };
        name(&plan.name, &plan.uid, &node.name, &node.uid, hash)
    }

    /// A pod that was to reboot the machine for the hash that is asked for, or asked it.
    pub(super) fn left_pod(&self, node: &NodeFacts) -> Option<String> {
        let hash = self.hash().filter(|_| !self.world.reboot_pods.is_empty())?;
        let names = [true, false].map(|reboots| self.pod_name(node, hash, reboots));
        names.into_iter().find(|name| self.world.pods.get(name).is_some())
    }

    /// UID of the pod that has told what is about to be written down: it is kept until it is.
    pub(super) fn witness(&self, node: &NodeFacts, hash: &str) -> Option<Text> {
        let pods = [true, false].map(|reboots| self.world.pods.get(&self.pod_name(node, hash, reboots)));
        pods.into_iter().flatten().next().map(|pod| pod.uid.clone())
    }

    /// Sees to it that there is a pod which ends this boot, or asks for the one that would have to end.
    pub(super) fn with_pod(
        &self,
        node: &NodeFacts,
        mut standing: Standing,
        hash: &str,
        boot_id: Option<Text>,
        deadline: Timestamp,
    ) -> Standing {
        let name: Text = self.pod_name(node, hash, boot_id.is_some()).into();
        if let Some(trouble) = self.world.troubles.get(&Key::Pod(name.clone())) {
            standing.is_held_up("PodRefused", format!("pod {name}: {}", trouble.message));
        }
        let Some((pod, it)) = self.reboot_pod(node, hash, boot_id.as_ref()) else {
            if self.world.pods.get(&name).is_some() {
                return standing; // one of before, which goes because nobody keeps it
            }
            // What the Plan asks for is not known: neither is by which command.
            let unknown =
                self.plan.facts.malformed.is_some() || matches!(self.gate, Some(Blocker::SpecPruned));
            let create = Step::CreatePod {
                plan: self.plan.facts.name.clone(),
                node: node.name.clone(),
                pod: name,
                hash: hash.into(),
                boot_id,
                seconds: deadline.duration_since(self.now).as_secs(),
            };
            standing.steps.extend((!unknown).then_some(create));
            return standing;
        };
        standing.pod = Some(pod.uid.clone());
        let ended = pod.stage == Stage::Ended && pod.found.is_none() && !it.succeeded && !pod.deleting;
        if ended {
            let again = later(it.created, AGAIN_PAUSE);
            if again <= self.now {
                standing.steps.push(Step::DeletePod {
                    pod: pod.name.clone(),
                    uid: pod.uid.clone(),
                    why: "it has ended, and the node has not rebooted",
                });
            } else {
                standing.wake = standing.wake.into_iter().chain([again]).min();
            }
        }
        standing
    }

    /// Nobody knows in which boot the upgrade succeeded but the node.
    fn asked(&self, node: &NodeFacts, record: &Record, deadline: Timestamp) -> Stand {
        let pod = self.reboot_pod(node, &record.hash, None);
        let answer = pod.and_then(|(pod, _)| pod.found.as_ref());
        match answer {
            Some(Found::Success { boot_id, required }) => {
                let known = Record {
                    reboot: required.then(|| Reboot {
                        boot_id: Some(boot_id.to_string()),
                        since: self.now,
                    }),
                    ..record.clone()
                };
                let mut standing = rebooting(node, &known);
                standing.pod = self.witness(node, &record.hash);
                Stand::slot(standing.then(self.patch_record(node, &known, Vec::new())))
            }
            Some(Found::Nothing { .. }) => self.has_not_rebooted(node, record, "EvidenceLost", EVIDENCE_LOST),
            None if deadline <= self.now => {
                self.has_not_rebooted(node, record, "EvidenceLost", EVIDENCE_UNHEARD)
            }
            None => {
                let mut standing = rebooting(node, record);
                standing.wake = Some(deadline);
                let standing = standing.goes_on(ASKING.to_owned());
                Stand::slot(self.with_pod(node, standing, &record.hash, None, deadline))
            }
        }
    }

    fn never_came_back(&self, node: &NodeFacts, record: &Record, trouble: Option<&PodTrouble<'_>>) -> Stand {
        let (reason, why) = if node.ready {
            (
                "NeverRebooted",
                "the node is Ready in the boot in which it was upgraded",
            )
        } else {
            (
                "RebootTimedOut",
                "the node is not Ready, and has not been heard of in another boot",
            )
        };
        let trouble = trouble.map_or_else(String::new, |trouble| {
            format!("; of the pod that reboots it is known: {}", trouble.text)
        });
        self.has_not_rebooted(node, record, reason, &format!("{why}{trouble}"))
    }

    fn has_not_rebooted(&self, node: &NodeFacts, record: &Record, reason: &'static str, why: &str) -> Stand {
        let message = format!("the upgrade succeeded, but its reboot did not: {why}");
        self.gives_up(node, record, "RebootFailed", reason, message)
    }

    /// What came after a successful Job has failed: that is written on the node, and the pod goes because nobody keeps it.
    pub(super) fn gives_up(
        &self,
        node: &NodeFacts,
        record: &Record,
        event: &'static str,
        reason: &'static str,
        message: String,
    ) -> Stand {
        let failed = Record {
            phase: Phase::Failed,
            at: self.now,
            reboot: None,
            settling: None,
            workloads: Vec::new(),
            reason: Some(reason.to_owned()),
            message: Some(message.clone()),
            ..record.clone()
        };
        let text = format!("Node {}: {reason}: {message}", node.name);
        let once = format!("{}/{}/{}", node.uid, record.hash, record.attempt);
        let event = self.job_event(EventType::Warning, event, text, &once);
        let mut standing = if self.hash().is_some_and(|hash| **hash == *record.hash) {
            let mut standing = Standing::new(node, "Failed").held_up(reason, message);
            standing.failed = true;
            standing.job = Some(record.job.as_str().into());
            standing.attempt = Some(record.attempt);
            standing
        } else {
            // The Plan is at another version by now, which the node goes on to.
            let mut standing = Standing::new(node, "Pending");
            standing.next = Some(Next::Later);
            standing
        };
        standing.since = Some(self.now);
        standing.pod = self.witness(node, &record.hash);
        let mut change = NodeChange {
            // Not if the node has said something else meanwhile.
            exact: true,
            ..NodeChange::default()
        };
        change
            .annotations
            .insert(record_key(&self.plan.facts.name), Some(failed.to_text()));
        let plan = &self.plan.facts.name;
        if node.labels.get_joined(names::LABEL_PLAN_PREFIX, plan) == Some(&record.hash) {
            // Not done after all.
            change
                .labels
                .insert(format!("{}{plan}", names::LABEL_PLAN_PREFIX), None);
        }
        Stand::slot(standing.then(patch(node, change, vec![event])))
    }
}

pub(super) const EVIDENCE_LOST: &str = "nothing is left that says in which boot the node was upgraded, so that nobody knows whether it \
    has rebooted since; set refit.rs/retry on the node to upgrade it again";
pub(super) const EVIDENCE_UNHEARD: &str = "the pod of the upgrade is gone, and the node does not say in which boot it was upgraded; set \
    refit.rs/retry on the node to upgrade it again";
pub(super) const ASKING: &str =
    "the pod of the upgrade is gone: the node is asked in which boot it was upgraded";

/// A node whose pod is still to tell in which boot it was upgraded.
pub(super) fn awaited(node: &NodeFacts, success: &Success<'_>, until: Timestamp) -> Standing {
    let mut standing = Standing::new(node, "Finishing");
    standing.since = Some(success.at);
    standing.job = Some(success.job.into());
    standing.attempt = Some(success.attempt);
    standing.wake = Some(until);
    standing
}

/// Where a node stands that is in for a reboot.
fn rebooting(node: &NodeFacts, record: &Record) -> Standing {
    let mut standing = Standing::new(node, "Rebooting");
    standing.since = Some(record.reboot.as_ref().map_or(record.at, |reboot| reboot.since));
    standing.job = Some(record.job.as_str().into());
    standing.attempt = Some(record.attempt);
    standing
}
