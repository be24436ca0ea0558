//! Reasons, phases and conditions are named only in `src/api`; all other code uses their variants.

use std::collections::BTreeSet;
use std::path::Path;

use refit::api::{ConditionType, NodePhase, Reason};
use regex::Regex;

use crate::layering::sources;

/// Words that Kubernetes also uses, with the files where they are Kubernetes': pod phases, conditions and reasons of
/// Jobs and pods, a Job's `podReplacementPolicy`, columns of kubectl.
const OF_KUBERNETES: [(&str, &[&str]); 10] = [
    ("BackoffLimitExceeded", &["rehearse/controller_manager/job.rs"]),
    ("Channel", &["api/crd.rs"]),
    (
        "Complete",
        &[
            "api/crd.rs",
            "kube/objects.rs",
            "migrate/job.rs",
            "rehearse/controller_manager/job.rs",
        ],
    ),
    (
        "DeadlineExceeded",
        &[
            "rehearse/controller_manager/job.rs",
            "rehearse/pod_lifecycle/sync_pass/stop.rs",
        ],
    ),
    ("Error", &["rehearse/pod_lifecycle/containers.rs"]),
    (
        "Failed",
        &[
            "controller/own_image.rs",
            "drain/pods.rs",
            "job/render.rs",
            "kube/objects.rs",
            "kube/objects/maintenance.rs",
            "kube/objects/pod.rs",
            "migrate/job.rs",
            "rehearse/controller_manager/job.rs",
            "rehearse/controller_manager/node.rs",
            "rehearse/pod_lifecycle.rs",
            "rehearse/pod_lifecycle/report.rs",
            "rehearse/pod_lifecycle/sync_pass.rs",
            "rehearse/pod_lifecycle/sync_pass/stop.rs",
            "rehearse/snapshot/builder.rs",
            "rehearse/state.rs",
        ],
    ),
    (
        "Pending",
        &[
            "rehearse/controller_manager/job.rs",
            "rehearse/controller_manager/job_pods.rs",
            "rehearse/pod_lifecycle/report.rs",
            "rehearse/server/evict.rs",
            "rehearse/snapshot/builder.rs",
            "rehearse/strategy.rs",
        ],
    ),
    ("PodFailed", &["rehearse/pod_lifecycle/report.rs"]),
    ("Unschedulable", &["rehearse/scheduler.rs"]),
    ("Version", &["api/crd.rs"]),
];

/// String literals that are one of the names, or begin with one and a colon, with their lines.
fn named<'t>(code: &'t str, names: &BTreeSet<&str>) -> Vec<(usize, &'t str)> {
    let literal = Regex::new(r#""(\w+)(?:"|: )"#).unwrap();
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for word in literal.captures_iter(line).filter_map(|found| found.get(1)) {
            if names.contains(word.as_str()) {
                found.push((number + 1, word.as_str()));
            }
        }
    }
    found
}

#[test]
fn no_reason_phase_or_condition_is_a_string_literal() {
    let reasons = Reason::ALL.iter().map(|reason| reason.name());
    let phases = NodePhase::ALL.iter().map(|phase| phase.name());
    let conditions = ConditionType::ALL.iter().map(|condition| condition.name());
    let names: BTreeSet<_> = reasons.chain(phases).chain(conditions).collect();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut of_kubernetes, mut wrong) = (BTreeSet::new(), Vec::new());
    for (path, code) in sources("") {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        for (line, word) in named(&code, &names) {
            let known = OF_KUBERNETES.iter().find(|(known, _)| *known == word);
            if known.is_some_and(|(_, files)| files.contains(&file.as_str())) {
                of_kubernetes.insert((word.to_owned(), file.clone()));
            } else {
                wrong.push(format!("src/{file}:{line}: {word:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "use the variant:\n{}", wrong.join("\n"));
    let listed = OF_KUBERNETES
        .iter()
        .flat_map(|(word, files)| files.iter().map(|file| ((*word).to_owned(), (*file).to_owned())));
    assert_eq!(of_kubernetes, listed.collect());
}

#[test]
fn names_in_string_literals_are_found_in_every_form() {
    let code = "// \"NoSlot\"\nreason == \"NoSlot\"\nformat!(\"NoSlot: {why}\")\nlet a = \"NoSlots\";\nb(\"of NoSlot\");\n";
    assert_eq!(
        named(code, &BTreeSet::from(["NoSlot"])),
        [(2, "NoSlot"), (3, "NoSlot")]
    );
}
