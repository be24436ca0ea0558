//! The list of reasons. `docs/operations.md` prints it, so a reader should need no other page. Code that reports a reason
//! names its variant.

use super::{Kind, Place, Severity};

reasons! {
    Wait {
        NoSlot Normal [Node]
            "all slots of `concurrency` or `maxConcurrent` are in use; a failed node keeps its slot"
            => "wait; [repair failed nodes](#when-a-node-fails); or raise the limit"
        StatusFull Warning [Node Complete PlanEvent]
            "the Plan's status has no room for another node in progress: some 5,000 at a time fit"
            => "wait; or lower `concurrency` or `maxConcurrent`"
        MaxUnavailable Warning [Node Complete PlanEvent]
            "as many of the selected nodes are unavailable as `maxUnavailable` allows: not Ready, cordoned by anyone, or being upgraded by a Plan. The message names those that this Plan does not work on"
            => "repair or uncordon these nodes, or raise the limit; [more](#how-many-nodes-may-be-unavailable)"
        ConcurrencyZero Warning [Node Complete PlanEvent]
            "`concurrency` is 0 or absent, and so is `maxConcurrent`"
            => "set one of them"
        NodeNotReady Warning [Node Complete PlanEvent]
            "the node is not Ready"
            => "repair the node. If the Plan itself repairs such nodes, add a toleration for `node.kubernetes.io/not-ready`"
        NodeBusy Warning [Node Complete PlanEvent]
            "another disruptive Plan works on the node: one that cordons, drains or is exclusive"
            => "wait for the Plan that the message names"
        WindowClosed Normal [Node]
            "the window is closed"
            => "wait; `status.nextWindow` says when it opens"
        Suspended Normal [Node Complete PlanEvent]
            "`suspend` is true"
            => "set it to false"
        NotReady Normal [Node Complete]
            "the Plan is invalid, or has no version yet"
            => "see the conditions `Validated` and `LatestResolved`"
        SchemaOutdated Warning [PlanEvent Message]
            "the served CRD, or the one that an API server still uses, lacks fields of refit. refit writes no Plan and starts no node, \
             so that no field is lost for good; running Jobs continue. Because refit cannot write status meanwhile, an event and the \
             log report it"
            => "find what restored the old CRD (another system-upgrade-controller, GitOps), then restart refit or apply `crds/`. The \
                Plans get their fields back, unless someone wrote to a Plan meanwhile (`SpecPruned`)"
        SpecPruned Warning [Node Complete PlanEvent]
            "fields of this Plan were lost while an old CRD was served"
            => "apply the Plan again"
        MissingPermission Warning [Node Complete PlanEvent Message]
            "the controller lacks the permission that the message names. Without permission to list or watch Secrets, Plans without \
             secrets continue. A permission to list that is missing at the start is reported only by an event. In the message of a \
             failed drain: a permission that the Plan's service account lacks"
            => "apply `deploy/rbac.yaml`, or grant the permission"
        ImageInvalid Warning [Node Complete PlanEvent]
            "an image reference of the Plan is invalid, or cannot have the version as its tag"
            => "correct the image or the version"
        SettingMissing Warning [Node Complete PlanEvent]
            "the Plan selects a Windows node, and `SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS` is empty"
            => "set the variable, or exclude the node in `nodeSelector`"
        NameTaken Warning [Node]
            "both possible names of the Job are taken by Jobs that are not refit's"
            => "delete the Job that the message names"
        JobLeaving Warning [Node Complete PlanEvent]
            "a Job of an earlier Plan or Node with the same name is still being deleted, or the result of the previous Job is being \
             recorded"
            => "wait; if it persists, look for finalizers on that Job"
        PodLeaving Warning [Node Complete PlanEvent]
            "a pod of a deleted Job still runs on the node"
            => "wait; if it persists, look for finalizers on that pod, and check its node"
        ChannelWithdrawn Warning [Node Complete PlanEvent]
            "the last version that the channel gave is older than the Plan's; nodes that have started finish"
            => "wait for the channel to recover; to downgrade, set `version` or `versionPolicy.allowDowngrade`"
        VersionOutOfRange Warning [Node Complete PlanEvent]
            "the Plan's version is not in `versionPolicy.range`"
            => "wait for a version in the range, or widen the range"
        MinorSkip Warning [Node Complete PlanEvent]
            "the kubelet's version differs from the Plan's by more than `versionPolicy.maxMinorSkip`, or cannot be compared with it; \
             other nodes continue"
            => "upgrade to a version in between first, or raise the limit"
        DigestPending Normal [Node Complete]
            "the registry is being queried for the digest of an image"
            => "wait some seconds"
        DigestUnknown Warning [Node Complete PlanEvent]
            "with `versionPolicy.pinDigest`: the registry returned no digest for an image; the message says why"
            => "check the registry and `imagePullSecrets`"
        JobRefused Warning [Node PlanEvent]
            "the API server refused the Job; the message is from the server (quota, admission, Pod Security)"
            => "follow the message; refit retries"
        NodeRefused Warning [Node]
            "the API server refused a patch of the Node; the message is from the server (admission)"
            => "follow the message; refit retries"
        ObjectUnreadable Warning [Node NodeEvent]
            "refit cannot read the Node as the API server gives it; the message says why. refit does not start it, changes nothing there, \
             and keeps its slot if it has one. An event on a Node can also say that refit ignores a time that it cannot read"
            => "correct the field that the message names"
        PodWaiting Warning [Node]
            "the pod of the Job, or the reboot Pod, does not start: its image cannot be pulled, or it cannot be scheduled"
            => "follow the message, which is from the kubelet or the scheduler"
        DrainWaiting Warning [Node Rehearsal]
            "evictions on the node are refused; the message names the pod, the PodDisruptionBudget and the time since when"
            => "make the budget's pods Ready, or relax the budget; `drain.timeout` ends the wait, `drain.disableEviction` ignores budgets"
        Cancelled Normal [Node]
            "the Plan was edited, or no longer selects the node, while the node was being drained; refit has cancelled the drain"
            => "wait some seconds: refit creates the next Job, or uncordons the node. If it persists, check the drain's pod and its \
                node"
        RebootPod Warning [Node]
            "the command of the reboot Pod fails with the message. refit retries it until the timeout"
            => "correct `reboot.command`; see [Reboots](reboot.md#while-a-node-reboots)"
        PodRefused Warning [Node]
            "the API server refused the reboot Pod; the message is from the server (quota, admission, Pod Security)"
            => "follow the message; refit retries"
        KubeletVersion Normal [Node]
            "with `settle.kubeletVersion`: the kubelet does not run the Plan's version yet"
            => "wait; if it persists, check the kubelet"
        MinReady Normal [Node]
            "`settle.minReady` has not passed"
            => "wait"
        Workloads Normal [Node]
            "with `settle.workloads`: the node is done and uncordoned, and keeps its slot until the ReplicaSets and StatefulSets that \
             the message names have as many ready pods as they want"
            => "wait, or repair these workloads"
        PostCompleteDelay Normal [Node]
            "the Job succeeded, and `postCompleteDelay` has not passed"
            => "wait"
    }
    Failure {
        BackoffLimitExceeded Warning [FailedNode]
            "the Job exceeded its `backoffLimit`: its container failed too often"
            => "read its logs; then edit the Plan, or retry"
        DeadlineExceeded Warning [FailedNode]
            "the Job exceeded its deadline, which includes the time that it waited in `prepare`, for an image or for evictions"
            => "raise `jobActiveDeadlineSecs` (0 means no limit)"
        NeverRebooted Warning [FailedNode]
            "the upgrade succeeded, but at the end of `reboot.timeout` the node is Ready in its old boot"
            => "correct `reboot.command`, or reboot the node by hand. See [Reboots](reboot.md#when-it-fails) for this and the reasons below"
        RebootTimedOut Warning [FailedNode]
            "the upgrade succeeded, but at the end of `reboot.timeout` the node is not Ready and has not been seen in a new boot"
            => "check its console; raise `reboot.timeout` for machines that start slowly"
        NotReadyAfterReboot Warning [FailedNode]
            "the upgrade succeeded and the node rebooted, but at the end of `reboot.timeout` it is not Ready"
            => "check its kubelet"
        SentinelMissing Warning [FailedNode Message]
            "the host has no sentinel although it has not rebooted since, so refit does not reboot it: something deleted files in `/run/refit`"
            => "find out what deletes them; then retry"
        EvidenceLost Warning [FailedNode]
            "Job and pod were deleted before refit read the result, and the node rebooted, which erased its own record of the result"
            => "check the node; then retry"
        UpgradeInterrupted Warning [FailedNode]
            "the node went down while `upgrade` ran. The upgrade may be incomplete, so refit does not run it again"
            => "check the node; then retry"
        RebootLoop Warning [FailedNode]
            "without `spec.reboot`: a payload rebooted its node twice under one Job, so refit stopped it"
            => "correct the payload: once its work is done it must exit with 0 and without a reboot"
        SettleTimedOut Warning [FailedNode]
            "at the end of `settle.timeout` the node was not Ready, its kubelet had another version, or a workload was not available; the message says which"
            => "check the node or the workload; or raise `settle.timeout`"
        NodeLost Warning [FailedNode]
            "the Job failed while its node is not Ready, so the cause is not known yet"
            => "repair the node, or delete it; refit then replaces this reason by the cause"
    }
    Condition {
        PlanIsValid Normal [Validated]
            "the spec is valid"
        Error Warning [Validated LatestResolved]
            "the Plan is invalid, a Secret is missing, it has neither `version` nor `channel`, or its channel has not given a version \
             yet. The message says which"
            => "edit the Plan, create the Secret that it names, or check the channel"
        Version Normal [LatestResolved]
            "the version is from `spec.version`"
        Channel Normal [LatestResolved]
            "the version is from `spec.channel`"
        Held Warning [LatestResolved]
            "the channel gave a version, and `versionPolicy` holds it back"
            => "do what the message says to allow it"
        Complete Normal [Complete PlanEvent]
            "all selected nodes are done; a message says so if no node is selected"
        Resolved Normal [Complete PlanEvent]
            "the Plan has a new version or hash; nodes are about to start"
        SyncJob Normal [Complete PlanEvent]
            "nodes are being upgraded; a message says so if one of them cannot continue"
        Waiting Normal [Complete PlanEvent]
            "the window is closed"
            => "wait; `status.nextWindow` says when it opens"
        JobFailed Warning [Complete PlanEvent]
            "a node failed; the message names Job, node and reason"
            => "[repair the node](#when-a-node-fails)"
        SelectNodesFailed Warning [Complete PlanEvent]
            "`nodeSelector` is invalid; the message says why"
            => "correct it"
        Latest Normal [UpToDate]
            "the Plan has the newest version that the channel gives"
    }
    Hold {
        OutOfRange Warning [UpToDate]
            "the version is not in `versionPolicy.range`"
            => "widen the range"
        Prerelease Warning [UpToDate]
            "the version is a prerelease"
            => "set a `versionPolicy.range` that names a prerelease of the same release"
        Older Warning [UpToDate]
            "the version is older than the Plan's"
            => "set `versionPolicy.allowDowngrade`, or `spec.version`"
        NotComparable Warning [UpToDate]
            "the version cannot be compared with the Plan's, or is of another distribution"
            => "set `versionPolicy.allowDowngrade`, or `spec.version`; for another distribution set `spec.version`"
        TooYoung Normal [UpToDate]
            "the version is younger than `versionPolicy.minimumAge`"
            => "wait, or set a shorter age"
        NotApproved Normal [UpToDate]
            "with `versionPolicy.propose`: the version has not been approved"
            => "set the annotation `refit.rs/approve: <version>` on the Plan"
        Variant Warning [UpToDate]
            "the version is another variant of a release than the Plan's, such as a tag that ends in `-amd64`"
            => "set `spec.version`"
        NoVersion Warning [UpToDate]
            "the channel offers something that is not a version"
            => "correct the channel"
    }
    Event {
        Validated Normal [PlanEvent]
            "the Plan is valid"
        ValidateFailed Warning [PlanEvent]
            "the Plan is invalid; the message says why"
        ResolveFailed Warning [PlanEvent]
            "the Plan has no version, or its channel could not be queried or gave none; the message says why"
        VersionProposed Normal [PlanEvent]
            "a version waits for approval"
        VersionHeld Warning [PlanEvent]
            "`versionPolicy` holds a version back (Normal if only its age does)"
        ValidationFailed Warning [PlanEvent]
            "no Job can be created for a node, because a setting of the controller is missing (`SettingMissing`)"
        StatusRefused Warning [PlanEvent]
            "the API server refused the Plan's status, for example because it is too large; the message is from the server. A node starts \
             only once the stored status names it, so none does"
            => "follow the message; refit retries"
        JobComplete Normal [PlanEvent]
            "a node is done"
        JobCompleteReboot Normal [PlanEvent]
            "the Job of a node succeeded; refit reboots the node"
        JobCompleteWaiting Normal [PlanEvent]
            "the Job of a node succeeded; refit waits for `postCompleteDelay`"
        RebootFailed Warning [PlanEvent]
            "the upgrade of a node succeeded, and its reboot failed"
        SettleFailed Warning [PlanEvent]
            "the upgrade of a node succeeded, but the node did not settle within `settle.timeout`"
        Starting Normal [NodeEvent]
            "the controller takes part in the leader election"
        Started Normal [NodeEvent]
            "the controller is the leader, and its watches have started"
    }
    RebootPod {
        CommandMissing Warning [Message]
            "the host has no program of `reboot.command`"
            => "correct `reboot.command`, or install the program"
        CommandFailed Warning [Message]
            "`reboot.command` failed; the message has the end of its output"
            => "correct `reboot.command`"
        HostUnreadable Warning [Message]
            "the host's files cannot be read"
            => "check the node"
    }
    Rehearsal {
        Prepare Normal [Rehearsal]
            "`prepare` waits for another Plan"
        Unschedulable Warning [Rehearsal]
            "the pod cannot be scheduled: the node has a taint that the Plan does not tolerate"
            => "add a toleration to `spec.tolerations`"
    }
}
