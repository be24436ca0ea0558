//! The objects in a document: the document itself, or the items of a list, which may be lists again.

use super::yaml::{Node, Step};
use refit_api::names::GROUP;
use refit_facts::objects::maintenance::MaintenanceGroup;
use refit_facts::objects::node_op::OpKind;
use refit_facts::objects::{maintenance, node_op};
use refit_formats::convert::Written;

/// A kind of objects, other than Plans, that refit handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontEnd {
    Op(OpKind),
    Maintenance(MaintenanceGroup),
}

impl FrontEnd {
    pub const ALL: [Self; 4] = [
        Self::Op(OpKind::Op),
        Self::Op(OpKind::Upgrade),
        Self::Maintenance(MaintenanceGroup::Medik8s),
        Self::Maintenance(MaintenanceGroup::Kubevirt),
    ];

    pub const fn kind(self) -> &'static str {
        match self {
            Self::Op(kind) => kind.name(),
            Self::Maintenance(_) => maintenance::KIND,
        }
    }

    pub const fn group(self) -> &'static str {
        match self {
            Self::Op(_) => node_op::GROUP,
            Self::Maintenance(group) => group.name(),
        }
    }

    pub fn api_version(self) -> String {
        let version = match self {
            Self::Op(_) => node_op::VERSION,
            Self::Maintenance(_) => maintenance::VERSION,
        };
        format!("{}/{version}", self.group())
    }
}

#[derive(Clone, Debug)]
pub struct Object<'s> {
    /// Index of the document in the file.
    pub document: usize,
    /// The path within the document.
    pub path: Vec<Step>,
    pub node: &'s Node,
    /// Its `apiVersion`, or the one implied by its list.
    pub api_version: String,
    /// Its `kind`, or the one implied by its list.
    pub kind: String,
}

impl Object<'_> {
    pub fn is_plan(&self) -> bool {
        // A patch of Kustomize is not a whole Plan.
        self.node.get("$patch").is_none()
            && self.kind == "Plan"
            && self.api_version == format!("{GROUP}/{}", refit_api::crd::VERSION)
    }

    /// Whether it is a part of a Plan, as a patch of an overlay is: nothing says what runs where.
    pub fn is_part_of_plan(&self) -> bool {
        let spec = self.node.get("spec").and_then(Node::object);
        let has = |field: &&str| spec.is_some_and(|spec| spec.entry(field).is_some());
        self.is_plan() && spec.is_some() && !["upgrade", "trigger", "nodeSelector"].iter().any(has)
    }

    /// Whether it is a part of another Plan, by its name. kustomize looks for the namespace only if the patch has one.
    pub fn is_patch_of(&self, whole: &Object<'_>) -> bool {
        let namespace = self.metadata("namespace");
        self.is_part_of_plan()
            && whole.is_plan()
            && !whole.is_part_of_plan()
            && self.metadata("name") == whole.metadata("name")
            && (namespace.is_none() || namespace == whole.metadata("namespace"))
    }

    pub fn is_list(&self) -> bool {
        self.kind.ends_with("List") && self.node.get("items").is_some()
    }

    /// The kind, if refit handles it in addition to Plans.
    pub fn front_end(&self) -> Option<FrontEnd> {
        let is_it = |it: &FrontEnd| self.kind == it.kind() && self.api_version == it.api_version();
        let is_complete_object = self.node.get("$patch").is_none();
        FrontEnd::ALL
            .into_iter()
            .find(is_it)
            .filter(|_| is_complete_object)
    }

    /// The object for `refit convert`.
    pub fn written(&self) -> Written {
        Written {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            value: self.node.to_json(),
        }
    }

    pub fn metadata(&self, field: &str) -> Option<&str> {
        self.node
            .get("metadata")?
            .get(field)?
            .text()
            .filter(|text| !text.is_empty())
    }

    /// Namespace and name, as far as the object has them.
    pub fn title(&self) -> String {
        let name = self.metadata("name").unwrap_or("without a name");
        match self.metadata("namespace") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
    }
}

/// All objects of the documents, in the order of the text; of lists their items, and those lists that repeat a key.
pub fn objects(documents: &[Node]) -> Vec<Object<'_>> {
    let mut found = Vec::new();
    for (document, node) in documents.iter().enumerate() {
        collect(document, Vec::new(), node, None, &mut found);
    }
    found
}

fn collect<'s>(
    document: usize,
    path: Vec<Step>,
    node: &'s Node,
    of_list: Option<(&str, &str)>,
    found: &mut Vec<Object<'s>>,
) {
    let text = |field: &str| {
        node.get(field)
            .and_then(Node::text)
            .filter(|text| !text.is_empty())
    };
    let api_version = text("apiVersion")
        .or(of_list.map(|(version, _)| version))
        .unwrap_or_default();
    let kind = text("kind").or(of_list.map(|(_, kind)| kind)).unwrap_or_default();
    if let Some(of) = kind.strip_suffix("List")
        && let Some(items) = node.get("items")
    {
        // Items of a `PlanList` may omit `apiVersion` and `kind`.
        let of_list = (!of.is_empty()).then_some((api_version, of));
        // With a repeated key it has lost objects, which is to be reported.
        if node.object().is_some_and(|list| !list.repeated.is_empty()) {
            found.push(Object {
                document,
                path: path.clone(),
                node,
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            });
        }
        for (index, item) in items.items().iter().enumerate() {
            let mut path = path.clone();
            path.extend([Step::from("items"), Step::from(index)]);
            collect(document, path, item, of_list, found);
        }
        return;
    }
    if node.object().is_some() {
        found.push(Object {
            document,
            path,
            node,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        });
    }
}
