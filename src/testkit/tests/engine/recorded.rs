//! What `refit status`, `refit explain` and `refit report` print of whole roll-outs.

use std::collections::BTreeMap;

use super::scenario::{NAMESPACE, Scenario};
use refit_api::{DrainSpec, names};
use refit_facts::PodStage;
use refit_fixtures::generated::{assert_committed, committed};
use refit_fixtures::{labels, plan, plan_with};
use refit_view::report::Report;
use refit_view::table::{self, Look};
use refit_view::{PlanOverview, explain_node};

/// The sessions in the documents: `just generate` writes them again.
#[test]
fn the_committed_recordings_are_what_the_commands_print() {
    let mut scenario = Scenario::empty();
    for number in 1..=5 {
        scenario.add_nodes(&[&format!("node-{number}")]);
    }
    let on =
        |role: &str| serde_json::from_value(serde_json::json!({ "matchLabels": { "role": role } })).unwrap();
    scenario.guard("node-3");
    scenario.label("node-1", "role", Some("server"));
    scenario.apply(plan_with("server", |spec| {
        spec.drain = Some(DrainSpec::default());
        (spec.version, spec.node_selector) = (Some("v1.34.1+k3s1".to_owned()), on("server"));
    }));
    scenario.comes_to("node-1", PodStage::Upgrade);
    scenario.pass_secs(95);
    scenario.succeed("node-1");
    scenario.label("node-3", "role", Some("server"));
    scenario.comes_to("node-3", PodStage::Drain);
    let mut agent = plan_with("agent", |spec| {
        spec.suspend = Some(true);
        (spec.version, spec.node_selector) = (Some("v1.34.1+k3s1".to_owned()), on("agent"));
    });
    let by = "by alice at 2026-01-01T08:55:00Z: storage is rebalanced";
    agent.metadata.annotations = Some([(names::ANNOTATION_SUSPENDED.to_owned(), by.to_owned())].into());
    scenario.apply(agent);
    for (node, role) in [("node-2", "server"), ("node-4", "agent"), ("node-5", "agent")] {
        scenario.label(node, "role", Some(role));
    }
    scenario.pass_secs(300);

    let mut snapshot = scenario.snapshot();
    snapshot.namespace = Some(NAMESPACE.to_owned());
    let views: Vec<_> = snapshot
        .plans
        .iter()
        .map(|plan| PlanOverview::new(&snapshot, plan))
        .collect();
    let [_, server] = views.as_slice() else {
        panic!("two Plans")
    };
    let explained = explain_node(server, "node-2").to_text();
    let look = Look {
        columns: Some(100),
        ..Look::default()
    };
    let of_one = Look {
        detailed: true,
        ..look
    };
    let sessions = [
        (
            "docs/steering.md",
            "refit status",
            table::status(&views, Some(&snapshot), &snapshot.gaps, &look),
        ),
        (
            "docs/steering.md",
            "refit status server",
            table::status(std::slice::from_ref(server), None, &[], &of_one),
        ),
        ("README.md", "refit explain server node-2", shortened(&explained)),
    ];
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for (file, command, text) in sessions {
        let written = files.entry(file).or_insert_with(|| committed(file));
        let head = format!("<!-- recorded: {command} -->\n```\n");
        let (before, rest) = written
            .split_once(&head)
            .unwrap_or_else(|| panic!("no recording of {command}"));
        let (_, after) = rest.split_once("```\n").unwrap();
        *written = format!("{before}{head}{text}```\n{after}");
    }
    for (file, written) in files {
        assert_committed(file, &written);
    }
}

/// The first and the last lines of a chain, without those of the node's Job.
fn shortened(explained: &str) -> String {
    let (chain, remedy) = explained.split_once("\n\n").unwrap();
    let lines: Vec<&str> = chain.lines().collect();
    let [first @ .., _, _, _, pod, budget] = lines.as_slice() else {
        panic!("a chain of eight: {explained}")
    };
    let first = first.join("\n");
    format!("{first}\n…\n{pod}\n{budget}\n\n{remedy}")
}

#[test]
fn a_report_says_what_was_done_where_and_when_and_what_is_not_known_any_more() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    scenario.roll_out();
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    let failed = scenario.slots("p")[0].clone();
    scenario.fail(&failed);
    scenario.retry(&failed, "p");
    scenario.finish();
    for (gone, unknown) in [
        (false, "the version of each node before"),
        (true, "Kubernetes has deleted their Jobs"),
    ] {
        if gone {
            scenario.pass_secs(1_200); // longer than the TTL of Jobs, and shorter than that of Events
        }
        let mut snapshot = scenario.snapshot();
        if gone {
            let nodes = snapshot.nodes.as_mut().unwrap();
            // As a node is that a Plan of the same name and spec in another namespace upgraded.
            let mut elsewhere = scenario.snapshot().nodes.unwrap().remove("b").unwrap();
            let kept = elsewhere.facts.labels.iter();
            elsewhere.facts.labels = labels(kept.filter(|(key, _)| *key != names::LABEL_HOSTNAME));
            nodes.insert("elsewhere".to_owned(), elsewhere);
        }
        let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
        let report = Report::new(&view);
        let json = report.to_json();
        assert_eq!(
            (&json["versionBefore"], &json["plan"]["version"]),
            (&"v1".into(), &"v2".into())
        );
        let history = json["plan"]["history"].as_array().unwrap();
        let counted: Vec<_> = history
            .iter()
            .map(|it| (&it["version"], &it["nodes"], &it["failures"]))
            .collect();
        let [two, one, none] = [2, 1, 0].map(serde_json::Value::from);
        assert_eq!(counted, [(&"v2".into(), &two, &one), (&"v1".into(), &two, &none)]);
        let nodes = json["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 2);
        for node in nodes {
            assert_eq!(
                (&node["state"], &node["kubeletNow"]),
                (&"Done".into(), &"v1.36.0".into())
            );
            assert_eq!(node["version"], "v2", "{node}");
            assert_eq!(node["started"].is_null(), gone, "{node}");
            assert!(node["ended"].is_string(), "the event still says when: {node}");
        }
        let texts = [report.to_markdown(), report.to_html()];
        for text in texts {
            for part in [
                "Roll-outs",
                "Nodes",
                "Events",
                "JobComplete",
                "Not known any more",
                unknown,
            ] {
                assert!(text.contains(part), "{part:?} is not in the report:\n{text}");
            }
        }
    }
}
