//! The list of metrics. `docs/metrics.md` prints it. Names follow the conventions of Prometheus: base units, which the name
//! ends with, and `_total` for counters.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
    /// A gauge that is 1, and whose labels say something.
    Info,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// As in a query, without the suffixes of the series of a histogram.
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// A sentence, without its full stop.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($(#[$group:meta])* $title:ident { $($id:ident $kind:ident $name:literal [$($label:ident)*] $help:literal)* })*) => {
        $($(pub(crate) static $id: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            labels: &[$(stringify!($label)),*],
            help: $help,
        };)*)*

        /// All metrics, in the order of the documents, by group.
        pub static GROUPS: &[(Group, &[&Metric])] = &[$((Group::$title, &[$(&$id),*])),*];

        /// What a metric is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Group { $($(#[$group])* $title),* }
    };
}

metrics! {
    /// Metrics of a Plan, which only the leader has.
    Plan {
        PLAN_INFO Info "refit_plan_info" [plan version]
            "The version that the Plan rolls out; absent until it is resolved"
        PLAN_NODES Gauge "refit_plan_nodes" [plan phase]
            "Number of selected nodes in each phase: Done, Disabled, or a phase of status.active"
        PLAN_STALLED_NODES Gauge "refit_plan_stalled_nodes" [plan reason]
            "Number of nodes that wait, are held up or have failed, by the reason in status. The rarest reasons of a Plan are Other"
        PLAN_DIFFERING_NODES Gauge "refit_plan_differing_nodes" [plan reason]
            "Number of done nodes whose kubelet has not had the version for a minute: VersionDiffers, or Drifted; absent if the Plan does not install Kubernetes"
        PLAN_CONDITION Gauge "refit_plan_condition" [plan condition]
            "Whether a condition of the Plan is True: Validated, LatestResolved, UpToDate or Degraded"
        PLAN_SLOTS Gauge "refit_plan_slots" [plan]
            "Most nodes in progress at a time; 0 if the Plan is suspended, aborted or frozen"
        PLAN_ROLLOUT_START Gauge "refit_plan_rollout_start_timestamp_seconds" [plan]
            "When the Plan last had nodes to upgrade after it had been complete; absent while it is complete"
        PLAN_ROLLOUT_DURATION Gauge "refit_plan_last_rollout_duration_seconds" [plan]
            "Duration of the last roll-out that this process has seen end"
        PLAN_PROGRESS Gauge "refit_plan_last_progress_timestamp_seconds" [plan]
            "When a node last changed its phase, or when this process began to lead"
        PLAN_EXPECTED_END Gauge "refit_plan_expected_end_timestamp_seconds" [plan]
            "When the roll-out ends at the latest, as in status.expectedEnd; absent while something else than slots limits it"
        PLAN_NODE_DURATION Gauge "refit_plan_node_duration_seconds" [plan]
            "Mean time from the slot of a node until it was done, of the nodes that this process has seen finish"
        PLAN_WINDOW_OPEN Gauge "refit_plan_window_open" [plan]
            "Whether a window is open and no blackout lasts; absent without windows and blackouts"
        PLAN_WINDOW_LENGTH Gauge "refit_plan_window_length_seconds" [plan]
            "Length of the next opening; 0 if there is none; absent if it never closes, and without windows and blackouts"
        PLAN_CHANNEL_POLL Gauge "refit_plan_channel_last_success_timestamp_seconds" [plan]
            "When the channel last gave a usable response; absent until this process knows of one"
        PLAN_CHANNEL_FAILURES Gauge "refit_plan_channel_consecutive_failures" [plan]
            "Number of polls of the channel that have failed since the last one that did not"
        PLAN_CORDON Gauge "refit_plan_oldest_cordon_timestamp_seconds" [plan]
            "Start time of this Plan's longest-lasting cordon; absent if there is none"
        PLAN_CORDONED Counter "refit_plan_cordoned_seconds_total" [plan]
            "Time that nodes were cordoned for the Plan, summed over nodes"
        PLAN_DRAINING Counter "refit_plan_draining_seconds_total" [plan]
            "Time that drains took, summed over nodes"
        PLAN_EVICTIONS Counter "refit_plan_evictions_total" [plan]
            "Number of pods that drains have evicted, at least: what one evicts after its last report is not counted"
        PLAN_REFUSED_PODS Gauge "refit_plan_pods_refusing_eviction" [plan]
            "Number of pods whose eviction is refused now, as by a PodDisruptionBudget"
    }
    /// Metrics of all nodes, which only the leader has.
    Nodes {
        NODE_UPGRADES Counter "refit_node_upgrades_total" [result]
            "Number of nodes that are done (Done) or on which a Plan failed (Failed)"
        NODE_FAILURES Counter "refit_node_failures_total" [reason]
            "Number of failures of Plans on nodes, by reason"
        NODE_DURATION Histogram "refit_node_upgrade_duration_seconds" []
            "Time from the slot of a node until it was done"
        STEP_DURATION Histogram "refit_node_step_duration_seconds" [step]
            "Time that a step took on a node, whatever its result: start (Job and pod), prepare, drain (or cordon), upgrade, reboot, settle, verify"
        CHANNEL_POLLS Counter "refit_channel_polls_total" [result]
            "Number of polls of channels that gave a usable response (success) or did not (failure)"
    }
    /// Metrics of the process, which every replica has.
    Process {
        BUILD_INFO Info "refit_build_info" [version]
            "The version of refit"
        LEADER Gauge "refit_leader" []
            "Whether this process leads"
        LOOP_BUSY Gauge "refit_loop_busy_seconds" []
            "How long the loop has computed without a pause; /livez fails when it is stuck"
        DECISION_DURATION Histogram "refit_decision_duration_seconds" []
            "Time that a decision about all Plans took"
        STEPS_IN_FLIGHT Gauge "refit_requests_in_flight" [lane]
            "Number of steps of decisions whose requests are in flight, by lane"
        STEPS_WAITING Gauge "refit_background_requests_waiting" []
            "Number of background requests that wait for the API server to have room"
        STEPS_BACKING_OFF Gauge "refit_steps_backing_off" []
            "Number of steps that failed and are retried later"
        OBSERVATIONS_WAITING Gauge "refit_observations_waiting" []
            "Number of changes of the cluster that were received and not read by the loop yet"
        EVENTS_WAITING Gauge "refit_events_waiting" []
            "Number of Events that could not be written at once and are retried"
        EVENTS_DROPPED Counter "refit_events_dropped_total" []
            "Number of Events that were refused, or could not be written in time"
        NOTIFICATIONS Counter "refit_notifications_total" [result]
            "Number of notifications that receivers got (sent), or that were given up (dropped)"
        NOTIFICATIONS_WAITING Gauge "refit_notifications_waiting" []
            "Number of notifications that wait for their receivers"
        SILENCE_FAILURES Counter "refit_silence_failures_total" []
            "Number of failed attempts to list, create or end silences in Alertmanager"
        API_REQUESTS Counter "refit_api_requests_total" [verb resource code]
            "Number of requests to the API server, by verb, resource and HTTP status, or timeout, failed or not_leader"
        WATCH_RESTARTS Counter "refit_watch_restarts_total" [resource]
            "Number of lists and watches that failed and were started again"
        UNREADABLE Counter "refit_unreadable_objects_total" [resource]
            "Number of versions of objects that refit could not read"
        PLANS Gauge "refit_plans" []
            "Number of Plans. Those beyond the first 200, by name, have no metrics of their own"
        CLUSTER_NODES Gauge "refit_nodes" []
            "Number of Nodes of the cluster"
        PROCESS_CPU Counter "process_cpu_seconds_total" []
            "Processor time of the process"
        PROCESS_RESIDENT Gauge "process_resident_memory_bytes" []
            "Resident memory of the process"
        PROCESS_VIRTUAL Gauge "process_virtual_memory_bytes" []
            "Virtual memory of the process"
        PROCESS_START Gauge "process_start_time_seconds" []
            "When the process started"
        PROCESS_FDS Gauge "process_open_fds" []
            "Number of open file descriptors"
    }
}
