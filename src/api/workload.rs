//! A controller whose pods a drain has evicted, as the ledger and records name it.

use std::fmt;

use super::selector::is_subdomain;

/// Maximum length of an entry, because an annotation has a limited size.
const MAX_LEN: usize = 400;

/// `KIND[.VERSION.GROUP]/NAMESPACE/NAME[=READY]`: version and group of custom kinds only, and the number of pods that were
/// ready before the drain, if its account may read that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload<'a> {
    pub kind: &'a str,
    /// Version and group of a custom kind.
    custom: Option<(&'a str, &'a str)>,
    pub namespace: &'a str,
    pub name: &'a str,
    /// How many of its pods were ready before the drain.
    pub ready: Option<i32>,
}

impl<'a> Workload<'a> {
    /// Parses an entry; `None` if it is not one. Anyone who may patch the Node can write it, and its parts become a path.
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.len() > MAX_LEN {
            return None;
        }
        let (place, ready) = match text.split_once('=') {
            Some((place, ready)) => (place, Some(ready.parse::<u16>().ok()?.into())),
            None => (text, None),
        };
        let mut parts = place.split('/');
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        if !is_subdomain(namespace) || !is_subdomain(name) || parts.next().is_some() {
            return None;
        }
        let (kind, custom) = match kind.split_once('.') {
            Some((kind, rest)) => (kind, Some(rest.split_once('.').filter(is_custom)?)),
            None => (kind, None),
        };
        let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_known = matches!(
            kind,
            "ReplicaSet" | "StatefulSet" | "Deployment" | "ReplicationController"
        );
        (is_kind && (custom.is_some() || is_known)).then_some(Self {
            kind,
            custom,
            namespace,
            name,
            ready,
        })
    }

    /// The entry of the controller of a pod, if its kind may have a scale.
    pub fn entry(api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let kind = match (api_version, kind) {
            ("apps/v1", "ReplicaSet" | "StatefulSet" | "Deployment") | ("v1", "ReplicationController") => {
                kind.to_owned()
            }
            (custom, kind) => {
                let (group, version) = custom.split_once('/')?;
                format!("{kind}.{version}.{group}")
            }
        };
        let entry = format!("{kind}/{namespace}/{name}");
        Workload::parse(&entry)?;
        Some(entry)
    }

    /// What an entry names, whatever was ready.
    pub fn key(text: &str) -> &str {
        text.split_once('=').map_or(text, |(key, _)| key)
    }

    /// `apiVersion` of the object.
    pub fn api_version(&self) -> String {
        match self.custom {
            Some((version, group)) => format!("{group}/{version}"),
            None if self.kind == "ReplicationController" => "v1".to_owned(),
            None => "apps/v1".to_owned(),
        }
    }

    /// Whether the roles of `deploy/` allow the controller to read the kind.
    pub fn is_basic(&self) -> bool {
        self.custom.is_none() && matches!(self.kind, "ReplicaSet" | "StatefulSet")
    }
}

/// Whether these are the version and the group of a kind that a `CustomResourceDefinition` can define: groups of Kubernetes
/// without a dot, such as `batch`, have no other kind with a scale.
fn is_custom((version, group): &(&str, &str)) -> bool {
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_version && group.contains('.') && is_subdomain(group)
}

/// As in messages: kind, namespace and name.
impl fmt::Display for Workload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_custom_kind_has_its_version_and_group() {
        let entry = |api: &str, kind: &str| Workload::entry(api, kind, "shop", "web").unwrap_or_default();
        assert_eq!(entry("apps/v1", "ReplicaSet"), "ReplicaSet/shop/web");
        assert_eq!(
            entry("v1", "ReplicationController"),
            "ReplicationController/shop/web"
        );
        let custom = entry("apps.kruise.io/v1alpha1", "CloneSet") + "=2";
        assert_eq!(custom, "CloneSet.v1alpha1.apps.kruise.io/shop/web=2");
        let parsed = Workload::parse(&custom).unwrap();
        assert_eq!(parsed.api_version(), "apps.kruise.io/v1alpha1");
        assert_eq!(
            (parsed.to_string().as_str(), parsed.ready),
            ("CloneSet shop/web", Some(2))
        );
        assert_eq!(
            Workload::key(&custom),
            "CloneSet.v1alpha1.apps.kruise.io/shop/web"
        );
        for (api, kind) in [("batch/v1", "Job"), ("v1", "Node"), ("apps/v1", "DaemonSet")] {
            assert_eq!(entry(api, kind), "", "has no scale");
        }
    }

    #[test]
    fn an_entry_that_is_no_path_of_a_controller_is_none() {
        for text in [
            "Secret/shop/web",
            "CloneSet.v1alpha1/shop/web",
            "CloneSet.v1.batch/shop/web",
            "CloneSet.v1/../x.a.b/shop/web",
            "Clone-Set.v1.a.b/shop/web",
            "ReplicaSet/shop/web=",
            "ReplicaSet/shop/web=-1",
            "ReplicaSet/shop/web=70000",
            "ReplicaSet/shop/../x",
        ] {
            assert_eq!(Workload::parse(text), None, "{text}");
        }
        assert_eq!(
            Workload::parse(&format!("ReplicaSet/a/{}", "a".repeat(400))),
            None
        );
    }
}
