//! Parses requests. Unknown parameters are an error, because they would have an effect on a real server.

use std::collections::BTreeMap;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;

use crate::resources::{Kind, Verb};
use crate::status_error::StatusError;
use crate::store::Key;

#[derive(Debug)]
pub(super) enum ApiRequest {
    Object(Object),
    Review,
    Version,
}

/// A request for one or several objects.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) verb: Verb,
    pub(super) kind: Kind,
    /// `None` means all.
    pub(super) namespace: Option<String>,
    /// Empty for a collection.
    pub(super) name: String,
    /// Whether only metadata is requested.
    pub(super) metadata_only: bool,
    pub(super) patch_type: PatchType,
    query: BTreeMap<String, String>,
}

/// How the body of a patch is to be read: the types that refit uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' own, in which lists may be merged by a key.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next()?.trim() {
            "application/merge-patch+json" => Some(Self::Merge),
            "application/json-patch+json" => Some(Self::Json),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

const PARAMETERS: [&str; 14] = [
    "allowWatchBookmarks",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "force",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "watch",
];

impl ApiRequest {
    pub(super) fn read(parts: &Parts, any_verb: bool) -> Result<Self, StatusError> {
        let what = || format!("{} {}", parts.method, parts.uri);
        let query: BTreeMap<String, String> =
            url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        if query.keys().any(|key| !PARAMETERS.contains(&key.as_str())) {
            return Err(StatusError::unsupported(&what()));
        }
        let header = |name| {
            let value = parts.headers.get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        let path: Vec<&str> = parts
            .uri
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        let (group, version, rest) = match path.as_slice() {
            ["version"] if parts.method == "GET" => return Ok(Self::Version),
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(StatusError::unsupported(&what())),
        };
        if (group, version, rest) == ("authorization.k8s.io", "v1", &["selfsubjectaccessreviews"])
            && parts.method == "POST"
        {
            return Ok(Self::Review);
        }
        let (namespace, rest) = match rest {
            // `/api/v1/namespaces/x` is the Namespace itself, and not a collection in it.
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return Err(StatusError::unsupported(&what())),
        };
        let kind = Kind::of_path(group, version, plural).ok_or_else(|| StatusError::unsupported(&what()))?;
        let watches = matches!(query.get("watch").map(String::as_str), Some("1" | "true"));
        let verb = match (parts.method.as_str(), name.is_empty(), subresource) {
            ("GET", true, _) if watches => Verb::Watch,
            ("GET", true, _) => Verb::List,
            ("GET", false, "") if !watches => Verb::Get,
            ("POST", true, _) => Verb::Create,
            ("POST", false, "eviction") => Verb::Evict,
            ("PUT", false, "") => Verb::Replace,
            ("PATCH", false, "") => Verb::Patch,
            ("PATCH", false, "status") => Verb::PatchStatus,
            ("DELETE", false, "") => Verb::Delete,
            _ => return Err(StatusError::unsupported(&what())),
        };
        // Only lists and watches may span all namespaces.
        let single = !matches!(verb, Verb::List | Verb::Watch);
        let is_patch = matches!(verb, Verb::Patch | Verb::PatchStatus);
        let patch_type = PatchType::of(header(CONTENT_TYPE));
        if !(any_verb || kind.resource_type().verbs.contains(&verb))
            || single && namespace.is_some() != kind.resource_type().namespaced
            || is_patch && patch_type.is_none()
        {
            return Err(StatusError::unsupported(&what()));
        }
        Ok(Self::Object(Object {
            verb,
            kind,
            namespace,
            name: name.to_owned(),
            patch_type: patch_type.unwrap_or(PatchType::Merge),
            metadata_only: header(ACCEPT).contains("as=PartialObjectMetadata"),
            query,
        }))
    }
}

impl Object {
    /// A parameter; empty if absent.
    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// A numeric parameter; 0 if absent.
    pub(super) fn number(&self, name: &str) -> Result<u64, StatusError> {
        match self.parameter(name) {
            "" => Ok(0),
            text => text
                .parse()
                .map_err(|_| StatusError::bad_request(format!("{name}: Invalid value: {text:?}"))),
        }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.parameter("dryRun") == "All"
    }

    /// Whether field validation is `Strict`.
    pub(super) fn is_strict(&self) -> bool {
        self.parameter("fieldValidation") == "Strict"
    }

    pub(super) fn key(&self) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or_default(), &self.name)
    }
}
