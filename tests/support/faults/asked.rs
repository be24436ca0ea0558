//! What a request asks of the API server, read from its method and path as the API server does.

use http::{Method, Uri};

/// A request in the words of RBAC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; of what is no
    /// resource, `get` and so on.
    pub verb: String,
    pub group: String,
    /// With the subresource: `plans/status`. Empty for what is no resource, such as `/readyz`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

impl Asked {
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let mut parts = uri.path().trim_matches('/').split('/');
        let group = match parts.next() {
            Some("api") => Some(String::new()),
            Some("apis") => parts.next().map(str::to_owned),
            _ => None,
        };
        let rest: Vec<_> = parts.skip(1).collect(); // after the version
        let (namespace, rest) = match rest[..] {
            ["namespaces", namespace, ref rest @ ..]
                if !rest.is_empty() && !is_subresource_of_namespace(rest) =>
            {
                (namespace, rest)
            }
            _ => ("", &rest[..]),
        };
        let (resource, name) = match *rest {
            [] => (String::new(), ""),
            [resource] => (resource.to_owned(), ""),
            [resource, name] => (resource.to_owned(), name),
            [resource, name, subresource, ..] => (format!("{resource}/{subresource}"), name),
        };
        let watch = uri.query().is_some_and(|query| {
            query
                .split('&')
                .any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"))
        });
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ if watch => "watch",
            _ if name.is_empty() && !resource.is_empty() => "list",
            _ => "get",
        };
        let (group, resource) = group.map_or_else(Default::default, |group| (group, resource));
        Self {
            verb: verb.to_owned(),
            group,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether it changes the cluster. Leases and Events, which come when they like, do not count.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
            && !matches!(
                self.resource.as_str(),
                "" | "leases" | "events" | "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
            )
    }
}

/// `/api/v1/namespaces/x/status` is about the Namespace; `/api/v1/namespaces/x/pods` is about pods in it.
fn is_subresource_of_namespace(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &Method, uri: &str) -> String {
        let asked = Asked::of(method, &uri.parse().unwrap());
        let Asked {
            verb,
            group,
            resource,
            namespace,
            name,
        } = asked;
        format!("{verb} {group}/{resource} {namespace}/{name}")
    }

    #[test]
    fn requests_are_read_as_the_api_server_reads_them() {
        let read = [
            (Method::GET, "/api/v1/nodes", "list /nodes /"),
            (
                Method::GET,
                "/api/v1/nodes?limit=500&resourceVersion=0",
                "list /nodes /",
            ),
            (
                Method::GET,
                "/api/v1/nodes?allowWatchBookmarks=true&watch=true",
                "watch /nodes /",
            ),
            (Method::GET, "/api/v1/nodes/a.b", "get /nodes /a.b"),
            (
                Method::PATCH,
                "/api/v1/nodes/a/status?fieldManager=x",
                "patch /nodes/status /a",
            ),
            (
                Method::POST,
                "/apis/batch/v1/namespaces/n/jobs?",
                "create batch/jobs n/",
            ),
            (
                Method::DELETE,
                "/apis/batch/v1/namespaces/n/jobs/j",
                "delete batch/jobs n/j",
            ),
            (
                Method::DELETE,
                "/apis/batch/v1/namespaces/n/jobs",
                "deletecollection batch/jobs n/",
            ),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
                "update coordination.k8s.io/leases n/l",
            ),
            (
                Method::POST,
                "/api/v1/namespaces/n/pods/p/eviction",
                "create /pods/eviction n/p",
            ),
            (Method::GET, "/api/v1/namespaces/n", "get /namespaces /n"),
            (
                Method::PUT,
                "/api/v1/namespaces/n/finalize",
                "update /namespaces/finalize /n",
            ),
            (
                Method::GET,
                "/apis/upgrade.cattle.io/v1/plans",
                "list upgrade.cattle.io/plans /",
            ),
            (Method::GET, "/readyz", "get / /"),
            (Method::GET, "/apis", "get / /"),
            (Method::GET, "/apis/batch/v1", "get batch/ /"),
        ];
        for (method, uri, expected) in read {
            assert_eq!(asked(&method, uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn leases_events_and_questions_are_no_writes() {
        let is_write = |method: &Method, uri: &str| Asked::of(method, &uri.parse().unwrap()).is_write();
        assert!(is_write(&Method::POST, "/apis/batch/v1/namespaces/n/jobs"));
        assert!(is_write(&Method::PATCH, "/api/v1/nodes/a"));
        assert!(!is_write(&Method::GET, "/api/v1/nodes/a"));
        assert!(!is_write(
            &Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
        ));
        assert!(!is_write(&Method::POST, "/api/v1/namespaces/n/events"));
        assert!(!is_write(
            &Method::POST,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        ));
    }
}
