//! Paths of fields, such as `spec.secrets[0].path`.

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

/// Whether a field is the other one, or a part of it.
pub(super) fn is_within(field: &str, other: &str) -> bool {
    let rest = field.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The field below another one, or of the object itself.
pub(super) fn below(field: &str, name: &str) -> String {
    if field.is_empty() {
        name.to_owned()
    } else {
        format!("{field}.{name}")
    }
}

/// The path of a field without list indices.
pub(super) fn no_indices(field: &str) -> String {
    let without = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
    field.split('.').map(without).collect::<Vec<_>>().join(".")
}
