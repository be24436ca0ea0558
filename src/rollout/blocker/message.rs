//! What a blocker says in status.

use std::fmt;

use jiff::SignedDuration;

use super::{Blocker, Joining};
use refit_api::annotation::BY_PREFLIGHT;
use refit_api::text::seconds;
use refit_api::{Hook, names};
use refit_base::names::shortened;
use refit_facts::objects::maintenance::MaintenanceGroup;
use refit_facts::{DrainFinding, NodeName, Taint};

/// Maximum number of nodes named in a message.
const NODES_IN_MESSAGE: usize = 3;

/// Writes `a, b, c and 2 more are unavailable`.
fn write_unavailable(f: &mut fmt::Formatter<'_>, nodes: &[NodeName]) -> fmt::Result {
    let are = if nodes.len() == 1 { "is" } else { "are" };
    write!(f, "{} {are} unavailable", shortened(nodes, NODES_IN_MESSAGE))
}

/// Writes the taints, and what to do about them: tolerate those that someone has set, and wait for those of Kubernetes.
fn write_untolerated(f: &mut fmt::Formatter<'_>, taints: &[Taint]) -> fmt::Result {
    let list = |taints: &[&Taint], text: fn(&Taint) -> String| {
        let texts: Vec<_> = taints.iter().map(|taint| text(taint)).collect();
        texts.join(", ")
    };
    let word = if taints.len() == 1 { "taint" } else { "taints" };
    let all: Vec<_> = taints.iter().collect();
    write!(
        f,
        "the node has the {word} {}, which the Plan does not tolerate",
        list(&all, Taint::to_string)
    )?;
    let (of_conditions, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|taint| taint.is_of_condition());
    if !others.is_empty() {
        let tolerations = list(&others, Taint::toleration);
        write!(
            f,
            "; to upgrade such nodes, add to spec.tolerations: {tolerations}"
        )?;
    }
    if !of_conditions.is_empty() {
        write!(
            f,
            "; Kubernetes removes {} when the node is healthy",
            list(&of_conditions, Taint::to_string)
        )?;
    }
    Ok(())
}

impl fmt::Display for Blocker {
    #[expect(clippy::too_many_lines, reason = "one arm for each blocker")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot { limit: 1 } => write!(f, "the Plan's only slot is in use"),
            Self::NoSlot { limit } => write!(f, "all {limit} slots of the Plan are in use"),
            Self::StatusFull { slots } => {
                write!(
                    f,
                    "the Plan's status has no room for another node; {slots} are in progress"
                )
            }
            Self::MaxUnavailable { limit, nodes } => {
                write!(f, "spec.maxUnavailable is {limit}: no further node starts while ")?;
                write_unavailable(f, nodes)
            }
            Self::ControlPlaneQuorum {
                role,
                of,
                needed,
                down,
                voteless,
            } => {
                let (role, rest) = (role.as_str(), of.saturating_sub(down.len() + 1));
                write!(
                    f,
                    "without the node, {rest} of {of} {role} nodes would be available, and {needed} are needed: "
                )?;
                write_unavailable(f, down)?;
                if voteless.is_empty() {
                    return Ok(());
                }
                write!(f, "; Ready, but without a vote in etcd: {}", voteless.join(", "))
            }
            Self::EarlierNodes { node, group, why } => {
                write!(
                    f,
                    "spec.order: {node} is left ({group}), and other nodes wait until it is done"
                )?;
                why.as_ref().map_or(Ok(()), |why| write!(f, "; {why}"))
            }
            Self::FailureBudget { failed, budget } => write!(
                f,
                "{failed} of the selected nodes have failed, and spec.failure.budget is {budget}: no further node starts until they are \
                 retried or repaired, or the budget is raised"
            ),
            Self::WaveInProgress { wave, held_by } => {
                write!(f, "spec.waves: wave {wave} comes first, and is not over")?;
                held_by
                    .as_ref()
                    .map_or(Ok(()), |(node, why)| write!(f, "; {node} {why}"))
            }
            Self::WaveSoaking { wave, until } => {
                write!(f, "spec.waves: no node starts while wave {wave} soaks")?;
                until.map_or(Ok(()), |until| write!(f, ", until {until}"))
            }
            Self::WaveNotApproved { wave, approval } => write!(
                f,
                "spec.waves: wave {wave} is over and waits for approval; set the annotation {}: {approval} on the Plan to continue",
                names::ANNOTATION_APPROVE
            ),
            Self::CheckFailing { check, answer, since } => {
                write!(f, "spec.checks: no node starts, because check {check} fails")?;
                if let Some(since) = since {
                    write!(f, ", since {}", seconds(*since))?;
                }
                write!(f, ": {answer}")
            }
            Self::CheckPending { check, passed: 0, .. } => {
                write!(f, "spec.checks: check {check} is being asked")
            }
            Self::CheckPending {
                check,
                passed,
                passes,
            } => write!(
                f,
                "spec.checks: check {check} has passed {passed} times, and {passes} times in a row are needed"
            ),
            Self::Frozen {
                reason,
                invalid: false,
            } => write!(f, "no node starts, by ConfigMap refit: {reason}"),
            Self::Frozen {
                reason,
                invalid: true,
            } => {
                write!(
                    f,
                    "ConfigMap refit cannot be read, so no node starts until it is corrected: {reason}"
                )
            }
            Self::ClusterLimit {
                key,
                limit,
                nodes,
                count,
            } => {
                write!(
                    f,
                    "{key} of ConfigMap refit is {limit}, and {count} nodes count: "
                )?;
                let (named, _) = nodes.split_at(nodes.len().min(NODES_IN_MESSAGE));
                f.write_str(&named.join(", "))?;
                match count.saturating_sub(named.len()) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::ConcurrencyZero => write!(
                f,
                "spec.concurrency is 0 or absent, so no node starts; set it, or spec.maxConcurrent"
            ),
            Self::NodeNotReady => write!(f, "the node is not Ready"),
            Self::NodeJoining(Joining::Taint(taint)) => write!(
                f,
                "the node is joining: it has the start-up taint {taint}, which is removed when the node is set up"
            ),
            Self::NodeJoining(Joining::Until(until)) => write!(
                f,
                "the node has just joined, and its labels and taints may not be complete: it may start at {}",
                seconds(*until)
            ),
            Self::NodeBusy { by } => {
                let by = by.iter().map(|it| format!("{} {}", it.kind, it.name));
                write!(f, "{} works on the node", by.collect::<Vec<_>>().join(" of "))
            }
            Self::NodeInMaintenance { type_, reason, .. } => write!(
                f,
                "another client works on the node: its condition {type_} is True, with reason {reason:?}"
            ),
            Self::WindowClosed {
                field,
                opens: Some(at),
            } => write!(f, "{field} is closed and opens at {at}"),
            Self::WindowClosed { field, opens: None } => write!(f, "{field} is closed and never opens"),
            Self::Blackout {
                of_all,
                reason,
                until,
                ..
            } => {
                let place = if *of_all {
                    "ConfigMap refit"
                } else {
                    "spec.blackouts"
                };
                write!(f, "a blackout of {place} lasts until {until}")?;
                if reason.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {reason}")
                }
            }
            Self::NotBefore { at } => write!(f, "no node starts before spec.notBefore, {at}"),
            Self::WindowTooShort {
                end,
                limit,
                waits,
                longest_run,
                longest_window,
                opens,
            } => {
                let figure = |time: &Option<SignedDuration>, none: &str| match time {
                    Some(time) => format!("{time:#}"),
                    None => none.to_owned(),
                };
                let waits = SignedDuration::from_nanos(waits.as_nanos());
                let of_waits = match waits {
                    SignedDuration::ZERO => String::new(),
                    waits => format!(", with {waits:#} for spec.drain.waitFor"),
                };
                let needs = format!(
                    "its time limit is {}{of_waits}, and the longest time in this roll-out was {}",
                    figure(limit, "none"),
                    figure(longest_run, "none yet")
                );
                if let Some(window) = longest_window {
                    let field = if limit.is_some_and(|limit| waits > limit - waits) {
                        "spec.drain.waitFor[].timeout"
                    } else {
                        "spec.jobActiveDeadlineSecs"
                    };
                    return write!(
                        f,
                        "no window is ever long enough, the longest has {window:#}: lengthen one, or shorten {field}; for a node, {needs}"
                    );
                }
                write!(
                    f,
                    "a node that starts now might not finish by {end}, when no node may be in progress: {needs}"
                )?;
                match opens {
                    Some(at) => write!(f, "; nodes may start again at {at}"),
                    None => Ok(()),
                }
            }
            Self::Suspended { by: None } => write!(f, "spec.suspend is true"),
            Self::Suspended { by: Some(by) } => write!(f, "spec.suspend is true, set {by}"),
            Self::Aborted { by: None } => write!(f, "the annotation refit.rs/abort ends the roll-out"),
            Self::Aborted { by: Some(by) } => {
                write!(f, "the annotation refit.rs/abort, set {by}, ends the roll-out")
            }
            Self::Skipped {
                version,
                by: Some(by),
            } if by.starts_with(BY_PREFLIGHT) => write!(
                f,
                "preflight skips the node at {version}, as its annotation refit.rs/skip says: {}",
                by.trim_start_matches(BY_PREFLIGHT)
            ),
            Self::Skipped { version, by } => {
                write!(f, "the annotation refit.rs/skip of the node")?;
                if let Some(by) = by {
                    write!(f, ", set {by},")?;
                }
                write!(f, " excludes it at {version}")
            }
            Self::NotReady => write!(f, "the Plan is invalid, or has no version yet"),
            Self::SchemaOutdated { missing } => {
                write!(f, "the served CustomResourceDefinition lacks {missing}")
            }
            Self::SpecPruned => write!(
                f,
                "fields of spec were lost while another CustomResourceDefinition was served; apply the Plan again"
            ),
            Self::MissingPermission { what, .. } => write!(f, "the controller may not {what}"),
            Self::ImageInvalid { why } => write!(f, "{why}"),
            Self::OwnImageUnknown => write!(
                f,
                "the controller cannot determine its own image, which it needs to cordon, drain and reboot nodes: set \
                 REFIT_IMAGE on the controller to it, or POD_NAME by fieldRef to metadata.name"
            ),
            Self::SettingMissing { name } => {
                write!(f, "{name} is required when targeting Windows nodes")
            }
            Self::NameTaken { kind, name } => write!(f, "another {kind} has the name {name}; delete it"),
            Self::JobLeaving { job } => write!(f, "a previous Job, {job}, is still being deleted"),
            Self::PodLeaving { pod } => write!(f, "pod {pod} of a deleted Job still runs on its node"),
            Self::ChannelWithdrawn { offered, current } => {
                write!(f, "spec.channel gives {offered}, which is older than {current}")
            }
            Self::VersionOutOfRange { version, range } => {
                write!(
                    f,
                    "the Plan is at {version}, which is not in spec.versionPolicy.range, {range}"
                )
            }
            Self::DependencyNotComplete { plan, why } => {
                write!(f, "spec.dependsOn: Plan {plan} {why}")
            }
            Self::DependencyUnknown { plans } => {
                let (word, verb) = if plans.len() == 1 {
                    ("Plan", "does")
                } else {
                    ("Plans", "do")
                };
                write!(
                    f,
                    "spec.dependsOn: {word} {} {verb} not exist in this namespace",
                    plans.join(", ")
                )
            }
            Self::DependencySelectsNothing { plan } => write!(
                f,
                "spec.dependsOn: Plan {plan} selects no node, so it is not complete: correct its nodeSelector, or remove the entry"
            ),
            Self::DependencyCycle { plans } => {
                f.write_str("spec.dependsOn is a cycle: ")?;
                for plan in plans {
                    write!(f, "{plan} waits for ")?;
                }
                f.write_str(plans.first().map_or("itself", |first| first))
            }
            Self::DigestUnknown { image, why, .. } if why.is_empty() => {
                write!(f, "the registry has not answered about {image} yet")
            }
            Self::DigestUnknown { image, why, .. } => {
                write!(f, "the registry returned no digest of {image}: {why}")
            }
            Self::ImageMissing { image, answer, .. } => write!(
                f,
                "the registry has no image {image} ({answer}): wait until it is published, or correct the image or the version"
            ),
            Self::NodeIsNewer { kubelet, version } => write!(
                f,
                "the node's kubelet has {kubelet}, which is newer than {version}; spec.versionPolicy.allowDowngrade lets it through"
            ),
            Self::ControlPlaneOlder { node, has, version } => {
                match node {
                    Some(node) => write!(f, "control-plane node {node} has {has}")?,
                    None => write!(f, "the API server has {has}")?,
                }
                write!(
                    f,
                    ", which is older than {version}: a node of the control plane gets a version before the others"
                )
            }
            Self::MinorSkip {
                kubelet,
                version,
                skip: Some(skip),
                limit,
            } => write!(
                f,
                "{version} is {skip} minor versions from the node's kubelet, {kubelet}, and spec.versionPolicy.maxMinorSkip is \
                 {limit}; a version in between, or a higher limit, lets it through"
            ),
            Self::MinorSkip {
                kubelet,
                version,
                skip: None,
                limit,
            } => write!(
                f,
                "{version} cannot be compared with the node's kubelet, {kubelet}, which spec.versionPolicy.maxMinorSkip ({limit}) requires"
            ),
            Self::TaintNotTolerated { taints } => write_untolerated(f, taints),
            Self::PodBlocks { pod } => write!(
                f,
                "spec.drain.blockedBy: pod {pod} runs on the node, which starts when it has ended"
            ),
            Self::DrainSkipped { why, until } => write!(
                f,
                "spec.drain.waitFor: {why}, so the node was released as it was; its turn comes again at {}",
                seconds(*until)
            ),
            Self::DrainWouldBlock(DrainFinding { pod, why, more }) => {
                write!(
                    f,
                    "spec.drain.checkFirst: a drain of the node would not end, so it stays as it is: pod {pod}: {why}"
                )?;
                match more {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more"),
                }
            }
            Self::PodsPending { field, why: None } => {
                write!(f, "{field}: the pods of the node are being listed")
            }
            Self::PodsPending {
                field,
                why: Some(why),
            } => {
                write!(f, "{field}: the pods of the node cannot be listed: {why}")
            }
            Self::AtVersion { version } => write!(
                f,
                "spec.skipWhen: the node has version {version} already, so the node is marked as done"
            ),
            Self::RebootIneffective { why } => write!(
                f,
                "the node has rebooted and still needs a reboot for the same reason, so another one would not help ({why}): find out \
                 what says so, or remove the annotation {} to reboot it once more",
                names::ANNOTATION_REBOOT_NEEDED
            ),
            Self::NodeUnreadable { why } => write!(f, "the Node cannot be read: {why}"),
            Self::NodeLeased { node, holder, until } => {
                write!(
                    f,
                    "spec.pauseRemediation: {holder} holds Lease {}",
                    node_lease(node)
                )?;
                if f.alternate() {
                    write!(f, " until {until:.0}, unless it renews that")?;
                }
                Ok(())
            }
            Self::LeasePending { node, why: None } => {
                write!(
                    f,
                    "spec.pauseRemediation: Lease {} is being read, or taken",
                    node_lease(node)
                )
            }
            Self::LeasePending { node, why: Some(why) } => {
                write!(
                    f,
                    "spec.pauseRemediation: Lease {} cannot be read, or taken: {why}",
                    node_lease(node)
                )
            }
            Self::JobRefused { why } => write!(f, "the Job cannot be created: {why}"),
            Self::HookRunning {
                hook,
                job,
                since,
                waits,
            } => {
                write!(f, "spec.{}: ", hook.as_str())?;
                match (hook, since) {
                    (Hook::Before, None) => write!(f, "Job {job} comes before the first node")?,
                    (Hook::After, None) => write!(f, "all nodes are done, and Job {job} comes next")?,
                    (Hook::Before, Some(at)) => write!(
                        f,
                        "no node starts until Job {job}, created at {}, has succeeded",
                        seconds(*at)
                    )?,
                    (Hook::After, Some(at)) => write!(
                        f,
                        "all nodes are done, and Job {job}, created at {}, has not ended",
                        seconds(*at)
                    )?,
                }
                waits.as_ref().map_or(Ok(()), |waits| write!(f, ": {waits}"))
            }
            Self::HookFailed { hook, job, why, due } => {
                let effect = match hook {
                    Hook::Before => "so no node starts",
                    Hook::After => "so the Plan is not complete",
                };
                write!(f, "spec.{}: Job {job} failed, {effect}: {why}", hook.as_str())?;
                match due {
                    Some(due) => write!(f, "; it is tried again at {}", seconds(*due)),
                    None => write!(
                        f,
                        "; refit retry PLAN once the cause is corrected, or annotate the Plan with {}={job}, or edit it",
                        names::ANNOTATION_RETRY
                    ),
                }
            }
        }
    }
}

/// Namespace and name of the Lease of a node.
pub(super) fn node_lease(node: &str) -> String {
    let medik8s = MaintenanceGroup::Medik8s;
    format!("{}/{}", medik8s.lease_namespace(), medik8s.lease_name(node))
}
