//! The list of reasons. `docs/operations.md` prints it, so a reader should need no other page. Code that reports a reason
//! names its variant.

use super::{Cause, Kind, Level, ReportedIn};

reasons! {
    Wait {
        NoSlot Normal Slots [Node]
            "all slots of `concurrency` or `maxConcurrent` are in use; with `failure.policy: Hold`, also by failed nodes"
            => "wait; [repair failed nodes](#when-a-node-fails); or raise the limit"
        StatusFull Warning Slots [Node Complete PlanEvent]
            "the Plan's status has no room for another node in progress: some 5,000 fit"
            => "wait; or lower the concurrency"
        MaxUnavailable Warning Unavailable [Node Complete PlanEvent]
            "`maxUnavailable` of the selected nodes are not Ready, cordoned, or being upgraded"
            => "repair or uncordon them, or raise the limit; [more](#how-many-nodes-may-be-unavailable)"
        EarlierNodes Warning NamedNodes [Node Complete PlanEvent]
            "with `order`: a node of the control plane, or of a zone that comes first, is left"
            => "wait; repair that node; or label it `plan.upgrade.cattle.io/<plan>: disabled`. [More](rollouts.md#order)"
        ControlPlaneQuorum Warning NamedNodes [Node Complete PlanEvent]
            "without the node, no majority of the control-plane or etcd nodes would be available"
            => "wait; repair the nodes that are missing, or delete those that are gone for good; \
                [more](rollouts.md#the-control-plane-keeps-its-majority)"
        FailureBudget Warning FailedNodes [Node Complete PlanEvent]
            "with `failure.policy: Stop`: `failure.budget` nodes have failed"
            => "[repair and retry them](#when-a-node-fails), or raise the budget; [more](rollouts.md#failures)"
        WaveInProgress Normal Wave [Node Complete PlanEvent]
            "with `waves`: an earlier wave is not over"
            => "wait; repair the node that the message names. [More](rollouts.md#waves)"
        WaveSoaking Normal Wave [Node Complete PlanEvent]
            "with `waves`: the nodes of a wave must stay Ready for `soak`"
            => "wait until `status.wave.until`"
        WaveNotApproved Normal Wave [Node Complete PlanEvent]
            "with `waves`: the next wave needs approval"
            => "`refit approve`, or set the annotation that the message shows"
        CheckFailing Warning Checks [Node Complete PlanEvent]
            "the last answer to one of `checks` was out of its limits, an error, late or unreadable"
            => "repair what it checks, or correct the check; `status.checks` has the answers. [More](rollouts.md#checks)"
        PodBlocks Normal Itself [Node Complete PlanEvent]
            "a pod of `drain.blockedBy` runs on the node"
            => "wait until it has ended, or delete it; [more](drain.md#pods-that-delay-a-node)"
        DrainWouldBlock Warning Itself [Node Complete PlanEvent]
            "with `drain.checkFirst`: a drain of the node would not end; the message names a pod and the cause"
            => "correct the budget, the pod or `drain`, or make room on other nodes; refit looks again every minute. \
                [More](drain.md#before-the-cordon)"
        PodsPending Normal Itself [Node Complete]
            "with `drain.blockedBy` or `checkFirst`: the pods of the node are being listed, or cannot be"
            => "wait, or repair what the message says"
        DrainSkipped Normal Job [Node Complete PlanEvent]
            "with `drain.waitFor` and `afterTimeout: Skip`: pods had not ended in time, and the node was released; perhaps they are waited for again"
            => "wait until the time that the message names; or end the pods, and `refit retry`; or edit the Plan. [More](drain.md#pods-that-end-by-themselves)"
        CheckPending Normal Checks [Node Complete]
            "one of `checks` is running, or has not passed often enough"
            => "wait"
        BeforeRunning Normal Itself [Node Complete]
            "the Job of `before` runs"
            => "wait; if its pod cannot run, correct what the message names. [More](rollouts.md#once-for-each-roll-out)"
        BeforeFailed Warning Itself [Node Complete Degraded PlanEvent]
            "the Job of `before` failed, so no node starts"
            => "`refit retry PLAN`, or correct `before`; [more](rollouts.md#once-for-each-roll-out)"
        AfterRunning Normal Itself [Complete]
            "all nodes are done, and the Job of `after` runs"
            => "wait; if its pod cannot run, correct what the message names. [More](rollouts.md#once-for-each-roll-out)"
        AfterFailed Warning Itself [Complete Degraded PlanEvent]
            "all nodes are done, and the Job of `after` failed"
            => "`refit retry PLAN`, or correct `after`; [more](rollouts.md#once-for-each-roll-out)"
        Frozen Warning Limits [Node Complete PlanEvent]
            "the `ConfigMap` `refit` has `freeze`, or cannot be read"
            => "remove the key, or correct what the message names; [more](rollouts.md#limits-for-all-plans)"
        ClusterLimit Normal Limits [Node Complete PlanEvent]
            "as many nodes are in progress, or unavailable, as the `ConfigMap` `refit` allows all Plans"
            => "wait; repair or uncordon nodes; or raise the limit; [more](rollouts.md#limits-for-all-plans)"
        ConcurrencyZero Warning Itself [Node Complete PlanEvent]
            "`concurrency` is 0 or absent, and so is `maxConcurrent`"
            => "set one of them"
        NodeNotReady Warning Kubelet [Node Complete PlanEvent]
            "the node is not Ready"
            => "repair the node; if the Plan repairs such nodes, let it tolerate `node.kubernetes.io/not-ready`"
        NodeJoining Normal Itself [Node Complete PlanEvent]
            "the node registered less than a minute ago (`REFIT_MIN_NODE_AGE`), or has a start-up taint"
            => "wait; if the taint stays, see what should remove it, or tolerate it by name; [more](rollouts.md#nodes-that-join)"
        NodeBusy Warning Busy [Node Complete PlanEvent]
            "another Plan that cordons, drains or is exclusive works on the node, the pod of a `before` or `after` runs there, a `NodeMaintenance` wants it, another client has set its condition `MaintenanceInProgress` or `DrainInProgress`, or with `pauseRemediation` another program holds its Lease"
            => "wait for that Plan, Job or program, delete the `NodeMaintenance`, or [remove the condition](drain.md#conditions-of-nodes)"
        LeasePending Normal Itself [Node Complete]
            "with `pauseRemediation`: the Lease of the node is being read or taken, or cannot be"
            => "wait, or repair what the message says"
        WindowClosed Normal Window [Node]
            "the window is closed"
            => "wait; `status.nextWindow` says when it opens"
        Blackout Normal Window [Node Complete PlanEvent]
            "a blackout of the Plan is in force"
            => "wait until `status.nextWindow`"
        NotBefore Normal Itself [Node Complete PlanEvent]
            "the time `notBefore` has not come"
            => "wait; or remove the field to start now"
        WindowTooShort Normal Window [Node Complete PlanEvent]
            "with `windows` or blackouts: a node that starts now might not finish in time"
            => "wait; if no window is long enough, lengthen one or shorten `jobActiveDeadlineSecs`; \
                [more](rollouts.md#windows-and-blackouts)"
        Suspended Normal Itself [Node Complete PlanEvent]
            "`suspend` is true"
            => "`refit resume`, or set it to false"
        Aborted Warning Itself [Node Complete PlanEvent]
            "the Plan has the annotation `refit.rs/abort`"
            => "`refit resume`, or remove the annotation"
        Skipped Normal Itself [Node]
            "the annotation `refit.rs/skip` of the Node excludes it"
            => "`refit skip --undo`, or remove the Plan from the annotation"
        NotReady Normal Itself [Node Complete]
            "the Plan is invalid, or has no version yet"
            => "see the conditions `Validated` and `LatestResolved`"
        SchemaOutdated Warning Itself [PlanEvent Message]
            "the served CRD lacks fields of refit, so refit starts no node and writes no status; an event and the log say so"
            => "find what restored the old CRD (another system-upgrade-controller, GitOps), then restart refit or apply `crds/`"
        SpecPruned Warning Itself [Node Complete PlanEvent]
            "fields of this Plan were lost while an old CRD was served"
            => "apply the Plan again"
        MissingPermission Refusal Itself [Node Complete PlanEvent Message]
            "the controller, or for a drain the Plan's account, lacks the permission that the message names"
            => "apply `deploy/rbac.yaml`, or grant the permission"
        ImageInvalid Refusal Itself [Node Complete PlanEvent]
            "an image reference of the Plan is invalid, or cannot have the version as its tag"
            => "correct the image or the version"
        OwnImageUnknown Refusal Itself [Node Complete PlanEvent]
            "the controller does not know its own image, which cordons, drains and reboots; the log says what it tried"
            => "set `REFIT_IMAGE` on the controller, or let it read its own Pod (`POD_NAME` from `metadata.name`)"
        SettingMissing Refusal Itself [Node Complete PlanEvent]
            "the Plan selects a Windows node, and `SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS` is empty"
            => "set it, or exclude the node in `nodeSelector`"
        NameTaken Refusal Itself [Node]
            "a pod or Job that is not refit's has the name of the reboot Pod, or both names of the Job"
            => "delete the Job or pod that the message names; if a kubelet creates it again, look at its node"
        JobLeaving Warning Job [Node Complete PlanEvent]
            "a Job of the same name is being deleted, or the previous Job's result is being recorded"
            => "wait; if it persists, look for finalizers on that Job"
        PodLeaving Warning Job [Node Complete PlanEvent]
            "a pod of a deleted Job still runs on the node, or holds the Plan's last slot"
            => "wait; if it persists, look for finalizers on that pod, and check its node"
        ChannelWithdrawn Warning Channel [Node Complete PlanEvent]
            "the channel's last version is older than the Plan's"
            => "wait for the channel; to downgrade, set `versionPolicy.allowDowngrade`"
        VersionOutOfRange Warning Itself [Node Complete PlanEvent]
            "the Plan's version is not in `versionPolicy.range`"
            => "wait for a version in the range, or widen the range"
        DependencyNotComplete Normal Plans [Node Complete PlanEvent]
            "a Plan in `dependsOn` is not `Complete` for its current generation, or has another version"
            => "wait; if it persists, see that Plan's status. [More](rollouts.md#one-plan-after-another)"
        DependencyUnknown Warning Plans [Node Complete PlanEvent]
            "a Plan in `dependsOn` does not exist in the namespace"
            => "create it, or correct the name"
        DependencySelectsNothing Warning Plans [Node Complete PlanEvent]
            "a Plan in `dependsOn` selects no node"
            => "correct its `nodeSelector`, or remove the entry"
        DependencyCycle Warning Plans [Node Complete PlanEvent]
            "Plans wait for each other by `dependsOn`"
            => "remove one of the entries"
        NodeIsNewer Warning Itself [Node Complete PlanEvent]
            "the node's kubelet is newer than the Kubernetes that the Plan installs"
            => "set a newer version, or `versionPolicy.allowDowngrade`. [More](versions.md#what-nodes-say)"
        ControlPlaneOlder Warning NamedNodes [Node Complete PlanEvent]
            "the API server or a control-plane node is older than the Kubernetes that the Plan installs"
            => "upgrade the control plane first: see the Plan that selects that node, or add one. [More](versions.md#what-nodes-say)"
        VersionDiffers Warning Itself [DoneNode Explain]
            "a done node's kubelet has another version: the upgrade changed nothing, or something else did since"
            => "see the Job's log and the node; remove its label `plan.upgrade.cattle.io/<plan>` to run the Plan again. \
                [More](versions.md#what-nodes-say)"
        Drifted Warning Itself [DoneNode Explain PlanEvent]
            "a done node's kubelet went back to an older version: re-imaged, or rolled back"
            => "set `onDrift: Rerun`, or remove the node's label `plan.upgrade.cattle.io/<plan>`. [More](versions.md#what-nodes-say)"
        MinorSkip Warning Itself [Node Complete UpToDate PlanEvent]
            "the kubelet's version is more than `versionPolicy.maxMinorSkip` from the Plan's, or cannot be compared"
            => "upgrade to a version in between, or raise the limit; with a feed, wait until the roll-out is complete"
        TaintNotTolerated Warning Itself [Node Complete PlanEvent]
            "the node has a taint (`NoSchedule`, `NoExecute`) that the Plan does not tolerate"
            => "add the toleration of the message to `spec.tolerations`, or remove the taint; if Kubernetes set it, repair the node"
        RebootIneffective Warning Itself [Node Complete PlanEvent]
            "the node has rebooted, and needs a reboot for the same reason again"
            => "repair what the message names; or remove `refit.rs/reboot-needed` from the node to reboot it once more. \
                [More](reboot-requests.md#when-a-reboot-does-not-help)"
        DigestPending Normal Itself [Node Complete]
            "the registry is being asked for an image of the Plan"
            => "wait some seconds"
        ImageMissing Warning Itself [Node Complete PlanEvent]
            "the registry says that an image of the Plan does not exist at its version"
            => "wait for the image, or correct image or version; if nodes have a mirror, set `REFIT_CHECK_IMAGES` to false on \
                the controller. [More](versions.md#images-that-do-not-exist)"
        DigestUnknown Warning Itself [Node Complete PlanEvent]
            "with `versionPolicy.pinDigest`: the registry returned no digest for an image"
            => "check the registry and `imagePullSecrets`"
        AtVersion Normal Itself [Node Complete PlanEvent]
            "with `skipWhen`: the node has the version, and is done without a Job"
            => "nothing"
        JobRefused Refusal Itself [Node PlanEvent]
            "the API server refused the Job (quota, admission, Pod Security)"
            => "allow what the API server refused, or correct the Plan; refit retries"
        NodeRefused Refusal Itself [Node]
            "the API server refused a patch of the Node (admission)"
            => "have the admission webhook or policy allow it; refit retries"
        ObjectUnreadable Warning Itself [Node NodeEvent]
            "refit cannot read the Node, or a time in it: it starts nothing there, and keeps the slot"
            => "correct the field that the message names"
        PodWaiting Warning Job [Node FailedNode PlanEvent]
            "the pod of the Job, or the reboot Pod, does not start: no image, or no place"
            => "correct the image, or make place for the pod on the node"
        DrainWaiting Warning Job [Node FailedNode PlanEvent]
            "evictions are refused; the message names the pod, the budget, and since when"
            => "make the budget's pods Ready, or relax the budget; `drain.timeout` ends the wait, `drain.disableEviction` ignores budgets"
        PodsRunning Normal Job [Node]
            "with `drain.waitFor`: pods on the cordoned node have not ended; the message names them and the end of the wait"
            => "wait, or end the pods; [more](drain.md#pods-that-end-by-themselves)"
        Cancelled Normal Job [Node]
            "the Plan was edited, or no longer selects the node, and refit has cancelled the drain"
            => "wait some seconds; if it persists, check the drain's pod and its node"
        RebootPod Warning Job [Node]
            "the command of the reboot Pod fails with the message, and is retried until the timeout"
            => "correct `reboot.command`; see [Reboots](reboot.md#while-a-node-reboots)"
        PodRefused Refusal Job [Node FailedNode]
            "the API server refuses the pod of the Job, or the reboot Pod (quota, admission, Pod Security, no ServiceAccount)"
            => "create what is missing, or allow what the API server refused; Kubernetes or refit tries again"
        OsImage Normal Kubelet [Node]
            "with `settle.osImage`: the Node's `osImage` lacks the Plan's version"
            => "wait; if it persists, see whether the node has installed and booted the new system"
        KubeletVersion Normal Kubelet [Node]
            "with `settle.kubeletVersion`: the kubelet lacks the Plan's version"
            => "wait; if it persists, check the kubelet"
        MinReady Normal Job [Node]
            "`settle.minReady` has not passed"
            => "wait"
        NodeCondition Normal Job [Node]
            "with `settle.conditions`: a condition of the Node has another status, or is missing"
            => "wait; if it persists, see what should set the condition"
        TaintStays Normal Job [Node]
            "with `settle.taintsGone`: the Node still has such a taint"
            => "wait; if it persists, see what should remove the taint"
        DaemonSetPods Normal Job [Node]
            "with `settle.daemonSets`: a pod on the node is not Ready, or the pods are not known yet"
            => "wait, or repair the pod"
        Workloads Normal Job [Node]
            "with `settle.workloads`: controllers of evicted pods have fewer ready pods than before"
            => "wait, or repair these workloads"
        PostCompleteDelay Normal Job [Node]
            "the Job succeeded, and `postCompleteDelay` has not passed"
            => "wait"
    }
    Failure {
        BackoffLimitExceeded Warning Job [FailedNode]
            "the Job exceeded its `backoffLimit`: its container failed too often"
            => "read its logs; then edit the Plan, or retry"
        ContainerFailed Warning Job [FailedNode]
            "a container failed whenever it was tried until the Job's deadline"
            => "read its logs; then edit the Plan, or retry"
        DeadlineExceeded Warning Job [FailedNode]
            "the upgrade was still running at the Job's deadline"
            => "raise `jobActiveDeadlineSecs` (0 means no limit)"
        PrepareTimedOut Warning Job [FailedNode]
            "`prepare` had not ended at the Job's deadline"
            => "see what it waits for (its logs); use `dependsOn` instead, which counts towards no deadline; or raise \
                `jobActiveDeadlineSecs` (0 means no limit)"
        NeverRebooted Warning Job [FailedNode]
            "the upgrade succeeded, but after `reboot.timeout` the node is Ready in its old boot"
            => "correct `reboot.command`, or reboot the node by hand. See [Reboots](reboot.md#when-it-fails)"
        RebootTimedOut Warning Kubelet [FailedNode]
            "the upgrade succeeded, but after `reboot.timeout` the node is not Ready, and in no new boot"
            => "check its console, or raise `reboot.timeout`"
        NotReadyAfterReboot Warning Kubelet [FailedNode]
            "the upgrade succeeded and the node rebooted, but is not Ready after `reboot.timeout`"
            => "check its kubelet"
        SentinelMissing Warning Job [FailedNode Message]
            "the host has no sentinel in the boot of the upgrade: something deleted files in `/run/refit`"
            => "find out what deletes them; then retry"
        EvidenceLost Warning Job [FailedNode]
            "Job and pod were deleted before refit read the result, and a reboot erased the sentinel"
            => "check the node; then retry"
        UpgradeInterrupted Warning Job [FailedNode]
            "the node went down while `upgrade` ran, which may be incomplete"
            => "check the node; then retry"
        RebootLoop Warning Job [FailedNode]
            "without `spec.reboot`: a payload rebooted its node twice under one Job"
            => "correct the payload: once its work is done it must exit with 0 and without a reboot"
        SettleTimedOut Warning Job [FailedNode]
            "after `settle.timeout` the node lacked what `settle` demands: the message says what"
            => "check the node or the workload; or raise `settle.timeout`"
        VerifyFailed Warning Job [FailedNode PlanEvent]
            "the upgrade succeeded, and `verify` failed too often, or until its deadline"
            => "check the node; or correct `verify`; then retry. [More](rollouts.md#checks-of-a-node-after-the-upgrade)"
        NodeLost Warning Kubelet [FailedNode]
            "the Job failed while its node is not Ready; the cause is not known yet"
            => "repair the node, or delete it"
    }
    True {
        PlanIsValid Normal Itself [Validated]
            "the spec is valid"
        Version Normal Itself [LatestResolved]
            "the version is from `spec.version`"
        Trigger Normal Itself [LatestResolved]
            "the Plan has a `trigger` and no version: nodes run it on request"
        Channel Normal Itself [LatestResolved]
            "the version is from `spec.channel`"
        Complete Normal Itself [Complete PlanEvent]
            "all selected nodes are done, or none is selected"
        Latest Normal Itself [UpToDate]
            "the Plan has the newest version that the channel gives"
        FeatureUnavailable Warning Itself [Degraded]
            "the API server is older than 1.29, or a feature gate that refit relies on is off"
            => "upgrade it, or switch the gate on; [more](reliability.md#old-and-new-kubernetes)"
    }
    Condition {
        Error Warning Channel [Validated LatestResolved]
            "the Plan is invalid, a Secret is missing, it has neither `version` nor `channel`, or its channel has given none yet"
            => "edit the Plan, create the Secret, or check the channel"
        Held Warning Candidate [LatestResolved]
            "the channel gave a version, and `versionPolicy` holds it back"
            => "allow the version in `versionPolicy`, or set `spec.version`"
        Resolved Normal Itself [Complete PlanEvent]
            "the Plan has a new version or hash; nodes are about to start"
        SyncJob Normal Itself [Complete PlanEvent]
            "nodes are being upgraded"
        Waiting Normal Window [Complete PlanEvent]
            "the window is closed"
            => "wait; `status.nextWindow` says when it opens"
        JobFailed Warning FailedNodes [Complete PlanEvent]
            "a node failed; the message names Job, node and reason"
            => "[repair the node](#when-a-node-fails)"
        SelectNodesFailed Warning Itself [Complete PlanEvent]
            "`nodeSelector` is invalid; the message says why"
            => "correct it"
    }
    Hold {
        OutOfRange Warning Candidate [UpToDate]
            "the version is not in `versionPolicy.range`"
            => "widen the range"
        Prerelease Warning Candidate [UpToDate]
            "the version is a prerelease"
            => "set a `versionPolicy.range` that names a prerelease of the same release"
        Older Warning Candidate [UpToDate]
            "the version is older than the Plan's"
            => "set `versionPolicy.allowDowngrade`, or `spec.version`"
        NotComparable Warning Candidate [UpToDate]
            "the version cannot be compared with the Plan's, or is of another distribution"
            => "set `spec.version`, or, within the distribution, `versionPolicy.allowDowngrade`"
        TooYoung Normal Candidate [UpToDate]
            "the version is younger than `versionPolicy.minimumAge`"
            => "wait, or set a shorter age"
        NotApproved Normal Candidate [UpToDate]
            "with `versionPolicy.propose`: the version has not been approved"
            => "set the annotation `refit.rs/approve: <version>` on the Plan"
        Variant Warning Candidate [UpToDate]
            "the version is another variant than the Plan's, such as a tag that ends in `-amd64`"
            => "set `spec.version`"
        NoVersion Warning Channel [UpToDate]
            "the channel offers something that is not a version"
            => "correct the channel"
    }
    Event {
        Validated Normal Itself [PlanEvent]
            "the Plan is valid"
        ValidateFailed Warning Itself [PlanEvent]
            "the Plan is invalid"
        ResolveFailed Warning Itself [PlanEvent]
            "the Plan has no version, or its channel gave none"
        StartedDespite Normal Itself [PlanEvent]
            "nodes start in spite of limits: the message has the limits, the nodes, who, when and why"
        DespiteInvalid Warning Itself [PlanEvent]
            "an entry of the annotation `refit.rs/despite` is ignored"
            => "correct the entry that the message names, or write it with `refit start`; [more](steering.md#start-in-spite-of-a-limit)"
        VersionProposed Normal Itself [PlanEvent]
            "a version waits for approval"
        VersionHeld Warning Itself [PlanEvent]
            "`versionPolicy` holds a version back (Normal if only its age does)"
        ValidationFailed Warning Itself [PlanEvent]
            "no Job can be created for a node (`SettingMissing`)"
        StatusRefused Warning Itself [PlanEvent]
            "the API server refused the Plan's status, so no node starts"
            => "have the API server accept the status; refit retries"
        HolderUnknown Warning Itself [NodeEvent]
            "`refit.rs/cordon` of the node named a Plan that refit has never seen; the node stays cordoned"
            => "find out who cordoned the node, and uncordon it with `refit uncordon`"
        JobComplete Normal Itself [PlanEvent]
            "a node is done"
        JobCompleteReboot Normal Itself [PlanEvent]
            "the Job of a node succeeded; refit reboots the node"
        JobCompleteWaiting Normal Itself [PlanEvent]
            "the Job of a node succeeded; refit waits for `postCompleteDelay`"
        PreflightSkipped Normal Itself [PlanEvent]
            "`preflight` has skipped a node at this version; the message has its reason"
            => "if it should run there after all: `refit skip --undo`"
        Repeats Normal Itself [PlanEvent]
            "with `repeat`: the Plan runs again on all nodes; the message has the next time"
        RebootFailed Warning Itself [PlanEvent]
            "the upgrade of a node succeeded, and its reboot failed"
        SettleFailed Warning Itself [PlanEvent]
            "the upgrade succeeded, and the node did not settle within `settle.timeout`"
        NotificationDropped Warning Itself [PlanEvent]
            "a receiver did not get a notification within an hour, or refused it"
            => "correct the receiver; [more](notifications.md#when-a-receiver-does-not-answer)"
        NotificationFailed Warning Itself [ConfigMapEvent]
            "a receiver does not answer or refuses, or its Secret cannot be used; refit retries for an hour"
            => "do what the message says; [more](notifications.md#when-a-receiver-does-not-answer)"
        NotificationsInvalid Warning Itself [ConfigMapEvent]
            "an entry of `notifications` or `silences` is invalid; the others are used"
            => "correct the entry; `refit validate` also checks it"
        SilenceFailed Warning Itself [ConfigMapEvent]
            "an Alertmanager does not answer, or refuses a silence; refit tries again"
            => "do what the message says"
        Starting Normal Itself [NodeEvent]
            "the controller takes part in the leader election"
        Started Normal Itself [NodeEvent]
            "the controller is the leader, and its watches have started"
    }
    RebootPod {
        CommandMissing Warning Itself [Message]
            "the host has no program of `reboot.command`"
            => "correct `reboot.command`, or install the program"
        CommandFailed Warning Itself [Message]
            "`reboot.command` failed; the message has the end of its output"
            => "correct `reboot.command`"
        HostUnreadable Warning Itself [Message]
            "the host's files cannot be read"
            => "check the node"
    }
    Explain {
        Deleting Warning Itself [Explain]
            "the Plan is being deleted; the message names its finalizers"
            => "have their owners remove them; if an owner is gone, remove the finalizer"
        Unprocessed Warning Itself [Explain]
            "no controller has processed this generation of the Plan"
            => "wait some seconds; then check that a controller runs in the Plan's namespace"
        NoNodes Warning Itself [Explain]
            "the Plan selects no node"
            => "correct `nodeSelector`, or label nodes; `refit explain PLAN NODE` says what one lacks"
        Prepare Normal Plans [Explain]
            "`prepare` waits for another Plan, or for the control plane"
            => "wait until that Plan is complete; if it does not progress, see why"
        PodFailed Warning Job [Explain]
            "pods of the Job have failed, the last one with the message"
            => "correct what the pod or its log says; the Job tries again until its deadline"
        PodTerminating Warning Job [Explain]
            "a drain waits for a pod that should have ended; the message names its finalizers"
            => "have the owner of the finalizer, or the kubelet, end the pod; `drain.skipWaitForDeleteTimeout` ends the wait"
    }
}
