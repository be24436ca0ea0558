//! What is to be rehearsed, from files: Plans as they lie there, and of the rest what a roll-out meets. Plans are read as the
//! API server and the controller read them; what these would refuse is a mistake with its place.
//!
//! Nothing here reads a file or prints.

use std::collections::BTreeMap;

use crate::api::Plan;
use crate::gitops::check::read_plan;
use crate::gitops::objects::{Object, objects};
use crate::gitops::{Source, kustomize};
use crate::rehearse::json::{Value, json};

/// The namespace of Plans that do not say theirs.
pub const NAMESPACE: &str = "system-upgrade";

/// A Plan in a file.
#[derive(Clone, Debug)]
pub struct GivenPlan {
    /// The file, and the line in which it begins.
    pub place: String,
    /// As the API server would store it.
    pub plan: Plan,
    /// As it is written, with its namespace.
    pub value: Value,
}

impl GivenPlan {
    /// Its name.
    pub fn name(&self) -> &str {
        self.plan.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.plan.metadata.namespace.as_deref().unwrap_or(NAMESPACE)
    }
}

/// What the files hold.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The Plans, in the order of the files.
    pub plans: Vec<GivenPlan>,
    /// Other objects that a roll-out meets.
    pub objects: Vec<Value>,
    /// What is worth saying about it.
    pub notes: Vec<String>,
    /// What is wrong, a line each: file, line and column, what was found, and what is allowed.
    pub mistakes: Vec<String>,
}

/// Reads what the files hold.
pub fn read(sources: &[Source]) -> Given {
    let mut given = Given::default();
    let patches = kustomize::patches(sources);
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for source in sources {
        if kustomize::is_patch(&patches, source) {
            let note = format!("{} is a patch of Kustomize, and passed over", source.name);
            given.notes.push(note);
            continue;
        }
        for error in &source.stream.errors {
            let place = source.place(error.offset);
            given.mistakes.push(format!(
                "{}:{}:{}: this is not YAML: {error}",
                source.name, place.line, place.column
            ));
        }
        for object in objects(&source.stream.documents) {
            if object.is_plan() {
                given.plan(source, &object, &mut names);
            } else {
                given.other(&object);
            }
        }
    }
    given
}

impl Given {
    fn plan(&mut self, source: &Source, object: &Object<'_>, names: &mut BTreeMap<String, String>) {
        let (mut plan, findings) = read_plan(source, object);
        let line = source.place(object.node.offset()).line;
        let place = format!("{}:{line}", source.name);
        if !findings.is_empty() {
            self.mistakes.extend(findings.iter().map(|found| {
                format!(
                    "{}:{}:{}: {} [{}]",
                    found.file, found.place.line, found.place.column, found.message, found.rule
                )
            }));
            return;
        }
        let mut value = Value::from(object.node.to_json());
        if plan.metadata.namespace.is_none() {
            plan.metadata.namespace = Some(NAMESPACE.to_owned());
            value["metadata"]["namespace"] = NAMESPACE.into();
            self.notes.push(format!(
                "{place}: Plan {}: its namespace is taken to be {NAMESPACE}",
                object.title()
            ));
        }
        for field in ["apiVersion", "kind"] {
            // The items of a `PlanList` need not say what they are.
            value[field] = if field == "kind" {
                "Plan".into()
            } else {
                object.api_version.as_str().into()
            };
        }
        let given = GivenPlan { place, plan, value };
        let title = format!("{}/{}", given.namespace(), given.name());
        if let Some(first) = names.get(&title) {
            self.mistakes.push(format!(
                "{}: Plan {title} is already in {first}: leave one of the two out",
                given.place
            ));
            return;
        }
        names.insert(title, given.place.clone());
        self.plans.push(given);
    }

    /// Takes along what a roll-out meets. Service accounts are not among it: here everybody may do everything.
    fn other(&mut self, object: &Object<'_>) {
        let (version, kind) = (object.api_version.as_str(), object.kind.as_str());
        match (version, kind) {
            ("v1", "Secret" | "Namespace")
            | ("policy/v1", "PodDisruptionBudget")
            | ("apps/v1", "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
                self.objects.push(object.node.to_json().into());
            }
            // Their controller is not played: what matters is how many pods there are to be.
            ("apps/v1", "Deployment") => self.objects.push(as_replica_set(&object.node.to_json().into())),
            _ => {}
        }
    }
}

/// A Deployment as the `ReplicaSet` that it comes down to here.
fn as_replica_set(workload: &Value) -> Value {
    let (meta, spec) = (&workload["metadata"], &workload["spec"]);
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": { "name": meta["name"] },
        "spec": { "selector": spec["selector"], "template": spec["template"] },
    });
    for field in ["namespace", "labels"] {
        if !meta[field].is_null() {
            set["metadata"][field] = meta[field].clone();
        }
    }
    if !spec["replicas"].is_null() {
        set["spec"]["replicas"] = spec["replicas"].clone();
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Given {
        read(&[Source::new("a.yaml", None, text.to_owned())])
    }

    const PLAN: &str = "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: p}
spec: {version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}
";

    #[test]
    fn plans_are_taken_as_they_are_and_get_a_namespace() {
        let text = format!(
            "# first\n{PLAN}---\n{}",
            PLAN.replace("{name: p}", "{name: q, namespace: team}")
        );
        let given = given(&text);
        assert_eq!(given.mistakes, [""; 0]);
        let found: Vec<_> = given
            .plans
            .iter()
            .map(|plan| (plan.namespace(), plan.name(), plan.place.as_str()))
            .collect();
        assert_eq!(
            found,
            [("system-upgrade", "p", "a.yaml:2"), ("team", "q", "a.yaml:7")]
        );
        assert_eq!(given.plans[0].value["metadata"]["namespace"], "system-upgrade");
        assert_eq!(
            given.notes,
            ["a.yaml:2: Plan p: its namespace is taken to be system-upgrade"]
        );
    }

    #[test]
    fn what_would_be_refused_has_its_place() {
        let text = PLAN.replace("concurrency: 1", "concurrency: many");
        let mistakes = given(&text).mistakes;
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].starts_with("a.yaml:4:"), "{mistakes:?}");
        assert!(mistakes[0].contains("concurrency"), "{mistakes:?}");
        let mistakes = given("a: [").mistakes;
        assert!(mistakes[0].starts_with("a.yaml:"), "{mistakes:?}");
        assert!(mistakes[0].contains("this is not YAML"), "{mistakes:?}");
        let mistakes = given(&format!("{PLAN}---\n{PLAN}")).mistakes;
        assert_eq!(
            mistakes,
            ["a.yaml:6: Plan system-upgrade/p is already in a.yaml:1: leave one of the two out"]
        );
    }

    #[test]
    fn what_a_roll_out_meets_is_taken_along() {
        let text = "{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: team}},
{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: team}},
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}},
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: team}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {}}}]}";
        let given = given(text);
        let kinds: Vec<_> = given.objects.iter().map(|one| one["kind"].clone()).collect();
        assert_eq!(kinds, ["Secret", "ReplicaSet"]);
        assert_eq!(given.objects[1]["spec"]["replicas"], 3);
    }
}
