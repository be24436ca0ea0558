//! Classifies requests to the API server in RBAC's terms, and counts them by result.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use http::{Method, Uri};

/// A request, in the terms of RBAC rules and audit logs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Plural of the resource with its subresource, such as `plans/status`; empty for other paths (`/version`).
    pub resource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The API server answered with this HTTP status.
    Answered(u16),
    TimedOut,
    /// The connection could not be established, or broke.
    Failed,
    /// The request was not sent because this process does not lead.
    NotLeader,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(code) => write!(f, "{code}"),
            Self::TimedOut => f.write_str("timeout"),
            Self::Failed => f.write_str("failed"),
            Self::NotLeader => f.write_str("not_leader"),
        }
    }
}

/// Number of requests since the start, by kind and result.
#[derive(Debug, Default)]
pub struct RequestCounts(Mutex<BTreeMap<(Call, Outcome), u64>>);

impl RequestCounts {
    pub fn add(&self, call: Call, outcome: Outcome) {
        // Safe after a panic: counting cannot leave the map in an inconsistent state.
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((call, outcome)).or_default() += 1;
    }

    /// A copy of the counts.
    pub fn snapshot(&self) -> BTreeMap<(Call, Outcome), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Call {
    /// Derives the call from a method and a path.
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        // Behind a gateway, the server's path precedes that of the API. After `apis` follow the group and its version.
        let core = uri.path().split_once("/api/v1/").map(|(_, path)| (path, 0));
        let group = uri.path().split_once("/apis/").map(|(_, path)| (path, 2));
        let (path, skipped) = core.or(group).unwrap_or_default();
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        let path: Vec<&str> = segments.skip(skipped).collect();
        let (resource, named) = match path.as_slice() {
            ["namespaces", _, resource, _, subresource] | [resource, _, subresource]
                if *resource != "namespaces" =>
            {
                (format!("{resource}/{subresource}"), true)
            }
            ["namespaces", _, resource, _] | [resource, _] => ((*resource).to_owned(), true),
            ["namespaces", _, resource] | [resource] => ((*resource).to_owned(), false),
            _ => (String::new(), true),
        };
        Self {
            verb: verb(method, named, is_watch(uri)),
            resource,
        }
    }
}

fn verb(method: &Method, named: bool, watch: bool) -> &'static str {
    match (method.as_str(), named) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        (_, _) if watch => "watch",
        (_, true) => "get",
        (_, false) => "list",
    }
}

/// Whether the response is an endless stream.
pub(super) fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| matches!(pair, "watch" | "watch=1" | "watch=true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, uri: &str) -> String {
        let call = Call::of(&method.parse().unwrap(), &uri.parse().unwrap());
        format!("{} {}", call.verb, call.resource)
    }

    #[test]
    fn a_request_is_named_as_an_rbac_rule_names_it() {
        assert_eq!(call("GET", "/api/v1/nodes?limit=100"), "list nodes");
        assert_eq!(call("GET", "/api/v1/nodes?limit=1&watch=true"), "watch nodes");
        assert_eq!(call("PATCH", "/api/v1/nodes/a?fieldManager=refit"), "patch nodes");
        assert_eq!(call("GET", "/api/v1/namespaces/kube-system"), "get namespaces");
        assert_eq!(call("GET", "/api/v1/namespaces"), "list namespaces");
        assert_eq!(call("POST", "/api/v1/namespaces/default/events"), "create events");
        assert_eq!(call("GET", "/api/v1/namespaces/a/secrets/b"), "get secrets");
        assert_eq!(
            call("POST", "/api/v1/namespaces/a/pods/b/eviction"),
            "create pods/eviction"
        );
        assert_eq!(
            call("DELETE", "/apis/batch/v1/namespaces/a/jobs/b"),
            "delete jobs"
        );
        assert_eq!(
            call("DELETE", "/apis/batch/v1/namespaces/a/jobs"),
            "deletecollection jobs"
        );
        assert_eq!(
            call("PATCH", "/apis/upgrade.cattle.io/v1/namespaces/a/plans/b/status"),
            "patch plans/status"
        );
        assert_eq!(
            call("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"),
            "update leases"
        );
        assert_eq!(
            call(
                "GET",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/plans.upgrade.cattle.io"
            ),
            "get customresourcedefinitions"
        );
        assert_eq!(
            call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
            "create selfsubjectaccessreviews"
        );
    }

    #[test]
    fn a_gateways_own_path_is_not_part_of_the_name() {
        assert_eq!(
            call("GET", "https://r.example/k8s/clusters/c-1/api/v1/nodes"),
            "list nodes"
        );
        assert_eq!(
            call("GET", "https://r.example/api/k8s/api/v1/nodes/a"),
            "get nodes"
        );
    }

    #[test]
    fn a_request_for_no_resource_has_no_name() {
        assert_eq!(call("GET", "/version"), "get ");
    }
}
