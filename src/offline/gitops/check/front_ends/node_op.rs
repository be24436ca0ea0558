//! What is wrong with a `NodeOp` or a `NodeOpUpgrade`: what cannot become a Plan, and what is wrong with the Plan that
//! it becomes.
//!
//! The Plan is checked like any other. Its findings are placed at the field of the object that they follow from.

use serde_json::{Map, Value, json};

use crate::gitops::check::running::Running;
use crate::gitops::check::{Options, Subject};
use crate::gitops::finding::Finding;
use crate::gitops::objects::objects;
use crate::gitops::rule::Rule;
use crate::gitops::source::Source;
use crate::gitops::yaml::Node;
use refit_api::names::GROUP;
use refit_formats::convert::op_plan::{ANNOTATION_SPEC, annotation, before_annotation, fields, with_fields};

/// The namespace of the controller, if it is not known.
const NAMESPACE: &str = "system-upgrade";

/// Fields of a Plan, and the fields of the object that become them. The longer path is first.
const FIELDS: [(&str, &str); 12] = [
    ("spec.nodeSelector", "spec.nodeSelector"),
    ("spec.imagePullSecrets", "spec.imagePullSecrets"),
    ("spec.concurrency", "spec.concurrency"),
    ("spec.maxConcurrent", "spec.concurrency"),
    ("spec.upgrade.image", "spec.image"),
    ("spec.upgrade.command", "spec.command"),
    ("spec.upgrade.volumes", "spec.hostMountPath"),
    ("spec.preflight.image", "spec.preflight.image"),
    ("spec.preflight", "spec.preflight"),
    ("spec.drain.timeout", "spec.drainOptions.timeoutSeconds"),
    ("spec.drain.gracePeriod", "spec.drainOptions.gracePeriodSeconds"),
    ("spec.drain", "spec.drainOptions"),
];
/// Rules about fields that the translation writes, and not the user: the version stands for nothing, and the namespace
/// is that of the controller.
const ABOUT_TRANSLATION: [Rule; 5] = [
    Rule::OtherNamespace,
    Rule::ImageTag,
    Rule::NoRelease,
    Rule::VersionStep,
    Rule::ServerField,
];

impl Subject<'_> {
    pub(super) fn check_node_op(&mut self, options: &Options, nodes: &[&Running]) {
        let written = self.object.written();
        let namespace = options.namespace.as_deref().unwrap_or(NAMESPACE);
        let converted = match before_annotation(&written, namespace) {
            Ok(converted) => converted,
            Err(why) => {
                let field = why.split([' ', ':']).next().filter(|it| it.starts_with("spec."));
                let field = field.unwrap_or("spec").to_owned();
                self.report(Rule::InvalidNodeOp, &field, why, None);
                return;
            }
        };
        for note in &converted.notes {
            let field = note.field.unwrap_or("spec");
            let message = note.text.trim_end_matches('.').to_owned();
            self.report(Rule::NodeOpField, field, message, None);
        }
        let mut more = Map::new();
        if let Some(text) = annotation(&written) {
            match fields(text) {
                Ok(read) => more = read,
                Err(error) => {
                    let message = format!(
                        "the annotation {ANNOTATION_SPEC} must be a JSON object of fields of a Plan: {error}"
                    );
                    let hint = "write it like {\"maxUnavailable\": \"10%\"}".to_owned();
                    let offset = self.annotation_offset();
                    let field = annotation_field("");
                    self.report_at(Rule::InvalidNodeOp, offset, Some(&field), message, Some(hint));
                    return;
                }
            }
        }
        let spec = with_fields(json!(converted.plan.spec), more.clone());
        let plan = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Plan",
            "metadata": { "name": converted.plan.metadata.name, "namespace": namespace }, "spec": spec,
        });
        let source = Source::new(self.source.name.clone(), None, plan.to_string());
        let read = objects(&source.stream.documents);
        let Some(object) = read.first() else { return };
        let mut of_plan = Subject::new(&source, object, self.levels);
        of_plan.plan(options, nodes);
        for found in of_plan.finish() {
            self.take(found, &more);
        }
    }

    /// Takes a finding about the Plan.
    fn take(&mut self, found: Finding, more: &Map<String, Value>) {
        let field = found.field.clone().unwrap_or_default();
        let top = field.strip_prefix("spec.").unwrap_or_default();
        let top = top.split(['.', '[']).next().unwrap_or_default();
        if more.contains_key(top) {
            // A null takes a field of the object away.
            if found.rule != Rule::NullField {
                self.found.push(Finding {
                    position: self.source.position(self.annotation_offset()),
                    field: Some(annotation_field(&field)),
                    message: format!("the annotation {ANNOTATION_SPEC}: {}", found.message),
                    hint: found
                        .hint
                        .map(|hint| format!("in the annotation: {}", hint.replace('`', ""))),
                    plan: Some(self.object.title()),
                    ..found
                });
            }
            return;
        }
        if ABOUT_TRANSLATION.contains(&found.rule) || field.starts_with("metadata.") {
            return;
        }
        let mut known = FIELDS.iter();
        let own = known.find_map(|(of_plan, own)| Some((*own, field.strip_prefix(*of_plan)?)));
        let own = own.map_or_else(|| "spec".to_owned(), |(own, rest)| format!("{own}{rest}"));
        let is_same = own == field;
        self.found.push(Finding {
            position: self.source.position(self.offset(&own)),
            field: Some(own),
            message: if is_same {
                found.message
            } else {
                format!("the resulting Plan: {}", found.message)
            },
            hint: found.hint.filter(|_| is_same),
            plan: Some(self.object.title()),
            ..found
        });
    }

    fn annotation_offset(&self) -> usize {
        let annotations = self
            .object
            .node
            .get("metadata")
            .and_then(|it| it.get("annotations"));
        let value = annotations.and_then(|it| it.get(ANNOTATION_SPEC));
        value.map_or_else(|| self.offset("metadata.annotations"), Node::offset)
    }
}

fn annotation_field(field: &str) -> String {
    let name = format!("metadata.annotations[{ANNOTATION_SPEC}]");
    if field.is_empty() {
        name
    } else {
        format!("{name}.{field}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitops::check::check;

    fn findings(text: &str) -> Vec<(usize, Rule, String, String)> {
        let source = Source::new("op.yaml", None, text.to_owned());
        let report = check(&[source], &Options::default());
        assert_eq!((report.plans, report.node_ops), (0, 1));
        let found = report.findings.into_iter();
        found
            .map(|one| {
                (
                    one.position.line,
                    one.rule,
                    one.field.unwrap_or_default(),
                    one.message,
                )
            })
            .collect()
    }

    /// A `NodeOp` whose annotation begins in line 7, with more lines of spec.
    fn op(annotation: &str, more: &str) -> String {
        format!(
            "apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata:
  name: firmware
  annotations:
    refit.rs/plan-spec: |
{annotation}
spec:
  nodeSelector: {{matchLabels: {{kairos.io/managed: 'true'}}}}
  image: registry.example.com/firmware:v3
  command: [/update.sh]
  concurrency: 1
{more}"
        )
    }

    #[test]
    fn a_mistake_in_the_annotation_has_the_place_of_its_text_and_the_field_of_the_plan() {
        let found = findings(&op("      {\"suspend\": false,\n       \"windowss\": []}", ""));
        let [(line, rule, field, message)] = found.as_slice() else {
            panic!("{found:#?}")
        };
        assert_eq!((*line, *rule), (7, Rule::UnknownField));
        assert_eq!(field, "metadata.annotations[refit.rs/plan-spec].spec.windowss");
        assert_eq!(
            message,
            "the annotation refit.rs/plan-spec: a Plan has no field spec.windowss"
        );
        let found = findings(&op("      {\"suspend\": false,\n       windows: []}", ""));
        assert_eq!((found[0].0, found[0].1, found.len()), (7, Rule::InvalidNodeOp, 1));
    }

    #[test]
    fn fields_of_the_annotation_are_checked_as_those_of_a_plan_and_those_of_the_translation_are_not() {
        let ok = r#"      {"maxUnavailable": "10%", "jobActiveDeadlineSecs": 1800, "drain": null}"#;
        assert_eq!(findings(&op(ok, "")), []);
        let found = findings(&op(
            r#"      {"checks": [{"name": "a", "http": {"url": 7}}]}"#,
            "",
        ));
        assert_eq!((found[0].0, found[0].1), (7, Rule::WrongType), "{found:#?}");
    }

    #[test]
    fn fields_of_a_node_op_without_effect_have_a_note() {
        let found = findings(&op("      {}", "  backoffLimit: 3\n"));
        let [(line, rule, field, message)] = found.as_slice() else {
            panic!("{found:#?}")
        };
        assert_eq!(
            (*line, *rule, field.as_str()),
            (13, Rule::NodeOpField, "spec.backoffLimit")
        );
        assert!(message.starts_with("backoffLimit was left out"), "{message}");
    }
}
