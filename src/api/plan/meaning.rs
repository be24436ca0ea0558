//! What the fields of a Plan mean where they are absent, and their parsed values. `validate` reports what cannot be parsed.

use std::sync::LazyLock;

use jiff::tz::TimeZone;

use super::{ContainerSpec, Plan, PlanSpec, PlanStatus};
use crate::check::{self, Check};
use crate::failure::{FailurePolicy, FailureSpec};
use crate::installs::Installs;
use crate::invalid::{ErrorList, at};
use crate::names;
use crate::node_info::{self, NodeInfoSelector, VersionEvidence};
use crate::node_limit::NodeLimit;
use crate::order::{self, Criterion};
use crate::pod_blocker::{self, PodBlocker};
use crate::reboot::{HostAccess, RebootBy, RebootSpec, RebootWhen, SettleSpec};
use crate::repeat::Repeat;
use crate::schedule::{Blackout, PlanWindow, Windows};
use crate::selector::{Selector, SelectorError};
use crate::version_policy::VersionPolicySpec;
use crate::wait_for::{self, WaitFor};
use crate::wave::{self, Wave};
use crate::window::Window;
use refit_base::version::policy::Policy;
use refit_base::version::{Claim, distribution_of, installed_by, installs_kubernetes};

/// Maximum number of groups in `drain.order`.
const MAX_DRAIN_GROUPS: usize = 16;

impl Plan {
    /// The status, or an empty one.
    pub fn stored_status(&self) -> &PlanStatus {
        static NONE: LazyLock<PlanStatus> = LazyLock::new(PlanStatus::default);
        self.status.as_ref().unwrap_or(&NONE)
    }
}

impl PlanSpec {
    /// `spec.repeat`. `local` is the zone of the process, which `Local` means.
    ///
    /// # Errors
    /// Fails if it is invalid.
    pub fn repeat(&self, local: &TimeZone) -> Result<Option<Repeat>, ErrorList> {
        let repeat = self.repeat.as_ref();
        repeat.map(|repeat| Repeat::parse(repeat, local)).transpose()
    }

    /// Whether the image is pulled before a node is disturbed.
    pub fn prepulls(&self) -> bool {
        let disturbs = self.cordon.unwrap_or_default() || self.drain.is_some();
        self.prepull.unwrap_or_default() && disturbs && self.upgrade_container().is_some()
    }

    /// Whether nodes of the Plan start only while a majority of the control plane stays available without them.
    pub fn guards_control_plane(&self) -> bool {
        let takes_down = || self.cordon.unwrap_or_default() || self.drain.is_some() || self.may_reboot();
        self.control_plane_quorum.unwrap_or_else(takes_down)
    }

    /// Whether the Plan tolerates the taints of nodes that are not Ready by name, which means that it repairs such nodes. A
    /// toleration of all taints does not mean that.
    pub fn tolerates_not_ready(&self) -> bool {
        self.tolerations.iter().flatten().any(|toleration| {
            matches!(
                toleration.key.as_deref(),
                Some("node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
            )
        })
    }

    /// `spec.nodeSelector`. Selected nodes must also have the hostname label (S13).
    ///
    /// # Errors
    /// Fails if a requirement of the selector is invalid, with apimachinery's message.
    pub fn selector(&self) -> Result<Selector, SelectorError> {
        let selector = Selector::new(self.node_selector.as_ref())?;
        Ok(selector.and(Selector::exists(names::LABEL_HOSTNAME)?))
    }

    /// The windows, of which `spec.window` is the only one if it is there. `None` if there are none; those that are invalid are
    /// left out.
    pub fn start_windows(&self, local: &TimeZone) -> Option<Windows> {
        let windows: Vec<PlanWindow> = match (&self.window, &self.windows) {
            (Some(window), _) => vec![PlanWindow::Weekly(Window::parse(window, local).ok()?)],
            (None, windows) => {
                let parse = |window| PlanWindow::parse(window, local).ok();
                windows.iter().flatten().filter_map(parse).collect()
            }
        };
        (!windows.is_empty()).then_some(Windows(windows))
    }

    /// Maximum number of nodes in progress, of so many selected ones; 0 if `maxConcurrent` is invalid, which validation
    /// reports.
    pub fn slots(&self, selected: i64) -> i64 {
        match &self.max_concurrent {
            Some(limit) => NodeLimit::nodes_of(limit, selected),
            // The CRD of system-upgrade-controller has no minimum, so the number may be negative.
            None => self.concurrency.unwrap_or(0).max(0),
        }
    }

    /// The valid entries of `spec.blackouts`.
    pub fn valid_blackouts(&self, local: &TimeZone) -> Vec<Blackout> {
        let blackouts = self.blackouts.iter().flatten();
        blackouts
            .filter_map(|blackout| Blackout::parse(blackout, local).ok())
            .collect()
    }

    /// Whether the Plan's version is the one that the kubelets of its nodes report after the upgrade: as `spec.installs` says,
    /// or else by its image.
    pub fn installs_kubernetes(&self) -> bool {
        match self.installs {
            Some(installs) => installs == Installs::Kubernetes,
            None => installs_kubernetes(self.upgrade_image()),
        }
    }

    /// What the kubelets of nodes that are done at this version must report, if the Plan installs Kubernetes.
    pub fn claim(&self, version: &str) -> Option<Claim> {
        self.installs_kubernetes().then(|| Claim::of(version))?
    }

    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure.as_ref().map(FailureSpec::policy).unwrap_or_default()
    }

    /// Whether a node that failed for good is uncordoned.
    pub fn uncordons_failed(&self) -> bool {
        self.failure
            .as_ref()
            .is_some_and(|failure| failure.uncordon.unwrap_or_default())
    }

    /// `spec.reboot`, or its defaults.
    pub fn reboot_or_default(&self) -> &RebootSpec {
        static SILENT: LazyLock<RebootSpec> = LazyLock::new(RebootSpec::default);
        self.reboot.as_ref().unwrap_or(&SILENT)
    }

    /// `spec.settle`, or its defaults.
    pub fn settle_or_default(&self) -> &SettleSpec {
        static SILENT: LazyLock<SettleSpec> = LazyLock::new(SettleSpec::default);
        self.settle.as_deref().unwrap_or(&SILENT)
    }

    /// `spec.hostAccess`, or its default.
    pub fn host_access(&self) -> HostAccess {
        self.host_access.unwrap_or_default()
    }

    /// Whether the Plan concerns a node only while that node requests it.
    pub fn is_on_request(&self) -> bool {
        self.trigger.is_some()
    }

    /// When the node reboots: `reboot.when`, or its default, which depends on the trigger.
    pub fn reboot_when(&self) -> RebootWhen {
        match &self.reboot {
            Some(reboot) if reboot.when.is_none() && self.is_on_request() => RebootWhen::Always,
            Some(reboot) => reboot.when(),
            None => RebootWhen::Never,
        }
    }

    /// Whether the Plan may reboot a node, by refit or by its payload.
    pub fn may_reboot(&self) -> bool {
        self.has_sentinel() || self.payload_reboots()
    }

    /// Whether refit may reboot a node. The Jobs of the Plan then have a sentinel.
    pub fn has_sentinel(&self) -> bool {
        self.reboot_when() != RebootWhen::Never
    }

    /// Whether the container `upgrade` reboots the node after it has ended.
    pub fn payload_reboots(&self) -> bool {
        let by = self.reboot.as_ref().and_then(|reboot| reboot.by);
        by == Some(RebootBy::Payload)
    }

    /// The container that upgrades the node. Only a Plan with a trigger can do without; in any other it is empty if it is
    /// absent, and so is its image, which is reported.
    pub fn upgrade_container(&self) -> Option<&ContainerSpec> {
        static EMPTY: LazyLock<ContainerSpec> = LazyLock::new(ContainerSpec::default);
        let absent = || (!self.is_on_request()).then_some(&*EMPTY);
        self.upgrade.as_deref().or_else(absent)
    }

    /// The image that upgrades the node; empty if there is none.
    pub fn upgrade_image(&self) -> &str {
        self.upgrade.as_ref().map_or("", |upgrade| &upgrade.image)
    }

    /// The parsed `spec.versionPolicy`, or the default policy.
    ///
    /// # Errors
    /// Fails if a field is invalid; `validate` has reported it.
    pub fn version_policy(&self) -> Result<Policy, ErrorList> {
        let policy = self.version_policy.as_ref();
        policy.map_or_else(|| Ok(Policy::default()), VersionPolicySpec::parse)
    }

    /// The distribution that the image of the Plan installs, if its name says so.
    pub fn distribution(&self) -> Option<&'static str> {
        distribution_of(self.upgrade_image())
    }

    /// What the image of the Plan installs, if its name says so.
    pub fn installed(&self) -> Option<&'static str> {
        installed_by(self.upgrade_image())
    }

    /// Whether Jobs run their images by digest.
    pub fn pins_digests(&self) -> bool {
        let policy = self.version_policy.as_ref();
        policy.and_then(|policy| policy.pin_digest).unwrap_or_default()
    }

    /// Whether a node may get an older version than it has.
    pub fn allows_downgrade(&self) -> bool {
        let policy = self.version_policy.as_ref();
        policy
            .and_then(|policy| policy.allow_downgrade)
            .unwrap_or_default()
    }

    /// Maximum number of minor versions between a node and the Plan when the node starts.
    pub fn max_minor_skip(&self) -> Option<u64> {
        let skip = self.version_policy.as_ref()?.max_minor_skip?;
        u64::try_from(skip).ok()
    }

    /// The parsed `spec.nodeInfo`.
    ///
    /// # Errors
    /// Fails with all invalid fields.
    pub fn node_info(&self) -> Result<NodeInfoSelector, ErrorList> {
        let spec = self.node_info.as_ref();
        spec.map_or_else(|| Ok(NodeInfoSelector::default()), node_info::parse)
    }

    /// What shows that a node has the Plan's version and needs no Job; `None` if each node gets one.
    pub fn skips_at_version(&self) -> Option<VersionEvidence> {
        self.skip_when.clone()?.evidence()
    }

    /// The parsed `spec.order`.
    ///
    /// # Errors
    /// Fails with all invalid criteria.
    pub fn order(&self) -> Result<Vec<Criterion>, ErrorList> {
        order::parse(self.order.as_deref().unwrap_or_default())
    }

    /// The parsed `spec.drain.blockedBy`.
    ///
    /// # Errors
    /// Fails with all invalid entries.
    pub fn pod_blockers(&self) -> Result<Vec<PodBlocker>, ErrorList> {
        let specs = self.drain.as_ref().and_then(|drain| drain.blocked_by.as_deref());
        pod_blocker::parse(specs.unwrap_or_default())
    }

    /// The parsed `spec.drain.order`.
    ///
    /// # Errors
    /// Fails with all invalid selectors; `validate` has reported them.
    pub fn drain_order(&self) -> Result<Vec<Selector>, ErrorList> {
        let groups = self.drain.as_ref().and_then(|drain| drain.order.as_deref());
        let groups = groups.unwrap_or_default();
        at("drain.order").each(groups, MAX_DRAIN_GROUPS, "groups", |group, item| {
            item.selector(group)
        })
    }

    /// The parsed `spec.drain.waitFor`.
    ///
    /// # Errors
    /// Fails with all invalid entries.
    pub fn drain_waits(&self) -> Result<Vec<WaitFor>, ErrorList> {
        let specs = self.drain.as_ref().and_then(|drain| drain.wait_for.as_deref());
        wait_for::parse(specs.unwrap_or_default())
    }

    /// The parsed `spec.waves`. Unless there are none, the last one takes the nodes that are left.
    ///
    /// # Errors
    /// Fails with all that is wrong with them.
    pub fn waves(&self) -> Result<Vec<Wave>, ErrorList> {
        wave::parse(self.waves.as_deref().unwrap_or_default())
    }

    /// The parsed `spec.checks`.
    ///
    /// # Errors
    /// Fails with all that is wrong with them.
    pub fn checks(&self) -> Result<Vec<Check>, ErrorList> {
        check::parse(self.checks.as_deref().unwrap_or_default())
    }
}
