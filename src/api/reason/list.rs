//! The list of reasons. `docs/operations.md` prints it, so a reader should need no other page. Code that reports a reason
//! names its variant.

use super::{Kind, ReportedIn, Severity};

reasons! {
    Wait {
        NoSlot Normal [Node]
            "all slots of `concurrency` or `maxConcurrent` are in use; with `failure.policy: Hold`, a failed node keeps its slot"
            => "wait; [repair failed nodes](#when-a-node-fails); or raise the limit"
        StatusFull Warning [Node Complete PlanEvent]
            "the Plan's status has no room for another node in progress: some 5,000 at a time fit"
            => "wait; or lower `concurrency` or `maxConcurrent`"
        MaxUnavailable Warning [Node Complete PlanEvent]
            "as many of the selected nodes are unavailable as `maxUnavailable` allows: not Ready, cordoned by anyone, or being upgraded by a Plan. The message names those that this Plan does not work on"
            => "repair or uncordon these nodes, or raise the limit; [more](#how-many-nodes-may-be-unavailable)"
        EarlierNodes Warning [Node Complete PlanEvent]
            "with `order`: the control plane, or a zone, comes first, and one of its nodes is left. The message names it, and why it does not progress"
            => "wait; repair the node that the message names; or label it `plan.upgrade.cattle.io/<plan>: disabled` to leave it out. [More](rollouts.md#order)"
        ControlPlaneQuorum Warning [Node Complete PlanEvent]
            "without the node, no majority of the control-plane nodes, or of the etcd nodes, would be available: Ready, and not being \
             upgraded by a Plan that cordons, drains, reboots or is exclusive. The message names those that are not; other nodes continue"
            => "wait until the nodes that the message names are back, or repair them; if such a node is gone for good, delete it from the \
                cluster; [more](rollouts.md#the-control-plane-keeps-its-majority)"
        FailureBudget Warning [Node Complete PlanEvent]
            "with `failure.policy: Stop`: as many nodes have failed as `failure.budget` says"
            => "[repair the failed nodes](#when-a-node-fails) and retry them, or raise the budget; [more](rollouts.md#failures)"
        WaveInProgress Normal [Node Complete PlanEvent]
            "with `waves`: an earlier wave is not over. The message names it, and what it waits for if that is a single node"
            => "wait; repair the node that the message names. [More](rollouts.md#waves)"
        WaveSoaking Normal [Node Complete PlanEvent]
            "with `waves`: all nodes of a wave are upgraded, and no node starts before they have been Ready for `soak`"
            => "wait; `status.wave.until` says how long"
        WaveNotApproved Normal [Node Complete PlanEvent]
            "with `waves`: a wave is over, and the next one needs approval"
            => "set the annotation that the message shows"
        CheckFailing Warning [Node Complete PlanEvent]
            "the last answer to one of `checks` was not good: a value too high or too low, an error, no answer in time, or one that cannot be parsed. The \
             message names the check, its answer, and since when; nodes in progress finish"
            => "repair what the check is about, or correct the check; `status.checks` has the last answers. [More](rollouts.md#checks)"
        PodBlocks Normal [Node Complete PlanEvent]
            "a pod of `drain.blockedBy` runs on the node. The message names it; other nodes start meanwhile"
            => "wait until the pod has ended, or delete it; [more](drain.md#pods-that-delay-a-node)"
        PodsPending Normal [Node Complete]
            "with `drain.blockedBy`: the pods of the node are being listed, or cannot be"
            => "wait; if the message says why they cannot be listed, repair that"
        CheckPending Normal [Node Complete]
            "one of `checks` is running, or has not passed often enough in a row"
            => "wait; [more](rollouts.md#checks)"
        Frozen Warning [Node Complete PlanEvent]
            "the `ConfigMap` `refit` has `freeze`, whose reason the message has, or cannot be read; nodes in progress finish"
            => "remove the key, or correct what the message names; [more](rollouts.md#limits-for-all-plans)"
        ClusterLimit Normal [Node Complete PlanEvent]
            "as many nodes are in progress, or unavailable, as the `ConfigMap` `refit` allows for all Plans together"
            => "wait; or repair or uncordon the nodes that the message names; or raise the limit; \
                [more](rollouts.md#limits-for-all-plans)"
        ConcurrencyZero Warning [Node Complete PlanEvent]
            "`concurrency` is 0 or absent, and so is `maxConcurrent`"
            => "set one of them"
        NodeNotReady Warning [Node Complete PlanEvent]
            "the node is not Ready"
            => "repair the node. If the Plan itself repairs such nodes, add a toleration for `node.kubernetes.io/not-ready`"
        NodeJoining Normal [Node Complete PlanEvent]
            "the node has been registered for less than a minute (`REFIT_MIN_NODE_AGE`), or has a start-up taint, which the message names: \
             its labels may not be complete, and a server without its role label yet would be taken for an agent"
            => "wait; if the taint stays, look at what should remove it (the cloud provider, the network agent), or tolerate it by name in \
                `spec.tolerations`; [more](rollouts.md#nodes-that-join)"
        NodeBusy Warning [Node Complete PlanEvent]
            "another disruptive Plan works on the node: one that cordons, drains or is exclusive; or a `NodeMaintenance` wants it. The message names it"
            => "wait for the Plan that the message names, or delete the `NodeMaintenance`"
        WindowClosed Normal [Node]
            "the window is closed"
            => "wait; `status.nextWindow` says when it opens"
        Blackout Normal [Node Complete PlanEvent]
            "a blackout of the Plan is in force; nodes in progress finish"
            => "wait; `status.nextWindow` says when nodes may start again"
        NotBefore Normal [Node Complete PlanEvent]
            "the time `notBefore` has not come; nodes in progress finish"
            => "wait; or remove the field to start now"
        WindowTooShort Normal [Node Complete PlanEvent]
            "with `windows` or blackouts: a node that starts now might not finish in time. The message has its time limit, and the \
             longest time that a node has taken in this roll-out"
            => "wait for the next window; if the message says that none is long enough, lengthen a window or shorten \
                `jobActiveDeadlineSecs`; [more](rollouts.md#windows-and-blackouts)"
        Suspended Normal [Node Complete PlanEvent]
            "`suspend` is true"
            => "`refit resume`, or set it to false"
        Aborted Warning [Node Complete PlanEvent]
            "the Plan has the annotation `refit.rs/abort`: no node starts, drains stop, and their nodes are released; upgrades that run finish"
            => "`refit resume`, or remove the annotation"
        Skipped Normal [Node]
            "the Node has the annotation `refit.rs/skip`, which excludes it from this Plan at this version, or at every one"
            => "remove the Plan from the annotation (`refit skip --undo`)"
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
            "the controller lacks the permission that the message names. Without permission to list or watch a Secret, Plans that do \
             not name it continue. A permission to list that is missing at the start is reported only by an event. In the message of a \
             failed drain: a permission that the Plan's service account lacks"
            => "apply `deploy/rbac.yaml`, or grant the permission"
        ImageInvalid Warning [Node Complete PlanEvent]
            "an image reference of the Plan is invalid, or cannot have the version as its tag"
            => "correct the image or the version"
        OwnImageUnknown Warning [Node Complete PlanEvent]
            "the controller cannot determine its own image, which it needs to cordon, drain and reboot, and the Plan does one of these. \
             Plans that do none of them continue. The log says what it tried; refit tries again every minute"
            => "set `REFIT_IMAGE` on the controller to its image; or let it read its own Pod: `POD_NAME` by `fieldRef` to \
                `metadata.name`, and permission to get and list pods in its namespace"
        SettingMissing Warning [Node Complete PlanEvent]
            "the Plan selects a Windows node, and `SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS` is empty"
            => "set the variable, or exclude the node in `nodeSelector`"
        NameTaken Warning [Node]
            "a pod that is not refit's has the name of the reboot Pod (refit then chooses another name), or Jobs that are not refit's have \
             both possible names of the Job. refit trusts nothing in them"
            => "delete the Job or pod that the message names. If a kubelet creates the pod again (annotation \
                `kubernetes.io/config.mirror`), find out why on its node"
        JobLeaving Warning [Node Complete PlanEvent]
            "a Job of an earlier Plan or Node with the same name is still being deleted, on this node or on so many that the Plan has no \
             slot left; or the result of the previous Job is being recorded"
            => "wait; if it persists, look for finalizers on that Job"
        PodLeaving Warning [Node Complete PlanEvent]
            "a pod of a deleted Job still runs on this node, or on so many that a Plan that was created again has no slot left"
            => "wait; if it persists, look for finalizers on that pod, and check its node"
        ChannelWithdrawn Warning [Node Complete PlanEvent]
            "the last version that the channel gave is older than the Plan's; nodes that have started finish"
            => "wait for the channel to recover; to downgrade, set `versionPolicy.allowDowngrade`"
        VersionOutOfRange Warning [Node Complete PlanEvent]
            "the Plan's version is not in `versionPolicy.range`"
            => "wait for a version in the range, or widen the range"
        DependencyNotComplete Normal [Node Complete PlanEvent]
            "a Plan in `dependsOn` is not `Complete` for its current generation and version, or its version does not match that of this Plan. The message names it"
            => "wait; if it persists, see the status of that Plan. [More](rollouts.md#one-plan-after-another)"
        DependencyUnknown Warning [Node Complete PlanEvent]
            "a Plan in `dependsOn` does not exist in the namespace"
            => "create it, or correct the name"
        DependencySelectsNothing Warning [Node Complete PlanEvent]
            "a Plan in `dependsOn` selects no node, so nothing shows that what it does is done: often a label that the nodes do not have"
            => "correct its `nodeSelector` (`kubectl get nodes --show-labels`), or remove the entry"
        DependencyCycle Warning [Node Complete PlanEvent]
            "Plans wait for each other by `dependsOn`, so that none of them starts a node. The message names all members"
            => "remove one of the entries"
        NodeIsNewer Warning [Node Complete PlanEvent]
            "the Plan installs Kubernetes, and the node's kubelet is newer than the Plan's version; other nodes continue"
            => "set a newer version; or, to downgrade, `versionPolicy.allowDowngrade`. [More](versions.md#what-nodes-say)"
        ControlPlaneOlder Warning [Node Complete PlanEvent]
            "the Plan installs Kubernetes, and a control-plane node, or the API server, is older than the Plan's version. Nodes of the \
             control plane continue; the message names node and version"
            => "upgrade the control plane first: see the Plan that selects that node, or add one. [More](versions.md#what-nodes-say)"
        VersionDiffers Warning [DoneNode Explain]
            "the Plan installs Kubernetes, the node is done, and its kubelet has another version all the same: the upgrade ended with success \
             and changed nothing, or something else has upgraded the node since"
            => "look at the log of the Job and at the node; remove its label `plan.upgrade.cattle.io/<plan>` to run the Plan there \
                again. [More](versions.md#what-nodes-say)"
        Drifted Warning [DoneNode Explain PlanEvent]
            "the Plan installs Kubernetes, and the kubelet of a done node had its version and has an older one now: the machine was \
             re-imaged or rolled back"
            => "set `onDrift: Rerun`, or remove the label `plan.upgrade.cattle.io/<plan>` of the node to run the Plan there again. \
                [More](versions.md#what-nodes-say)"
        MinorSkip Warning [Node Complete UpToDate PlanEvent]
            "the kubelet's version differs from the Plan's by more than `versionPolicy.maxMinorSkip`, or cannot be compared with it; \
             other nodes continue. Of a list of versions, the Plan takes the newest that skips none, and this one later"
            => "upgrade to a version in between first, or raise the limit; with a feed, wait until the roll-out is complete"
        TaintNotTolerated Warning [Node Complete PlanEvent]
            "the node has a taint with the effect `NoSchedule` or `NoExecute` that the Plan does not tolerate, so the pod of its Job would not \
             be scheduled. The message names the taint and the toleration for it; other nodes continue"
            => "add the toleration to `spec.tolerations`, or remove the taint; if Kubernetes has set it, repair the node"
        RebootIneffective Warning [Node Complete PlanEvent]
            "with `trigger: RebootNeeded`: the node has rebooted, and needs a reboot again for the same reason as before. It would reboot \
             without end; other nodes continue"
            => "look at what the message names on the node, such as a file that outlives the boot; or remove the annotation \
                `refit.rs/reboot-needed` from the node to reboot it once more. [More](reboot-requests.md#when-a-reboot-does-not-help)"
        DigestPending Normal [Node Complete]
            "the registry is being asked for an image of the Plan: whether it exists, and for its digest"
            => "wait some seconds"
        ImageMissing Warning [Node Complete PlanEvent]
            "the registry says that an image of the Plan does not exist at its version, so no node starts, and none is cordoned. The message \
             names the image, and has the registry's answer; refit asks again every minute, and nodes in progress finish"
            => "wait until the image is published, or correct the image or the version. If nodes pull it from a mirror that the \
                controller does not ask, set `REFIT_CHECK_IMAGES` to false on the controller. [More](versions.md#images-that-do-not-exist)"
        DigestUnknown Warning [Node Complete PlanEvent]
            "with `versionPolicy.pinDigest`: the registry returned no digest for an image; the message says why"
            => "check the registry and `imagePullSecrets`"
        AtVersion Normal [Node Complete PlanEvent]
            "with `skipWhen`: the node has the Plan's version already, so the node is marked as done without a Job"
            => "nothing"
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
        PodWaiting Warning [Node FailedNode PlanEvent]
            "the pod of the Job, or the reboot Pod, does not start: its image cannot be pulled, or it cannot be scheduled. A Job that \
             waits for that until its deadline fails with this reason"
            => "follow the message, which is from the kubelet or the scheduler"
        DrainWaiting Warning [Node FailedNode PlanEvent Rehearsal]
            "evictions on the node are refused; the message names the pod, the PodDisruptionBudget, and since when. A Job that waits for \
             that until its deadline fails with this reason"
            => "make the budget's pods Ready, or relax the budget; `drain.timeout` ends the wait, `drain.disableEviction` ignores budgets"
        Cancelled Normal [Node]
            "the Plan was edited, or no longer selects the node, while the node was being drained; refit has cancelled the drain"
            => "wait some seconds: refit creates the next Job, or uncordons the node. If it persists, check the drain's pod and its \
                node"
        RebootPod Warning [Node]
            "the command of the reboot Pod fails with the message. refit retries it until the timeout"
            => "correct `reboot.command`; see [Reboots](reboot.md#while-a-node-reboots)"
        PodRefused Warning [Node FailedNode]
            "the API server refuses the pod of the Job, or the reboot Pod, and the message has its words (a quota, admission, Pod Security, a \
             missing ServiceAccount). A Job that has no pod until its deadline fails with this reason"
            => "follow the message; Kubernetes or refit tries again"
        OsImage Normal [Node]
            "with `settle.osImage`: the Node's `osImage` does not have the Plan's version yet"
            => "wait; if it persists, look at the node: it may not have booted the new system, or not have installed it"
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
            "the upgrade was still running when the Job exceeded its deadline, which includes the time before the upgrade. A Job that waited \
             for something else has that as its reason"
            => "raise `jobActiveDeadlineSecs` (0 means no limit)"
        PrepareTimedOut Warning [FailedNode]
            "`prepare` had not ended when the Job exceeded its deadline: it waits for another Plan, for example. The message has the time"
            => "see what `prepare` waits for (its logs); wait for another Plan by `dependsOn` instead, which counts towards no deadline; or \
                raise `jobActiveDeadlineSecs` (0 means no limit)"
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
        VerifyFailed Warning [FailedNode PlanEvent]
            "the upgrade succeeded, and `verify` did not: its container failed too often, or exceeded the deadline. The message has its termination message"
            => "check the node; or correct `verify`; then retry. [More](rollouts.md#checks-of-a-node-after-the-upgrade)"
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
        Trigger Normal [LatestResolved]
            "the Plan has a `trigger` and no version: nodes run it on request"
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
        FeatureUnavailable Warning [Degraded]
            "the API server drops a field on which refit relies, because it is older than 1.29 or has a feature gate switched off. The message says which, and what follows"
            => "upgrade the API server, or switch the feature gate on; [more](reliability.md#old-and-new-kubernetes)"
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
        HolderUnknown Warning [NodeEvent]
            "the annotation `refit.rs/cordon` of the node names a Plan that refit has never seen. Anyone who may patch the node can write \
             that, so refit removes the entry and leaves the node cordoned"
            => "find out who cordoned the node, and uncordon it with `refit uncordon`"
        JobComplete Normal [PlanEvent]
            "a node is done"
        JobCompleteReboot Normal [PlanEvent]
            "the Job of a node succeeded; refit reboots the node"
        JobCompleteWaiting Normal [PlanEvent]
            "the Job of a node succeeded; refit waits for `postCompleteDelay`"
        PreflightSkipped Normal [PlanEvent]
            "`preflight` has skipped a node at this version (`Skipped`); the message has its termination message"
            => "if it should run there after all: `refit skip --undo`, or remove the Plan from the annotation `refit.rs/skip` of the node"
        Repeats Normal [PlanEvent]
            "with `repeat`: a repetition was due, and the Plan runs again on all nodes; the message has the time, and the next one"
        RebootFailed Warning [PlanEvent]
            "the upgrade of a node succeeded, and its reboot failed"
        SettleFailed Warning [PlanEvent]
            "the upgrade of a node succeeded, but the node did not settle within `settle.timeout`"
        NotificationDropped Warning [PlanEvent]
            "a receiver did not get a notification within an hour, or refused it. The message has the notification"
            => "correct the receiver; [more](notifications.md#when-a-receiver-does-not-answer)"
        NotificationFailed Warning [ConfigMapEvent]
            "a receiver of notifications does not answer, refuses what it gets, or its Secret cannot be used. refit tries again for an hour"
            => "do what the message says; [more](notifications.md#when-a-receiver-does-not-answer)"
        NotificationsInvalid Warning [ConfigMapEvent]
            "an entry of `notifications` or `silences` is invalid. The other entries are used, and roll-outs continue"
            => "correct the entry; `refit validate` also checks it"
        SilenceFailed Warning [ConfigMapEvent]
            "an Alertmanager does not answer, or refuses to silence the alerts of a node. refit tries again, and roll-outs continue"
            => "do what the message says"
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
    Explain {
        Deleting Warning [Explain]
            "the Plan is being deleted, and no node starts. The message names the finalizers that it waits for"
            => "have the owner of each finalizer remove it; if the owner is gone, remove the finalizer, and create the Plan again if you need it"
        Unprocessed Warning [Explain]
            "no controller has processed this generation of the Plan"
            => "wait some seconds; then check that a controller runs in the Plan's namespace"
        NoNodes Warning [Explain]
            "the Plan selects no node"
            => "correct `nodeSelector`, or label the nodes; `refit explain PLAN NODE` says what a node lacks"
        PodFailed Warning [Explain]
            "pods of the Job have failed, and it tries again until its deadline. The message has the termination message of the last one"
            => "follow the message, or the logs; the Job tries again until its deadline"
        PodTerminating Warning [Explain]
            "a drain waits for a pod that should have ended by now. The message names the pod and its finalizers"
            => "have the owner of the finalizer, or the kubelet, end the pod; `spec.drain.skipWaitForDeleteTimeout` ends the wait"
    }
}
