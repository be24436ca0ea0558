//! Applies the hints of `refit validate` literally: YAML in backticks after `write`, `add` or `did you mean` is put at
//! the location of the finding, which must be gone afterwards. For the most common mistakes, the result must be the
//! intended value.

use refit::gitops::check::{Options, check};
use refit::gitops::objects::objects;
use refit::gitops::yaml::{Kind, Node, Step, Style};
use refit::gitops::{Finding, Rule, Severity};
use serde_json::Value;

use super::{files, source};

/// The steps to a field such as `spec.secrets[0].path`.
fn steps(field: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in field.split('.') {
        let mut pieces = part.split('[');
        steps.extend(pieces.next().filter(|key| !key.is_empty()).map(Step::from));
        steps.extend(
            pieces
                .filter_map(|piece| piece.strip_suffix(']')?.parse::<usize>().ok())
                .map(Step::from),
        );
    }
    steps
}

/// Where a value ends in the text.
fn end(text: &str, node: &Node) -> usize {
    let last = match (&node.kind, node.style) {
        (Kind::List(items), Style::Indented) => items.iter().map(|item| end(text, item)).max(),
        (Kind::Map(object), Style::Indented) => {
            object.entries.iter().map(|entry| end(text, &entry.value)).max()
        }
        _ => None,
    };
    last.unwrap_or_else(|| node.span.start + text[node.span.clone()].trim_end().len())
}

/// The YAML of a hint, and whether to write, add or rename.
fn read(hint: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for verb in ["write", "add", "did you mean"] {
        // A verb within backticks is part of the YAML, such as the `add` of capabilities.
        let mut places = hint.match_indices(verb).map(|(at, _)| at);
        let outside = places.find(|at| hint[..*at].matches('`').count().is_multiple_of(2));
        let Some(after) = outside.map(|at| &hint[at + verb.len()..]) else {
            continue;
        };
        let Some((_, quoted)) = after.split_once('`') else {
            continue;
        };
        let (yaml, rest) = quoted.split_once('`').unwrap();
        found.push((verb, yaml));
        if let Some((second, _)) = rest.strip_prefix(" and `").and_then(|rest| rest.split_once('`')) {
            found.push((verb, second));
        }
    }
    if found.is_empty() && hint.starts_with("remove it") {
        found.push(("remove", ""));
    }
    found
}

/// Inserts an entry into an object, before the others.
fn insert(text: &mut String, parent: &Node, yaml: &str) {
    let object = parent.object().unwrap();
    match object.entries.iter().map(|entry| entry.key.span.start).min() {
        Some(first) if parent.style == Style::Indented => {
            let line = text[..first].rfind('\n').map_or(0, |at| at + 1);
            let indent = " ".repeat(text[line..first].chars().count());
            text.insert_str(first, &format!("{yaml}\n{indent}"));
        }
        Some(first) => text.insert_str(first, &format!("{yaml}, ")),
        None => text.insert_str(parent.span.start + 1, yaml),
    }
}

/// Removes an entry from an object.
fn remove(text: &mut String, parent: &Node, start: usize, end: usize) {
    if parent.style == Style::Indented {
        // Its line may begin with the dash of a list, which stays.
        text.replace_range(start..end, "");
        return;
    }
    let rest = text[end..].find([',', '}']).map_or(end, |at| end + at);
    let end = if text[rest..].starts_with(',') {
        rest + 1
    } else {
        end
    };
    text.replace_range(start..end, "");
}

/// The file after the hint was applied; `None` if the hint has no YAML.
fn follow(text: &str, found: &Finding) -> Option<String> {
    let hint = found.hint.as_deref()?;
    let all = read(hint);
    let field = found.field.clone()?;
    let mut text = text.to_owned();
    for (verb, yaml) in &all {
        let source = source("plan.yaml", &text);
        let all = objects(&source.stream.documents);
        let object = all
            .iter()
            .find(|object| found.plan.as_deref() == Some(&object.title()))?;
        let mut way = steps(&field);
        if found.rule == Rule::DigestField {
            way.push(Step::from("upgrade.cattle.io/digest"));
        }
        let last = way.pop()?;
        let parent = object.node.at(&way);
        let entry = parent.and_then(Node::object).and_then(|object| match &last {
            Step::Key(key) => object.entry(key),
            Step::Index(_) => None,
        });
        let value = parent.and_then(|parent| parent.at(std::slice::from_ref(&last)));
        let is_entry = yaml
            .split_once(": ")
            .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_alphabetic()));
        match *verb {
            "add" if found.rule == Rule::NotAPlan => insert(&mut text, object.node, yaml),
            "add" => {
                // An entry without a value is replaced.
                if let Some(entry) = entry {
                    text.replace_range(entry.key.span.start..end(&source.text, &entry.value), yaml);
                } else {
                    insert(&mut text, parent?, yaml);
                }
            }
            "did you mean" if found.rule == Rule::UnknownField => {
                let entry = entry?;
                let key = entry.key.span.clone();
                if let Some((path, name)) = yaml.rsplit_once('.') {
                    let value_end = end(&source.text, &entry.value);
                    let written = source.text[entry.value.span.start..value_end].to_owned();
                    let target = object.node.at(&steps(path))?;
                    if target.span.start < key.start {
                        remove(&mut text, parent?, key.start, value_end);
                        insert(&mut text, target, &format!("{name}: {written}"));
                    } else {
                        insert(&mut text, target, &format!("{name}: {written}"));
                        remove(&mut text, parent?, key.start, value_end);
                    }
                } else {
                    text.replace_range(key, yaml);
                }
            }
            "remove" => {
                let entry = entry?;
                remove(
                    &mut text,
                    parent?,
                    entry.key.span.start,
                    end(&source.text, &entry.value),
                );
            }
            _ if is_entry => {
                let entry = entry?;
                // The colon of an empty entry is behind its value.
                let value_end = end(&source.text, &entry.value).max(entry.key.span.end + 1);
                text.replace_range(entry.key.span.start..value_end, yaml);
            }
            _ => {
                let value = value?;
                let start = value.span.start;
                let value_end = end(&source.text, value);
                // A block begins in the line below its key.
                let is_below =
                    value.style == Style::Indented || value.style == Style::Block || value.is_null();
                let start = entry
                    .filter(|_| is_below)
                    .map_or(start, |entry| entry.key.span.end + 1);
                let value_end = value_end.max(start);
                let space = if text[..start].ends_with(':') { " " } else { "" };
                text.replace_range(start..value_end, &format!("{space}{yaml}"));
            }
        }
    }
    (!all.is_empty()).then_some(text)
}

fn findings(text: &str) -> Vec<Finding> {
    check(&[source("plan.yaml", text)], &Options::default()).findings
}

fn errors(findings: &[Finding]) -> usize {
    findings
        .iter()
        .filter(|found| found.severity == Severity::Error)
        .count()
}

/// Applies each hint of a file to the original file. Returns what is wrong with the results.
fn follow_all(name: &str, text: &str, followed: &mut usize) -> Vec<String> {
    let before = findings(text);
    let mut wrong = Vec::new();
    for found in before.iter().filter(|found| found.rule != Rule::YamlSyntax) {
        let has_yaml = found.hint.as_deref().is_some_and(|hint| !read(hint).is_empty());
        if !has_yaml {
            continue;
        }
        let Some(after) = follow(text, found) else {
            wrong.push(format!("{name}: the hint cannot be followed: {found:?}"));
            continue;
        };
        *followed += 1;
        let report = findings(&after);
        let same = |other: &&Finding| {
            (other.rule, &other.field, &other.plan) == (found.rule, &found.field, &found.plan)
                && other.message == found.message
        };
        let count = |all: &[Finding]| all.iter().filter(same).count();
        if count(&report) >= count(&before) {
            wrong.push(format!(
                "{name}: still found after {:?}: {found:?}\n{after}",
                found.hint
            ));
        }
        // An object that becomes a Plan shows its own mistakes.
        let is_revealed = found.rule == Rule::NotAPlan;
        if !is_revealed && errors(&report) > errors(&before) - usize::from(found.severity == Severity::Error)
        {
            let new: Vec<_> = report.iter().filter(|other| !before.contains(other)).collect();
            wrong.push(format!(
                "{name}: {:?} makes new mistakes: {new:?}\n{after}",
                found.hint
            ));
        }
    }
    wrong
}

#[test]
fn every_hint_with_yaml_for_a_broken_plan_can_be_followed_to_the_letter() {
    let mut followed = 0;
    let mut wrong = Vec::new();
    for (name, text) in files("broken") {
        // One location serves several Plans.
        if name != "in-an-anchor.yaml" {
            wrong.extend(follow_all(&name, &text, &mut followed));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(followed > 60, "{followed}");
}

/// A Plan with more lines of spec.
fn plan(lines: &str) -> String {
    let mut text = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p, namespace: system-upgrade}\nspec:\n".to_owned();
    for (name, line) in [
        ("concurrency", "concurrency: 1"),
        ("version", "version: v1.33.4+k3s1"),
        (
            "nodeSelector",
            "nodeSelector: {matchLabels: {k3s-upgrade: enabled}}",
        ),
        ("serviceAccountName", "serviceAccountName: system-upgrade"),
        ("upgrade", "upgrade: {image: rancher/k3s-upgrade}"),
    ] {
        if !lines.lines().any(|own| own.starts_with(&format!("{name}:"))) {
            text.extend(["  ", line, "\n"]);
        }
    }
    for line in lines.lines() {
        text.extend(["  ", line, "\n"]);
    }
    text
}

/// Lines of spec with one mistake (`\n` between them), the field to compare after the hint was applied, and its intended value.
const MISTAKES: &str = r#"
# Text for a list
upgrade:\n  image: i\n  command: /bin/sh -c "echo hi" => /upgrade/command = ["/bin/sh", "-c", "echo hi"]
upgrade:\n  image: i\n  command: bash -euc 'a; b' => /upgrade/command = ["bash", "-euc", "a; b"]
upgrade:\n  image: i\n  command: sh -c echo hi => /upgrade/command = ["sh", "-c", "echo hi"]
upgrade:\n  image: i\n  command: sh -c "a b" && reboot => /upgrade/command = ["/bin/sh", "-c", "sh -c \"a b\" && reboot"]
prepare: {image: rancher/k3s-upgrade, command: [/bin/upgrade.sh, prepare, p]} => /prepare/command = ["/bin/upgrade.sh", "prepare", "k3s-server"]
settle: 5m => /settle/minReady = "5m"
tolerations: [{key: a, operator: In, value: b}] => /tolerations/0/operator = "Equal"
upgrade:\n  image: i\n  command: apt-get update && apt-get -y upgrade => /upgrade/command = ["/bin/sh", "-c", "apt-get update && apt-get -y upgrade"]
upgrade:\n  image: i\n  command: |\n    set -e\n    reboot => /upgrade/command = ["/bin/sh", "-c", "set -e\nreboot"]
upgrade:\n  image: i\n  command: chroot /host => /upgrade/command = ["chroot", "/host"]
upgrade:\n  image: i\n  command: [sh, -c]\n  args: echo one; echo two => /upgrade/args = ["echo one; echo two"]
upgrade:\n  image: i\n  command: [sh, -c]\n  args: |\n    echo one\n    echo two => /upgrade/args = ["echo one\necho two\n"]
upgrade: {image: i, args: upgrade} => /upgrade/args = ["upgrade"]
upgrade: {image: i, args: 5} => /upgrade/args = ["5"]
prepare:\n  image: rancher/k3s-upgrade\n  args: prepare k3s-server => /prepare/args = ["prepare", "k3s-server"]
reboot: {command: systemctl reboot} => /reboot/command = ["systemctl", "reboot"]
reboot: {requiredFiles: /run/reboot-required} => /reboot/requiredFiles = ["/run/reboot-required"]
window: {days: monday, startTime: '22:00', endTime: '04:00'} => /window/days = ["monday"]
window: {days: 'sat, sun', startTime: '22:00', endTime: '04:00'} => /window/days = ["sat", "sun"]
window: {days: Mon-Fri, startTime: '22:00', endTime: '04:00'} => /window/days = ["mo", "tu", "we", "th", "fr"]
window: {days: fri-mon, startTime: '22:00', endTime: '04:00'} => /window/days = ["fr", "sa", "su", "mo"]
window: {days: daily, startTime: '22:00', endTime: '04:00'} => /window/days = ["mo", "tu", "we", "th", "fr", "sa", "su"]
window: {days: 6, startTime: '22:00', endTime: '04:00'} => /window/days = ["6"]
nodeSelector: {matchExpressions: [{key: a, operator: In, values: b}]} => /nodeSelector/matchExpressions/0/values = ["b"]
nodeSelector: {matchExpressions: [{key: a, operator: In, values: true}]} => /nodeSelector/matchExpressions/0/values = ["true"]
upgrade:\n  image: i\n  command: bash -c "echo $(date)" => /upgrade/command = ["bash", "-c", "echo $(date)"]
upgrade:\n  image: i\n  command: run.sh $NAME => /upgrade/command = ["/bin/sh", "-c", "run.sh $NAME"]
upgrade:\n  image: i\n  command: [sh, -c]\n  args: |\n    set -e\n    echo $HOME => /upgrade/args = ["set -e\necho $HOME\n"]
upgrade:\n  image: i\n  command: sh -c\n  args: set -e; echo hi => /upgrade/args = ["set -e; echo hi"]
upgrade:\n  image: i\n  command: sh -c\n  args: set -e; echo hi => /upgrade/command = ["sh", "-c"]
upgrade:\n  image: i\n  command: [sh]\n  args: set -e; echo hi => /upgrade/args = ["-c", "set -e; echo hi"]
upgrade:\n  image: i\n  command: [sh]\n  args: -c echo hi => /upgrade/args = ["-c", "echo hi"]
upgrade:\n  image: i\n  command: FOO=bar run => /upgrade/command = ["/bin/sh", "-c", "FOO=bar run"]
upgrade:\n  image: i\n  command: cd /x => /upgrade/command = ["/bin/sh", "-c", "cd /x"]
upgrade:\n  image: i\n  command: ~/bin/x => /upgrade/command = ["/bin/sh", "-c", "~/bin/x"]
upgrade:\n  image: i\n  command: echo {a,b} => /upgrade/command = ["/bin/sh", "-c", "echo {a,b}"]
upgrade:\n  image: i\n  command: ["/bin/sh -c 'echo hi'"] => /upgrade/command = ["/bin/sh", "-c", "echo hi"]
upgrade:\n  image: i\n  command: [echo hi] => /upgrade/command = ["echo", "hi"]
upgrade:\n  image: i\n  command: [sh, -c, echo, hi] => /upgrade/command = ["sh", "-c", "echo hi"]
prepare:\n  image: rancher/k3s-upgrade\n  args: "prepare, k3s-server" => /prepare/args = ["prepare", "k3s-server"]
reboot: {requiredFiles: "/run/a,/run/b"} => /reboot/requiredFiles = ["/run/a", "/run/b"]
nodeSelector: {matchExpressions: [{key: a, operator: In, values: [True]}]} => /nodeSelector/matchExpressions/0/values = ["true"]
nodeSelector: {matchLabels: {a: True}} => /nodeSelector/matchLabels/a = "true"
nodeSelector: {matchExpressions: [{key: a, value: "true"}]} => /nodeSelector/matchExpressions/0 = {"key": "a", "operator": "In", "values": ["true"]}
nodeSelector:\n  matchExpressions:\n  - key: a\n    value: true => /nodeSelector/matchExpressions/0 = {"key": "a", "operator": "In", "values": ["true"]}
nodeSelector: {matchExpressions: [{key: a, operator: In, value: b}]} => /nodeSelector/matchExpressions/0/values = ["b"]
nodeSelector: a==b => /nodeSelector = {"matchLabels": {"a": "b"}}
imagePullSecrets: "a,b" => /imagePullSecrets = [{"name": "a"}, {"name": "b"}]
upgrade:\n  image: i\n  envs: "A=b,C=d" => /upgrade/envs = [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}]
upgrade:\n  image: i\n  envs: "A=b C=d" => /upgrade/envs = [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}]
upgrade:\n  image: i\n  envs: ["A: b"] => /upgrade/envs = [{"name": "A", "value": "b"}]
upgrade:\n  image: i\n  volumes: ["/a/b:/x", "/a-b:/y"] => /upgrade/volumes/1/name = "a-b-1"
upgrade:\n  image: i\n  volumes: [{name: x, hostPath: /x, mountPath: /y}] => /upgrade/volumes/0 = {"name": "x", "source": "/x", "destination": "/y"}
upgrade:\n  image: i\n  volumes: [{name: x, hostPath: {path: /x}, destination: /y}] => /upgrade/volumes/0/source = "/x"
secrets: [{secretName: x, path: /y}] => /secrets/0 = {"name": "x", "path": "/y"}
secrets: [{name: x, mountPath: /y}] => /secrets/0 = {"name": "x", "path": "/y"}
activeDeadlineSeconds: 900 => /jobActiveDeadlineSecs = 900
# Something else for a list of objects
nodeSelector:\n  matchExpressions:\n    key: a\n    operator: Exists => /nodeSelector/matchExpressions = [{"key": "a", "operator": "Exists"}]
tolerations: {operator: Exists} => /tolerations = [{"operator": "Exists"}]
tolerations:\n  key: CriticalAddonsOnly\n  operator: Exists => /tolerations = [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
tolerations: Exists => /tolerations = [{"operator": "Exists"}]
tolerations: [node-role.kubernetes.io/etcd=true:NoExecute] => /tolerations/0 = {"key": "node-role.kubernetes.io/etcd", "operator": "Equal", "value": "true", "effect": "NoExecute"}
secrets: my-secret => /secrets = [{"name": "my-secret", "path": "/host/run/system-upgrade/secrets/my-secret"}]
secrets: [x] => /secrets/0 = {"name": "x", "path": "/host/run/system-upgrade/secrets/x"}
secrets:\n  - x => /secrets/0/name = "x"
imagePullSecrets: registry => /imagePullSecrets = [{"name": "registry"}]
imagePullSecrets: [registry] => /imagePullSecrets = [{"name": "registry"}]
upgrade:\n  image: i\n  envs: {A: b, C: 5} => /upgrade/envs = [{"name": "A", "value": "b"}, {"name": "C", "value": "5"}]
upgrade:\n  image: i\n  envs: [A=b] => /upgrade/envs = [{"name": "A", "value": "b"}]
upgrade:\n  image: i\n  volumes: [/etc/x:/x:ro] => /upgrade/volumes = [{"name": "etc-x", "source": "/etc/x", "destination": "/x"}]
# Something else for an object
upgrade: rancher/k3s-upgrade => /upgrade = {"image": "rancher/k3s-upgrade"}
upgrade: [{image: rancher/k3s-upgrade}] => /upgrade = {"image": "rancher/k3s-upgrade"}
channelSecretRef: creds => /channelSecretRef = {"name": "creds"}
nodeSelector: k3s-upgrade=enabled => /nodeSelector = {"matchLabels": {"k3s-upgrade": "enabled"}}
nodeSelector: k3s-upgrade => /nodeSelector = {"matchExpressions": [{"key": "k3s-upgrade", "operator": "Exists"}]}
nodeSelector: {matchLabels: [a=b]} => /nodeSelector/matchLabels = {"a": "b"}
nodeSelector: {kubernetes.io/os: linux} => /nodeSelector = {"matchLabels": {"kubernetes.io/os": "linux"}}
nodeSelector:\n  kubernetes.io/os: linux\n  ready: true\n  matchExpressions: [{key: a, operator: Exists}] => /nodeSelector = {"matchLabels": {"kubernetes.io/os": "linux", "ready": "true"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
drain: true => /drain = {}
drain: 'yes' => /drain = {}
drain: false => /drain = null
reboot: true => /reboot = {"when": "Always"}
reboot: always => /reboot = {"when": "Always"}
settle: 60 => /settle = {"minReady": "60s"}
window: 22:00-04:00 => /window = {"days": ["mo", "tu", "we", "th", "fr", "sa", "su"], "startTime": "22:00", "endTime": "04:00"}
# Durations
postCompleteDelay: 30 => /postCompleteDelay = "30s"
postCompleteDelay: '30' => /postCompleteDelay = "30s"
postCompleteDelay: 5 minutes => /postCompleteDelay = "5m"
reboot: {timeout: 600} => /reboot/timeout = "600s"
reboot:\n  when: Always\n  timeout: "20" => /reboot/timeout = "20s"
reboot: {timeout: 1 hour} => /reboot/timeout = "1h"
settle: {minReady: 60} => /settle/minReady = "60s"
settle: {timeout: 1_000} => /settle/timeout = "1000s"
settle: {minReady: 1.5} => /settle/minReady = "1.5s"
versionPolicy: {minimumAge: 3d} => /versionPolicy/minimumAge = "72h"
versionPolicy: {minimumAge: 1 week} => /versionPolicy/minimumAge = "168h"
drain: {timeout: 300} => /drain/timeout = "300s"
drain: {timeout: '300'} => /drain/timeout = "300s"
drain: {timeout: 5min} => /drain/timeout = "5m"
# Seconds
jobActiveDeadlineSecs: 15m => /jobActiveDeadlineSecs = 900
jobActiveDeadlineSecs: '3600' => /jobActiveDeadlineSecs = 3600
jobActiveDeadlineSeconds: 15m => /jobActiveDeadlineSecs = 900
drain: {gracePeriod: 30s} => /drain/gracePeriod = 30
drain: {skipWaitForDeleteTimeout: 1 minute} => /drain/skipWaitForDeleteTimeout = 60
tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 5m}] => /tolerations/0/tolerationSeconds = 300
# Times and zones
window: {days: [mo], startTime: 22, endTime: '04:00'} => /window/startTime = "22:00"
window: {days: [mo], startTime: '22:00', endTime: 400} => /window/endTime = "04:00"
window: {days: [mo], startTime: 10 PM, endTime: '04:00'} => /window/startTime = "22:00"
window: {days: [mo], startTime: '22:00', endTime: 4.30} => /window/endTime = "04:30"
window: {days: [mo], startTime: '22:00'} => /window/endTime = "04:00"
window: {days: [1], startTime: '22:00', endTime: '04:00'} => /window/days/0 = "1"
window: {days: [7], startTime: '22:00', endTime: '04:00'} => /window/days/0 = "su"
window: {days: [Mo], startTime: '22:00', endTime: '04:00'} => /window/days/0 = "mo"
window: {days: [mo], startTime: '22:00', endTime: '04:00', timeZone: UTC+2} => /window/timeZone = "Etc/GMT-2"
window: {days: [mo], startTime: '22:00', endTime: '04:00', timeZone: GMT+2} => /window/timeZone = "Etc/GMT-2"
window: {days: [mo], startTime: '22:00', endTime: '04:00', timeZone: GMT-5} => /window/timeZone = "Etc/GMT+5"
window: {days: [mo], startTime: '22:00', endTime: '04:00', timeZone: etc/gmt+2} => /window/timeZone = "Etc/GMT+2"
window: {days: [mo], start: '22:00', end: '04:00'} => /window/endTime = "04:00"
window: {days: [mo], startTime: '22:00', endTime: '04:00', timeZone: europe/berlin} => /window/timeZone = "Europe/Berlin"
window: {days: [mo], startTime: '22:00', endTime: '04:00', timeZone: Berlin} => /window/timeZone = "Europe/Berlin"
# Numbers, shares and bools
concurrency: '2' => /concurrency = 2
concurrency: 10% => /maxConcurrent = "10%"
concurrency: 0 => /concurrency = 1
maxConcurrent: '3' => /maxConcurrent = 3
maxConcurrent: 0.25 => /maxConcurrent = "25%"
maxConcurrent: 200% => /maxConcurrent = "100%"
maxConcurrent: 25 % => /maxConcurrent = "25%"
cordon: 'true' => /cordon = true
cordon: 'no' => /cordon = false
cordon: 1 => /cordon = true
secrets: [{name: s, path: /s, defaultMode: '0400'}] => /secrets/0/defaultMode = 256
secrets: [{name: s, path: /s, defaultMode: 400}] => /secrets/0/defaultMode = 256
# Text
version: 1.30 => /version = "1.30"
upgrade: {image: i, envs: [{name: A, value: 0x10}]} => /upgrade/envs/0/value = "0x10"
upgrade: {image: i, envs: [{name: A, value: yes}]} => /upgrade/envs/0/value = "yes"
nodeSelector: {matchLabels: {a: true}} => /nodeSelector/matchLabels/a = "true"
version: [v1.33.4+k3s1] => /version = "v1.33.4+k3s1"
channel: update.k3s.io/v1-release/channels/stable\nversion: v1 => /channel = "https://update.k3s.io/v1-release/channels/stable"
channel: "https://update.k3s.io/v1-release/channels/stable "\nversion: v1 => /channel = "https://update.k3s.io/v1-release/channels/stable"
versionPolicy: {range: ">1.33<1.35"} => /versionPolicy/range = ">1.33 <1.35"
upgrade:\n  image: rancher/k3s-upgrade:v1.33.4+k3s1 => /upgrade/image = "rancher/k3s-upgrade:v1.33.4-k3s1"
upgrade: {image: Rancher/k3s-upgrade} => /upgrade/image = "rancher/k3s-upgrade"
upgrade: {image: docker://rancher/k3s-upgrade} => /upgrade/image = "rancher/k3s-upgrade"
upgrade: {image: https://docker.io/rancher/k3s-upgrade} => /upgrade/image = "docker.io/rancher/k3s-upgrade"
# Names of fields and words
serviceAccount: a\nserviceAccountName: => /serviceAccountName = null
upgrade: {image: i, env: [{name: A, value: b}]} => /upgrade/envs/0/name = "A"
upgrade: {image: i, env: {A: b}} => /upgrade/envs = [{"name": "A", "value": "b"}]
upgrade: {image: i, arg: upgrade} => /upgrade/args = ["upgrade"]
drain: {timeoutSeconds: 300} => /drain/timeout = "300s"
args: [upgrade] => /upgrade/args = ["upgrade"]
reboot: {when: true} => /reboot/when = "Always"
reboot: {when: always} => /reboot/when = "Always"
nodeSelector: {matchExpressions: [{key: a, operator: exists}]} => /nodeSelector/matchExpressions/0/operator = "Exists"
nodeSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]} => /nodeSelector/matchExpressions/0/operator = "In"
nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]} => /nodeSelector/matchExpressions/0/values = null
tolerations: [{operator: exist}] => /tolerations/0/operator = "Exists"
tolerations: [{operator: Exists, effect: noschedule}] => /tolerations/0/effect = "NoSchedule"
reboot: {requiredFiles: [run/reboot-required]} => /reboot/requiredFiles/0 = "/run/reboot-required"
# What is missing
upgrade: {args: [a]} => /upgrade/image = "rancher/k3s-upgrade"
upgrade: {args: [a]}\nversion: v1.33.4+rke2r1 => /upgrade/image = "rancher/rke2-upgrade"
secrets: [{name: s}] => /secrets/0/path = "/host/run/system-upgrade/secrets/s"
upgrade: {image: i, volumes: [{name: x, source: /etc}]} => /upgrade/volumes/0/destination = "/etc"
nodeSelector: {matchExpressions: [{key: a}]} => /nodeSelector/matchExpressions/0/operator = "Exists"
nodeSelector: {matchExpressions: [{key: a, values: [b]}]} => /nodeSelector/matchExpressions/0/operator = "In"
serviceAccountName: ''\ncordon: true => /serviceAccountName = "system-upgrade"
version: '' => /version = "v1.33.4+k3s1"
version: => /version = "v1.33.4+k3s1"
concurrency: ~ => /concurrency = 1
upgrade:\n  image: => /upgrade/image = "rancher/k3s-upgrade"
upgrade: => /upgrade = {"image": "rancher/k3s-upgrade"}
nodeSelector: ~ => /nodeSelector = {}
# Another place or another name
nodeSelector: [{a: b}] => /nodeSelector/matchLabels = {"a": "b"}
nodeSelector: [{key: a, operator: Exists}] => /nodeSelector = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
nodeSelector:\n- key: a\n  operator: Exists\n- {key: b, operator: In, values: [c]} => /nodeSelector/matchExpressions/1 = {"key": "b", "operator": "In", "values": ["c"]}
nodeSelector: [{a: b}, {c: d}] => /nodeSelector/matchLabels = {"a": "b", "c": "d"}
tolerations: [{key: "*"}] => /tolerations/0 = {"operator": "Exists"}
tolerations: [{key: "*", operator: Exists, effect: NoSchedule}] => /tolerations/0 = {"operator": "Exists", "effect": "NoSchedule"}
upgrade:\n  image: i\n  command: ["/bin/sh -c", "echo hi"] => /upgrade/command = ["/bin/sh", "-c", "echo hi"]
upgrade:\n  image: i\n  command: [chroot --userspec=0 /host, reboot] => /upgrade/command = ["chroot", "--userspec=0", "/host", "reboot"]
prepare: k3s-server => /prepare = {"image": "rancher/k3s-upgrade", "args": ["prepare", "k3s-server"]}
prepare: rancher/k3s-upgrade => /prepare/image = "rancher/k3s-upgrade"
nodeSelector: [{key: a, value: b}] => /nodeSelector/matchLabels = {"a": "b"}
postCompleteLabels: [{key: a, value: b}] => /postCompleteLabels = {"a": "b"}
postCompleteLabels: [{a: b}, {c: d}] => /postCompleteLabels = {"a": "b", "c": "d"}
drain: force => /drain = {"force": true}
drain: [force, ignoreDaemonSets] => /drain = {"force": true, "ignoreDaemonSets": true}
maxUnavailable: 10 percent => /maxUnavailable = "10%"
maxUnavailable: 2 nodes => /maxUnavailable = 2
version: 1.34.2+k3s1 => /version = "v1.34.2+k3s1"
version: v1.34.2+k3s1, => /version = "v1.34.2+k3s1"
version: vv1.34.2+k3s1 => /version = "v1.34.2+k3s1"
version: “v1.34.2+k3s1” => /version = "v1.34.2+k3s1"
version: https://github.com/k3s-io/k3s/releases/tag/v1.34.2%2Bk3s1 => /version = "v1.34.2+k3s1"
upgrade: [{name: upgrade, image: i}] => /upgrade = {"image": "i"}
# The spec of a pod or a Job
upgrade: ~\ntemplate: {spec: {restartPolicy: Never, tolerations: [{operator: Exists}], containers: [{name: a, image: i, args: [x]}]}}\nbackoffLimit: 3 => /upgrade = {"image": "i", "args": ["x"]}
upgrade: ~\ntemplate: {spec: {restartPolicy: Never, tolerations: [{operator: Exists}], containers: [{name: a, image: i}]}}\nbackoffLimit: 3 => /tolerations = [{"operator": "Exists"}]
upgrade: ~\nhostPID: true\ncontainers: [{name: a, image: i, env: [{name: A, value: b}]}] => /upgrade/envs = [{"name": "A", "value": "b"}]
version: v1.34.2%2Bk3s1 => /version = "v1.34.2+k3s1"
paused: true => /suspend = true
# Windows and blackouts
window: {cron: "0 22 * * fri", duration: 4h} => /windows = [{"cron": "0 22 * * fri", "duration": "4h"}]
window: {schedule: "@weekly", duration: 4h, timeZone: Europe/Berlin} => /windows/0 = {"cron": "0 0 * * 0", "duration": "4h", "timeZone": "Europe/Berlin"}
window: {days: [fri], startTime: "22:00", duration: 4h} => /window/endTime = "02:00"
windows: [{schedule: "0 22 * * fri", duration: 4h}] => /windows/0/cron = "0 22 * * fri"
windows: [{cron: "0 0 22 * * fri", duration: 4h}] => /windows/0/cron = "0 22 * * fri"
windows: [{cron: "22:00", duration: 4h}] => /windows/0/cron = "0 22 * * *"
windows: [{days: fri, startTime: "22:00", endTime: "04:00"}] => /windows/0/days = ["fri"]
windows: [{days: [fri], startTime: "22:00", endTime: "24:00"}] => /windows/0/endTime = "23:59:59"
window: {days: [fri], startTime: "22:00", endTime: "24:00"} => /window/endTime = "23:59:59"
blackouts: 2026-12-24 => /blackouts = [{"start": "2026-12-24", "end": "2026-12-24"}]
blackouts: ["2026-12-24/2026-12-26"] => /blackouts/0 = {"start": "2026-12-24", "end": "2026-12-26"}
blackouts: [{from: 2026-12-24, to: 2026-12-26}] => /blackouts/0 = {"start": "2026-12-24", "end": "2026-12-26"}
blackouts: [{start: 12-24}] => /blackouts/0/end = "12-24"
blackouts: [{start: 24.12.2026, end: 2026-12-26}] => /blackouts/0/start = "2026-12-24"
blackouts: [{start: 2026-12-24, end: 12/26/2026}] => /blackouts/0/end = "2026-12-26"
# What follows a failure, and other fields
failure: stop => /failure = {"policy": "Stop"}
failurePolicy: Continue => /failure = {"policy": "Continue"}
failurePolicy: Abort => /failure = {"policy": "Stop"}
failure: {onFailure: Continue} => /failure/policy = "Continue"
failure: {retry: 3} => /failure/retries = 3
failure: {policy: Stop, maxFailures: 3} => /failure/budget = 3
reboot: {enabled: true} => /reboot/when = "Always"
controlPlaneQuorum: {enabled: true} => /controlPlaneQuorum = true
apiAccess: false => /apiAccess = "None"
dependsOn: [{plan: server}] => /dependsOn/0/name = "server"
dependsOn: [{kind: Plan, name: server}] => /dependsOn/0 = {"name": "server"}
versionPolicy: {semver: ">=1.33"} => /versionPolicy/range = ">=1.33"
drain: --force --ignore-daemonsets --timeout=5m --grace-period=30 => /drain = {"force": true, "ignoreDaemonSets": true, "timeout": "5m", "gracePeriod": 30}
upgrade: {image: {registry: example.com, repository: os, tag: v1}} => /upgrade/image = "example.com/os:v1"
imagePullSecrets: [{secretName: x}] => /imagePullSecrets/0/name = "x"
# Windows, blackouts and an order as text, days in other languages
windows: "22:00-04:00" => /windows = [{"days": ["mo", "tu", "we", "th", "fr", "sa", "su"], "startTime": "22:00", "endTime": "04:00"}]
windows: Mon-Fri 22:00-04:00 => /windows/0/days = ["mo", "tu", "we", "th", "fr"]
windows: [Sat 1am to 5am] => /windows/0 = {"days": ["sat"], "startTime": "01:00", "endTime": "05:00"}
windows: "0 22 * * fri" => /windows = [{"cron": "0 22 * * fri", "duration": "4h"}]
windows: ["0 0 22 * * FRI"] => /windows/0 = {"cron": "0 22 * * fri", "duration": "4h"}
window: "0 22 * * fri" => /windows = [{"cron": "0 22 * * fri", "duration": "4h"}]
window: Fr 22:00-04:00 => /window = {"days": ["fr"], "startTime": "22:00", "endTime": "04:00"}
blackouts: "2026-12-24 - 2026-12-26" => /blackouts = [{"start": "2026-12-24", "end": "2026-12-26"}]
blackouts: 12-24 to 01-02 => /blackouts = [{"start": "12-24", "end": "01-02"}]
blackouts: [{start: 1224, end: 0102}] => /blackouts/0 = {"start": "12-24", "end": "01-02"}
blackouts: [{startTime: 2026-12-24, endTime: 2026-12-26}] => /blackouts/0 = {"start": "2026-12-24", "end": "2026-12-26"}
window: {days: [Montag, Dienstag], startTime: '22:00', endTime: '04:00'} => /window/days = ["mo", "tu"]
window: {days: [lun., MER], startTime: '22:00', endTime: '04:00'} => /window/days = ["mo", "we"]
window: {days: lundi, startTime: '22:00', endTime: '04:00'} => /window/days = ["mo"]
window: {days: Montag-Freitag, startTime: '22:00', endTime: '04:00'} => /window/days = ["mo", "tu", "we", "th", "fr"]
window: {days: [mo], startTime: 10 p.m., endTime: 4 a.m.} => /window/startTime = "22:00"
window: {days: [mo], startTime: 22 Uhr, endTime: '04:00'} => /window/startTime = "22:00"
window: {days: [mo], startTime: midnight, endTime: '04:00'} => /window/startTime = "00:00"
order: controlPlane => /order = [{"controlPlane": "First"}]
order: "controlPlane: Last" => /order = [{"controlPlane": "Last"}]
order: {controlPlane: Last} => /order = [{"controlPlane": "Last"}]
order: [control-plane-first, zone] => /order/0 = {"controlPlane": "First"}
order: topology.kubernetes.io/zone => /order = [{"topologyKey": "topology.kubernetes.io/zone"}]
order: [{key: topology.kubernetes.io/zone}] => /order/0/topologyKey = "topology.kubernetes.io/zone"
waves: [1, 50%, 100%] => /waves/0 = {"name": "wave-1", "nodes": 1}
# Near other fields
upgrade: {image: i, securityContext: {runAsRoot: true}} => /upgrade/securityContext = {"runAsUser": 0}
upgrade: {image: i, securityContext: {runAsRoot: false}} => /upgrade/securityContext = {"runAsNonRoot": true}
upgrade: {image: i, securityContext: {capabilities: [CAP_SYS_ADMIN]}} => /upgrade/securityContext/capabilities = {"add": ["SYS_ADMIN"]}
upgrade: {image: i, entrypoint: [sh]} => /upgrade/command = ["sh"]
upgrade:\n  image: i\n  envs:\n  - HTTP_PROXY: http://proxy:3128 => /upgrade/envs/0 = {"name": "HTTP_PROXY", "value": "http://proxy:3128"}
upgrade: {image: i, envFrom: [{secretRef: s}]} => /upgrade/envFrom/0/secretRef = {"name": "s"}
nodeSelector: {matchExpressions: [{label: a, operator: Exists}]} => /nodeSelector/matchExpressions/0/key = "a"
reboot: if-required => /reboot = {"when": "IfRequired"}
reboot: {policy: Always} => /reboot/when = "Always"
retries: 3 => /failure = {"retries": 3}
maxFailures: 10% => /failure = {"budget": "10%", "policy": "Stop"}
force: true => /drain = {"force": true}
parallelism: 3 => /concurrency = 1
drain: {enabled: true, force: true} => /drain = {"force": true}
drain: {podSelector: {matchExpressions: [{key: a, operator: notin, values: [b]}]}} => /drain/podSelector/matchExpressions/0/operator = "NotIn"
channel: git@github.com:k3s-io/k3s.git\nversion: v1 => /channel = "github://k3s-io/k3s"
"#;

fn mistakes() -> impl Iterator<Item = (String, &'static str, Value)> {
    let cases = MISTAKES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "));
    cases.map(|case| {
        let (lines, rest) = case.split_once(" => ").expect(case);
        let (pointer, meant) = rest.split_once(" = ").expect(case);
        let meant = serde_json::from_str(meant).unwrap_or_else(|error| panic!("{case}: {error}"));
        (lines.replace("\\n", "\n"), pointer, meant)
    })
}

#[test]
fn a_followed_hint_gives_the_value_that_the_author_meant() {
    let mut wrong = Vec::new();
    for (lines, pointer, expected) in mistakes() {
        let text = plan(&lines);
        let mut after = text.clone();
        // Some lines have several mistakes, each with its hint.
        for _ in 0..3 {
            let Some(next) = findings(&after).iter().find_map(|found| {
                let next = follow(&after, found)?;
                (found.rule != Rule::NullField).then_some(next)
            }) else {
                break;
            };
            after = next;
        }
        let source = source("plan.yaml", &after);
        let plan = source.stream.documents[0].to_json();
        let value = plan["spec"].pointer(pointer).cloned().unwrap_or(Value::Null);
        if value != expected {
            wrong.push(format!(
                "{lines}\n  gives {value}, and {expected} was meant: {:?}\n{after}",
                findings(&text)
            ));
        }
        let left: Vec<_> = findings(&after)
            .into_iter()
            .filter(|found| found.severity == Severity::Error)
            .collect();
        if !left.is_empty() {
            wrong.push(format!("{lines}\n  is still wrong: {left:?}\n{after}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_hint_for_such_a_mistake_is_right_by_itself() {
    let mut followed = 0;
    let mut wrong = Vec::new();
    for (lines, ..) in mistakes() {
        wrong.extend(follow_all(&lines, &plan(&lines), &mut followed));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(followed > 100, "{followed}");
}

#[test]
fn an_ambiguous_value_has_no_hint_with_yaml() {
    for lines in [
        "postCompleteDelay: soon",
        "reboot: {timeout: -5}",
        "jobActiveDeadlineSecs: a while",
        "concurrency: several",
        "maxConcurrent: most",
        "window: {days: [someday], startTime: '22:00', endTime: '04:00'}",
        "window: {days: [mo], startTime: '22:00', endTime: '04:00', timeZone: PST}",
        "upgrade: {image: i, command: \"echo 'open\"}",
        "upgrade: {image: i, command: 'run {{ .Values.name }}'}",
        "upgrade: {image: i, args: echo | cat}",
        "upgrade: {image: i, command: [sh], args: echo hi}",
        "version: true",
        "nodeSelector: '*'",
        "nodeSelector: all",
        "versionPolicy: {minimumAge: 72}",
        "versionPolicy: {minimumAge: '72'}",
        "drain: {timeout: 3600000}",
        "window: {days: [1-5], startTime: '22:00', endTime: '04:00'}",
        "upgrade: {image: i, envs: [A]}",
        "windows: [{cron: '0 22 * * fri', duration: 4}]",
        "windows: [{cron: '0 22 * * fri', duration: '4'}]",
        "windows: [{cron: '0 22 * * fri', duration: 8d}]",
        "windows: [{cron: 'every friday', duration: 4h}]",
        "windows: [{cron: '0 22 31 2 *', duration: 4h}]",
        "window: {cron: '0 22 * * fri'}",
        "window: {cron: '0 22 * * fri', duration: 4}",
        "blackouts: [{start: 01/02/2026, end: 2026-01-03}]",
        "blackouts: [{start: 2026-12-24 18:00, end: 2026-12-26}]",
        "blackouts: [{start: 2026-12-24T18:00, end: 2026-12-26}]",
        "blackouts: [{start: 12-24, end: 2027-01-02}]",
        "dependsOn: [other/server]",
        "drain: --force --quickly",
        "drain: {enabled: false}",
        "windows: every friday",
        "order: by name",
        "order: [random]",
        "window: {days: [luu], startTime: '22:00', endTime: '04:00'}",
        "blackouts: [{start: 1324, end: 12-26}]",
        "upgrade: {image: i, volumeMounts: [{name: a, mountPath: /x}]}",
    ] {
        let text = plan(lines);
        let found = findings(&text);
        assert!(!found.is_empty(), "{lines}");
        for found in found {
            let hint = found.hint.clone().unwrap_or_default();
            // An example must say that it is one.
            assert!(
                !hint.contains('`') || hint.contains("such as"),
                "{lines}: {found:?}"
            );
        }
    }
}

#[test]
fn a_field_of_the_wrong_type_has_no_findings_that_follow_from_it() {
    for (lines, rule) in [
        (
            "prepare: {image: rancher/k3s-upgrade, args: prepare server}",
            Rule::PreparePlan,
        ),
        (
            "prepare: {image: rancher/k3s-upgrade, args: [prepare, 5]}",
            Rule::PreparePlan,
        ),
        (
            "nodeSelector: {matchExpressions: [{key: a, operator: In, values: b}]}",
            Rule::BadSelector,
        ),
        (
            "version: ''\nchannel: ['https://a.example/b']",
            Rule::UntaggedImage,
        ),
        ("upgrade: {image: i, volumes: [{source: /a}]}", Rule::BadJob),
    ] {
        let found = findings(&plan(lines));
        assert!(errors(&found) > 0, "{lines}: {found:?}");
        assert!(found.iter().all(|one| one.rule != rule), "{lines}: {found:?}");
    }
    let found = findings(&plan("upgrade: {name: i}"));
    let hints = found.iter().filter_map(|one| one.hint.as_deref());
    assert!(
        hints.clone().count() > 0 && hints.clone().all(|hint| !hint.contains("Ref")),
        "{found:?}"
    );
}

#[test]
fn one_mistake_has_one_finding() {
    let spec = [
        "version:",
        "concurrency: ~",
        "nodeSelector: ~",
        "upgrade:",
        "upgrade:\n  image:",
        "upgrade: {Image: i}",
        "upgrade: {images: i}",
        "window: {days: [mo], start: '22:00', endTime: '04:00'}",
        "nodeSelector: {matchExpressions: [{key: a, value: 'true'}]}",
        "nodeSelector: {matchExpressions: [{key: a}]}",
        "nodeSelector: {matchExpressions: [{key: a, operator: In, values: []}]}",
        "upgrade: {image: i, imagePullPolicy: Always}",
        "labels: {a: b}",
        "drain: {podSelector: {matchExpressions: [{key: a, value: b}]}}",
        "secrets: [{secretName: x, path: /y}]",
        "secrets: [{name: x, mountPath: /y}]",
        "upgrade: {image: i, volumes: [{name: x, hostPath: /x, destination: /y}]}",
        "upgrade: {image: [i, j]}",
        "upgrade: {image: 5}",
        "upgrade: {image: {}}",
        "upgrade: {image: i, envs: [{value: A}]}",
        "upgrade: {image: i, envs: [{A: b}]}",
        "windows: '0 22 * * fri'",
        "order: controlPlane",
        "blackouts: [{start: 1224, end: 12-26}]",
        "upgrade: {image: i, securityContext: {runAsRoot: true}}",
        "reboot: {policy: Always}",
        "retries: 3",
        "version: Latest",
        "version: true",
        "command: bash -c 'x'",
        "nodeSelector:\nmatchLabels: {a: b}",
        "upgrade:\nimage: i",
        "tolerations: [{operator: Exists, a.example/b: c}]",
        "name: other",
        "window: {cron: '0 22 * * fri', duration: 4h}",
        "window: {cron: '0 22 * * fri'}",
        "window: {days: [fri], startTime: '22:00', duration: 4h}",
        "windows: []",
        "windows: ['0 22 * * fri']",
        "windows: [{schedule: '0 22 * * fri', duration: 4h}]",
        "windows: [{cron: [0, 22], duration: 4h}]",
        "windows: [{days: fri, startTime: '22:00', endTime: '04:00'}]",
        "blackouts: [{from: 2026-12-24, end: 2026-12-26}]",
        "dependsOn: [{plan: server}]",
        "upgrade: [{name: upgrade, image: i}]",
        "template: {spec: {restartPolicy: Never, containers: [{name: a, image: i}]}}\nbackoffLimit: 3\nttlSecondsAfterFinished: 5",
        "hostPID: true\nhostNetwork: true\ncontainers: [{name: a, image: i}]\nvolumes: [{name: a, hostPath: {path: /}}]",
        "containers: [{name: a, image: i}, {name: b, image: j}]\nrestartPolicy: Never",
    ];
    let mut wrong = Vec::new();
    for lines in spec {
        let found = findings(&plan(lines));
        if found.len() != 1 {
            wrong.push(format!("{lines}: {found:#?}"));
        }
    }
    let good = plan("version: v1.33.4+k3s1");
    let (head, _) = good.split_once("spec:").unwrap();
    for (from, to) in [
        ("  concurrency:", "  Concurrency:"),
        ("  concurrency: 1", "  concurrent: \"2\""),
        ("  version: v1.33.4+k3s1", "  verison: v1.33.4+k3s1"),
        (
            "  version: v1.33.4+k3s1",
            "  channels: https://update.k3s.io/v1-release/channels/stable",
        ),
        ("  nodeSelector:", "  nodeselector:"),
        (
            "  upgrade: {image: rancher/k3s-upgrade}",
            "upgrade: {image: rancher/k3s-upgrade}",
        ),
        ("{name: p,", "{Name: p,"),
        ("{name: p,", "{name: ,"),
        ("namespace: system-upgrade", "namespace: "),
        ("{name: p,", "{generateName: p,"),
        ("metadata: {name: p, namespace: system-upgrade}", "metadata: x"),
        (&good[head.len()..], "spec:\n"),
        (
            &good[head.len()..],
            "spec: {backoffLimit: 1, template: {spec: {restartPolicy: Never, containers: [{name: a, image: i}]}}}\n",
        ),
        (
            &good[head.len()..],
            "spec: {schedule: \"0 22 * * fri\", jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: i}]}}}}}\n",
        ),
        (
            &good[head.len()..],
            "spec:\n  selector: {matchLabels: {a: b}}\n  updateStrategy: {type: OnDelete}\n  template: {spec: {containers: \
             [{name: a, image: i}]}}\n",
        ),
        (&good[head.len()..], "spec: []\n"),
        (&good[head.len()..], "spec: x\n"),
        ("kind: Plan", "kind: [Plan]"),
        ("apiVersion:", "apiversion:"),
        ("apiVersion: upgrade.cattle.io/v1\n", ""),
        (
            "apiVersion: upgrade.cattle.io/v1",
            "apiVersion: [upgrade.cattle.io/v1]",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let found = findings(&good.replacen(from, to, 1));
        if found.len() != 1 {
            wrong.push(format!("{to}: {found:#?}"));
        }
    }
    let (_, fields) = good.split_once("spec:\n").unwrap();
    let found = findings(&format!(
        "{head}spec:\n  spec:\n  {}",
        fields.replace("\n  ", "\n    ")
    ));
    if found.len() != 1 {
        wrong.push(format!("spec.spec: {found:#?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The image of an example would replace the one that the author has written elsewhere.
#[test]
fn a_missing_image_is_taken_from_where_a_pod_or_a_chart_has_it() {
    for (lines, hint) in [
        (
            "upgrade: {containers: [{image: example.com/os}]}",
            "add `image: example.com/os`",
        ),
        (
            "upgrade: {repository: example.com/os, tag: v1}",
            "add `image: \"example.com/os:v1\"`",
        ),
        ("upgrade: {}", "add `image: rancher/k3s-upgrade`"),
    ] {
        let found = findings(&plan(lines));
        let missing = found.iter().find(|one| one.rule == Rule::MissingField);
        assert_eq!(missing.and_then(|one| one.hint.as_deref()), Some(hint), "{lines}");
    }
}

#[test]
fn the_hint_for_a_file_in_json_is_json() {
    let text = r#"{"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "p", "namespace": "n"},
        "spec": {"concurrency": 1, "version": "v1", "nodeSelector": {"matchLabels": {"a": "b"}},
        "secrets": "x", "upgrade": {"image": "i", "args": "prepare x"}, "tolerations": [{"operator": "exists"}]}}"#;
    let found = findings(text);
    let hints: Vec<_> = found.iter().filter_map(|found| found.hint.as_deref()).collect();
    assert_eq!(
        hints,
        [
            r#"write `[{"name":"x","path":"/host/run/system-upgrade/secrets/x"}]`"#,
            r#"write `["prepare","x"]`"#,
            r#"did you mean `"Exists"`?"#,
        ],
        "{found:#?}"
    );
}

#[test]
fn one_control_plane_node_at_a_time_is_kept_by_max_unavailable_too() {
    let of = |lines: &str| {
        let lines = format!(
            "{lines}\nnodeSelector: {{matchLabels: {{node-role.kubernetes.io/control-plane: 'true'}}}}"
        );
        let found = findings(&plan(&lines));
        found.iter().any(|one| one.rule == Rule::ControlPlaneConcurrency)
    };
    assert!(of("concurrency: 3") && of("concurrency: 3\nmaxUnavailable: 2"));
    assert!(!of("concurrency: 3\nmaxUnavailable: 1"));
}

/// Without its label, a selector may select every node.
#[test]
fn a_label_without_a_value_gets_the_empty_one() {
    for (lines, pointer) in [
        (
            "nodeSelector:\n  matchLabels:\n    k3s-upgrade:",
            "/nodeSelector/matchLabels/k3s-upgrade",
        ),
        ("postCompleteLabels: {a: null}", "/postCompleteLabels/a"),
    ] {
        let text = plan(lines);
        let found = findings(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        let after = follow(&text, &found[0]).unwrap();
        let spec = source("plan.yaml", &after).stream.documents[0].to_json()["spec"].clone();
        assert_eq!(spec.pointer(pointer), Some(&Value::from("")), "{after}");
        assert!(findings(&after).is_empty(), "{after}");
    }
}
