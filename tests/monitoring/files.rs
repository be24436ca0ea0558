//! Alerts and dashboard as their files have them.

use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

pub(super) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap()
}

pub(super) fn rules() -> Value {
    serde_saphyr::from_str(&read("deploy/monitoring/rules.yaml")).unwrap()
}

pub(super) fn alerts() -> Vec<Value> {
    let rules = rules();
    let groups = rules["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

/// Every query of the dashboard, with its variables set to everything.
pub(super) fn dashboard_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let set = |query: &str| {
        query
            .replace("$namespace", ".*")
            .replace("$plan", ".*")
            .replace("$__rate_interval", "1m")
    };
    targets
        .map(|target| set(target["expr"].as_str().unwrap()))
        .collect()
}

/// The selectors of series in a query, such as `refit_plan_nodes{phase="Failed"}`.
pub(super) fn selectors(query: &str) -> Vec<String> {
    let selector = Regex::new(r"\b(?:refit|process)_[a-z_]+(?:\{[^}]*\})?").unwrap();
    selector
        .find_iter(query)
        .map(|found| found.as_str().to_owned())
        .collect()
}
