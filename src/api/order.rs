//! `spec.order`: the order in which nodes start. The doc comments of the fields are what `kubectl explain` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_enum::field_enum;
use super::invalid::{ErrorList, FieldPath, Invalid, at};
use super::selector::label_key_problems;

/// Maximum number of criteria, as in the schema. A Plan stored under another schema may have more.
const MAX_CRITERIA: usize = 8;
const ONE_EACH: &str = "make it one item for each of them, the most significant first";

/// One criterion of the order. Exactly one field is set.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderSpec {
    /// `First`: control-plane nodes (role label `control-plane`, `master`, `controlplane` or `etcd`) are upgraded
    /// before all others start. `Last`: the other way round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneOrder>,
    /// Key of a node label such as `topology.kubernetes.io/zone`.
    ///
    /// The nodes of one value at a time are upgraded, in the order of the values; nodes without the label come last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_key: Option<String>,
    /// Key of a node label whose value is a number.
    ///
    /// Smaller numbers start first, and the next ones do not wait until they are done; nodes without a number come
    /// last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_number: Option<String>,
}

field_enum! {
    /// When control-plane nodes start.
    ControlPlaneOrder {
        /// Before all other nodes.
        First,
        /// After all other nodes.
        Last,
    }
}

/// A criterion, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Criterion {
    ControlPlane(ControlPlaneOrder),
    /// Nodes with one value of this label at a time.
    Topology(String),
    /// By the number in this label.
    Number(String),
}

impl Criterion {
    /// Whether nodes that come later wait until those that come earlier are done.
    pub fn is_barrier(&self) -> bool {
        matches!(self, Self::ControlPlane(_) | Self::Topology(_))
    }
}

impl OrderSpec {
    fn parse(&self, criterion: &FieldPath) -> Result<Criterion, Invalid> {
        let key = |field, key: &String| match label_key_problems(key).into_iter().next() {
            None => Ok(key.clone()),
            Some(problem) => Err(criterion.field(field).invalid(format_args!(
                "is {key:?}, which is not the key of a label: {problem}"
            ))),
        };
        match (self.control_plane, &self.topology_key, &self.label_number) {
            (Some(order), None, None) => Ok(Criterion::ControlPlane(order)),
            (None, Some(topology), None) => key("topologyKey", topology).map(Criterion::Topology),
            (None, None, Some(number)) => key("labelNumber", number).map(Criterion::Number),
            (control_plane, topology, number) => {
                let fields = [control_plane.is_some(), topology.is_some(), number.is_some()];
                let (fields, hint) = match fields.into_iter().filter(|is_set| *is_set).count() {
                    0 => (
                        "none",
                        "add one of them, such as topologyKey: topology.kubernetes.io/zone",
                    ),
                    2 => ("two", ONE_EACH),
                    _ => ("three", ONE_EACH),
                };
                let problem = format!(
                    "has {fields} of controlPlane, topologyKey and labelNumber: it must have exactly one"
                );
                Err(criterion.invalid(problem).hint(hint))
            }
        }
    }
}

/// The parsed `spec.order`.
///
/// # Errors
/// Fails with all invalid criteria; `validate` has reported them.
pub(super) fn parse(order: &[OrderSpec]) -> Result<Vec<Criterion>, ErrorList> {
    let list = at("order");
    list.at_most(order, MAX_CRITERIA, "criteria")?;
    let mut errors = ErrorList::default();
    let mut criteria: Vec<(usize, Criterion)> = Vec::with_capacity(order.len());
    for (index, criterion) in order.iter().enumerate() {
        let Some(criterion) = errors.take(criterion.parse(&list.index(index))) else {
            continue;
        };
        let same = |(_, other): &&(usize, Criterion)| match (other, &criterion) {
            // After `First` or `Last`, nodes of the same role are equal, so that a second one decides nothing.
            (Criterion::ControlPlane(_), Criterion::ControlPlane(_)) => true,
            (other, criterion) => other == criterion,
        };
        if let Some((first, _)) = criteria.iter().find(same) {
            let problem = format!("is the same as spec.order[{first}], so that it has no effect");
            errors.push(list.index(index).invalid(problem).hint("remove the item"));
        }
        criteria.push((index, criterion));
    }
    errors.finish(Some(
        criteria.into_iter().map(|(_, criterion)| criterion).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::PlanSpec;

    fn order(order: &serde_json::Value) -> Result<Vec<Criterion>, String> {
        let spec: PlanSpec = serde_json::from_value(json!({ "order": order })).unwrap();
        spec.order().map_err(|error| error.to_string())
    }

    #[test]
    fn an_order_is_a_list_of_criteria_with_one_field_each() {
        let read = order(&json!([
            {"controlPlane": "First"}, {"topologyKey": "topology.kubernetes.io/zone"}, {"labelNumber": "example.com/rank"}
        ]));
        let expected = [
            Criterion::ControlPlane(ControlPlaneOrder::First),
            Criterion::Topology("topology.kubernetes.io/zone".to_owned()),
            Criterion::Number("example.com/rank".to_owned()),
        ];
        assert_eq!(read.unwrap(), expected);
        assert_eq!(PlanSpec::default().order(), Ok(Vec::new()));
    }

    #[test]
    fn an_invalid_criterion_is_named_with_its_place() {
        let error = |criteria: serde_json::Value| order(&criteria).unwrap_err();
        assert_eq!(
            error(json!([{"controlPlane": "Last"}, {}])),
            "spec.order[1] has none of controlPlane, topologyKey and labelNumber: it must have exactly one"
        );
        assert_eq!(
            error(json!([{"controlPlane": "Last", "labelNumber": "rank"}])),
            "spec.order[0] has two of controlPlane, topologyKey and labelNumber: it must have exactly one"
        );
        assert_eq!(
            error(json!([{"labelNumber": "rank"}, {"labelNumber": "rank"}])),
            "spec.order[1] is the same as spec.order[0], so that it has no effect"
        );
        assert!(
            error(json!([{"controlPlane": "Last"}, {"controlPlane": "First"}])).contains("is the same as")
        );
        let key = error(json!([{"topologyKey": "a zone"}]));
        assert!(
            key.starts_with("spec.order[0].topologyKey is \"a zone\", which is not the key of a label: "),
            "{key}"
        );
        let many: Vec<_> = (0..9).map(|n| json!({"labelNumber": format!("n{n}")})).collect();
        assert_eq!(
            error(many.into()),
            "spec.order has 9 criteria: it must have at most 8"
        );
    }
}
