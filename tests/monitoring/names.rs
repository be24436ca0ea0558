//! Alerts and dashboard use metrics that exist, and each alert is documented and tested.

use std::collections::BTreeSet;

use refit_controller::metrics::list::GROUPS;
use regex::Regex;

use super::files::{alerts, dashboard_queries, read, selectors};

#[test]
fn every_metric_of_alerts_and_dashboard_is_in_the_list_with_its_labels() {
    let queries = alerts()
        .into_iter()
        .map(|alert| alert["expr"].as_str().unwrap().to_owned());
    let labels = Regex::new(r#"([a-z_]+)(?:=~|!~|!=|=)""#).unwrap();
    let mut seen = BTreeSet::new();
    for query in queries.chain(dashboard_queries()) {
        for selector in selectors(&query) {
            let name = selector.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix));
            let mut all = GROUPS.iter().flat_map(|(_, metrics)| metrics.iter());
            let metric = all.find(|metric| metric.name == name || Some(metric.name) == base);
            let metric = metric.unwrap_or_else(|| panic!("{name} in {query}"));
            for label in labels.captures_iter(&selector) {
                let label = label.get(1).unwrap().as_str();
                // Prometheus adds this one to each target.
                assert!(
                    label == "namespace" || metric.labels.contains(&label),
                    "{label} in {selector}"
                );
            }
            seen.insert(metric.name);
        }
    }
    assert!(seen.len() > 30, "{seen:?}");
}

#[test]
fn each_alert_says_what_to_do_and_has_a_test() {
    let tests = read("tests/monitoring/rules_test.yaml");
    let document = read("docs/metrics.md");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(tests.contains(name), "{name} has no test");
        assert!(
            document.contains(&format!("`{name}`")),
            "{name} is not in docs/metrics.md"
        );
        for text in ["summary", "description"] {
            assert!(alert["annotations"][text].is_string(), "{name}: {text}");
        }
        assert!(
            matches!(alert["labels"]["severity"].as_str(), Some("warning" | "critical")),
            "{name}"
        );
    }
}
