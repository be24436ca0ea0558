//! Paths of fields, such as `spec.secrets[0].path`.

use serde_json::Value;

use crate::gitops::yaml::Step;

/// Splits a path into steps. Keys with dots are not supported; none of the fields looked up here has one.
pub(super) fn steps(field: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in field.split('.') {
        let mut pieces = part.split('[');
        steps.extend(pieces.next().filter(|key| !key.is_empty()).map(Step::from));
        let index = |piece: &str| piece.strip_suffix(']').and_then(|index| index.parse().ok());
        steps.extend(pieces.filter_map(index).map(Step::Index));
    }
    steps
}

/// The parent of a field in the JSON of a Plan, and the last step to the field.
fn parent_of<'j>(plan: &'j mut Value, field: &str) -> Option<(&'j mut Value, Step)> {
    let mut steps = steps(field);
    let last = steps.pop()?;
    let parent = steps.iter().try_fold(plan, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    });
    Some((parent?, last))
}

/// Removes a field from the JSON of a Plan; false if it is absent.
pub(super) fn remove(plan: &mut Value, field: &str) -> bool {
    match parent_of(plan, field) {
        Some((Value::Object(fields), Step::Key(key))) => fields.remove(&key).is_some(),
        Some((Value::Array(items), Step::Index(index))) if index < items.len() => {
            items.remove(index);
            true
        }
        _ => false,
    }
}

/// Replaces a list item by another text; false if it is absent.
pub(super) fn replace(plan: &mut Value, field: &str, text: &str) -> bool {
    match parent_of(plan, field) {
        Some((Value::Array(items), Step::Index(index))) if index < items.len() => {
            items[index] = text.into();
            true
        }
        _ => false,
    }
}
