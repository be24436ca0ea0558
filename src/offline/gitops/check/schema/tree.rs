//! Values of YAML as the walker over schemas sees them, and JSON without what was refused.

use serde_json::Value;

use crate::gitops::yaml::{Kind, Node, Step};
use refit_api::schema::{Shape, Tree, whole};

/// Removes a value. A text within a list becomes the empty one, so that the others keep their indices, which findings name.
pub(super) fn remove(value: &mut Value, way: &[Step], is_text: bool) {
    match (way, value) {
        ([Step::Key(name)], Value::Object(fields)) => {
            fields.remove(name);
        }
        ([Step::Index(at)], Value::Array(items)) if *at < items.len() => {
            if is_text {
                items[*at] = "".into();
            } else {
                items.remove(*at);
            }
        }
        ([Step::Key(name), rest @ ..], Value::Object(fields)) => {
            if let Some(value) = fields.get_mut(name) {
                remove(value, rest, is_text);
            }
        }
        ([Step::Index(at), rest @ ..], Value::Array(items)) => {
            if let Some(value) = items.get_mut(*at) {
                remove(value, rest, is_text);
            }
        }
        ([], value) => *value = Value::Object(serde_json::Map::new()),
        _ => {}
    }
}

/// Writes integers without a fraction, as the API server stores them.
pub(super) fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

impl<'v> Tree<'v> for &'v Node {
    fn shape(self) -> Shape<'v> {
        match &self.kind {
            Kind::Null => Shape::Null,
            Kind::Bool(_) => Shape::Bool,
            Kind::Number(number) => Shape::Number(number),
            Kind::Text(text) => Shape::Text(text),
            Kind::List(_) => Shape::List,
            Kind::Map(_) => Shape::Object,
        }
    }

    fn items(self) -> impl Iterator<Item = Self> {
        Node::items(self).iter()
    }

    fn fields(self) -> impl Iterator<Item = (&'v str, Self)> {
        let entries = self.object().into_iter().flat_map(|object| &object.entries);
        entries.map(|entry| (entry.key.name.as_str(), &entry.value))
    }

    fn has(self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.is_null())
    }
}
