//! Values that are accepted but probably not intended.

use std::collections::BTreeSet;

use super::Subject;
use super::instead::{self, yaml};
use super::jobs::containers;
use super::schema::digest_problem;
use crate::gitops::Rule;
use crate::gitops::placeholder::{is_placeholder, syntax};
use crate::gitops::yaml::{Kind, Node};
use refit_api::names::ANNOTATION_DIGEST;
use refit_api::{DrainTimeout, Plan, PlanSpec};
use refit_base::go::GoDuration;
use refit_base::version::tag::{check, munge};
use refit_base::version::{Range, Version};
use refit_job::digest::check_fields;

/// Tags that name different versions over time.
pub(super) const MOVING_TAGS: [&str; 8] = [
    "latest", "stable", "testing", "edge", "nightly", "main", "master", "dev",
];
const SECOND: i64 = 1_000_000_000;
/// Seconds of a day.
const DAY: i64 = 86_400;

impl Subject<'_> {
    pub(super) fn check_suspicious(&mut self, plan: &Plan) {
        let spec = &plan.spec;
        self.check_concurrency(spec);
        self.check_disruption(spec);
        self.check_drain_timeout(spec);
        self.check_prepare_volumes(spec);
        self.check_digest(plan);
        self.check_commands(spec);
        self.check_capabilities(spec);
        self.check_queries(spec);
        if let Some(version) = &spec.version {
            if let Some(node) = self.node("spec.version").filter(|_| syntax(version).is_some()) {
                // An invalid version has been reported by the controller's validation.
                if check(&munge(version)).is_ok() {
                    self.report_placeholder("spec.version", node);
                }
            } else if MOVING_TAGS.contains(&version.to_ascii_lowercase().as_str()) {
                let message = format!("spec.version is {version:?}, which means another version over time");
                let or = if self.has("spec.channel") {
                    "remove the line to follow the channel"
                } else {
                    "follow a channel"
                };
                let hint = format!(
                    "pin a version, or {or}; a finished node is not upgraded again when the tag moves"
                );
                self.report(Rule::MovingVersion, "spec.version", message, Some(hint));
            } else if check(&munge(version)).is_ok()
                && version.parse::<Version>().is_err()
                && version.parse::<Range>().is_ok()
            {
                let message = format!("spec.version is {version:?}, a range, which becomes a tag as it is");
                let hint = self.range_hint();
                self.report(Rule::MovingVersion, "spec.version", message, Some(hint));
            }
            if !version.is_empty() && self.has("spec.channel") {
                let message = "the controller ignores spec.channel while spec.version is set".to_owned();
                let hint = "keep both if you use `refit pin`, which asks the channel and writes the version"
                    .to_owned();
                self.report(Rule::VersionAndChannel, "spec.channel", message, Some(hint));
            }
        }
        if spec.suspend == Some(true) {
            let message = "spec.suspend is true: the controller starts no node".to_owned();
            self.report(Rule::Suspended, "spec.suspend", message, None);
        }
    }

    /// The trap of `ALERTS`: the series exist only while an alert is pending or fires.
    fn check_queries(&mut self, spec: &PlanSpec) {
        for (index, check) in spec.checks.iter().flatten().enumerate() {
            let Some(prometheus) = &check.prometheus else {
                continue;
            };
            let query = &prometheus.query;
            if !query.contains("ALERTS") || query.contains("vector(") || query.contains("absent(") {
                continue;
            }
            let message = format!(
                "spec.checks[{index}].prometheus.query returns no samples while no alert fires, and then the check does not pass"
            );
            let hint = if query.contains("count(") || query.contains("sum(") {
                format!("write `{query} or vector(0)`")
            } else {
                format!("write `count({query}) or vector(0)`, and `max: 0`")
            };
            let field = format!("spec.checks[{index}].prometheus.query");
            self.report(Rule::CheckWithoutSamples, &field, message, Some(hint));
        }
    }

    fn check_concurrency(&mut self, spec: &PlanSpec) {
        let replaced = self.has("spec.maxConcurrent");
        if replaced && self.has("spec.concurrency") {
            let message = "spec.concurrency has no effect with spec.maxConcurrent".to_owned();
            let hint = "remove it, unless you may go back to system-upgrade-controller".to_owned();
            self.report(Rule::ConcurrencyReplaced, "spec.concurrency", message, Some(hint));
        } else if !replaced {
            let found = match spec.concurrency {
                Some(1..) => return,
                Some(number) => number.to_string(),
                None if self.has("spec.concurrency") => return, // reported by the schema check
                None => "missing".to_owned(),
            };
            let message = format!("spec.concurrency is {found}: the controller never starts a node");
            let verb = if spec.concurrency.is_some() {
                "write"
            } else {
                "add"
            };
            let hint = format!("{verb} `concurrency: 1`; to start no node, say `suspend: true`");
            self.report(Rule::NoConcurrency, "spec.concurrency", message, Some(hint));
        }
    }

    fn check_disruption(&mut self, spec: &PlanSpec) {
        let cordon = spec.cordon == Some(true);
        let word = if spec.drain.is_some() { "drain" } else { "cordon" };
        if cordon && spec.drain.is_some() {
            let message = "spec.cordon has no effect with spec.drain, which cordons too".to_owned();
            self.report(
                Rule::CordonBesideDrain,
                "spec.cordon",
                message,
                Some("remove it".to_owned()),
            );
        }
        let account = self.has("spec.serviceAccountName") && spec.service_account_name.as_deref() != Some("");
        if (cordon || spec.drain.is_some()) && !account {
            let is_empty = self.has("spec.serviceAccountName");
            let field = if is_empty {
                "spec.serviceAccountName".to_owned()
            } else {
                format!("spec.{word}")
            };
            let message =
                format!("spec.{word} runs as the service account \"default\", which may not {word} nodes");
            let verb = if is_empty { "write" } else { "add" };
            let hint =
                format!("{verb} `serviceAccountName: system-upgrade`, or another account with those rights");
            self.report(Rule::DrainWithoutServiceAccount, &field, message, Some(hint));
        }
        if self.has("spec.drain.deleteLocalData") && !self.has("spec.drain.deleteEmptydirData") {
            let field = "spec.drain.deleteLocalData";
            let message = format!("{field} is the old name of deleteEmptydirData");
            let value = self.node(field).filter(|node| matches!(node.kind, Kind::Bool(_)));
            let hint = value.map(|value| format!("write `deleteEmptydirData: {}`", value.to_json()));
            self.report(Rule::OldFieldName, field, message, hint);
        }
    }

    fn check_drain_timeout(&mut self, spec: &PlanSpec) {
        let timeout = spec.drain.as_ref().and_then(|drain| drain.timeout.as_ref());
        let (nanos, is_number) = match timeout {
            Some(DrainTimeout::Nanoseconds(nanos)) => (*nanos, true),
            Some(DrainTimeout::Text(text)) => match text.parse::<GoDuration>() {
                Ok(duration) => (duration.as_nanos(), false),
                Err(_) => return,
            },
            None => return,
        };
        // 0 means no limit, as for `kubectl drain --timeout`.
        if nanos == 0 || nanos >= SECOND {
            return;
        }
        let field = "spec.drain.timeout";
        let message = format!(
            "{field} is {}, so every drain that has to wait for a pod fails",
            GoDuration::from_nanos(nanos)
        );
        // 3600000 are probably milliseconds.
        let hint = if is_number && nanos > DAY {
            "write a duration such as `5m`; a plain number is nanoseconds".to_owned()
        } else if is_number && nanos > 0 {
            format!("write `{nanos}s` for seconds; a plain number is nanoseconds")
        } else {
            "write a duration such as `5m`".to_owned()
        };
        self.report(Rule::DrainTimeoutTooShort, field, message, Some(hint));
    }

    fn check_prepare_volumes(&mut self, spec: &PlanSpec) {
        let prepare = spec
            .prepare
            .iter()
            .flat_map(|prepare| prepare.volumes.iter().flatten());
        let upgrade = spec
            .upgrade
            .as_ref()
            .and_then(|upgrade| upgrade.volumes.as_deref())
            .unwrap_or_default();
        for (index, volume) in prepare.enumerate() {
            if upgrade.iter().any(|other| other.name == volume.name) {
                continue;
            }
            let field = format!("spec.prepare.volumes[{index}]");
            let message = format!(
                "{field} ({:?}) is not in spec.upgrade.volumes: refit mounts it, but the API server refuses the Jobs of \
                 system-upgrade-controller",
                volume.name
            );
            let hint = "add it to spec.upgrade.volumes too".to_owned();
            self.report(Rule::PrepareVolume, &field, message, Some(hint));
        }
    }

    /// What to do with a range in the place of a version. Only a channel has versions to choose from.
    pub(super) fn range_hint(&self) -> String {
        let channel = if self.has("spec.channel") {
            "and remove the line"
        } else {
            "and replace the line by a channel such as `channel: github://k3s-io/k3s`"
        };
        format!("move the range to spec.versionPolicy.range, {channel}")
    }

    /// Commands that a shell would read otherwise: nothing splits the items of a list.
    fn check_commands(&mut self, spec: &PlanSpec) {
        let reboot = spec.reboot.as_ref().and_then(|reboot| reboot.command.as_deref());
        let of_containers =
            containers(spec).map(|(name, of)| (format!("spec.{name}"), of.command.as_deref()));
        let all: Vec<_> = of_containers
            .chain([("spec.reboot".to_owned(), reboot)])
            .collect();
        for (parent, command) in all {
            let Some(command) = command.filter(|command| !command.iter().any(|word| is_placeholder(word)))
            else {
                continue;
            };
            let field = format!("{parent}.command");
            let program = command.first().map(String::as_str).unwrap_or_default();
            let is_line = program.trim().contains(char::is_whitespace);
            let found = match command {
                [_] if is_line => {
                    let message =
                        format!("{field} is one item with spaces, {program:?}, and no program has that name");
                    Some((message, instead::words(program)))
                }
                // `["/bin/sh -c", "echo hi"]`
                [_, rest @ ..] if is_line && has_flag(program) => {
                    let message = format!(
                        "the first item of {field} has spaces, {program:?}, and no program has that name"
                    );
                    let words = shlex::split(program);
                    Some((
                        message,
                        words.map(|words| words.into_iter().chain(rest.iter().cloned()).collect()),
                    ))
                }
                // `sh -c SCRIPT NAME ARG…` passes what follows the script as `$0`, `$1` and so on.
                [shell, flag, script, rest @ ..]
                    if instead::is_shell(shell)
                        && instead::is_script_flag(flag)
                        && !rest.is_empty()
                        && !script.contains([' ', '$', '\n', '/', '.', ';']) =>
                {
                    let message =
                        format!("the script of {field} is {script:?} alone; what follows are its parameters");
                    let whole = shlex::try_join(command[2..].iter().map(String::as_str)).ok();
                    Some((
                        message,
                        whole.map(|whole| vec![shell.clone(), flag.clone(), whole]),
                    ))
                }
                _ => None,
            };
            if let Some((message, meant)) = found {
                let hint = meant.map(|meant| format!("write `{}`", yaml(&meant.into())));
                self.report(Rule::CommandWords, &field, message, hint);
            }
        }
    }

    /// Capabilities with the prefix that the container runtime adds itself.
    fn check_capabilities(&mut self, spec: &PlanSpec) {
        let names: Vec<_> = containers(spec).map(|(name, _)| name).collect();
        for list in names
            .iter()
            .flat_map(|name| ["add", "drop"].map(|verb| (name, verb)))
        {
            let list = format!("spec.{}.securityContext.capabilities.{}", list.0, list.1);
            for index in 0..self.node(&list).map_or(0, |node| node.items().len()) {
                let field = format!("{list}[{index}]");
                let text = self.node(&field).and_then(Node::text).unwrap_or_default();
                let upper = text.to_uppercase();
                if let Some(bare) = upper.strip_prefix("CAP_") {
                    let message = format!("{field} is {text:?}; Kubernetes names capabilities without CAP_");
                    let hint = format!("write `{}`", yaml(&bare.into()));
                    self.report(Rule::CapabilityName, &field, message, Some(hint));
                }
            }
        }
    }

    fn check_digest(&mut self, plan: &Plan) {
        let annotations = plan.metadata.annotations.as_ref();
        let Some(paths) = annotations.and_then(|all| all.get(ANNOTATION_DIGEST)) else {
            return;
        };
        let annotations = self.node("metadata.annotations").and_then(|node| node.object());
        let Some(entry) = annotations.and_then(|all| all.entry(ANNOTATION_DIGEST)) else {
            return;
        };
        let offset = match entry.value.kind {
            Kind::Text(_) => entry.value.offset(),
            _ => entry.key.span.start,
        };
        if let Err(error) = check_fields(plan) {
            let hint = Some("name fields of the Plan, such as spec.upgrade.args".to_owned());
            let field = Some("metadata.annotations");
            self.report_at(Rule::InvalidPlan, offset, field, error.to_string(), hint);
            return;
        }
        let mut seen = BTreeSet::new();
        for path in paths
            .split(',')
            .filter(|_| !paths.is_empty() && !is_placeholder(paths))
            .filter(|path| seen.insert(*path))
        {
            if let Some((problem, meant)) = digest_problem(path) {
                let message = format!("{ANNOTATION_DIGEST} names {path:?}: {problem}");
                let hint = if meant.is_empty() {
                    "name fields of the Plan, such as spec.upgrade.args".to_owned()
                } else {
                    let whole: Vec<_> = paths
                        .split(',')
                        .map(|one| if one == path { &meant } else { one })
                        .collect();
                    format!("write `{}`", whole.join(","))
                };
                self.report_at(
                    Rule::DigestField,
                    offset,
                    Some("metadata.annotations"),
                    message,
                    Some(hint),
                );
            }
        }
    }
}

/// Whether the words behind the first one begin with a flag: `/bin/sh -c`, and not `/opt/my tool`.
fn has_flag(line: &str) -> bool {
    line.split_whitespace()
        .nth(1)
        .is_some_and(|word| word.starts_with('-'))
}
