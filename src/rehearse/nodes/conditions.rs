//! Conditions of generated nodes: those for which Plans wait, such as those of a node problem detector.

use refit_api::SettleConditionSpec;

use crate::json::{Value, json};

/// Gives nodes these conditions, as far as they lack them. Returns the assumption as a sentence, if there is one.
pub fn add_conditions<'a>(
    nodes: &mut [Value],
    wanted: impl Iterator<Item = &'a SettleConditionSpec>,
) -> Option<String> {
    let wanted: Vec<_> = wanted.collect();
    let mut added = Vec::new();
    for node in nodes {
        let Some(conditions) = node["status"]["conditions"].as_array_mut() else {
            continue;
        };
        for one in &wanted {
            if conditions.iter().any(|known| known["type"] == one.type_.as_str()) {
                continue;
            }
            conditions.push(json!({ "type": one.type_, "status": one.status_text(), "reason": "Assumed" }));
            let text = format!("{} {}", one.type_, one.status_text());
            if !added.contains(&text) {
                added.push(text);
            }
        }
    }
    (!added.is_empty()).then(|| format!("every node has the condition {}", added.join(", ")))
}
