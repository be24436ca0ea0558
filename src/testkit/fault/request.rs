//! A request to the API server, parsed from its method and path.

use http::{Method, Uri};

/// A request in RBAC's notation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRequest {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    pub group: String,
    /// With the subresource: `plans/status`. Empty for `/readyz` and other paths without a resource.
    pub resource: String,
    pub namespace: String,
    /// The object of the path, or the only one that the field selector selects, as the API server's authorizer has it.
    pub name: String,
}

impl ApiRequest {
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
            name: match name {
                "" => selected_name(uri).unwrap_or_default(),
                name => name.to_owned(),
            },
        }
    }

    /// Whether it changes objects, the Leases of controllers and Events aside.
    pub fn is_write(&self) -> bool {
        self.is_write_or_event() && self.resource != "events"
    }

    /// Whether it changes objects, the Leases of controllers aside. Access reviews store nothing.
    pub fn is_write_or_event(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
            // Those of nodes belong to roll-outs; that of a controller is renewed all the time.
            && (self.resource != "leases" || self.namespace == "medik8s-leases")
            && !matches!(
                self.resource.as_str(),
                "" | "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
            )
    }
}

/// The name in a field selector `metadata.name=…`.
fn selected_name(uri: &Uri) -> Option<String> {
    let mut parameters = url::form_urlencoded::parse(uri.query()?.as_bytes());
    let (_, selector) = parameters.find(|(name, _)| name == "fieldSelector")?;
    selector.strip_prefix("metadata.name=").map(str::to_owned)
}

/// `/api/v1/namespaces/x/status` is about the Namespace; `/api/v1/namespaces/x/pods` is about pods in it.
fn is_subresource_of_namespace(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}
