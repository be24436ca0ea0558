//! A journal as text that is the same on every cluster: for each object, what happened to it, in order.
//!
//! What two correct clusters may do differently is left out, for the reasons that stand beside it:
//! - whatever is random or a time: UIDs, resource versions, the context's id, hashes and names of Jobs get names of their own;
//! - what the controller coalesces: `status.active` and the counts are progress, which is written late, and several changes
//!   of them may be one. A scenario waits for those that it is about, and its steps show them;
//! - answers that are still awaited ([`TRANSIENT`]): on a fast cluster they are there before the next status;
//! - what controllers of the cluster do beside each other: the taints of the node controller, garbage collection of pods,
//!   and the counters of a running Job, of which the Job controller may write several at a time;
//! - whether a kubelet reports that it goes down for a reboot: the fake one of tests does, the simulated one does not, and
//!   real ones do both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use refit_rehearse::Kind;
use refit_rehearse::store::Change;
use regex::Regex;
use serde_json::Value;

use crate::testenv::context::TestContext;
use crate::testenv::controller::NAME;
use crate::testenv::events;
use crate::testenv::journal::Journal;
use crate::testenv::warm_up::WARM_UP;

/// Annotations and labels of Nodes that are compared.
const OURS: [&str; 4] = [
    "plan.upgrade.cattle.io/",
    "plan.refit.rs/",
    "refit.rs/",
    "remediation.medik8s.io/",
];

static HASH: LazyLock<Regex> = LazyLock::new(|| Regex::new("[0-9a-f]{56}").unwrap());
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap());

/// What is said while an answer is awaited, or while a pod of refit is on its way out.
const TRANSIENT: [&str; 4] = [
    "False/CheckPending/",
    "False/PodLeaving/",
    "is being decided",
    "Pending",
];

/// Whether they are there at the end is left out: a real API server deletes an object with its last finalizer, and the
/// simulated one stores it without finalizers before that.
const FINALIZERS: &str = "finalizers";

/// Written as a drain goes on, and so at any pace.
const DRAIN_NOTE: &str = "refit.rs/drain";

/// What a record of a Plan on a node says beside times and identities.
const RECORD: [&str; 7] = [
    "phase", "hash", "version", "attempt", "retries", "reason", "message",
];

static UID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap());

/// What is known of an object, by what it is about.
type Facets = Vec<(String, String)>;

/// Characters of the hash in an approval.
const SHORT_HASH: usize = 12;

#[derive(Default)]
struct Normal {
    id: String,
    /// Jobs by name, with their Plan and node.
    jobs: BTreeMap<String, String>,
    hashes: Vec<String>,
    /// Names of objects by UID.
    names: BTreeMap<String, String>,
    /// Jobs that have had a pod.
    begun: BTreeSet<String>,
    boots: BTreeMap<String, Vec<String>>,
    /// UIDs of nodes that reboot.
    reboots: BTreeSet<String>,
}

/// The journal so far, and the events.
pub(super) async fn text(ctx: &TestContext, journal: &Journal, steps: &[String]) -> String {
    let mut normal = Normal {
        id: ctx.id.clone(),
        ..Normal::default()
    };
    let mut objects: BTreeMap<String, (Facets, Vec<String>)> = BTreeMap::new();
    let changes: Vec<(Kind, Change, Value)> = journal
        .changes()
        .into_iter()
        .map(|(kind, change)| {
            let value = serde_json::from_slice(change.new.json(false)).unwrap();
            (kind, change, value)
        })
        .filter(|(_, _, value)| string(value, "/metadata/name") != WARM_UP)
        .collect();
    let mut order = Vec::new();
    let mut boots = BTreeMap::<&str, &str>::new();
    for (_, _, value) in changes.iter().filter(|(kind, ..)| *kind == Kind::Node) {
        let (uid, boot) = (
            string(value, "/metadata/uid"),
            string(value, "/status/nodeInfo/bootID"),
        );
        if *boots.entry(uid).or_insert(boot) != boot {
            normal.reboots.insert(uid.to_owned());
        }
    }
    for (kind, change, value) in &changes {
        let (kind, value) = (*kind, value);
        let name = normal.name(kind, value);
        let (before, lines) = objects.entry(name.clone()).or_default();
        let known = lines.len();
        if lines.is_empty() && kind == Kind::Job {
            order.push(format!("{name}: created"));
        }
        if change.gone {
            // The garbage collector deletes pods of a deleted Job when it comes to them.
            if kind != Kind::Pod || job_of(value).is_none() {
                lines.push("gone".to_owned());
            }
            continue;
        }
        let mut now = normal.facets(kind, change, value);
        keep_known(before, &mut now);
        lines.extend(normal.changes(before, &now));
        *before = now;
        let steps = lines[known..].iter().filter(|line| is_step(kind, line));
        order.extend(steps.map(|line| format!("{name}: {line}")));
    }
    let mut text = String::from("steps\n");
    for step in steps {
        writeln!(text, "  {}", normal.scrub(step)).unwrap();
    }
    text.push_str("order\n");
    for step in order {
        writeln!(text, "  {step}").unwrap();
    }
    for (name, (_, lines)) in objects {
        writeln!(text, "{name}").unwrap();
        for line in lines {
            writeln!(text, "  {line}").unwrap();
        }
    }
    text.push_str("events\n");
    for event in events_of(ctx).await {
        writeln!(text, "  {}", normal.scrub(&event)).unwrap();
    }
    text
}

/// Whether it is one of the changes of which each follows from the one before, whatever object that is of: cordon, end of
/// the Job, label, and so the next node.
fn is_step(kind: Kind, line: &str) -> bool {
    match kind {
        Kind::Node => line.starts_with("plan.upgrade.cattle.io/") || line == "unschedulable: true",
        Kind::Job => line.starts_with("Complete: ") || line.starts_with("Failed: "),
        Kind::Maintenance => line.starts_with("phase: "),
        _ => false,
    }
}

impl Normal {
    fn name(&mut self, kind: Kind, value: &Value) -> String {
        let uid = string(value, "/metadata/uid").to_owned();
        if let Some(known) = self.names.get(&uid) {
            return known.clone();
        }
        let own = string(value, "/metadata/name").to_owned();
        let base = match (kind, job_of(value)) {
            (Kind::Job, _) => {
                let (plan, node) = (
                    string(value, "/metadata/labels/upgrade.cattle.io~1plan"),
                    string(value, "/metadata/labels/upgrade.cattle.io~1node"),
                );
                let job = format!("Job of {plan} on {node}");
                self.jobs.insert(own, job.clone());
                job
            }
            (Kind::Pod, Some(job)) => {
                let job = self.jobs.get(&job).cloned().unwrap_or(job);
                format!("Pod of the {job}")
            }
            (Kind::Pod, None) => match string(value, "/metadata/labels/refit.rs~1role") {
                "" => format!("Pod {own}"),
                role => format!(
                    "Pod {role} of {} on {}",
                    string(value, "/metadata/labels/upgrade.cattle.io~1plan"),
                    string(value, "/spec/nodeName")
                ),
            },
            (kind, _) => format!("{} {own}", kind.resource_type().kind),
        };
        let base = self.scrub(&base);
        let numbered = format!("{base}, number ");
        let is_same = |name: &&String| **name == base || name.starts_with(&numbered);
        let same = self.names.values().filter(is_same).count();
        let name = match same {
            0 => base,
            same => format!("{base}, number {}", same + 1),
        };
        self.names.insert(uid, name.clone());
        name
    }

    /// Without what differs from cluster to cluster.
    fn scrub(&mut self, text: &str) -> String {
        let mut text = TIME.replace_all(text, "TIME").into_owned();
        let named = |found: &regex::Captures<'_>| self.names.get(&found[0]).cloned().unwrap_or_default();
        text = UID.replace_all(&text, named).into_owned();
        for found in HASH.find_iter(&text.clone()) {
            if !self.hashes.iter().any(|known| known == found.as_str()) {
                self.hashes.push(found.as_str().to_owned());
            }
        }
        // The longest first: one may begin with another.
        for (name, job) in self.jobs.iter().rev() {
            text = text.replace(name.as_str(), job);
        }
        for (number, hash) in self.hashes.iter().enumerate() {
            let name = format!("hash-{}", number + 1);
            text = text
                .replace(hash.as_str(), &name)
                .replace(&hash[..SHORT_HASH], &name);
        }
        text.replace(&format!("{}-", self.id), "")
            .replace(&self.id, "NAMESPACE")
    }

    /// What has changed, a line each.
    fn changes(&mut self, before: &Facets, now: &Facets) -> Vec<String> {
        let value = |facets: &Facets, key: &str| {
            let found = facets.iter().find(|(known, _)| known == key);
            found.map(|(_, value)| value.clone())
        };
        let mut lines = Vec::new();
        for (key, new) in now {
            if value(before, key).as_ref() != Some(new) {
                lines.push(self.scrub(&format!("{key}: {new}")));
            }
        }
        for (key, _) in before {
            if value(now, key).is_none() && key != FINALIZERS {
                lines.push(self.scrub(&format!("{key}: none")));
            }
        }
        lines
    }

    fn facets(&mut self, kind: Kind, change: &Change, value: &Value) -> Facets {
        let mut facets = Facets::new();
        let mut add = |key: &str, value: String| facets.push((key.to_owned(), value));
        match kind {
            Kind::Node => self.node(value, &mut add),
            Kind::Job => self.job(value, &mut add),
            Kind::Pod => pod(value, &mut add),
            Kind::Plan => plan(value, &mut add),
            _ => object(value, &mut add),
        }
        if change.new.is_being_deleted() && kind != Kind::Pod {
            add("is being deleted", "yes".to_owned());
        }
        facets
    }

    fn node(&mut self, value: &Value, add: &mut impl FnMut(&str, String)) {
        for place in ["labels", "annotations"] {
            for (key, value) in value["metadata"][place].as_object().into_iter().flatten() {
                if key != DRAIN_NOTE && OURS.iter().any(|prefix| key.starts_with(prefix)) {
                    add(key, without_identity(key, value.as_str().unwrap_or_default()));
                }
            }
        }
        if value["spec"]["unschedulable"] == true {
            add("unschedulable", "true".to_owned());
        }
        for taint in value["spec"]["taints"].as_array().into_iter().flatten() {
            let key = string(taint, "/key");
            if !key.starts_with("node.kubernetes.io/") {
                add(&format!("taint {key}"), string(taint, "/effect").to_owned());
            }
        }
        let uid = string(value, "/metadata/uid");
        let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        let conditions = conditions.filter(|_| !self.reboots.contains(uid));
        for condition in conditions.filter(|condition| condition["type"] == "Ready") {
            add("Ready", string(condition, "/status").to_owned());
        }
        let boots = self.boots.entry(uid.to_owned()).or_default();
        let boot = string(value, "/status/nodeInfo/bootID");
        if !boots.iter().any(|known| known == boot) {
            boots.push(boot.to_owned());
        }
        add("boot", boots.len().to_string());
    }

    fn job(&mut self, value: &Value, add: &mut impl FnMut(&str, String)) {
        for key in ["refit.rs/attempt", "refit.rs/recorded"] {
            if let Some(value) = value["metadata"]["annotations"][key].as_str() {
                add(key, value.to_owned());
            }
        }
        let plan = string(value, "/metadata/labels/upgrade.cattle.io~1plan");
        let hash = string(value, &format!("/metadata/labels/plan.upgrade.cattle.io~1{plan}"));
        add("hash", hash.to_owned());
        add(
            "version",
            string(value, "/metadata/labels/upgrade.cattle.io~1version").to_owned(),
        );
        add("parallelism", value["spec"]["parallelism"].to_string());
        let uid = string(value, "/metadata/uid");
        let count = |field: &str| value["status"][field].as_i64().unwrap_or_default();
        if count("active") + count("succeeded") + count("failed") > 0 {
            self.begun.insert(uid.to_owned());
        }
        if self.begun.contains(uid) {
            add("has had a pod", "yes".to_owned());
        }
        for condition in value["status"]["conditions"].as_array().into_iter().flatten() {
            if condition["status"] == "True" {
                let why = [string(condition, "/reason"), string(condition, "/message")].join(": ");
                add(string(condition, "/type"), why);
                if matches!(string(condition, "/type"), "Complete" | "Failed") {
                    let pods = format!("{} succeeded, {} failed", count("succeeded"), count("failed"));
                    add("pods", pods);
                }
            }
        }
    }
}

/// How containers ended, and phases. How far a container is that runs is left out: a kubelet reports several steps at a
/// time. A pod that reboots its machine ends as the machine goes down, at any moment of its deletion.
fn pod(value: &Value, add: &mut impl FnMut(&str, String)) {
    add("created", "yes".to_owned());
    if !string(value, "/metadata/labels/refit.rs~1role").is_empty() {
        return;
    }
    for place in ["initContainerStatuses", "containerStatuses"] {
        for container in value["status"][place].as_array().into_iter().flatten() {
            if let Some(code) = container["state"]["terminated"]["exitCode"].as_i64() {
                add(
                    &format!("exit of {}", string(container, "/name")),
                    code.to_string(),
                );
            }
        }
    }
    add("phase", string(value, "/status/phase").to_owned());
}

fn plan(value: &Value, add: &mut impl FnMut(&str, String)) {
    add("generation", value["metadata"]["generation"].to_string());
    let status = &value["status"];
    for (key, path) in [
        ("observed", "observedGeneration"),
        ("version", "latestVersion"),
        ("hash", "latestHash"),
        ("applying", "applying"),
        ("next window", "nextWindow"),
    ] {
        // A node may get its slot in the status in which another loses its own, or in the next one.
        if !status[path].is_null() {
            add(key, status[path].to_string());
        }
    }
    // Before the conditions, which may follow when a check has been asked.
    if !status["wave"].is_null() {
        let wave = ["/wave/name", "/wave/phase"].map(|part| string(status, part));
        add("wave", wave.join(" "));
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let parts = ["/status", "/reason", "/message"].map(|part| string(condition, part));
        add(string(condition, "/type"), parts.join("/"));
    }
    for check in status["checks"].as_array().into_iter().flatten() {
        add(
            &format!("check {}", string(check, "/name")),
            string(check, "/phase").to_owned(),
        );
    }
    // Of `status.active` only this is not mere progress.
    for node in status["active"].as_array().into_iter().flatten() {
        if node["phase"] == "Failed" {
            let why = [string(node, "/reason"), string(node, "/message")];
            add(&format!("failed on {}", string(node, "/name")), why.join(": "));
        }
    }
}

/// Any object with a phase and an error, such as a `NodeMaintenance`.
fn object(value: &Value, add: &mut impl FnMut(&str, String)) {
    let is_being_deleted = !value["metadata"]["deletionTimestamp"].is_null();
    let finalizers = value["metadata"]["finalizers"].as_array();
    if let Some(finalizers) = finalizers.filter(|_| !is_being_deleted) {
        add(FINALIZERS, Value::from(finalizers.clone()).to_string());
    }
    for field in ["phase", "lastError"] {
        if let Some(text) = value["status"][field].as_str().filter(|text| !text.is_empty()) {
            add(field, text.to_owned());
        }
    }
}

/// The name of the Job that owns a pod.
fn job_of(pod: &Value) -> Option<String> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["kind"] == "Job")?;
    Some(string(owner, "/name").to_owned())
}

/// The values that are transient stay as they were.
fn keep_known(before: &Facets, now: &mut Facets) {
    let is_transient = |value: &str| TRANSIENT.iter().any(|part| value.contains(part));
    for (key, value) in now.iter_mut() {
        let known = before.iter().find(|(known, _)| known == key);
        if let (true, Some((_, known))) = (is_transient(value), known) {
            value.clone_from(known);
        }
    }
    now.retain(|(_, value)| !is_transient(value));
    // Between two nodes there may be a status without any, or not.
    let applying = |facets: &Facets| facets.iter().any(|(key, _)| key == "applying");
    let is_complete = now.iter().any(|(_, value)| value.starts_with("True/Complete/"));
    if !applying(now) && !is_complete {
        now.extend(before.iter().filter(|(key, _)| key == "applying").cloned());
    }
}

/// An annotation without identities and times, if it is JSON; any other text as it is.
fn without_identity(key: &str, text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(mut value @ Value::Object(_)) => {
            if key.starts_with("plan.refit.rs/")
                && let Some(fields) = value.as_object_mut()
            {
                fields.retain(|key, _| RECORD.contains(&key.as_str()));
            }
            let holders = value.get_mut("holders").and_then(Value::as_array_mut);
            for holder in holders.into_iter().flatten().filter_map(Value::as_object_mut) {
                holder.remove("planUid");
            }
            value.to_string()
        }
        _ => text.to_owned(),
    }
}

/// The events of the controller about Plans and maintenances, with how often each was counted.
/// That a pod is on its way out is as transient there as in the status.
async fn events_of(ctx: &TestContext) -> Vec<String> {
    let mut lines = Vec::new();
    for namespace in [ctx.namespace(), "default"] {
        let events = Api::<Event>::namespaced(ctx.client.clone(), namespace);
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let is_of_plan = |event: &&Event| {
            let component = event
                .source
                .as_ref()
                .and_then(|source| source.component.as_deref());
            component == Some(NAME)
                && event.involved_object.kind.as_deref() == Some("Plan")
                && event.involved_object.name.as_deref() != Some(WARM_UP)
                && event.reason.as_deref() != Some("PodLeaving")
        };
        let is_of_maintenance =
            |event: &&Event| event.involved_object.kind.as_deref() == Some("NodeMaintenance");
        let is_ours = |event: &&Event| is_of_plan(event) || is_of_maintenance(event);
        lines.extend(events.iter().filter(is_ours).map(|event| {
            let count = event.count.unwrap_or(1);
            format!("{} ({count})", events::line(event))
        }));
    }
    lines.sort();
    lines
}

fn string<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
