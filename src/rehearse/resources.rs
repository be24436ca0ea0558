//! The types of objects that the cluster in the process has, and what may be asked of each: what refit asks and no more. A
//! request that is not in this table is a mistake of the rehearsal, and is told as one.

/// A type of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Namespace,
    Node,
    Pod,
    Secret,
    Event,
    Job,
    Lease,
    Plan,
    Definition,
    DaemonSet,
    ReplicaSet,
    StatefulSet,
    Budget,
}

/// What may be asked of objects over the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Replace,
    Patch,
    PatchStatus,
    Delete,
    Evict,
}

/// What is known of a type.
#[derive(Debug)]
pub struct Type {
    /// Group, empty for the core's.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind, as objects name it.
    pub kind: &'static str,
    /// Plural, as paths name it.
    pub plural: &'static str,
    /// Whether objects are in a namespace.
    pub namespaced: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub counts_generations: bool,
    /// Whether status is written apart from the rest.
    pub has_status: bool,
    /// What may be asked.
    pub verbs: &'static [Verb],
}

const fn of(
    (group, version, kind, plural): (&'static str, &'static str, &'static str, &'static str),
    [namespaced, counts_generations, has_status]: [bool; 3],
    verbs: &'static [Verb],
) -> Type {
    Type {
        group,
        version,
        kind,
        plural,
        namespaced,
        counts_generations,
        has_status,
        verbs,
    }
}

use Verb::{Create, Delete, Evict, Get, List, Patch, PatchStatus, Replace, Watch};

static TYPES: [Type; 13] = [
    of(
        ("", "v1", "Namespace", "namespaces"),
        [false, false, true],
        &[Get],
    ),
    of(
        ("", "v1", "Node", "nodes"),
        [false, false, true],
        &[Get, List, Watch, Patch],
    ),
    of(
        ("", "v1", "Pod", "pods"),
        [true, true, true],
        &[Get, List, Watch, Create, Patch, PatchStatus, Delete, Evict],
    ),
    of(
        ("", "v1", "Secret", "secrets"),
        [true, false, false],
        &[Get, List, Watch],
    ),
    of(("", "v1", "Event", "events"), [true, false, false], &[Create]),
    of(
        ("batch", "v1", "Job", "jobs"),
        [true, true, true],
        &[Get, List, Watch, Create, Patch, Delete],
    ),
    of(
        ("coordination.k8s.io", "v1", "Lease", "leases"),
        [true, false, false],
        &[Get, Create, Replace],
    ),
    of(
        ("upgrade.cattle.io", "v1", "Plan", "plans"),
        [true, true, true],
        &[Get, List, Watch, Patch, PatchStatus],
    ),
    of(
        (
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        ),
        [false, true, true],
        &[Get, List, Watch, Create, Replace],
    ),
    of(
        ("apps", "v1", "DaemonSet", "daemonsets"),
        [true, true, true],
        &[Get],
    ),
    of(
        ("apps", "v1", "ReplicaSet", "replicasets"),
        [true, true, true],
        &[Get],
    ),
    of(
        ("apps", "v1", "StatefulSet", "statefulsets"),
        [true, true, true],
        &[Get],
    ),
    of(
        ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        [true, true, true],
        &[List],
    ),
];

impl Kind {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Secret,
        Self::Event,
        Self::Job,
        Self::Lease,
        Self::Plan,
        Self::Definition,
        Self::DaemonSet,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::Budget,
    ];

    /// What is known of it.
    pub fn facts(self) -> &'static Type {
        &TYPES[self as usize]
    }

    /// The type that a path means.
    pub fn of_path(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let facts = kind.facts();
            (facts.group, facts.version, facts.plural) == (group, version, plural)
        })
    }

    /// The type of an object that names itself.
    pub fn of_object(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|one| one.facts().kind == kind && one.facts().api_version() == api_version)
    }
}

impl Type {
    /// `group/version`, or the version alone.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `jobs.batch`, as error messages have it.
    pub fn qualified(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// `Job.batch`, as messages about invalid objects have it.
    pub fn qualified_kind(&self) -> String {
        qualified(self.kind, self.group)
    }
}

fn qualified(name: &str, group: &str) -> String {
    match group {
        "" => name.to_owned(),
        group => format!("{name}.{group}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
        assert_eq!(Kind::Job.facts().qualified(), "jobs.batch");
        assert_eq!(Kind::of_path("", "v1", "nodes"), Some(Kind::Node));
        assert_eq!(Kind::of_object("apps/v1", "DaemonSet"), Some(Kind::DaemonSet));
        assert_eq!(Kind::of_path("apps", "v1", "deployments"), None);
    }
}
