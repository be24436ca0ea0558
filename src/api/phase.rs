//! The phases of a node under a Plan, and the conditions and states of a Plan: closed lists.

use super::open_enum::closed_enum;

closed_enum! {
    /// Where a node is under a Plan: `status.active[].phase`. From `Pending` on it holds a slot.
    NodePhase {
        Waiting "The node has not been started."
        Pending "The node has its slot, and no pod of its Job is on it yet."
        Starting "The pod is on the node, and none of its containers has run."
        Preparing "`preflight` or `prepare` runs."
        Cordoning "refit cordons the node."
        Draining "refit drains the node."
        Upgrading "`upgrade` has started."
        Finishing "The pod has ended, and refit has not read its result yet."
        Rebooting "The node is to reboot, or has not come back yet."
        Settling "The Job succeeded; the reason says what is left to wait for."
        Verifying "`verify` runs."
        Failed "The Plan failed on the node. The node keeps its slot unless `failure.policy` says otherwise."
    }
}

closed_enum! {
    /// Where a wave is: `status.wave.phase`.
    WavePhase {
        Progressing "Nodes of the wave are left, or an upgraded node is not Ready."
        Soaking "All nodes of the wave are upgraded, and no node starts until they have been Ready for long enough."
        AwaitingApproval "The wave waits for approval."
    }
}

closed_enum! {
    /// How a check went: `status.checks[].phase`.
    CheckPhase {
        Pending "More answers are needed before a node may start."
        Passing "The last answers were good."
        Failing "The last answer was not good, or there was none."
    }
}

closed_enum! {
    /// How far `spec.before` or `spec.after` is: `status.before.phase`.
    HookPhase {
        Running "Its Job runs."
        Succeeded "It has succeeded, and does not run again at this hash."
        Failed "Its Job failed."
    }
}

closed_enum! {
    /// A Plan in one word, in `refit status` and `refit report` and on the page.
    PlanState {
        Failed "The Plan failed on a node."
        Complete "No node is left to upgrade."
        Held "No node is in progress, and none starts until someone does something."
        Waiting "No node is in progress, and more start by themselves."
        Running "Nodes are in progress, or may start."
    }
}

closed_enum! {
    /// Type of a condition of a Plan.
    ConditionType {
        Validated "refit can carry the spec out."
        LatestResolved "The Plan has a version."
        Complete "No node is left to upgrade."
        UpToDate "Nothing that the channel offers is held back."
        Degraded "The cluster lacks something that refit relies on, or `before` or `after` failed. Absent otherwise."
    }
}
