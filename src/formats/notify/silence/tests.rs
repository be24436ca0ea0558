use super::*;
use crate::notify::config::silence_rules;
use refit_api::PlanStatus;

fn rule() -> SilenceRule {
    let (mut rules, problems) = silence_rules(
        "[{secret: am, matchers: ['node=\"{{ node }}\"', 'instance=~\"{{ node }}:.+\"', 'severity!=critical'], duration: 30m}]",
    );
    assert_eq!(problems, []);
    rules.remove(0)
}

fn plan() -> PlanFacts {
    let mut plan = refit_fixtures::read(refit_fixtures::plan_with("k3s", |_| {}));
    let status = PlanStatus {
        latest_version: Some("v1.33.4+k3s1".to_owned()),
        ..PlanStatus::default()
    };
    plan.object.status = Some(status);
    plan
}

const DOWN: (&str, &str) = ("0123456789abcdef", "node-1.example.com");

#[test]
fn a_silence_has_the_bytes_that_alertmanager_reads() {
    let now: Timestamp = "2026-01-01T09:00:00.5Z".parse().unwrap();
    let author = created_by("1111", "system-upgrade", "refit");
    assert_eq!(
        silence(&rule(), &plan(), DOWN, &author, now),
        json!({
            "matchers": [
                { "name": "node", "value": "node-1.example.com", "isRegex": false, "isEqual": true },
                { "name": "instance", "value": r"node-1\.example\.com:.+", "isRegex": true, "isEqual": true },
                { "name": "severity", "value": "critical", "isRegex": false, "isEqual": false },
            ],
            "startsAt": "2026-01-01T09:00:00.500Z",
            "endsAt": "2026-01-01T09:30:00.500Z",
            "createdBy": "refit system-upgrade/refit (1111)",
            "comment": "Plan k3s upgrades node node-1.example.com to v1.33.4+k3s1 (refit 0123456789abcdef)",
        })
    );
}

#[test]
fn a_successor_finds_the_silences_of_its_predecessor_and_no_others() {
    let author = created_by("1111", "system-upgrade", "refit");
    let mut listed = silence(&rule(), &plan(), DOWN, &author, Timestamp::UNIX_EPOCH);
    listed["id"] = "one".into();
    listed["status"] = json!({ "state": "active" });
    let mut ended = listed.clone();
    (ended["id"], ended["status"]["state"]) = ("two".into(), "expired".into());
    let mut of_a_person = listed.clone();
    of_a_person["createdBy"] = "anna".into();
    let mut of_another_cluster = listed.clone();
    of_another_cluster["createdBy"] = created_by("2222", "system-upgrade", "refit").into();
    let mut without_a_key = listed.clone();
    without_a_key["comment"] = "by hand".into();
    let list = json!([listed, ended, of_a_person, of_another_cluster, without_a_key]).to_string();
    let known = known_silences(list.as_bytes(), &author).unwrap();
    let known: Vec<_> = known
        .iter()
        .map(|it| (it.id.as_str(), it.key.as_str(), it.is_active))
        .collect();
    assert_eq!(
        known,
        [
            ("one", "0123456789abcdef", true),
            ("two", "0123456789abcdef", false)
        ]
    );
    assert!(known_silences(b"<html>", &author).is_err());
    assert!(known_silences(b"{}", &author).is_err());
}
