//! The rules of `refit validate`, a closed list. A rule has a name (for the flags that change its severity), a default
//! severity, and one line of description; `docs/gitops.md` names them.

use std::fmt;

use super::finding::Severity::{self, Error, Note, Warning};

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
    BadName "bad-name" Error "A name that Kubernetes does not allow: of the object, its namespace, a node, a service account, a secret, a priority class."
    BadLabel "bad-label" Error "A label or annotation that Kubernetes does not allow, including `postCompleteLabels`."
    InvalidPlan "invalid-plan" Error "The controller would set `Validated=False`, with this message."
    InvalidLimits "invalid-limits" Error "The `ConfigMap` `refit` has a key or a value that the controller cannot read, so that no node of any Plan starts."
    InvalidNotifications "invalid-notifications" Error "The `ConfigMap` `refit` has an entry of `notifications` or `silences` that the controller cannot use."
    NoVersion "no-version" Error "The Plan has neither `version` nor `channel`, so it never resolves."
    BadChannel "bad-channel" Error "`channel` is not a URL that the controller can ask."
    BadSelector "bad-selector" Error "`nodeSelector` is not a valid selector, so the Plan selects nothing."
    BadImage "bad-image" Error "An image reference is invalid, or cannot take the version as its tag."
    BadJob "bad-job" Error "The API server would refuse every Job of the Plan."
    ImageMissing "image-missing" Error "The registry says that an image that follows the version does not exist (with `--online` only)."
    DependencyCycle "dependency-cycle" Error "Plans wait for each other by `dependsOn`, so that none of them starts a node."
    InvalidNodeOp "invalid-node-op" Error "A `NodeOp` or a `NodeOpUpgrade` cannot become a Plan: the controller refuses it with this message."
    PlanSpecAnnotation "plan-spec-annotation" Error "The annotation `refit.rs/plan-spec` is not a JSON object of fields of a Plan."
    DuplicateMaintenance "duplicate-maintenance" Error "Two `NodeMaintenance` objects are for the same node: the older one has it, and the other one fails."
    DuplicatePlan "duplicate-plan" Warning "Two documents define the same Plan: the one that is applied last wins."
    NoConcurrency "no-concurrency" Warning "`concurrency` is 0 or missing, and so is `maxConcurrent`: the controller never starts a node."
    NoNodeSelector "no-node-selector" Warning "`nodeSelector` is missing, so the Plan selects no node."
    SelectsNoNode "selects-no-node" Warning "None of the nodes in the same files meets `nodeSelector`."
    SelectorMatchesNothing "selector-matches-nothing" Warning "No node can meet all conditions of `nodeSelector`."
    DrainWithoutServiceAccount "drain-without-service-account" Warning "`drain` or `cordon` runs as the default service account, which may not do that."
    WindowNeverOpens "window-never-opens" Warning "`window` never opens."
    WindowShorterThanDeadline "window-shorter-than-deadline" Warning "A Job may run longer than the window in which it starts."
    DrainTimeoutTooShort "drain-timeout-too-short" Warning "`drain.timeout` is less than a second: a plain number is nanoseconds."
    DrainTimeoutPastDeadline "drain-timeout-past-deadline" Warning "`drain.timeout` is longer than the deadline of the Job."
    OtherDistribution "other-distribution" Warning "An image of K3s or RKE2 with a version or channel of another distribution: there is no such tag."
    MisspeltVersion "misspelt-version" Warning "An image of K3s or RKE2 with a version that is spelled unlike its releases, such as one without the `v`: there is no such tag."
    ChannelWithoutVersion "channel-without-version" Warning "`channel` is a page, a script or a repository of a known site, which gives no version as it is written."
    PreparePlan "prepare-plan" Warning "`prepare` of K3s or RKE2 does not wait, calls nothing that exists, names no Plan, or one for which it waits in vain: itself, one that waits for it, one for agents."
    PlansDisagree "plans-disagree" Warning "Two Plans install different versions of one distribution on the same nodes."
    ReleaseCandidate "release-candidate" Warning "`prepare` or `settle.kubeletVersion` waits for kubelets of a release candidate of RKE2, whose kubelets report the release."
    UntaggedImage "untagged-image" Warning "An image has no tag, and the Plan has no version to use as the tag."
    TagBesideChannel "tag-beside-channel" Warning "An `…-upgrade` image has a tag although the Plan has a `channel`: a new version does not change what runs."
    TagDiffers "tag-differs" Warning "The tag of an `…-upgrade` image is another version than `version`."
    MovingVersion "moving-version" Warning "A version such as `latest` or `1.34.x` that changes its meaning: finished nodes are not upgraded again."
    PrepareVolume "prepare-volume" Warning "`prepare` mounts a volume that `upgrade` does not declare, which system-upgrade-controller leaves out."
    RelativeSecretPath "relative-secret-path" Warning "A relative `path` of a secret is below /run/system-upgrade/secrets in the container."
    SecretMode "secret-mode" Warning "`defaultMode` is decimal: 400 is not 0400."
    CheckWithoutSamples "check-without-samples" Warning "A query of `checks` returns nothing while no alert fires, and a result without samples does not pass."
    CommandWords "command-words" Warning "A command is one item with spaces, or the script of `sh -c` ends after its first word."
    PayloadReboots "payload-reboots" Warning "A payload reboots its node by itself, and the Plan has no `reboot`, so the node may count as done before it goes down."
    CapabilityName "capability-name" Warning "A capability begins with `CAP_`, which the container runtime adds itself."
    NullField "null-field" Warning "A null field is the same as a missing one; `drain:` does not drain."
    PlainBool "plain-bool" Warning "`yes`, `on` and similar words are bools to some YAML readers and text to others."
    DigestField "digest-field" Warning "The annotation `upgrade.cattle.io/digest` names a field that does not exist, or that counts only in part."
    ChannelUnreachable "channel-unreachable" Warning "The channel gives no version (with `--online` only)."
    OtherNamespace "other-namespace" Warning "The Plan is outside of the namespace that `--namespace` names, so the controller ignores it."
    NoNamespace "no-namespace" Note "The Plan has no namespace; `kubectl apply` chooses one."
    VersionAndChannel "version-and-channel" Note "The controller ignores `channel` while `version` is set, as `refit pin` leaves it."
    CordonBesideDrain "cordon-beside-drain" Note "`cordon` has no effect with `drain`, which cordons too."
    ConcurrencyReplaced "concurrency-replaced" Note "`concurrency` has no effect with `maxConcurrent`."
    SelectsEveryNode "selects-every-node" Note "`nodeSelector` selects every node of the cluster."
    Suspended "suspended" Note "The Plan is suspended: the controller starts no node."
    OldFieldName "old-field-name" Note "`deleteLocalData` is the old name of `deleteEmptydirData`."
    VersionOutsideRange "version-outside-range" Note "`version` is outside of `versionPolicy.range`, which limits only the channel."
    MovingTag "moving-tag" Note "An `…-upgrade` image with a tag such as `latest`, or with only a digest, in a Plan with a `version`, which then does not choose what runs."
    PartOfPlan "part-of-plan" Note "A part of a Plan that is complete elsewhere in the same files, such as a patch of an overlay."
    VersionInPatch "version-in-patch" Note "The Plan has no `version`, and a patch of Kustomize among the files sets it; refit checks the Plan with that one."
    RepeatedRequirement "repeated-requirement" Note "Requirements of `nodeSelector` for one label repeat each other, or exclude values of each other: a node must meet all of them."
    MasterLabel "master-label" Note "`nodeSelector` requires or excludes the role label `master` alone, which newer clusters do not set."
    ControlPlaneConcurrency "control-plane-concurrency" Note "Several control-plane nodes may be upgraded at the same time."
    NoControlPlaneToleration "no-control-plane-toleration" Note "The Plan selects control-plane nodes and tolerates none of their usual taints."
    PreparePlanUnknown "prepare-plan-unknown" Note "`prepare` waits for a Plan that is in none of the files."
    DependencyUnknown "dependency-unknown" Note "`dependsOn` names a Plan that is in none of the files."
    VersionSkew "version-skew" Note "The Plan for agents has another version or channel than the one that its `prepare` waits for, or a newer version than one in its `dependsOn`."
    Downgrade "downgrade" Note "`version` is older than what status or nodes in the same files say."
    MinorSkip "minor-skip" Note "`version` skips a minor version of Kubernetes, by status or nodes in the same files."
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
