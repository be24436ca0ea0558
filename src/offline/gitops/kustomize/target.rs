//! The objects to which a patch applies.

use std::collections::BTreeMap;

use regex::Regex;

use crate::gitops::objects::Object;
use crate::gitops::yaml::Node;
use refit_api::crd::VERSION;
use refit_api::names::GROUP;
use refit_api::selector::Selector;

/// The objects to which a patch applies. An absent field allows every value.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    group: Option<String>,
    version: Option<String>,
    kind: Option<String>,
    /// Kustomize reads both as regular expressions that match the whole text.
    name: Option<String>,
    namespace: Option<String>,
    /// In the syntax of kubectl, for annotations too.
    labels: Option<String>,
    annotations: Option<String>,
    /// Objects that are left out.
    rejected: Vec<Self>,
}

impl Target {
    pub(super) fn read(node: &Node) -> Self {
        let text = |field: &str| node.get(field).and_then(Node::text).map(str::to_owned);
        Self {
            group: text("group"),
            version: text("version"),
            kind: text("kind"),
            name: text("name"),
            namespace: text("namespace"),
            labels: text("labelSelector"),
            annotations: text("annotationSelector"),
            rejected: Vec::new(),
        }
    }

    /// The target of a replacement.
    pub(super) fn of_replacement(node: &Node) -> Option<Self> {
        let rejected = node.get("reject").map(Node::items).unwrap_or_default();
        Some(Self {
            rejected: rejected.iter().map(Self::read).collect(),
            ..Self::read(node.get("select")?)
        })
    }

    /// The object that a partial object patches.
    pub(super) fn of_object(node: &Node) -> Option<Self> {
        let text = |node: &Node, field: &str| node.get(field).and_then(Node::text).map(str::to_owned);
        let metadata = node.get("metadata")?;
        let api_version = text(node, "apiVersion")?;
        Some(Self {
            group: api_version.split('/').next().map(regex::escape),
            kind: text(node, "kind"),
            name: text(metadata, "name").as_deref().map(regex::escape),
            namespace: text(metadata, "namespace"),
            ..Self::default()
        })
    }

    /// Whether it may select a Plan, as far as group and kind say.
    pub(super) fn is_of_plans(&self) -> bool {
        is(self.group.as_deref(), Some(GROUP))
            && is(self.version.as_deref(), Some(VERSION))
            && is(self.kind.as_deref(), Some("Plan"))
    }

    pub(super) fn selects(&self, plan: &Object<'_>, metadata: &Metadata) -> bool {
        let has = |wanted: &Option<String>, found: &BTreeMap<String, String>| {
            let selector = wanted.as_ref().map(|wanted| wanted.parse::<Selector>());
            selector.is_none_or(|selector| selector.is_ok_and(|selector| selector.matches(found)))
        };
        // The kustomization may set the namespace of a Plan without one.
        let namespace = plan.metadata("namespace");
        self.is_of_plans()
            && (self.name.is_none()
                || metadata
                    .names
                    .iter()
                    .any(|name| is(self.name.as_deref(), Some(name))))
            && (namespace.is_none() || is(self.namespace.as_deref(), namespace))
            && has(&self.labels, &metadata.labels)
            && has(&self.annotations, &metadata.annotations)
            && !self.rejected.iter().any(|other| other.selects(plan, metadata))
    }
}

/// Whether a pattern of a target matches the whole text, or there is none.
fn is(wanted: Option<&str>, found: Option<&str>) -> bool {
    wanted.is_none_or(|pattern| {
        let whole = Regex::new(&format!("^(?:{pattern})$"));
        whole.is_ok_and(|regex| regex.is_match(found.unwrap_or_default()))
    })
}

/// Names, labels and annotations.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// Kustomize finds an object by each name that it has had.
    names: Vec<String>,
    prefix: String,
    suffix: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Metadata {
    pub(super) fn of(plan: &Object<'_>) -> Self {
        let metadata = plan.node.get("metadata");
        let texts = |field: &str| texts(metadata.and_then(|metadata| metadata.get(field)));
        Self {
            names: plan.metadata("name").map(str::to_owned).into_iter().collect(),
            labels: texts("labels").collect(),
            annotations: texts("annotations").collect(),
            ..Self::default()
        }
    }

    /// What a kustomization adds to all objects.
    pub(super) fn added_by(kustomization: &Node) -> Self {
        let labels = kustomization.get("labels").map(Node::items).unwrap_or_default();
        let pairs = labels.iter().flat_map(|one| texts(one.get("pairs")));
        let text = |field: &str| kustomization.get(field).and_then(Node::text).unwrap_or_default();
        Self {
            names: Vec::new(),
            prefix: text("namePrefix").to_owned(),
            suffix: text("nameSuffix").to_owned(),
            labels: texts(kustomization.get("commonLabels")).chain(pairs).collect(),
            annotations: texts(kustomization.get("commonAnnotations")).collect(),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let name = self.names.last();
        let renamed = name.map(|name| format!("{}{name}{}", other.prefix, other.suffix));
        self.names.extend(renamed);
        self.labels.extend(other.labels.clone());
        self.annotations.extend(other.annotations.clone());
    }
}

fn texts(node: Option<&Node>) -> impl Iterator<Item = (String, String)> {
    let entries = node.and_then(Node::object).map(|object| &object.entries);
    entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some((entry.key.name.clone(), entry.value.text()?.to_owned())))
}
