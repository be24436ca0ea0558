//! What is marked on a cordoned node for other programs (`spec.drain.excludeFromLoadBalancers` and `.preventScaleDown`,
//! and by a `NodeMaintenance`): labels, annotations and taints that are there while the node is held. The ledger lists
//! those that refit has added, and only they are removed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::plan::DrainSpec;

/// A label or an annotation of a Node with the value `true`, or a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeMark {
    /// Load balancers of the cloud provider send no traffic to the node (KEP-1143).
    ExcludeFromLoadBalancers,
    /// The cluster autoscaler does not remove the node (kubernetes/autoscaler, cluster-autoscaler/FAQ.md).
    DisableScaleDown,
    /// Karpenter does not disrupt the node.
    DoNotDisrupt,
    /// Remediation operators of medik8s leave the node alone.
    ExcludeFromRemediation,
    /// The taint of a cordoned node, which Kubernetes adds, too.
    Unschedulable,
    /// The taint of a `NodeMaintenance` of medik8s.
    MedikDrain,
    /// The taint of a `NodeMaintenance` of `KubeVirt`.
    KubevirtDrain,
}

/// What a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkForm {
    Label,
    Annotation,
    /// A taint without a value, with the effect [`NodeMark::EFFECT`].
    Taint,
}

impl NodeMark {
    pub const ALL: [Self; 7] = [
        Self::ExcludeFromLoadBalancers,
        Self::DisableScaleDown,
        Self::DoNotDisrupt,
        Self::ExcludeFromRemediation,
        Self::Unschedulable,
        Self::MedikDrain,
        Self::KubevirtDrain,
    ];
    /// Those that the drain of a Plan can make.
    pub const OF_DRAIN: [Self; 3] = [
        Self::ExcludeFromLoadBalancers,
        Self::DisableScaleDown,
        Self::DoNotDisrupt,
    ];
    /// Those that only a `NodeMaintenance` makes.
    pub const OF_MAINTENANCE: [Self; 3] = [
        Self::ExcludeFromRemediation,
        Self::MedikDrain,
        Self::KubevirtDrain,
    ];
    pub const VALUE: &str = "true";
    pub const EFFECT: &str = "NoSchedule";

    pub const fn key(self) -> &'static str {
        match self {
            Self::ExcludeFromLoadBalancers => "node.kubernetes.io/exclude-from-external-load-balancers",
            Self::DisableScaleDown => "cluster-autoscaler.kubernetes.io/scale-down-disabled",
            Self::DoNotDisrupt => "karpenter.sh/do-not-disrupt",
            Self::ExcludeFromRemediation => "remediation.medik8s.io/exclude-from-remediation",
            Self::Unschedulable => "node.kubernetes.io/unschedulable",
            Self::MedikDrain => "medik8s.io/drain",
            Self::KubevirtDrain => "kubevirt.io/drain",
        }
    }

    pub const fn form(self) -> MarkForm {
        match self {
            Self::ExcludeFromLoadBalancers | Self::ExcludeFromRemediation => MarkForm::Label,
            Self::DisableScaleDown | Self::DoNotDisrupt => MarkForm::Annotation,
            Self::Unschedulable | Self::MedikDrain | Self::KubevirtDrain => MarkForm::Taint,
        }
    }

    fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.key() == key)
    }

    /// The marks that a drain makes.
    pub fn of_drain(drain: &DrainSpec) -> Vec<Self> {
        let is_wanted = |mark: &Self| match mark {
            Self::ExcludeFromLoadBalancers => drain.exclude_from_load_balancers.unwrap_or_default(),
            _ => drain.prevent_scale_down.unwrap_or_default(),
        };
        Self::OF_DRAIN.into_iter().filter(is_wanted).collect()
    }

    /// Their keys, separated by commas.
    pub fn join(marks: &[Self]) -> String {
        let keys: Vec<_> = marks.iter().map(|mark| mark.key()).collect();
        keys.join(",")
    }

    /// The marks in such a text. Others are ignored: anyone who may patch a Node can write its ledger, and must not have
    /// refit remove other labels.
    pub fn split(text: &str) -> Vec<Self> {
        text.split(',').filter_map(Self::of_key).collect()
    }
}

/// As in [`NodeMark::join`].
pub(super) fn serialize<S: Serializer>(marks: &[NodeMark], serializer: S) -> Result<S::Ok, S::Error> {
    NodeMark::join(marks).serialize(serializer)
}

/// As in [`NodeMark::split`].
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeMark>, D::Error> {
    let mut marks = NodeMark::split(&String::deserialize(deserializer)?);
    marks.sort_unstable();
    marks.dedup();
    Ok(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_only_marks_that_exist() {
        assert_eq!(NodeMark::split(&NodeMark::join(&NodeMark::ALL)), NodeMark::ALL);
        assert_eq!(
            NodeMark::split("kubernetes.io/hostname,karpenter.sh/do-not-disrupt,,x"),
            [NodeMark::DoNotDisrupt]
        );
    }

    #[test]
    fn a_drain_makes_the_marks_that_it_asks_for() {
        let drain = |yaml: &str| NodeMark::of_drain(&serde_saphyr::from_str(yaml).unwrap());
        assert_eq!(drain("{}"), []);
        assert_eq!(
            drain("{excludeFromLoadBalancers: true, preventScaleDown: false}"),
            [NodeMark::ExcludeFromLoadBalancers]
        );
        assert_eq!(
            drain("{preventScaleDown: true}"),
            [NodeMark::DisableScaleDown, NodeMark::DoNotDisrupt]
        );
    }
}
