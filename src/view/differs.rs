//! Done nodes whose kubelet does not have the version that the Plan installed.

use jiff::Timestamp;

use super::plan::PlanOverview;
use refit_api::{OpenEnum, Reason, VersionDiffers};

/// What a done node says against its label.
pub(super) struct Differs {
    /// `VersionDiffers` or `Drifted`; absent while the kubelet may still be starting.
    pub(super) reason: Option<Reason>,
    pub(super) text: String,
}

/// Of a done node, by its kubelet now; `None` if it has the version, or if there is nothing to compare.
pub(super) fn differs(view: &PlanOverview<'_>, name: &str) -> Option<Differs> {
    let kubelet = &view.snapshot.node(name)?.facts.kubelet;
    let (spec, status) = (&view.plan.object.spec, view.plan.status());
    let version = view.version()?;
    if !spec.claim(version)?.is_denied_by(kubelet) {
        return None;
    }
    let entry = status.version_differs.iter().flatten().find(|it| it.name == name);
    let is_young = entry.is_some_and(|entry| {
        let since = entry.since.parse::<Timestamp>();
        since.is_ok_and(|since| view.snapshot.now.duration_since(since) < VersionDiffers::GRACE)
    });
    let reason = entry.and_then(|entry| entry.reason.as_ref().and_then(OpenEnum::known));
    Some(Differs {
        reason: (!is_young).then(|| reason.unwrap_or(Reason::VersionDiffers)),
        text: format!("its kubelet has {kubelet}, and the Plan's version is {version}"),
    })
}
