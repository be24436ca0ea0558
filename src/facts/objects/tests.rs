mod recordings;

use serde_json::{Value, json};

use super::*;
use crate::JobFacts;

fn job(more: &Value) -> JobFacts {
    let mut job = json!({ "metadata": { "name": "j", "uid": "u" }, "spec": {}, "status": {} });
    for (part, fields) in more.as_object().unwrap() {
        job[part]
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
    }
    serde_json::from_value::<SlimJob>(job)
        .unwrap()
        .facts(&Intern::default(), 900)
}

#[test]
fn failures_of_a_job_are_those_counted_and_those_about_to_be() {
    assert_eq!(job(&json!({})).failures, 0);
    assert_eq!(job(&json!({ "status": { "failed": 2 } })).failures, 2);
    let uncounted = json!({ "status": { "failed": 2, "uncountedTerminatedPods": { "failed": ["a"], "succeeded": ["b"] } } });
    assert_eq!(job(&uncounted).failures, 3);
}

#[test]
fn a_job_fails_as_often_as_it_says_or_kubernetes_says_for_it() {
    assert_eq!(job(&json!({})).backoff_limit, 6);
    assert_eq!(job(&json!({ "spec": { "backoffLimit": 0 } })).backoff_limit, 0);
}

#[test]
fn a_job_keeps_a_ledger_if_refit_made_it_for_a_node_that_is_not_windows() {
    let keeps =
        |annotations: Value| job(&json!({ "metadata": { "annotations": annotations } })).keeps_ledger();
    assert!(keeps(json!({ names::ANNOTATION_NODE_UID: "n" })));
    assert!(!keeps(json!({})));
    assert!(!keeps(
        json!({ names::ANNOTATION_NODE_UID: "n", names::ANNOTATION_UNSCHEDULABLE_BEFORE: "false" })
    ));
}

#[test]
fn of_the_boots_of_a_job_that_anybody_wrote_as_many_are_read_as_a_job_can_have() {
    let boots = |text: String| {
        job(&json!({ "metadata": { "annotations": { names::ANNOTATION_BOOT_IDS: text } } })).boots
    };
    assert_eq!(
        *boots(",a,,b,".to_owned()),
        [BootId::from("a"), BootId::from("b")]
    );
    assert_eq!(boots("a,".repeat(100_000)).len(), JobFacts::MAX_BOOTS);
    let long = boots("x".repeat(100_000));
    assert_eq!(long.len(), 1);
    assert!(long[0].to_string().len() <= MAX_NAME);
}

#[test]
fn a_boot_id_fits_into_the_list_of_boots_that_separates_them_by_commas() {
    let node = json!({ "metadata": { "name": "n" }, "status": { "nodeInfo": { "bootID": "a,b,c" } } });
    let node = serde_json::from_value::<SlimNode>(node).unwrap();
    assert_eq!(node.facts(&Intern::default()).boot_id, BootId::from("a_b_c"));
}

/// The order of the members of a JSON object has no meaning (RFC 8259, 4).
#[test]
fn a_watch_line_is_read_with_its_type_before_or_after_its_object() {
    let plan = json!({
        "metadata": { "name": "p", "uid": "u" },
        "spec": { "upgrade": { "image": "i" }, "version": "v1" },
        "status": { "latestVersion": "v1", "applying": ["n"] },
    });
    let before = format!(r#"{{"type":"MODIFIED","object":{plan}}}"#);
    let after = format!(r#"{{"object":{plan},"type":"MODIFIED"}}"#);
    for line in [before, after] {
        let event = serde_json::from_str::<kube::core::WatchEvent<PlanFacts>>(&line).unwrap();
        let kube::core::WatchEvent::Modified(facts) = event else {
            panic!("{line} is another event");
        };
        assert_eq!(&*facts.name, "p");
        assert_eq!(facts.object.status.unwrap().applying, Some(vec!["n".to_owned()]));
    }
}

mod pods {
    use serde_json::{Value, json};

    use super::super::{Intern, SlimPod};
    use crate::{PodFacts, PodStage, SentinelResult};

    const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
    const PLAN: &str = "0b7f5d3c-5f0e-4a57-9d8c-1f5f5a6b7c8d";

    fn facts(pod: Value) -> PodFacts {
        serde_json::from_value::<SlimPod>(pod)
            .unwrap()
            .facts(&Intern::default())
    }

    fn owner(version: &str, kind: &str) -> Value {
        json!({ "apiVersion": version, "kind": kind, "name": "o", "uid": PLAN, "controller": true })
    }

    /// A pod of a Job that may reboot its node, with these exit codes of finished init containers, and its main
    /// container.
    fn of_job(phase: &str, inits: &[(&str, i32)], sentinel: &Value) -> PodFacts {
        let ended = |(name, code): &(&str, i32)| json!({ "name": name, "state": { "terminated": { "exitCode": code } } });
        facts(json!({
            "metadata": { "name": "p", "uid": "u", "ownerReferences": [owner("batch/v1", "Job")] },
            "spec": { "nodeName": "n" },
            "status": {
                "phase": phase,
                "initContainerStatuses": inits.iter().map(ended).collect::<Vec<_>>(),
                "containerStatuses": [{ "name": "sentinel", "state": sentinel }],
            },
        }))
    }

    fn says(code: i32, message: &str) -> Value {
        json!({ "terminated": { "exitCode": code, "message": message } })
    }

    fn report() -> String {
        format!(r#"{{"bootId":"{BOOT}","required":true}}"#)
    }

    /// A pod that reboots its node or reads its sentinel.
    fn reboot(role: &str, phase: &str, state: &str, message: &str) -> PodFacts {
        facts(json!({
            "metadata": {
                "name": "p", "uid": "u", "creationTimestamp": "2026-01-01T09:00:00Z",
                "labels": {
                    "refit.rs/role": role, "upgrade.cattle.io/plan": "os", "plan.upgrade.cattle.io/os": "hash",
                },
                "ownerReferences": [owner("upgrade.cattle.io/v1", "Plan")],
                "annotations": { "refit.rs/plan-uid": PLAN, "refit.rs/node-uid": "node", "refit.rs/boot-id": BOOT },
            },
            "spec": { "nodeName": "n" },
            "status": {
                "phase": phase,
                "containerStatuses": [{ "name": "reboot", state: says(3, message), "restartCount": 1 }],
            },
        }))
    }

    #[test]
    fn the_sentinel_of_a_pod_that_succeeded_is_believed_and_no_other() {
        let inits = [("probe", 0), ("drain", 0), ("upgrade", 0)];
        let found = Some(SentinelResult::Success {
            boot_id: BOOT.into(),
            required: true,
        });
        assert_eq!(
            of_job("Succeeded", &inits, &says(0, &report())).sentinel_result,
            found
        );
        assert_eq!(
            of_job("Failed", &inits, &says(0, &report())).sentinel_result,
            None,
            "its Job makes another"
        );
        assert_eq!(
            of_job("Running", &inits, &says(0, &report())).sentinel_result,
            None
        );
        assert_eq!(
            of_job("Succeeded", &inits, &says(0, "upgraded")).sentinel_result,
            None
        );
    }

    #[test]
    fn of_a_pod_that_no_job_and_no_plan_controls_only_the_name_counts() {
        let pod = |role: Option<&str>, more: Value| {
            let mut pod = json!({
                "metadata": {
                    "name": "p", "uid": "u",
                    "labels": { "upgrade.cattle.io/plan": "os", "plan.upgrade.cattle.io/os": "hash" },
                    "annotations": { "refit.rs/plan-uid": PLAN, "refit.rs/node-uid": "node" },
                },
                "spec": { "nodeName": "n" },
                "status": {
                    "phase": "Succeeded",
                    "containerStatuses": [{ "name": "sentinel", "state": says(0, &report()) }],
                },
            });
            if let Some(role) = role {
                pod["metadata"]["labels"]["refit.rs/role"] = role.into();
            }
            for (key, value) in more.as_object().unwrap() {
                pod["metadata"][key] = value.clone();
            }
            facts(pod)
        };
        let job = || json!({ "ownerReferences": [owner("batch/v1", "Job")] });
        let plan = || json!({ "ownerReferences": [owner("upgrade.cattle.io/v1", "Plan")] });
        assert!(!pod(None, job()).foreign && !pod(Some("ask"), plan()).foreign);
        let mirror = |mut more: Value| {
            more["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
            more
        };
        // The Job was deleted with `--cascade=orphan`: the pod may still run on its node, and proves nothing of any Job.
        let orphan = pod(None, json!({}));
        assert!(!orphan.foreign && orphan.job_uid.is_empty() && orphan.node.is_some());
        for (role, more) in [
            (Some("reboot"), json!({})),
            (None, mirror(json!({}))),
            (None, plan()),
            (Some("ask"), job()),
            (None, json!({ "ownerReferences": [owner("v1", "Node")] })),
            (
                None,
                json!({ "ownerReferences": [owner("example.com/v1", "Job")] }),
            ),
            (None, mirror(job())),
            (Some("ask"), mirror(plan())),
        ] {
            let facts = pod(role, more.clone());
            assert!(facts.foreign, "{more}");
            assert_eq!((facts.sentinel_result, facts.reboot), (None, None), "{more}");
            assert_eq!(
                (&*facts.job_uid, &*facts.plan, facts.stage),
                ("", "", PodStage::Ended),
                "{more}"
            );
        }
    }

    #[test]
    fn a_pod_tells_whether_its_upgrade_has_begun_even_when_it_has_ended() {
        let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
        let probed = of_job("Running", &[("probe", 0)], &waiting);
        assert_eq!((probed.stage, probed.upgraded), (PodStage::Starting, false));
        let drained = of_job("Failed", &[("probe", 0), ("drain", 1)], &waiting);
        assert_eq!((drained.stage, drained.upgraded), (PodStage::Ended, false));
        let lost = of_job(
            "Failed",
            &[("probe", 0), ("drain", 0), ("upgrade", 255)],
            &waiting,
        );
        assert_eq!((lost.stage, lost.upgraded), (PodStage::Ended, true));
        let kept = of_job(
            "Running",
            &[("probe", 0), ("upgrade", 0)],
            &json!({ "running": {} }),
        );
        assert_eq!((kept.stage, kept.upgraded), (PodStage::Upgrade, true));
    }

    #[test]
    fn a_pod_that_found_no_sentinel_says_in_which_boot() {
        let sentence = format!(
            "SentinelMissing: there is no /run/refit/{PLAN}.node.hash on the host: nothing shows that the \
            upgrade succeeded in boot {BOOT}"
        );
        let nothing = Some(SentinelResult::Nothing {
            boot_id: Some(BOOT.into()),
        });
        // It has ended for good, or is about to restart.
        for (phase, state) in [("Failed", "state"), ("Running", "lastState")] {
            assert_eq!(
                reboot("ask", phase, state, &sentence).sentinel_result,
                nothing,
                "{phase}"
            );
        }
        let elsewhere = "SentinelMissing: /run/refit/x is not a sentinel";
        assert_eq!(
            reboot("ask", "Failed", "state", elsewhere).sentinel_result,
            Some(SentinelResult::Nothing { boot_id: None })
        );
        let other = reboot("reboot", "Running", "lastState", "CommandMissing: no systemctl");
        assert_eq!(other.sentinel_result, None);
        assert!(
            other.failed.unwrap().says.contains("CommandMissing"),
            "it is named"
        );
    }

    #[test]
    fn a_pod_that_reboots_says_for_what() {
        let it = *reboot("reboot", "Running", "lastState", "").reboot.unwrap();
        assert_eq!((&*it.plan_uid, &*it.node_uid, &*it.hash), (PLAN, "node", "hash"));
        assert_eq!((it.boot_id.as_deref(), it.succeeded), (Some(BOOT), false));
        assert_eq!(
            reboot("ask", "Succeeded", "state", "").reboot.unwrap().boot_id,
            None
        );
        assert!(of_job("Running", &[], &json!({})).reboot.is_none());
    }
}
