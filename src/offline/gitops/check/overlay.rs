//! Fields that kustomizations among the files set: the Plan is checked with them.

use serde_json::{Value, json};

use super::subject::Subject;
use crate::gitops::rule::Rule;

impl Subject<'_> {
    /// Reports a patch, which is no Plan of its own.
    pub(super) fn report_part_of_plan(&mut self) {
        let message = "this is a part of a Plan of the files, as of an overlay: refit does not check it";
        let hint = "validate the output of kustomize: `kustomize build … | refit validate -`";
        self.report(
            Rule::Patch,
            "metadata.name",
            message.to_owned(),
            Some(hint.to_owned()),
        );
    }

    /// Sets the namespace that kustomizations set, and, in a Plan without a version, the version, and names the patch.
    pub(super) fn apply_overlay(&mut self, read: &mut Value) {
        const FIELD: &str = "spec.version";
        let Some(overlay) = self.source.overlay(self.object) else {
            return;
        };
        if let (Some(namespace), Some(metadata)) = (&overlay.namespace, read["metadata"].as_object_mut()) {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        // Overlays of several clusters may set several versions; the Plan is checked with one of them, or with its own.
        let Some(first) = overlay.versions.first() else {
            return;
        };
        if self.has(FIELD) {
            return;
        }
        let set: Vec<_> = overlay
            .versions
            .iter()
            .map(|set| format!("{:?} ({})", set.version, set.place()))
            .collect();
        let message = format!("a patch of Kustomize sets {FIELD}: {}", set.join(", "));
        let hint = "change the version there".to_owned();
        self.report(Rule::Patch, FIELD, message, Some(hint));
        if let Some(spec) = read["spec"].as_object_mut() {
            spec.insert("version".to_owned(), json!(first.version));
        }
    }
}
