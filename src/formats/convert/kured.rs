//! kured's DaemonSet: its flags, and the variables `KURED_…` that stand for them.

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::flags::Flags;
use super::workload::{Workload, environment, words};
use super::{base, drain_timeout, seconds};
use refit_api::selector::Selector;
use refit_api::{
    CheckSpec, DrainSpec, PlanSpec, PodBlockerSpec, PrometheusCheck, RebootSpec, Trigger, WindowSpec,
};
use refit_base::go::GoDuration;

/// Flags without a value (`cmd/kured/main.go`).
const SWITCHES: [&str; 4] = [
    "alert-filter-match-only",
    "alert-firing-only",
    "annotate-nodes",
    "force-reboot",
];

/// Flags that become fields, arguments of the agent or notes of their own, and those that concern kured itself.
const KNOWN: [&str; 33] = [
    "alert-filter-match-only",
    "alert-filter-regexp",
    "alert-firing-only",
    "annotate-nodes",
    "blocking-pod-selector",
    "concurrency",
    "drain-grace-period",
    "drain-pod-selector",
    "drain-timeout",
    "ds-name",
    "ds-namespace",
    "end-time",
    "force-reboot",
    "lock-annotation",
    "lock-release-delay",
    "lock-ttl",
    "log-format",
    "metrics-host",
    "metrics-port",
    "node-id",
    "period",
    "post-reboot-node-labels",
    "prefer-no-schedule-taint",
    "prometheus-url",
    "reboot-command",
    "reboot-days",
    "reboot-method",
    "reboot-sentinel",
    "reboot-sentinel-command",
    "reboot-signal",
    "skip-wait-for-delete-timeout",
    "start-time",
    "time-zone",
];

const NOTIFICATIONS: &str = "the ConfigMap `refit` of the controller's namespace has notifications";

/// Flags that no Plan can express, and what there is instead.
const WITHOUT: [(&str, &str); 10] = [
    (
        "drain-delay",
        "a `prepare` container that waits does the same, with the node still schedulable",
    ),
    ("reboot-delay", "the reboot follows the drain at once"),
    (
        "pre-reboot-node-labels",
        "no label is set before a reboot; `status.active` of the Plan names the node",
    ),
    ("notify-url", NOTIFICATIONS),
    ("slack-hook-url", NOTIFICATIONS),
    ("slack-channel", NOTIFICATIONS),
    ("slack-username", NOTIFICATIONS),
    ("message-template-drain", NOTIFICATIONS),
    ("message-template-reboot", NOTIFICATIONS),
    ("message-template-uncordon", NOTIFICATIONS),
];

/// A regular expression in kured is found anywhere in the name of an alert, and in `PromQL` matches all of it.
const ANYWHERE: &str = ".*";

pub(super) fn convert(workload: &Workload, container: &Container) -> Result<(PlanSpec, Vec<String>), String> {
    let flags = read(container);
    let mut notes: Vec<String> = agent_flags(workload, container, &flags)?;
    let duration = |name: &str| duration(&flags, name);
    let drain = duration("drain-timeout")?;
    let number = |name: &str| -> Result<Option<i64>, String> {
        let value = flags.last(name).map(|text| {
            let parsed = text.parse::<i64>();
            parsed.map_err(|_| format!("--{name} is {text:?}: it must be an integer"))
        });
        value.transpose()
    };
    // A negative value, kured's default, means the grace period of each pod.
    let grace = number("drain-grace-period")?.filter(|seconds| *seconds >= 0);
    let pods = flags.last("drain-pod-selector");
    let blocking = flags.each("blocking-pod-selector").map(|text| {
        Ok(PodBlockerSpec {
            namespace: None,
            selector: Some(selector("blocking-pod-selector", text)?),
        })
    });
    let blocking = blocking.collect::<Result<Vec<_>, String>>()?;
    let skip_wait = number("skip-wait-for-delete-timeout")?.filter(|seconds| *seconds > 0);
    let lock = duration("lock-ttl")?;
    let spec = PlanSpec {
        trigger: Some(Trigger::RebootNeeded),
        concurrency: Some(number("concurrency")?.unwrap_or(1).max(1)),
        node_selector: Some(workload.node_selector()),
        tolerations: workload.tolerations(),
        drain: Some(DrainSpec {
            force: Some(true), // as kured does, whatever its flags are
            timeout: drain_timeout(drain),
            grace_period: grace.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
            pod_selector: pods
                .map(|text| selector("drain-pod-selector", text))
                .transpose()?,
            skip_wait_for_delete_timeout: skip_wait,
            blocked_by: Some(blocking).filter(|all| !all.is_empty()),
            avoid_pending_nodes: flags.last("prefer-no-schedule-taint").map(|_| true),
            ..DrainSpec::default()
        }),
        windows: window(&flags)?.map(|window| vec![window]),
        checks: check(&flags).map(|check| vec![check]),
        reboot: Some(RebootSpec {
            command: command(&flags)?,
            timeout: lock.map(|ttl| ttl.to_string()),
            ..RebootSpec::default()
        }),
        post_complete_delay: duration("lock-release-delay")?.map(|delay| delay.to_string()),
        post_complete_labels: labels(&flags)?,
        ..base(drain)
    };
    notes.extend(differences(workload, &flags));
    Ok((spec, notes))
}

/// The flags of a container. A variable comes after the command line, so that it wins, or adds to a list.
fn read(container: &Container) -> Flags {
    let mut flags = Flags::read(&words(container), &SWITCHES);
    for (name, value) in environment(container) {
        if let Some(name) = name.strip_prefix("KURED_") {
            flags.push(name.to_lowercase().replace('_', "-"), value.to_owned());
        }
    }
    flags
}

fn duration(flags: &Flags, name: &str) -> Result<Option<GoDuration>, String> {
    let parsed = flags.last(name).map(|text| {
        let parsed = text.parse::<GoDuration>();
        parsed.map_err(|error| format!("--{name}: {error}"))
    });
    // Nothing, and no limit, for all of kured's durations.
    Ok(parsed.transpose()?.filter(|duration| seconds(*duration) > 0))
}

fn selector(flag: &str, text: &str) -> Result<LabelSelector, String> {
    let selector: Selector = text
        .parse()
        .map_err(|error| format!("--{flag} is {text:?}: {error}"))?;
    let spec = selector
        .to_spec()
        .map_err(|error| format!("--{flag} is {text:?}: {error}"))?;
    Ok(spec)
}

/// When nodes may reboot; `None` if always.
fn window(flags: &Flags) -> Result<Option<WindowSpec>, String> {
    let given = ["reboot-days", "start-time", "end-time"];
    if !given.iter().any(|name| flags.last(name).is_some()) {
        return Ok(None);
    }
    let days: Vec<String> = flags
        .list("reboot-days")
        .iter()
        .map(|day| day.to_lowercase())
        .collect();
    for day in &days {
        if !refit_api::window::DAYS.iter().flatten().any(|known| known == day) {
            return Err(format!(
                "--reboot-days has {day:?}: it must be a day of the week such as \"mon\""
            ));
        }
    }
    let all = || {
        ["su", "mo", "tu", "we", "th", "fr", "sa"]
            .map(str::to_owned)
            .to_vec()
    };
    let text = |name: &str, default: &str| Some(flags.last(name).unwrap_or(default).to_owned());
    Ok(Some(WindowSpec {
        days: Some(if days.is_empty() { all() } else { days }),
        // The defaults are kured's (cmd/kured/main.go).
        start_time: text("start-time", "0:00"),
        end_time: text("end-time", "23:59:59"),
        time_zone: flags.last("time-zone").map(str::to_owned),
        ..WindowSpec::default()
    }))
}

/// No node starts while an alert is there that kured would heed.
fn check(flags: &Flags) -> Option<CheckSpec> {
    let url = flags.last("prometheus-url")?;
    let mut matchers = Vec::new();
    if flags.is_on("alert-firing-only") {
        matchers.push("alertstate=\"firing\"".to_owned());
    }
    if let Some(filter) = flags.last("alert-filter-regexp") {
        // kured ignores the alerts that the expression matches; with match-only it considers no others.
        let operator = if flags.is_on("alert-filter-match-only") {
            "=~"
        } else {
            "!~"
        };
        // Strings of PromQL have Go's escapes.
        let filter = filter
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        matchers.push(format!("alertname{operator}\"{ANYWHERE}(?:{filter}){ANYWHERE}\""));
    }
    let matchers = match matchers.as_slice() {
        [] => String::new(),
        some => format!("{{{}}}", some.join(", ")),
    };
    Some(CheckSpec {
        name: "alerts".to_owned(),
        prometheus: Some(PrometheusCheck {
            url: url.to_owned(),
            // Without alerts there is no sample, and a check without one does not pass.
            query: format!("count(ALERTS{matchers} != 0) or vector(0)"),
            min: None,
            max: Some(0.0),
        }),
        ..CheckSpec::default()
    })
}

/// The command that reboots a host; `None` for the one that refit runs anyway.
fn command(flags: &Flags) -> Result<Option<Vec<String>>, String> {
    let Some(text) = flags.last("reboot-command") else {
        return Ok(None);
    };
    let words =
        shlex::split(text).ok_or_else(|| format!("--reboot-command is {text:?}: a quote is not closed"))?;
    let is_usual = matches!(words.iter().map(String::as_str).collect::<Vec<_>>()[..], [program, "reboot"]
        if program.rsplit('/').next() == Some("systemctl"));
    Ok(Some(words).filter(|words| !words.is_empty() && !is_usual))
}

fn labels(flags: &Flags) -> Result<Option<std::collections::BTreeMap<String, String>>, String> {
    let labels = flags.list("post-reboot-node-labels").into_iter().map(|label| {
        let parts = label.split_once('=');
        let (key, value) =
            parts.ok_or_else(|| format!("--post-reboot-node-labels has {label:?}: it must be KEY=VALUE"))?;
        // A `$` begins a variable in a Plan.
        Ok((key.to_owned(), value.replace('$', "$$")))
    });
    let labels = labels.collect::<Result<std::collections::BTreeMap<_, _>, String>>()?;
    Ok(Some(labels).filter(|labels| !labels.is_empty()))
}

/// The arguments that the agent needs.
fn agent_flags(workload: &Workload, container: &Container, flags: &Flags) -> Result<Vec<String>, String> {
    let mut agent = Vec::new();
    let mut notes = Vec::new();
    if let Some(text) = flags.last("reboot-sentinel-command") {
        agent.push("--no-files".to_owned());
        match sentinel_command(text) {
            Some(command) => agent.push(format!("--command {}", shlex::try_quote(&command).map_err(|error| error.to_string())?)),
            None => notes.push(format!(
                "--reboot-sentinel-command {text:?} needs a shell, which the agent does not use: put it into a program on the \
                 host, and name that with --command."
            )),
        }
    } else {
        let file = flags
            .last("reboot-sentinel")
            .map(|path| workload.on_host(container, path));
        let is_usual = |path: &String| refit_api::reboot::REQUIRED_FILES.contains(&path.as_str());
        if let Some(file) = file.filter(|path| !is_usual(path)) {
            agent.push(format!("--file {file}"));
        }
    }
    if let Some(period) = duration(flags, "period")? {
        agent.push(format!("--period {period}"));
    }
    let with = if agent.is_empty() {
        String::new()
    } else {
        format!(", with the arguments {}", agent.join(" "))
    };
    let overlays = if agent.iter().any(|argument| argument.starts_with("--command")) {
        "deploy/overlays/agent and deploy/overlays/agent-commands"
    } else {
        "deploy/overlays/agent"
    };
    notes.insert(
        0,
        format!(
            "`refit agent` ({overlays}) must run on these nodes{with}: it says which of them need a reboot."
        ),
    );
    Ok(notes)
}

/// A command of kured, where 0 means yes, as the agent's `--command`, which has no shell. `sh -c "! COMMAND"` is what
/// kured's users write for tools that mean yes by 1.
fn sentinel_command(text: &str) -> Option<String> {
    let words = shlex::split(text)?;
    let is_plain = |command: &str| {
        !command.is_empty()
            && !command.contains(|c: char| "|&;<>()$`\\\"'*?[]#~!{}\n".contains(c))
            && !command.split_whitespace().any(|word| word.contains('='))
    };
    let is_shell = words
        .first()
        .is_some_and(|word| matches!(word.rsplit('/').next(), Some("sh" | "bash" | "dash" | "ash")));
    if is_shell {
        let [_, flag, script] = words.as_slice() else {
            return None;
        };
        let script = (flag == "-c").then_some(script.trim())?;
        return match script.strip_prefix('!') {
            Some(negated) => Some(negated.trim())
                .filter(|rest| is_plain(rest))
                .map(|rest| format!("1:{rest}")),
            None => Some(script)
                .filter(|rest| is_plain(rest))
                .map(|rest| format!("0:{rest}")),
        };
    }
    let has_blanks = words
        .iter()
        .any(|word| word.is_empty() || word.contains(char::is_whitespace));
    (!words.is_empty() && !has_blanks).then(|| format!("0:{}", words.join(" ")))
}

/// What the Plan does not do as kured did.
fn differences(workload: &Workload, flags: &Flags) -> Vec<String> {
    let mut notes = Vec::new();
    let known = |name: &str| KNOWN.contains(&name) || WITHOUT.iter().any(|(flag, _)| *flag == name);
    for name in flags.names() {
        if !known(name) {
            notes.push(format!(
                "--{name} is not a flag of kured that refit knows; it was left out."
            ));
        }
    }
    for word in &flags.unread {
        notes.push(format!(
            "the argument {word:?} is not a flag of kured; it was left out."
        ));
    }
    for (name, instead) in WITHOUT {
        if flags
            .last(name)
            .is_some_and(|value| value != "0" && value != "0s")
        {
            notes.push(format!("--{name} was left out: {instead}."));
        }
    }
    if flags.last("reboot-method") == Some("signal") {
        notes.push(
            "--reboot-method=signal was left out: refit reboots by command, so that the kubelet can end pods gracefully.".to_owned(),
        );
    }
    if flags.is_on("force-reboot") {
        notes.push("--force-reboot was left out: a drain that fails never leads to a reboot.".to_owned());
    }
    if let Some(taint) = flags.last("prefer-no-schedule-taint") {
        notes.push(format!("the taint {taint} is called pending.refit.rs/<plan>."));
    }
    if flags.last("lock-ttl").is_some_and(|ttl| ttl != "0") {
        notes.push("--lock-ttl became reboot.timeout, which does not include the drain.".to_owned());
    }
    if flags.last("time-zone").is_some_and(|zone| zone == "Local") {
        notes.push(
            "the time zone Local is that of the controller's container; name one such as Europe/Berlin."
                .to_owned(),
        );
    }
    if workload.has_affinity() {
        notes.push("the node affinity of the DaemonSet was left out: limit nodeSelector by hand.".to_owned());
    }
    notes
}
