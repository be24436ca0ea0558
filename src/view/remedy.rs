//! What would release a Plan or a node, and the commands for it.

use super::plan::PlanOverview;
use super::stall;
use super::unavailable::unavailable;
use refit_api::reason::Kind;
use refit_api::{ConditionType, NodeProgress, ObjectRef, OpenEnum, Reason, limits, names};
use refit_facts::words;

/// What puts something right, in words, and commands that can be copied.
pub(super) type Remedy = (String, Vec<String>);

/// The command that edits a Plan.
pub(super) fn edit(namespace: &str, plan: &str) -> String {
    format!("kubectl edit plan -n {namespace} {plan}")
}

/// The remedy of a reason.
#[expect(clippy::too_many_lines, reason = "one arm for each remedy")]
pub(super) fn remedy(
    view: &PlanOverview<'_>,
    reason: &OpenEnum<Reason>,
    about: &[ObjectRef],
    node: Option<&str>,
) -> Remedy {
    let (namespace, plan) = (view.plan.namespace(), &view.plan.name);
    let at = format!("-n {namespace} {plan}");
    let on = |text: &str| node.map(|node| text.replace("NODE", node));
    let Some(known) = reason.known() else {
        let logs = on(&format!(
            "kubectl logs -n {namespace} -l upgrade.cattle.io/plan={plan},upgrade.cattle.io/node=NODE --tail=50"
        ));
        let retry = on(&format!("refit retry {at} NODE"));
        let commands = logs.into_iter().chain(retry).collect();
        return (
            "read the message and the logs of the Job; then correct the Plan, or retry".to_owned(),
            commands,
        );
    };
    if let Some(found) = stall::remedy(view, known, node).or_else(|| of_message(view, known, about, node)) {
        return found;
    }
    let channel = view.plan.status().channel.as_ref();
    // What a policy holds back has a reason of its own.
    let known = match (
        known,
        channel.and_then(|channel| channel.reason.as_ref()?.known()),
    ) {
        (Reason::Held, Some(held)) => held,
        (known, _) => known,
    };
    let edit = || Some(edit(namespace, plan));
    let logs = || {
        on(&format!(
            "kubectl logs -n {namespace} -l upgrade.cattle.io/plan={plan},upgrade.cattle.io/node=NODE --all-containers --tail=50"
        ))
    };
    let describe = || on("kubectl describe node NODE");
    let watch = || Some(format!("refit status {at} --watch"));
    let explain = || on(&format!("refit explain {at} NODE"));
    let limits = || Some(format!("kubectl edit configmap -n {namespace} {}", limits::NAME));
    let manifest = || on("kubectl get node NODE -o yaml");
    let resolve = || {
        let url = channel.and_then(|channel| channel.url.as_ref());
        url.map(|url| format!("refit resolve {url}"))
    };
    let events = || {
        Some(format!(
            "kubectl get events -n {namespace} --field-selector involvedObject.kind=Plan,involvedObject.name={plan}"
        ))
    };
    let pods = || {
        let of_node = on(",upgrade.cattle.io/node=NODE").unwrap_or_default();
        Some(format!(
            "kubectl get jobs,pods -n {namespace} -l upgrade.cattle.io/plan={plan}{of_node} -o wide"
        ))
    };
    let controller = || {
        Some(format!(
            "kubectl logs -n {namespace} deployment/system-upgrade-controller --tail=50"
        ))
    };
    let lease = || {
        let lease = about.iter().find(|object| object.kind == "Lease")?;
        let namespace = lease.namespace.as_deref().unwrap_or(namespace);
        Some(format!("kubectl get lease -n {namespace} {} -o yaml", lease.name))
    };
    let retry = || on(&format!("refit retry {at} NODE"));
    let is_failed = node.is_some_and(|node| view.node(node).is_some_and(NodeProgress::is_failed));
    let waits = node.is_some_and(|node| view.node(node).is_some_and(|node| !node.has_slot()));
    let failed = || {
        let failed = view.nodes.iter().filter(|node| node.is_failed());
        failed.map(|node| Some(format!("refit retry {at} {}", node.name)))
    };
    let commands: Vec<Option<String>> = match known {
        Reason::Suspended | Reason::Aborted => vec![Some(format!("refit resume {at}"))],
        Reason::Skipped => vec![on(&format!("refit skip --undo {at} NODE"))],
        Reason::NotApproved | Reason::WaveNotApproved => vec![Some(format!("refit approve {at}"))],
        Reason::NoSlot
        | Reason::WaveSoaking
        | Reason::AtVersion
        | Reason::PodsPending
        | Reason::CheckPending
        | Reason::BeforeRunning
        | Reason::AfterRunning
        | Reason::DigestPending
        | Reason::PostCompleteDelay
        | Reason::MinReady => vec![watch()],
        Reason::BeforeFailed | Reason::AfterFailed => vec![
            Some(format!("refit logs {at}")),
            Some(format!("refit retry {at}")),
            edit(),
        ],
        Reason::Blackout if ObjectRef::named(about, "ConfigMap").next().is_some() => vec![limits(), watch()],
        Reason::Held
        | Reason::Error
        | Reason::SelectNodesFailed
        | Reason::Waiting
        | Reason::StatusFull
        | Reason::CheckFailing
        | Reason::ConcurrencyZero
        | Reason::WindowClosed
        | Reason::NotBefore
        | Reason::WindowTooShort
        | Reason::ImageInvalid
        | Reason::VersionOutOfRange
        | Reason::DependencySelectsNothing
        | Reason::ControlPlaneOlder
        | Reason::ImageMissing
        | Reason::DigestUnknown
        | Reason::OutOfRange
        | Reason::Prerelease
        | Reason::TooYoung
        | Reason::Variant
        | Reason::Blackout => vec![edit()],
        Reason::TaintNotTolerated => vec![describe(), edit()],
        Reason::NodeJoining | Reason::RebootIneffective => vec![describe(), watch()],
        Reason::Frozen | Reason::ClusterLimit => vec![limits()],
        Reason::EarlierNodes | Reason::WaveInProgress | Reason::ControlPlaneQuorum => {
            let named = ObjectRef::named(about, "Node").filter(|name| Some(*name) != node);
            let named = named.map(|name| Some(format!("kubectl describe node {name}")));
            named.chain([watch()]).collect()
        }
        Reason::NoNodes => vec![
            Some(format!("refit explain {at} NODE")),
            Some("kubectl get nodes --show-labels".to_owned()),
            edit(),
        ],
        Reason::FailureBudget | Reason::JobFailed => failed().chain([edit()]).collect(),
        Reason::NodeBusy if lease().is_some() => vec![lease()],
        Reason::LeasePending => vec![lease(), controller()],
        Reason::NodeBusy => vec![Some(format!("refit status -n {namespace}"))],
        Reason::DependencyUnknown => vec![Some(format!("kubectl get plans -n {namespace}")), edit()],
        Reason::DependencyNotComplete | Reason::DependencyCycle | Reason::Prepare => {
            let plans = ObjectRef::named(about, "Plan")
                .map(|plan| Some(format!("refit explain -n {namespace} {plan}")));
            plans.chain([edit()]).collect()
        }
        Reason::NodeNotReady
        | Reason::NodeLost
        | Reason::NotReadyAfterReboot
        | Reason::RebootTimedOut
        | Reason::KubeletVersion
        | Reason::OsImage
        | Reason::NodeCondition
        | Reason::TaintStays => vec![describe(), retry().filter(|_| known.kind() == Kind::Failure)],
        Reason::DaemonSetPods | Reason::Workloads => {
            let objects = about.iter().map(|it| {
                let kind = it.kind.to_lowercase();
                let namespace = it.namespace.as_deref().unwrap_or(namespace);
                Some(format!("kubectl describe {kind} -n {namespace} {}", it.name))
            });
            objects.chain([describe()]).collect()
        }
        Reason::PodBlocks | Reason::PodsRunning | Reason::DrainSkipped | Reason::DrainWouldBlock => vec![
            on("kubectl get pods -A --field-selector spec.nodeName=NODE"),
            retry().filter(|_| known == Reason::DrainSkipped && waits),
            edit(),
        ],
        // A Job that waits for that until its deadline fails with this reason.
        Reason::PodWaiting | Reason::DrainWaiting | Reason::PodRefused if is_failed => {
            vec![pods(), explain(), retry()]
        }
        Reason::PodWaiting
        | Reason::DrainWaiting
        | Reason::JobLeaving
        | Reason::PodLeaving
        | Reason::Cancelled
        | Reason::RebootPod
        | Reason::NameTaken => vec![pods(), explain()],
        Reason::PodRefused => vec![pods(), edit()],
        Reason::JobRefused | Reason::StatusRefused => vec![events()],
        Reason::NodeRefused | Reason::ObjectUnreadable => vec![manifest()],
        Reason::VersionDiffers | Reason::Drifted => vec![
            on(&format!(
                "kubectl logs -n {namespace} -l upgrade.cattle.io/plan={plan},upgrade.cattle.io/node=NODE --tail=50"
            )),
            on(&format!("refit rerun {at} NODE")),
        ],
        Reason::MinorSkip | Reason::NodeIsNewer => vec![on("kubectl get node NODE -o wide"), edit()],
        Reason::NotReady => vec![Some(format!("kubectl get plan {at} -o yaml"))],
        Reason::OwnImageUnknown | Reason::SettingMissing => vec![
            Some(format!(
                "kubectl edit deployment -n {namespace} system-upgrade-controller"
            )),
            controller(),
        ],
        Reason::MaxUnavailable => {
            let nodes = unavailable(view).into_iter().map(|(_, _, command)| Some(command));
            nodes.chain([edit()]).collect()
        }
        Reason::MissingPermission if about.is_empty() => {
            vec![Some("kubectl apply -f deploy/rbac.yaml".to_owned())]
        }
        Reason::MissingPermission => {
            let mut commands: Vec<_> = about.iter().flat_map(|role| grant(namespace, role)).collect();
            commands.dedup();
            commands.into_iter().map(Some).collect()
        }
        Reason::ChannelWithdrawn | Reason::NoVersion | Reason::Older | Reason::NotComparable => {
            vec![resolve(), edit()]
        }
        Reason::SchemaOutdated | Reason::SpecPruned => {
            vec![Some("refit crd | kubectl apply -f -".to_owned())]
        }
        Reason::BackoffLimitExceeded
        | Reason::ContainerFailed
        | Reason::DeadlineExceeded
        | Reason::PrepareTimedOut
        | Reason::NeverRebooted
        | Reason::SentinelMissing
        | Reason::EvidenceLost
        | Reason::UpgradeInterrupted
        | Reason::RebootLoop
        | Reason::SettleTimedOut
        | Reason::VerifyFailed => {
            vec![logs(), retry(), on(&format!("refit skip {at} NODE"))]
        }
        // Nothing to do, or nothing that commands show.
        Reason::PlanIsValid
        | Reason::Version
        | Reason::Trigger
        | Reason::Channel
        | Reason::Complete
        | Reason::Resolved
        | Reason::SyncJob
        | Reason::Latest
        | Reason::FeatureUnavailable
        | Reason::Validated
        | Reason::ValidateFailed
        | Reason::ResolveFailed
        | Reason::StartedDespite
        | Reason::DespiteInvalid
        | Reason::VersionProposed
        | Reason::VersionHeld
        | Reason::ValidationFailed
        | Reason::HolderUnknown
        | Reason::JobComplete
        | Reason::JobCompleteReboot
        | Reason::JobCompleteWaiting
        | Reason::PreflightSkipped
        | Reason::Repeats
        | Reason::RebootFailed
        | Reason::SettleFailed
        | Reason::NotificationDropped
        | Reason::NotificationFailed
        | Reason::NotificationsInvalid
        | Reason::SilenceFailed
        | Reason::Starting
        | Reason::Started
        | Reason::CommandMissing
        | Reason::CommandFailed
        | Reason::HostUnreadable
        | Reason::Deleting
        | Reason::Unprocessed
        | Reason::PodFailed
        | Reason::PodTerminating => Vec::new(),
    };
    (known.plain_remedy(), commands.into_iter().flatten().collect())
}

/// The commands that grant the controller a role.
fn grant(namespace: &str, role: &ObjectRef) -> Vec<String> {
    match role.name.as_str() {
        names::ROLE_DRAIN_CHECKS => {
            vec!["kubectl apply -f deploy/overlays/check-drains/rbac.yaml".to_owned()]
        }
        names::ROLE_REMEDIATION => vec!["kubectl apply -k deploy/overlays/remediation".to_owned()],
        role @ names::ROLE_PODS => vec![
            format!("kubectl create clusterrole {role} --verb=list --resource=pods"),
            format!(
                "kubectl create clusterrolebinding {role} --clusterrole={role} --serviceaccount={namespace}:system-upgrade-controller"
            ),
        ],
        _ => vec!["kubectl apply -f deploy/rbac.yaml".to_owned()],
    }
}

/// The remedy for the one of several causes of a reason that the message names.
fn of_message(
    view: &PlanOverview<'_>,
    reason: Reason,
    about: &[ObjectRef],
    node: Option<&str>,
) -> Option<(String, Vec<String>)> {
    let (namespace, plan) = (view.plan.namespace(), &view.plan.name);
    let edit = edit(namespace, plan);
    let message = node
        .and_then(|node| view.node(node)?.message.as_deref())
        .unwrap_or_default();
    match reason {
        Reason::Error => {
            let secrets: Vec<_> = ObjectRef::named(about, "Secret").collect();
            if !secrets.is_empty() {
                let create =
                    |name| format!("kubectl create secret generic -n {namespace} {name} --from-file=FILE");
                let remedy = "create the Secret, or remove it from the Plan".to_owned();
                return Some((remedy, secrets.into_iter().map(create).chain([edit]).collect()));
            }
            let validated = view.plan.status().condition(ConditionType::Validated);
            if validated.is_some_and(|it| it.status == "False") {
                let remedy = "edit the Plan: the message names the field".to_owned();
                return Some((remedy, vec![edit]));
            }
            let channel = view.plan.status().channel.as_ref()?;
            let (url, _) = (channel.url.as_ref()?, channel.last_error.as_ref()?);
            let remedy = "make the channel reachable, or set spec.version".to_owned();
            Some((remedy, vec![format!("refit resolve {url}"), edit]))
        }
        Reason::PodRefused => {
            let account = words::missing_account(message)?;
            let create = format!("kubectl create serviceaccount -n {namespace} {account}");
            let remedy = "create the ServiceAccount, or correct spec.serviceAccountName".to_owned();
            Some((remedy, vec![create, edit]))
        }
        // Its taints keep the pod away.
        Reason::PodWaiting if ObjectRef::named(about, "Node").next().is_some() => {
            let remedy = "add the toleration to spec.tolerations, or remove the taint".to_owned();
            Some((remedy, vec![edit]))
        }
        Reason::PodWaiting if words::names_image(message) => {
            let remedy = "correct the image or the version, or set spec.imagePullSecrets".to_owned();
            Some((remedy, vec![edit]))
        }
        _ => None,
    }
}
