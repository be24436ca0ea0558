//! What changes when refit replaces system-upgrade-controller on a cluster: `refit migrate --check`.
//!
//! Pure: what was read of the cluster, and what others said of it, are arguments. Each rule compares what the cluster has with
//! a row of the deviations in `docs/compatibility.md`, as far as that can do harm.

mod controller;
mod finding;
mod job;
pub mod permissions;
mod plan;
mod reading;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Severity};
pub use plan::channels;
pub use reading::{Permission, Reading};

pub struct Rule {
    /// In kebab case.
    pub name: &'static str,
    /// What it finds, as in `docs/migrate.md`.
    pub finds: &'static str,
    check: fn(&Reading<'_>) -> Vec<Finding>,
}

const fn rule(name: &'static str, finds: &'static str, check: fn(&Reading<'_>) -> Vec<Finding>) -> Rule {
    Rule { name, finds, check }
}

#[rustfmt::skip]
pub const RULES: [Rule; 14] = [
    rule("no-controller", "no controller in the namespace", controller::none),
    rule("two-controllers", "two controllers that could work at the same time: two Deployments, two pods without leader election, or Jobs of another controller", controller::two),
    rule("no-toleration", "one control-plane node, and a pod that does not tolerate it when it is cordoned", controller::toleration),
    rule("managed-elsewhere", "Helm, Flux, Argo CD or Rancher would restore the Deployment or the CRD", controller::owners),
    rule("missing-permission", "a permission that refit uses for these Plans and an account lacks, as the API server says: verb and resource", permissions::missing),
    rule("invalid", "a Plan that refit refuses, or that cannot be decoded", plan::invalid),
    rule("concurrency-zero", "a Plan that starts no node", plan::concurrency),
    rule("window", "a window, which refit checks before each node; an overnight one belongs to other days", plan::window),
    rule("channel", "with `--online`: a channel that gives refit no version, or another than the Plan has", plan::channel),
    rule("works-now", "what system-upgrade-controller cannot carry out, and refit does: a `drain.timeout`, volumes of `prepare`, names of nodes", plan::works_now),
    rule("token", "a Plan whose `upgrade` may use the token of its account, which refit's manifests withhold", plan::token),
    rule("cordoned-nodes", "nodes that someone cordoned, and that system-upgrade-controller would uncordon", plan::cordoned),
    rule("nodes-not-ready", "nodes that refit does not start until they are Ready", plan::not_ready),
    rule("job", "a Job that refit adopts, that is of an earlier version, or that has failed", job::check),
];

/// All differences, the most urgent first.
pub fn check(reading: &Reading<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for rule in RULES {
        let of_rule = (rule.check)(reading).into_iter();
        found.extend(of_rule.map(|finding| Finding {
            rule: rule.name,
            ..finding
        }));
    }
    // By urgency, then by rule and object, so that output is stable.
    found.sort_by(|a, b| (a.severity, a.rule, &a.object).cmp(&(b.severity, b.rule, &b.object)));
    found
}
