//! `refit validate`: everything that the API server and the controller would refuse, and what is suspicious.
//!
//! Documents → schema → names → the controller's validation → suspicious values. Each stage reads what the stage before
//! it could read of the Plan: a field of the wrong type is reported once, and then removed.

mod channel;
mod control_plane;
mod controller;
mod definitions;
mod dependencies;
mod disagreement;
mod existence;
mod front_ends;
mod hooks;
mod identity;
mod images;
mod jobs;
mod label_values;
mod limits;
mod metadata;
mod options;
mod overlay;
mod path;
mod prepare;
mod read;
mod reboots;
mod running;
mod schema;
mod selector;
mod subject;
mod suspicious;
mod syntax;
mod tolerations;
mod validity;
mod value;
mod versions;
mod waits;
mod window;

use std::collections::BTreeSet;

pub use channel::Channel;
pub use existence::{ImageAtVersion, VersionedImages};
pub use front_ends::refused;
pub use identity::missed_plans;
pub use metadata::SERVER_FIELDS;
pub use options::Options;
use prepare::Known;
pub use read::{ReadPlan, name_for, read_plan};
use running::Running;
use subject::Subject;
use waits::Waits;

use super::finding::Finding;
use super::objects::{FrontEnd, Object, objects};
use super::overlay::Field;
use super::rule::Rule;
use super::source::Source;
use refit_api::Plan;

#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of files and lines.
    pub findings: Vec<Finding>,
    /// Number of Plans that were checked.
    pub plans: usize,
    /// Number of `NodeOp` and `NodeOpUpgrade` objects that were checked.
    pub node_ops: usize,
    /// Number of `NodeMaintenance` objects that were checked.
    pub maintenances: usize,
    /// The channels of the Plans, for a caller that may query them.
    pub channels: Vec<Channel>,
    /// The images of the Plans that follow the version, for a caller that may ask their registries.
    pub images: Vec<VersionedImages>,
}

/// Checks all Plans in the files, and the other objects that refit handles.
pub fn check(sources: &[Source], options: &Options) -> Report {
    let mut report = Report::default();
    let mut names = identity::Names::new();
    let all: Vec<Vec<Object<'_>>> = sources
        .iter()
        .map(|source| objects(&source.stream.documents))
        .collect();
    // Nodes may follow the Plans that select them, so they are collected first.
    let nodes = in_files(sources, &all, Running::read);
    let scripts = in_files(sources, &all, reboots::Script::read);
    let mut found_in: Vec<Vec<Finding>> = Vec::new();
    let mut plans = Vec::new();
    let mut maintained = front_ends::Maintained::new();
    for (index, (source, objects)) in sources.iter().zip(&all).enumerate() {
        let mut found = syntax::check_documents(source, &options.levels);
        found.extend(syntax::check_lists(source, &options.levels));
        let (nodes, scripts) = (beside(&nodes, source), beside(&scripts, source));
        for object in objects {
            let mut subject = Subject::new(source, object, &options.levels);
            // Asked first, because few objects are one, and there may be thousands to compare it with.
            let is_part = object.is_part_of_plan();
            if is_part && all.iter().flatten().any(|whole| object.is_patch_of(whole)) {
                subject.report_part_of_plan();
            } else if let Some(by) = source.change(object, Field::Plan) {
                subject.report_deleted(by);
            } else if object.is_plan() {
                report.plans += 1;
                if let Some(plan) = subject.plan(options, &nodes) {
                    subject.check_reboots(&plan, &scripts);
                    report.images.extend(subject.versioned_images(&plan.spec));
                    plans.push((index, object, Known::new(&plan, source)));
                }
                subject.check_unique(&mut names);
                report.channels.extend(subject.channel());
            } else if let Some(kind) = object.front_end() {
                match kind {
                    FrontEnd::Op(_) => report.node_ops += 1,
                    FrontEnd::Maintenance(_) => report.maintenances += 1,
                }
                subject.check_front_end(kind, options, &nodes, &mut maintained);
            } else if limits::is_limits(object) {
                subject.check_limits();
            } else {
                subject.check_nearly_a_plan();
                subject.check_nearly_a_front_end();
                subject.check_node_labels();
            }
            found.extend(subject.finish());
        }
        found_in.push(found);
    }
    // `prepare` and `dependsOn` name other Plans, so they are checked once all Plans are known.
    let known: Vec<_> = plans.iter().map(|(.., known)| known.clone()).collect();
    let waits = Waits::new(&known);
    let mut disagreeing = BTreeSet::new();
    for (place, (index, object, own)) in plans.into_iter().enumerate() {
        let mut subject = Subject::new(&sources[index], object, &options.levels);
        subject.check_prepare(&own, &waits);
        subject.check_dependencies(&own, &waits);
        // A Plan that disagrees has been reported; those after it need not agree with it.
        let before = known[..place].iter().enumerate();
        let before = before.filter(|(place, _)| !disagreeing.contains(place));
        let nodes = beside(&nodes, &sources[index]);
        if subject.check_disagreement(&own, before.map(|(_, known)| known), &nodes) {
            disagreeing.insert(place);
        }
        found_in[index].extend(subject.finish());
    }
    for mut found in found_in {
        found.sort_by_key(|found| (found.position, found.rule));
        // A Plan in an anchor is reported once, however many aliases refer to it.
        found.dedup_by(|a, b| {
            (a.position, a.rule, &a.field, &a.message) == (b.position, b.rule, &b.field, &b.message)
        });
        report.findings.append(&mut found);
    }
    report
}

/// What is read of the objects of all files, each with its file.
fn in_files<'s, T, I: IntoIterator<Item = T>>(
    sources: &'s [Source],
    all: &[Vec<Object<'s>>],
    read: impl Fn(&Object<'s>) -> I,
) -> Vec<(&'s Source, T)> {
    let objects = sources.iter().zip(all);
    let objects = objects.flat_map(|(source, objects)| objects.iter().map(move |object| (source, object)));
    let found = objects.flat_map(|(source, object)| read(object).into_iter().map(move |it| (source, it)));
    found.collect()
}

/// What may be of the same cluster as a file.
fn beside<'a, T>(all: &'a [(&Source, T)], source: &Source) -> Vec<&'a T> {
    let found = all
        .iter()
        .filter(|(other, _)| other.roots.may_share_cluster(&source.roots));
    found.map(|(_, it)| it).collect()
}

impl Subject<'_> {
    /// Checks a Plan, and returns what could be read of it.
    fn plan(&mut self, options: &Options, nodes: &[&Running]) -> Option<Plan> {
        self.check_repeated_keys();
        // What the API server accepts, and what it stores
        let mut read = self.read_by_schema(&definitions::PLAN);
        self.apply_overlay(&mut read);
        self.fill_label_values(&mut read);
        // Otherwise the schema has reported it.
        if !self.is_no_object("metadata") {
            self.check_metadata(options.namespace.as_deref());
        }
        if self.is_no_object("spec") {
            return None;
        }
        // The Plan, without the refused fields
        let plan: Plan = match serde_json::from_value(read) {
            Ok(plan) => plan,
            Err(error) => {
                self.report(
                    Rule::WrongType,
                    "spec",
                    format!("the Plan cannot be read: {error}"),
                    None,
                );
                return None;
            }
        };
        if !self.has("spec") {
            self.report(
                Rule::NoVersion,
                "spec",
                format!(
                    "spec is missing, and the controller says: {}",
                    controller::UNRESOLVABLE
                ),
                None,
            );
            return Some(plan);
        }
        self.check_post_complete_labels(&plan.spec);
        self.check_as_controller(&plan);
        self.check_jobs(&plan);
        self.check_images(&plan.spec);
        self.check_hooks(&plan.spec);
        self.check_selector(&plan, nodes);
        self.check_window(&plan.spec);
        self.check_suspicious(&plan);
        self.check_control_plane(&plan);
        self.check_versions(&plan, nodes);
        Some(plan)
    }
}
