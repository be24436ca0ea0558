//! The rules of `refit validate`: a closed list. Each has a name by which it is switched off, what it weighs, and a line
//! that says what it finds; `docs/gitops.md` prints the same list.

use std::fmt;

use super::finding::Severity::{self, Error, Note, Warning};

macro_rules! rules {
    ($($variant:ident $name:literal $severity:ident $about:literal)*) => {
        /// A rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $(#[doc = $about] $variant,)*
        }

        impl Rule {
            /// All rules: first what is refused, then what is suspicious, then what is worth knowing.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name, by which it is switched on and off.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What a finding weighs when nothing else is said.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => $severity,)* }
            }

            /// What it finds, in a line.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

rules! {
    YamlSyntax "yaml-syntax" Error "The document is not YAML."
    DuplicateKey "duplicate-key" Error "A key is there twice: one value is lost, and which one depends on the reader."
    NotAPlan "not-a-plan" Error "`apiVersion` or `kind` is nearly a Plan's, so that it would be nobody's."
    WrongType "wrong-type" Error "A value is of another type than its field, such as a number where text belongs."
    MissingField "missing-field" Error "A field that must be there is not."
    UnknownField "unknown-field" Error "A Plan has no such field: the API server refuses it, or drops it without a word."
    NotAllowed "not-allowed" Error "A value is not among those that the field takes."
    BadName "bad-name" Error "A name that Kubernetes does not take: of the Plan, its namespace, an account, a secret, a class."
    BadLabel "bad-label" Error "A label or annotation that Kubernetes does not take, `postCompleteLabels` among them."
    InvalidPlan "invalid-plan" Error "What the controller says with `Validated=False`."
    NoVersion "no-version" Error "Neither `version` nor `channel`: the Plan never resolves."
    BadChannel "bad-channel" Error "`channel` is no URL that can be asked."
    BadSelector "bad-selector" Error "`nodeSelector` is no selector: the Plan selects nothing."
    BadImage "bad-image" Error "An image that is none, or that cannot take the version as its tag."
    BadJob "bad-job" Error "The API server would refuse every Job of the Plan."
    DuplicatePlan "duplicate-plan" Warning "Two documents are the same Plan: the one that is applied last wins."
    NoConcurrency "no-concurrency" Warning "`concurrency` is 0 or absent, and `maxConcurrent` too: no node is ever started."
    NoNodeSelector "no-node-selector" Warning "Without `nodeSelector` the Plan selects no node."
    SelectorMatchesNothing "selector-matches-nothing" Warning "`nodeSelector` asks for what no node can have."
    DrainWithoutServiceAccount "drain-without-service-account" Warning "`drain` or `cordon` runs as the namespace's default account, which may not."
    WindowNeverOpens "window-never-opens" Warning "`window` is never open."
    WindowShorterThanDeadline "window-shorter-than-deadline" Warning "A Job may outlast the window in which it starts."
    DrainTimeoutTooShort "drain-timeout-too-short" Warning "`drain.timeout` is less than a second: a plain number is nanoseconds."
    DrainTimeoutPastDeadline "drain-timeout-past-deadline" Warning "`drain.timeout` is longer than the Job may take."
    UntaggedImage "untagged-image" Warning "An image without tag, and no version to be its tag."
    TagBesideChannel "tag-beside-channel" Warning "An image with a tag beside a `channel`: a new version does not change what runs."
    TagDiffers "tag-differs" Warning "The tag of an image is another version than `version`."
    MovingVersion "moving-version" Warning "A version that means another thing tomorrow: nodes that are done are not run again."
    PrepareVolume "prepare-volume" Warning "`prepare` mounts a volume that `upgrade` does not: system-upgrade-controller forgets it."
    RelativeSecretPath "relative-secret-path" Warning "A relative `path` of a secret is below /run/system-upgrade/secrets, in the container."
    SecretMode "secret-mode" Warning "`defaultMode` is decimal: 400 is not 0400."
    NullField "null-field" Warning "A field that is null is as if it were absent; `drain:` does not drain."
    PlainBool "plain-bool" Warning "`yes`, `on` and the like are bools to some readers of YAML and text to others."
    DigestField "digest-field" Warning "The annotation `upgrade.cattle.io/digest` names what no Plan has, or what counts only in part."
    ChannelUnreachable "channel-unreachable" Warning "The channel gives no version (asked with `--online` only)."
    OtherNamespace "other-namespace" Warning "The Plan is not in the namespace that `--namespace` says: nobody carries it out."
    NoNamespace "no-namespace" Note "The Plan has no namespace, and goes where whoever applies it says."
    VersionAndChannel "version-and-channel" Note "`channel` is not asked while there is a `version`, as `refit pin` leaves it."
    CordonBesideDrain "cordon-beside-drain" Note "`cordon` has no effect beside `drain`, which cordons too."
    ConcurrencyReplaced "concurrency-replaced" Note "`concurrency` has no effect beside `maxConcurrent`."
    SelectsEveryNode "selects-every-node" Note "`nodeSelector` selects every node of the cluster."
    Suspended "suspended" Note "The Plan is suspended: no node is started."
    OldFieldName "old-field-name" Note "`deleteLocalData` is the old name of `deleteEmptydirData`."
    ServerField "server-field" Note "A field that the API server writes, left over from reading the Plan off a cluster."
    Placeholder "placeholder" Note "A `${…}` is to be filled in by somebody else; what it becomes is not looked at."
}

impl Rule {
    /// The rule of that name.
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
