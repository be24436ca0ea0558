//! What the controller would say in the Plan's conditions, in its own words: `validate` is asked, not copied.
//!
//! It names the first mistake only. So the field that it names is put right in a copy, and it is asked again.

use serde_json::{Value, json};

use super::{Subject, is_placeholder, remove, replace};
use crate::api::selector::Selector;
use crate::api::validate::{Invalid, validate};
use crate::api::window::WindowError;
use crate::api::{Plan, PlanSpec};
use crate::channel;
use crate::gitops::Rule;
use crate::gitops::yaml::{Entry, Node};

/// S54's words for a Plan with neither `version` nor `channel`.
const UNRESOLVABLE: &str = "cannot resolve plan: missing channel and version";
/// A name that is valid, in place of one that is not.
const ANY_NAME: &str = "plan";
/// More mistakes than this are not told of one Plan. It also ends a round that finds no way on.
const MAX_MISTAKES: usize = 100;

impl Subject<'_> {
    pub(super) fn check_as_controller(&mut self, plan: &Plan) {
        self.check_validity(plan);
        self.check_version(&plan.spec);
        self.check_node_selector(&plan.spec);
    }

    fn check_validity(&mut self, plan: &Plan) {
        let mut name = plan.metadata.name.clone().unwrap_or_default();
        let mut copy = json!({ "spec": plan.spec });
        for _ in 0..MAX_MISTAKES {
            let spec: Result<PlanSpec, _> = serde_json::from_value(copy["spec"].clone());
            let Ok(spec) = spec else { return };
            let Err(invalid) = validate(&name, &spec) else {
                return;
            };
            let field = self.field_of(&invalid);
            self.invalid(&field, &invalid);
            if field.starts_with("metadata.") {
                ANY_NAME.clone_into(&mut name);
            } else if !put_right(&mut copy, &field) {
                return;
            }
        }
    }

    fn invalid(&mut self, field: &str, invalid: &Invalid) {
        if let Some(node) = self
            .node(field)
            .filter(|node| node.text().is_some_and(is_placeholder))
        {
            self.placeholder(field, node);
            return;
        }
        let hint = match invalid {
            Invalid::DeleteFlags => Some("keep `deleteEmptydirData`, the newer name".to_owned()),
            Invalid::Window(WindowError::Time(_)) => {
                Some("write it as `22:00`, `22:00:30` or `10pm`, in quotes".to_owned())
            }
            Invalid::Window(WindowError::Zone(zone)) => Some(zone_hint(zone)),
            Invalid::Delay(_) | Invalid::NegativeDelay | Invalid::DrainTimeout(_) => {
                Some("write a Go duration such as `30s` or `1h30m`".to_owned())
            }
            Invalid::PlanName(_) => Some("give it a shorter name".to_owned()),
            Invalid::MaxConcurrent(_) => {
                Some("write a number without quotes, or a share such as `25%`".to_owned())
            }
            _ => None,
        };
        self.tell(Rule::InvalidPlan, field, invalid.to_string(), hint);
    }

    /// The field that is meant, as near as can be told.
    fn field_of(&self, invalid: &Invalid) -> String {
        match invalid {
            Invalid::DeleteFlags => "spec.drain.deleteLocalData".to_owned(),
            Invalid::PodSelector(_) => "spec.drain.podSelector".to_owned(),
            Invalid::Window(error) => self.field_of_window(error),
            // All others name their field.
            other => {
                let text = other.to_string();
                let field = text
                    .split([' ', ','])
                    .find(|word| word.starts_with("spec.") || word.starts_with("metadata."));
                field.unwrap_or("spec").to_owned()
            }
        }
    }

    fn field_of_window(&self, error: &WindowError) -> String {
        let says =
            |field: &str, text: &str| self.node(field).and_then(Node::text).unwrap_or_default() == text;
        match error {
            WindowError::Day(day) | WindowError::DayOutOfRange(day) => {
                let days = self.node("spec.window.days").map_or(&[][..], Node::items);
                let index = days.iter().position(|node| node.text() == Some(day));
                index.map_or("spec.window.days".to_owned(), |index| {
                    format!("spec.window.days[{index}]")
                })
            }
            WindowError::Zone(_) | WindowError::ZoneIsPath => "spec.window.timeZone".to_owned(),
            WindowError::Time(text) => {
                // Start is looked at first; once it was put right, the other one is meant.
                let told = |field: &str| {
                    self.found
                        .iter()
                        .any(|found| found.field.as_deref() == Some(field))
                };
                ["spec.window.startTime", "spec.window.endTime"]
                    .into_iter()
                    .find(|field| says(field, text) && !told(field))
                    .unwrap_or("spec.window")
                    .to_owned()
            }
        }
    }

    fn check_version(&mut self, spec: &PlanSpec) {
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        // One that was refused for its type is told already.
        let refused = |field: &str, kept: &Option<String>| self.has(field) && kept.is_none();
        if refused("spec.version", &spec.version) || refused("spec.channel", &spec.channel) {
            return;
        }
        if !given(&spec.version) && !given(&spec.channel) {
            let hint = "give it `version: v1.33.4+k3s1`, or a `channel` that says one".to_owned();
            self.tell(Rule::NoVersion, "spec", UNRESOLVABLE.to_owned(), Some(hint));
        }
        let channel = spec.channel.as_deref().filter(|url| !url.is_empty());
        if let Some(url) = channel {
            if let Some(node) = self.node("spec.channel").filter(|_| is_placeholder(url)) {
                self.placeholder("spec.channel", node);
            } else if let Err(error) = channel::check_url(url) {
                let hint =
                    "write a URL such as `https://update.k3s.io/v1-release/channels/stable`".to_owned();
                self.tell(
                    Rule::BadChannel,
                    "spec.channel",
                    format!("spec.channel: {error}"),
                    Some(hint),
                );
            }
        }
    }

    /// Each part of the selector by itself, so that the mistake has its line.
    fn check_node_selector(&mut self, spec: &PlanSpec) {
        let Some(selector) = &spec.node_selector else {
            return;
        };
        let mut told = false;
        let labels = self.node("spec.nodeSelector.matchLabels").and_then(Node::object);
        for Entry { key, value, .. } in labels.iter().flat_map(|labels| &labels.entries) {
            let Some(text) = value.text() else { continue };
            let one = json!({ "matchLabels": { key.name.clone(): text } });
            if let Some(error) = selector_error(one) {
                told = true;
                let field = "spec.nodeSelector.matchLabels";
                self.tell_at(
                    Rule::BadSelector,
                    key.span.start,
                    Some(field),
                    format!("{field}: {error}"),
                    None,
                );
            }
        }
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            if expression.key.is_empty() {
                told = true; // it is missing, which the schema has said
            } else if let Some(error) = selector_error(json!({ "matchExpressions": [expression] })) {
                told = true;
                let field = format!("spec.nodeSelector.matchExpressions[{index}]");
                let hint = (!matches!(
                    expression.operator.as_str(),
                    "In" | "NotIn" | "Exists" | "DoesNotExist"
                ))
                .then(|| "the operators are In, NotIn, Exists and DoesNotExist".to_owned());
                self.tell(Rule::BadSelector, &field, format!("{field}: {error}"), hint);
            }
        }
        if let Err(error) = Selector::new(Some(selector))
            && !told
        {
            self.tell(
                Rule::BadSelector,
                "spec.nodeSelector",
                format!("spec.nodeSelector: {error}"),
                None,
            );
        }
    }
}

fn selector_error(selector: Value) -> Option<String> {
    let selector = serde_json::from_value(selector).ok()?;
    Selector::new(Some(&selector))
        .err()
        .map(|error| error.to_string())
}

/// Takes the mistake out of the copy, so that the next one shows.
fn put_right(copy: &mut Value, field: &str) -> bool {
    if let "spec.window.startTime" | "spec.window.endTime" = field
        && let Some(window) = copy["spec"]["window"].as_object_mut()
    {
        let time = field.rsplit('.').next().unwrap_or_default();
        window.insert(time.to_owned(), "00:00".into());
        return true;
    }
    // Without one item the others would be taken for their neighbours.
    if field.starts_with("spec.reboot.requiredFiles[") {
        return replace(copy, field, "/file");
    }
    if field.starts_with("spec.reboot.command[") {
        return remove(copy, "spec.reboot.command");
    }
    remove(copy, field)
}

fn zone_hint(zone: &str) -> String {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let names: Vec<_> = database.available().map(|name| name.to_string()).collect();
    let near = super::nearest(zone, names.iter().map(String::as_str));
    near.map_or_else(
        || "write an IANA name such as `Europe/Berlin`; case counts".to_owned(),
        |near| format!("did you mean `{near}`?"),
    )
}
