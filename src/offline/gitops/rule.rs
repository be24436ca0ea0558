//! The rules of `refit validate`, a closed list. A rule has a name (for the flags that change its severity), a default
//! severity, and one line of description; `docs/gitops.md` names them.

use std::fmt;

use serde::Serialize;

use Severity::{Error, Note, Warning};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; the Plan is not wrong.
    Note,
    /// Suspicious: accepted, but probably not intended.
    Warning,
    /// Refused by the API server or the controller, or certain to fail.
    Error,
}

impl Severity {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! rules {
    ($($variant:ident $name:literal $severity:ident $about:literal)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $(#[doc = $about] $variant,)*
        }

        impl Rule {
            /// All rules: errors, then warnings, then notes.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in flags and findings.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The default severity.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => $severity,)* }
            }

            /// What it finds, in one line.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

rules! {
    YamlSyntax "yaml-syntax" Error "The document is not YAML."
    DuplicateKey "duplicate-key" Error "A key appears twice in one object: one value is lost, and which one depends on the reader."
    NotAPlan "not-a-plan" Error "`apiVersion` or `kind` is nearly that of a Plan, or of another object that refit handles, so no controller would handle it."
    WrongType "wrong-type" Error "A value has another type than its field, such as a number where the field takes text."
    MissingField "missing-field" Error "A required field is missing."
    UnknownField "unknown-field" Error "There is no such field: the API server refuses it, or drops it silently."
    NotAllowed "not-allowed" Error "A value is not one of those that the field allows."
    BadName "bad-name" Error "A name, a label or an annotation that Kubernetes does not allow, including `postCompleteLabels`."
    InvalidPlan "invalid-plan" Error "The controller would set `Validated=False`, with this message."
    InvalidLimits "invalid-limits" Error "The `ConfigMap` `refit` has a key or a value that the controller cannot use. If it is a limit, no node of any Plan starts."
    NoVersion "no-version" Error "The Plan has neither `version` nor `channel`, so it never resolves."
    BadChannel "bad-channel" Error "`channel` is not a URL that the controller can ask."
    BadSelector "bad-selector" Error "`nodeSelector` is not a valid selector, so the Plan selects nothing."
    BadImage "bad-image" Error "An image reference is invalid, or cannot take the version as its tag."
    BadJob "bad-job" Error "The API server would refuse every Job of the Plan."
    ImageMissing "image-missing" Error "The registry says that an image that follows the version does not exist (with `--online` only)."
    DependencyCycle "dependency-cycle" Error "Plans wait for each other by `dependsOn`, or by it and `prepare` of K3s or RKE2, so that none of them upgrades a node."
    InvalidNodeOp "invalid-node-op" Error "A `NodeOp` or a `NodeOpUpgrade`, or its annotation `refit.rs/plan-spec`, cannot become a Plan: the controller refuses it with this message."
    DuplicateObject "duplicate-object" Warning "Two documents define the same Plan: the one that is applied last wins. Or two `NodeMaintenance` objects are for the same node: the newer one fails."
    NoConcurrency "no-concurrency" Warning "`concurrency` is 0 or missing, and so is `maxConcurrent`: the controller never starts a node."
    SelectsNoNode "selects-no-node" Warning "`nodeSelector` is missing, no node can meet all of its conditions, none of the nodes in the same files does, or it names a role that is nearly `control-plane`."
    DrainWithoutServiceAccount "drain-without-service-account" Warning "`drain` or `cordon` runs as the default service account, which may not do that."
    Window "window" Warning "`window` never opens, or a Job may run longer than the window in which it starts, or than any of `windows`."
    DrainTimeout "drain-timeout" Warning "`drain.timeout`, or with the delays the whole drain, is longer than the deadline of the Job, or the timeout is less than a second: a plain number is nanoseconds."
    NoRelease "no-release" Warning "`version` or `channel` leads to no release that the image has: it is misspelt, of another distribution, or a page that gives no version. Or nodes in the same files run another distribution than that of the image."
    PreparePlan "prepare-plan" Warning "`prepare` of K3s or RKE2 does not wait, calls nothing that exists, names no Plan, or waits in vain: for its own Plan, one that waits for it, one for agents, without access to the API server, or for kubelets of a release candidate of RKE2, as `settle.kubeletVersion` may."
    PlansDisagree "plans-disagree" Warning "Two Plans install different versions of one distribution on the same nodes."
    ImageTag "image-tag" Warning "`version` or `channel` does not choose what runs: the image has another tag or only a digest, there is nothing to use as its tag, the image of a hook takes it as its tag, or `version` is a word such as `latest` that changes its meaning."
    PayloadReboots "payload-reboots" Warning "A payload reboots its node by itself, and the Plan has no `reboot`, so the node may count as done before it goes down."
    HookHostAccess "hook-host-access" Warning "`before` or `after` names `/host`, and has no `hostAccess`, whose default there is `None`."
    TaintWhileSuspended "taint-while-suspended" Warning "`taintNewNodes` and `suspend` are true: nodes that join take no pods until the Plan is resumed."
    NullField "null-field" Warning "A null field, or an empty list of conditions, is the same as a missing one; `drain:` does not drain."
    NoEffect "no-effect" Warning "A field does nothing without another one that the Plan lacks, such as `settle.workloads` without `drain`."
    ChannelUnreachable "channel-unreachable" Warning "The channel gives no version (with `--online` only)."
    OtherNamespace "other-namespace" Warning "The Plan is outside of the namespace that `--namespace` names, so the controller ignores it."
    SelectsEveryNode "selects-every-node" Note "`nodeSelector` selects every node of the cluster."
    MasterLabel "master-label" Note "`nodeSelector` requires or excludes the role label `master` alone, which newer clusters do not set."
    ControlPlaneConcurrency "control-plane-concurrency" Note "Several control-plane nodes may be upgraded at the same time."
    NoControlPlaneToleration "no-control-plane-toleration" Note "The Plan selects control-plane nodes and tolerates none of their usual taints."
    UnknownPlan "unknown-plan" Note "`dependsOn` or `prepare` waits for a Plan that is in none of the files."
    VersionSkew "version-skew" Note "The Plan for agents has another version or channel than the one that its `prepare` waits for, or a newer version than one in its `dependsOn`."
    VersionStep "version-step" Note "`version` is older than what status or nodes in the same files say, or skips a minor version of Kubernetes."
    Patch "patch" Note "A part of a Plan that is complete elsewhere in the same files, or a Plan that a kustomization among the files deletes, or whose `version` or `channel` it changes; refit checks the Plan as all of them leave it."
    ServerField "server-field" Note "A field that only the API server writes, as `kubectl get` prints it."
    NodeOpField "node-op-field" Note "A field of a `NodeOp` or a `NodeOpUpgrade` that its Plan lacks, or that does something else there."
    Placeholder "placeholder" Note "A placeholder such as `${VERSION}`; refit does not check what it becomes."
}

impl Rule {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_rule_has_a_name_of_its_own_and_the_heavier_come_first() {
        let names: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        assert_eq!(names.len(), Rule::ALL.len());
        assert!(names.len() >= 20);
        assert!(Rule::ALL.is_sorted_by_key(|rule| std::cmp::Reverse(rule.severity())));
        for rule in Rule::ALL {
            assert_eq!(Rule::named(rule.name()), Some(*rule));
            let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(rule.name().chars().all(kebab), "{rule}");
            assert!(rule.about().ends_with('.'), "{rule}");
        }
        assert_eq!(Rule::named("no-such-rule"), None);
    }
}
