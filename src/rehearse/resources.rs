//! The types of objects in the simulated cluster, and the verbs that it implements for each: those that refit uses. A
//! request outside of this table is a defect of the rehearsal, and is reported as one.

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
    ConfigMap,
    /// `NodeMaintenance` of medik8s.
    Maintenance,
    /// `NodeMaintenance` of `KubeVirt`.
    OldMaintenance,
    NodeOp,
    NodeOpUpgrade,
    /// `Machine` of Cluster API.
    Machine,
    /// The same in its older version. The simulated cluster stores the two apart.
    OldMachine,
}

/// Verbs of the API.
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

#[derive(Debug)]
pub struct ResourceType {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    /// As in `kind` of objects.
    pub kind: &'static str,
    /// As in paths.
    pub plural: &'static str,
    pub namespaced: bool,
    /// Whether a change of the spec increments `metadata.generation`. It does for pods (KEP-5067), and not for types
    /// whose strategy sets no generation, such as Node.
    pub counts_generations: bool,
    /// Whether there is a status subresource.
    pub has_status: bool,
    pub verbs: &'static [Verb],
}

const fn of(
    (group, version, kind, plural): (&'static str, &'static str, &'static str, &'static str),
    [namespaced, counts_generations, has_status]: [bool; 3],
    verbs: &'static [Verb],
) -> ResourceType {
    ResourceType {
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

static TYPES: [ResourceType; 20] = [
    of(
        ("", "v1", "Namespace", "namespaces"),
        [false, false, true],
        &[Get],
    ),
    of(
        ("", "v1", "Node", "nodes"),
        [false, false, true],
        &[Get, List, Watch, Patch, PatchStatus],
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
    of(
        ("", "v1", "Event", "events"),
        [true, false, false],
        &[List, Create],
    ),
    of(
        ("batch", "v1", "Job", "jobs"),
        [true, true, true],
        &[Get, List, Watch, Create, Patch, Delete],
    ),
    of(
        ("coordination.k8s.io", "v1", "Lease", "leases"),
        [true, false, false],
        &[Get, Create, Replace, Patch, Delete],
    ),
    of(
        ("upgrade.cattle.io", "v1", "Plan", "plans"),
        [true, true, true],
        &[Get, List, Watch, Patch, PatchStatus, Delete],
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
    of(
        ("", "v1", "ConfigMap", "configmaps"),
        [true, false, false],
        &[Get, List, Watch],
    ),
    of(
        (
            "nodemaintenance.medik8s.io",
            "v1beta1",
            "NodeMaintenance",
            "nodemaintenances",
        ),
        [false, true, true],
        &[List, Watch, Patch, PatchStatus],
    ),
    of(
        (
            "nodemaintenance.kubevirt.io",
            "v1beta1",
            "NodeMaintenance",
            "nodemaintenances",
        ),
        [false, true, true],
        &[List, Watch, Patch, PatchStatus],
    ),
    of(
        ("operator.kairos.io", "v1alpha1", "NodeOp", "nodeops"),
        [true, true, true],
        &[List, Watch, PatchStatus],
    ),
    of(
        (
            "operator.kairos.io",
            "v1alpha1",
            "NodeOpUpgrade",
            "nodeopupgrades",
        ),
        [true, true, true],
        &[List, Watch, PatchStatus],
    ),
    of(
        ("cluster.x-k8s.io", "v1beta2", "Machine", "machines"),
        [true, true, true],
        &[Get, Patch],
    ),
    of(
        ("cluster.x-k8s.io", "v1beta1", "Machine", "machines"),
        [true, true, true],
        &[Get, Patch],
    ),
];

impl Kind {
    /// In the order of the table.
    pub const ALL: [Self; 20] = [
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
        Self::ConfigMap,
        Self::Maintenance,
        Self::OldMaintenance,
        Self::NodeOp,
        Self::NodeOpUpgrade,
        Self::Machine,
        Self::OldMachine,
    ];

    pub fn resource_type(self) -> &'static ResourceType {
        &TYPES[self as usize]
    }

    /// The type that a path names.
    pub fn of_path(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let facts = kind.resource_type();
            (facts.group, facts.version, facts.plural) == (group, version, plural)
        })
    }

    /// The type of an object, from its own fields.
    pub fn of_object(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|one| one.resource_type().kind == kind && one.resource_type().api_version() == api_version)
    }
}

impl Kind {
    /// Whether the type is defined by a `CustomResourceDefinition`.
    pub fn is_custom(self) -> bool {
        matches!(
            self,
            Self::Plan | Self::Maintenance | Self::OldMaintenance | Self::NodeOp | Self::NodeOpUpgrade
        )
    }
}

impl ResourceType {
    /// `group/version`, or only the version.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `jobs.batch`, as in error messages.
    pub fn qualified(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// `Job.batch`, as in messages about invalid objects.
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
        assert_eq!(Kind::Job.resource_type().qualified(), "jobs.batch");
        assert_eq!(Kind::of_path("", "v1", "nodes"), Some(Kind::Node));
        assert_eq!(Kind::of_object("apps/v1", "DaemonSet"), Some(Kind::DaemonSet));
        assert_eq!(Kind::of_path("apps", "v1", "deployments"), None);
    }
}
