//! Whether an object is a Plan, and only one: kind, name, repeated keys.

use std::collections::{BTreeMap, BTreeSet};

use super::subject::Subject;
use super::syntax::check_lists;
use crate::gitops::finding::{Finding, Levels};
use crate::gitops::objects::objects;
use crate::gitops::roots::Roots;
use crate::gitops::rule::Rule;
use crate::gitops::source::Source;
use crate::gitops::yaml::{Key, Kind};
use refit_api::names::GROUP;
use refit_base::nearest::nearest;

/// Where Plans are, by namespace and name, and the clusters of their files.
pub(super) type Names = BTreeMap<(String, String), Vec<(String, Roots)>>;

/// Plans that a file seems to have and no command sees, such as one with another object in its document.
pub fn missed_plans(source: &Source) -> Vec<Finding> {
    let levels = Levels::default();
    let objects = objects(&source.stream.documents);
    let others = objects
        .iter()
        .filter(|object| !object.is_plan() && object.front_end().is_none());
    let mut found = check_lists(source, &levels);
    found.extend(others.flat_map(|object| {
        let mut subject = Subject::new(source, object, &levels);
        subject.check_nearly_a_plan();
        subject.finish()
    }));
    found
}

impl Subject<'_> {
    pub(super) fn check_repeated_keys(&mut self) {
        let merged = self.merged_objects();
        for offset in &merged {
            self.report_at(
                Rule::DuplicateKey,
                *offset,
                None,
                "a second object begins here without a line `---` above it".to_owned(),
                Some("put a line of three dashes above this one; kubectl sees one object, and the first is lost".to_owned()),
            );
        }
        let top = self
            .object
            .node
            .object()
            .map_or(&[][..], |object| &object.repeated);
        let top = top.iter().filter(|_| !merged.is_empty());
        let top: BTreeSet<usize> = top.map(|key| key.span.start).collect();
        let repeated: Vec<_> = self
            .object
            .node
            .repeated()
            .iter()
            .filter(|key| !top.contains(&key.span.start))
            .map(|key| {
                (
                    key.span.start,
                    key.name.clone(),
                    key.earlier.unwrap_or(key.span.start),
                )
            })
            .collect();
        for (offset, name, earlier) in repeated {
            let line = self.source.position(earlier).line;
            self.report_at(
                Rule::DuplicateKey,
                offset,
                None,
                format!("the key {name:?} appears twice in the same object; before in line {line}"),
                Some("keep one of the two; kubectl takes the last".to_owned()),
            );
        }
    }

    /// Offsets of further objects that no `---` separates from the first: their identifying keys appear again.
    pub(super) fn merged_objects(&self) -> Vec<usize> {
        let Some(object) = self.object.node.object() else {
            return Vec::new();
        };
        let mut begins = Vec::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for key in &object.repeated {
            if begins.is_empty() || !seen.insert(&key.name) {
                begins.push(key.span.start);
                seen = BTreeSet::from([key.name.as_str()]);
            }
        }
        // One repeated key is a typo, not a second object.
        let is_identity = |key: &&Key| matches!(key.name.as_str(), "apiVersion" | "kind" | "metadata");
        if object.repeated.iter().filter(is_identity).count() < 2 {
            begins.clear();
        }
        begins
    }

    /// Reports a Plan whose name an earlier Plan of the same cluster has, in this file or in another one.
    pub(super) fn check_unique(&mut self, names: &mut Names) {
        let Some(name) = self.object.metadata("name") else {
            return;
        };
        let namespace = self.object.metadata("namespace").unwrap_or_default();
        let key = (namespace.to_owned(), name.to_owned());
        let position = self.source.position(self.offset("metadata.name"));
        let here = format!("{}:{}", self.source.name, position.line);
        let roots = &self.source.roots;
        let known = names.entry(key).or_default();
        if let Some((first, _)) = known.iter().find(|(_, other)| other.may_share_cluster(roots)) {
            let message = format!("Plan {:?} is defined in {first} already", self.object.title());
            let hint = "rename one of them; otherwise the one that is applied last wins".to_owned();
            self.report(Rule::DuplicateObject, "metadata.name", message, Some(hint));
        } else {
            known.push((here, roots.clone()));
        }
    }

    /// Reports an object that was probably meant to be a Plan.
    pub(super) fn check_nearly_a_plan(&mut self) {
        let (version, kind) = (self.object.api_version.clone(), self.object.kind.clone());
        let wanted = format!("{GROUP}/{}", refit_api::crd::VERSION);
        let group = version.split('/').next().unwrap_or_default().to_owned();
        let is_list = self.object.is_list();
        if self.source.text.contains(GROUP) && (is_list || !self.merged_objects().is_empty()) {
            self.check_repeated_keys();
        }
        if is_list {
            return;
        }
        let has_spec = |field: &str| self.node("spec").is_some_and(|spec| spec.get(field).is_some());
        let looks_like_one = has_spec("upgrade") && (has_spec("nodeSelector") || has_spec("concurrency"));
        // The rest of an object that breaks off may have what it lacks.
        if (kind.is_empty() || version.is_empty()) && !self.source.stream.errors.is_empty() {
            return;
        }
        if group == GROUP && kind != "Plan" {
            let (field, is, verb) = self.identity("kind");
            let message = format!("{is}, but the only kind in {GROUP} is Plan");
            let hint = format!("{verb} `kind: Plan`");
            self.report(Rule::NotAPlan, &field, message, Some(hint));
        } else if kind == "Plan"
            && version != wanted
            && (looks_like_one || group == GROUP || is_near(&group, GROUP))
        {
            let (field, is, verb) = self.identity("apiVersion");
            let message = format!("{is}, but that of a Plan is {wanted:?}");
            let hint = format!("{verb} `apiVersion: {wanted}`");
            self.report(Rule::NotAPlan, &field, message, Some(hint));
        } else if looks_like_one && (kind.is_empty() || version.is_empty()) {
            let lines = [("apiVersion", wanted.as_str(), &version), ("kind", "Plan", &kind)];
            let lines = lines.iter().filter(|(_, _, given)| given.is_empty());
            let lines: Vec<_> = lines
                .map(|(field, value, _)| format!("`{field}: {value}`"))
                .collect();
            let message = "this looks like a Plan, but its apiVersion or kind is missing".to_owned();
            self.report(
                Rule::NotAPlan,
                "spec",
                message,
                Some(format!("add {}", lines.join(" and "))),
            );
        }
    }

    /// The key to write for `apiVersion` or `kind`, what it is now, and whether to add or to replace it.
    fn identity(&self, field: &str) -> (String, String, &'static str) {
        const OTHERS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
        let object = self.object.node.object();
        if let Some(entry) = object.and_then(|object| object.entry(field)) {
            let is = match &entry.value.kind {
                Kind::Text(text) => format!("{text:?}"),
                Kind::Null => "empty".to_owned(),
                Kind::List(_) => "a list".to_owned(),
                Kind::Map(_) => "an object".to_owned(),
                _ => self.written(&entry.value).to_owned(),
            };
            return (field.to_owned(), format!("{field} is {is}"), "write");
        }
        let entries = object.map_or(&[][..], |object| &object.entries);
        let mut keys = entries.iter().map(|entry| entry.key.name.as_str());
        let misspelt = keys.find(|key| !OTHERS.contains(key) && nearest(key, [field]).is_some());
        misspelt.map_or_else(
            || (field.to_owned(), format!("{field} is missing"), "add"),
            |key| {
                let is = format!("{field} is misspelt as {key:?}");
                (key.to_owned(), is, "write")
            },
        )
    }
}

fn is_near(text: &str, wanted: &str) -> bool {
    // A long text is excluded first, because the distance takes time in proportion to the product of both lengths.
    text.len() <= wanted.len() + 12 && strsim::osa_distance(text, wanted) <= 3
}
