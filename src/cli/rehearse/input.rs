//! Input of a rehearsal from files: Plans, and the objects that affect a roll-out. Plans are read as the API server and
//! the controller read them; what these would refuse is an error with its location.
//!
//! This module neither reads files nor prints.

use std::collections::BTreeMap;

use super::front_ends::InputOp;
use refit_api::{Plan, limits};
use refit_offline::gitops::check::{
    ReadPlan, SERVER_FIELDS, VersionedImages, missed_plans, name_for, read_plan, refused,
};
use refit_offline::gitops::objects::{FrontEnd, Object, objects};
use refit_offline::gitops::overlay::{Change, Field, SetTo};
use refit_offline::gitops::placeholder::{in_comment, is_placeholder, syntax};
use refit_offline::gitops::yaml::Node;
use refit_offline::gitops::{Finding, Source};
use refit_rehearse::json::{Value, json};
use refit_rehearse::snapshot::mistake;

/// The namespace of Plans that do not specify one.
pub(super) const NAMESPACE: &str = "system-upgrade";

#[derive(Clone, Debug)]
pub(super) struct InputPlan {
    /// File and line.
    pub(super) place: String,
    /// As the API server would store it.
    pub(super) plan: Plan,
    /// As it is written, with its namespace.
    pub(super) value: Value,
    /// The images that follow the version.
    pub(super) images: Option<VersionedImages>,
    /// What stands for a version that is not known: a placeholder, or a field that Kustomize takes from elsewhere.
    pub(super) unknown_version: Option<String>,
}

impl InputPlan {
    pub(super) fn name(&self) -> &str {
        self.plan.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.plan.metadata.namespace.as_deref().unwrap_or(NAMESPACE)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct RehearsalInput {
    /// In the order of the files.
    pub(super) plans: Vec<InputPlan>,
    pub(super) node_ops: Vec<InputOp>,
    /// Other objects that affect a roll-out.
    pub(super) objects: Vec<Value>,
    /// Plans that `prepare` does not find, and where they are, by name.
    pub(super) absent: BTreeMap<String, String>,
    /// What replaces values that are not known.
    pub(super) assumed: Vec<String>,
    /// What is worth saying about it.
    pub(super) notes: Vec<String>,
    /// Errors, a line each: file, line and column, what was found, and what is allowed.
    pub(super) errors: Vec<String>,
}

pub(super) fn read(sources: &[Source]) -> RehearsalInput {
    let mut given = RehearsalInput::default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let all: Vec<_> = sources
        .iter()
        .flat_map(|source| objects(&source.stream.documents))
        .collect();
    for source in sources {
        for error in &source.stream.errors {
            let position = source.position(error.offset);
            given.errors.push(format!(
                "{}:{}:{}: this is not YAML: {error}{}",
                source.name,
                position.line,
                position.column,
                source.render_first()
            ));
        }
        given.errors.extend(missed_plans(source).iter().map(error));
        for object in objects(&source.stream.documents) {
            if object.is_part_of_plan() && all.iter().any(|whole| object.is_patch_of(whole)) {
                let line = source.position(object.node.offset()).line;
                given.notes.push(format!(
                    "{}:{line}: skipped, a part of Plan {}; give refit the output of kustomize",
                    source.name,
                    object.title()
                ));
            } else if let Some(by) = source.change(&object, Field::Plan) {
                let line = source.position(object.node.offset()).line;
                given.notes.push(format!(
                    "{}:{line}: Plan {} is skipped, since a patch of Kustomize deletes it ({})",
                    source.name,
                    object.title(),
                    by.place()
                ));
            } else if object.is_plan() {
                given.plan(source, &object, &mut names);
            } else if let Some(kind) = object.front_end() {
                given.front_end(source, &object, kind);
            } else {
                given.other(source, &object);
            }
        }
    }
    given
}

impl RehearsalInput {
    fn plan(&mut self, source: &Source, object: &Object<'_>, names: &mut BTreeMap<String, String>) {
        let ReadPlan {
            mut plan,
            json,
            refused,
            bad_jobs,
            images,
            placeholders,
            assumed,
        } = read_plan(source, object);
        let line = source.position(object.node.offset()).line;
        let place = format!("{}:{line}", source.name);
        if !refused.is_empty() || !bad_jobs.is_empty() {
            self.errors.extend(refused.iter().chain(&bad_jobs).map(error));
            return;
        }
        self.assumed.extend(assumed);
        let mut value = Value::from(json);
        self.assumed.extend(fill_references(&mut plan, &mut value));
        // As `kubectl get` prints them. They are of the object on the cluster, and not of the one that the rehearsal
        // creates.
        if let Some(metadata) = value["metadata"].as_object_mut() {
            for field in SERVER_FIELDS {
                metadata.remove(field);
            }
        }
        let unknown_version = unknown_version(source, object, &plan);
        let notes = [of_overlays(source, object), unapplied(source, object)];
        self.notes
            .extend(notes.into_iter().flatten().map(|note| format!("{place}: {note}")));
        let has_limit = plan.spec.concurrency.is_some() || plan.spec.max_concurrent.is_some();
        let limits = |field: &str| matches!(field, "spec.concurrency" | "spec.maxConcurrent");
        let limit = placeholders
            .iter()
            .find(|found| found.field.as_deref().is_some_and(limits));
        if let Some(limit) = limit.filter(|_| !has_limit) {
            let field = limit
                .field
                .as_deref()
                .unwrap_or_default()
                .trim_start_matches("spec.");
            let name = plan.metadata.name.as_deref().unwrap_or_default();
            self.assumed.push(format!(
                "Plan {name}: concurrency 1 replaces the placeholder in {field}"
            ));
            value["spec"]["concurrency"] = 1.into();
            plan.spec.concurrency = Some(1);
        }
        for found in placeholders {
            let field = found.field.unwrap_or_default();
            let read = field.split('.').fold(&value, |value, key| &value[key]);
            if read.is_null() && !field.contains('[') && (has_limit || !limits(&field)) {
                let (position, message) = (found.position, found.message);
                let note = format!(
                    "{}:{}:{}: left out, {message}",
                    found.file, position.line, position.column
                );
                self.notes.push(note);
            }
        }
        if plan.metadata.namespace.is_none() {
            plan.metadata.namespace = Some(NAMESPACE.to_owned());
            value["metadata"]["namespace"] = NAMESPACE.into();
            self.notes.push(format!(
                "{place}: Plan {}: it has no namespace; assuming {NAMESPACE}",
                object.title()
            ));
        }
        for field in ["apiVersion", "kind"] {
            // Items of a `PlanList` may omit apiVersion and kind.
            value[field] = if field == "kind" {
                "Plan".into()
            } else {
                object.api_version.as_str().into()
            };
        }
        let given = InputPlan {
            place,
            plan,
            value,
            images,
            unknown_version,
        };
        let title = format!("{}/{}", given.namespace(), given.name());
        if let Some(first) = names.get(&title) {
            self.errors.push(format!(
                "{}: Plan {title} is defined in {first} already; remove one of the two",
                given.place
            ));
            return;
        }
        names.insert(title, given.place.clone());
        self.plans.push(given);
    }

    fn front_end(&mut self, source: &Source, object: &Object<'_>, kind: FrontEnd) {
        let refused = refused(source, object, kind);
        if !refused.is_empty() {
            self.errors.extend(refused.iter().map(error));
            return;
        }
        let line = source.position(object.node.offset()).line;
        match kind {
            FrontEnd::Op(_) => self.node_ops.push(InputOp {
                place: format!("{}:{line}", source.name),
                title: format!("{} {}", object.kind, object.title()),
                written: object.written(),
            }),
            FrontEnd::Maintenance(_) => {
                let value = object.node.to_json();
                // Items of a list may omit apiVersion and kind. The rest is of the object on the cluster, as for Plans.
                self.objects.push(json!({
                    "apiVersion": object.api_version.as_str(), "kind": object.kind.as_str(),
                    "metadata": { "name": value["metadata"]["name"].as_str().unwrap_or_default() },
                    "spec": Value::from(&value["spec"]),
                }));
            }
        }
    }

    /// Keeps an object that affects a roll-out. Service accounts do not: the simulated API server allows everything.
    fn other(&mut self, source: &Source, object: &Object<'_>) {
        let (version, kind) = (object.api_version.as_str(), object.kind.as_str());
        // The Nodes are not used.
        if kind == "PodDisruptionBudget"
            && let Some(why) = mistake(version, kind, &object.node.to_json().into())
        {
            let line = source.position(object.node.offset()).line;
            let (name, title) = (&source.name, object.title());
            self.errors.push(format!("{name}:{line}: {kind} {title}: {why}"));
            return;
        }
        match (version, kind) {
            ("v1", "Secret" | "Namespace")
            | ("policy/v1", "PodDisruptionBudget")
            | ("apps/v1", "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
                self.objects.push(object.node.to_json().into());
            }
            ("v1", "Node") => {
                let note = format!(
                    "{}: its Nodes are not used; give them with --snapshot",
                    source.name
                );
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            ("v1", "ConfigMap") if object.metadata("name") == Some(limits::NAME) => {
                self.objects.push(object.node.to_json().into());
            }
            // The simulation has no Deployment controller; only the number of pods matters.
            ("apps/v1", "Deployment") => self.objects.push(as_replica_set(&object.node.to_json().into())),
            _ => {}
        }
    }
}

pub(super) fn error(found: &Finding) -> String {
    format!(
        "{}:{}:{}: {} [{}]",
        found.file, found.position.line, found.position.column, found.message, found.rule
    )
}

/// What stands for the version of a Plan.
fn unknown_version(source: &Source, object: &Object<'_>, plan: &Plan) -> Option<String> {
    if let Some(version) = &plan.spec.version {
        return syntax(version).map(|_| version.clone());
    }
    let spec = object.node.get("spec").and_then(Node::object);
    let in_comment = spec.and_then(|spec| in_comment(source, spec.entry("version")?));
    let in_comment = in_comment.map(|(comment, _)| comment.trim_matches('"').to_owned());
    let elsewhere = |field: Field| {
        let change = source.change(object, field)?;
        let (name, place) = (field.name(), change.place());
        (change.to == SetTo::Unknown)
            .then(|| format!("spec.{name}, which Kustomize takes from elsewhere ({place})"))
    };
    in_comment.or_else(|| Field::OF_SPEC.into_iter().find_map(elsewhere))
}

/// Says that only one of several versions is rehearsed.
fn of_overlays(source: &Source, object: &Object<'_>) -> Option<String> {
    let versions = source.overlay(object)?.changes.get(&Field::Version)?;
    if versions.all.is_empty() || versions.common().is_some() {
        return None;
    }
    let set: Vec<String> = versions.all.iter().map(Change::describe).collect();
    Some(format!(
        "Plan {}: its version is not the same in all overlays of Kustomize ({}); rehearse the output of kustomize",
        object.title(),
        set.join(", ")
    ))
}

/// Says that patches change more than a rehearsal applies, such as `concurrency`.
fn unapplied(source: &Source, object: &Object<'_>) -> Option<String> {
    let others = source.overlay(object)?.changes.get(&Field::Other)?;
    let first = others.all.first()?;
    Some(format!(
        "Plan {}: Kustomize changes more than its version and channel ({}), which is not rehearsed; rehearse the output of \
         kustomize",
        object.title(),
        first.place()
    ))
}

/// Replaces placeholders in images and in names of other Plans. The simulated kubelets pull no images.
fn fill_references(plan: &mut Plan, value: &mut Value) -> Vec<String> {
    let mut assumed = Vec::new();
    let name = plan.metadata.name.clone().unwrap_or_default();
    for (field, container) in [
        ("prepare", plan.spec.prepare.as_mut()),
        ("upgrade", plan.spec.upgrade.as_mut()),
    ] {
        let Some(container) = container else { continue };
        if is_placeholder(&container.image) {
            let image = image_for(&container.image);
            value["spec"][field]["image"] = image.as_str().into();
            assumed.push(format!(
                "Plan {name}: the image {image} replaces the placeholder in spec.{field}.image"
            ));
            container.image = image;
        }
        if field == "upgrade" {
            continue;
        }
        if container.args.iter().flatten().any(|arg| is_placeholder(arg)) {
            for arg in container
                .args
                .iter_mut()
                .flatten()
                .filter(|arg| is_placeholder(arg))
            {
                *arg = name_for(arg);
            }
            value["spec"][field]["args"] = serde_json::json!(container.args).into();
        }
    }
    let others = plan.spec.depends_on.iter_mut().flatten();
    let unknown: Vec<_> = others.filter(|other| is_placeholder(&other.name)).collect();
    if !unknown.is_empty() {
        for other in unknown {
            other.name = name_for(&other.name);
        }
        value["spec"]["dependsOn"] = serde_json::json!(plan.spec.depends_on).into();
    }
    assumed
}

/// An image for one whose name has a placeholder: `${REGISTRY}/k3s-upgrade` becomes `registry/k3s-upgrade`.
fn image_for(text: &str) -> String {
    let parts = text.split('/').map(|part| {
        let (path, tag) = part
            .split_once(':')
            .map_or((part, None), |(path, tag)| (path, Some(tag)));
        match tag {
            Some(tag) if !path.contains('{') || path.contains('}') => {
                format!("{}:{}", name_for(path), name_for(tag))
            }
            _ => name_for(part),
        }
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The `ReplicaSet` that a Deployment amounts to.
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

    fn given(text: &str) -> RehearsalInput {
        read(&[Source::new("a.yaml", None, text.to_owned())])
    }

    const PLAN: &str = "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: p}
spec: {version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}
";

    #[test]
    fn plans_of_the_input_stay_as_they_are_and_get_a_namespace() {
        let text = format!(
            "# first\n{PLAN}---\n{}",
            PLAN.replace("{name: p}", "{name: q, namespace: team}")
        );
        let given = given(&text);
        assert_eq!(given.errors, [""; 0]);
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
            ["a.yaml:2: Plan p: it has no namespace; assuming system-upgrade"]
        );
    }

    #[test]
    fn a_plan_that_would_be_refused_is_an_error_with_its_position() {
        let text = PLAN.replace("concurrency: 1", "concurrency: many");
        let errors = given(&text).errors;
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("a.yaml:4:"), "{errors:?}");
        assert!(errors[0].contains("concurrency"), "{errors:?}");
        let errors = given("a: [").errors;
        assert!(errors[0].starts_with("a.yaml:"), "{errors:?}");
        assert!(errors[0].contains("this is not YAML"), "{errors:?}");
        let errors = given(&format!("{PLAN}---\n{PLAN}")).errors;
        assert_eq!(
            errors,
            ["a.yaml:6: Plan system-upgrade/p is defined in a.yaml:1 already; remove one of the two"]
        );
    }

    #[test]
    fn objects_beside_the_plans_are_kept() {
        let text = "{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: team}},
{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: team}},
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}},
{apiVersion: v1, kind: ConfigMap, metadata: {name: refit, namespace: team}, data: {freeze: audit}},
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: team}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {}}}]}";
        let given = given(text);
        let kinds: Vec<_> = given.objects.iter().map(|one| one["kind"].clone()).collect();
        assert_eq!(kinds, ["Secret", "ConfigMap", "ReplicaSet"]);
        assert_eq!(given.objects[2]["spec"]["replicas"], 3);
    }
}
