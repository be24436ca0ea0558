//! Done nodes whose kubelets do not have the version.

use super::build::{cluster, status_of};
use refit_api::{NodePhase, NodeProgress, PlanStatus, VersionDiffers, names};
use refit_fixtures::{labels, node, plan_with};

#[test]
fn only_a_node_that_the_stored_status_would_name_can_have_drifted() {
    let entries = |count: usize| {
        let entry = |number| VersionDiffers {
            uid: format!("uid-{number}"),
            ..VersionDiffers::default()
        };
        (0..count).map(entry).collect::<Vec<_>>()
    };
    let slot = |phase: NodePhase| NodeProgress {
        name: "a".to_owned(),
        uid: Some("uid-a".to_owned()),
        phase: phase.into(),
        ..NodeProgress::default()
    };
    for (differs, slots, reason) in [
        (None, vec![], "VersionDiffers"),
        (Some(entries(0)), vec![], "Drifted"),
        (Some(entries(49)), vec![], "Drifted"),
        // A full list does not name all.
        (Some(entries(50)), vec![], "VersionDiffers"),
        // Its upgrade ends with this decision.
        (
            Some(entries(0)),
            vec![slot(NodePhase::Upgrading)],
            "VersionDiffers",
        ),
        (Some(entries(0)), vec![slot(NodePhase::Waiting)], "Drifted"),
    ] {
        let mut plan = plan_with("p", |spec| {
            spec.version = Some("v1.36.1+k3s1".to_owned());
            spec.upgrade.get_or_insert_default().image = "rancher/k3s-upgrade".to_owned();
        });
        plan.metadata.uid = Some("p-uid".to_owned());
        let hash = status_of(&mut cluster([], [plan.clone()]), "p").latest_hash;
        let mut done = node("a", "uid-a");
        done.kubelet = "v1.36.0+k3s1".into();
        let label = format!("{}p", names::LABEL_PLAN_PREFIX);
        done.labels = labels([(names::LABEL_HOSTNAME, "a"), (&label, hash.as_deref().unwrap())]);
        let what = format!("{} entries, {slots:?}", differs.as_ref().map_or(0, Vec::len));
        plan.status = Some(PlanStatus {
            latest_hash: hash,
            version_differs: differs,
            active: Some(slots),
            ..PlanStatus::default()
        });
        let status = status_of(&mut cluster([done], [plan]), "p");
        let found = status.version_differs.unwrap();
        let reasons: Vec<_> = found
            .iter()
            .map(|it| it.reason.clone().unwrap().to_string())
            .collect();
        assert_eq!(reasons, [reason], "{what}");
    }
}
