//! Which Plans `dependsOn` waits for: cycles, and Plans that are in none of the files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::metadata::is_subdomain;
use super::prepare::Known;
use super::subject::Subject;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::Rule;
use refit_base::nearest::nearest;
use refit_base::version::Version;

impl Subject<'_> {
    /// Checks which Plans this one waits for. `all` has all Plans of the files.
    pub(super) fn check_dependencies(&mut self, own: &Known, all: &[Known]) {
        for (index, name) in own.depends_on.iter().enumerate() {
            let field = format!("spec.dependsOn[{index}].name");
            // The controller says the rest of these.
            if !is_subdomain(name) || is_placeholder(name) || *name == own.name {
                continue;
            }
            let Some(awaited) = own.beside(all, name) else {
                self.report_unknown_plan(&field, own, all, name);
                continue;
            };
            if let Some(members) = cycle(own, awaited, all) {
                let message =
                    format!("{field} makes a cycle, so that none of its Plans starts a node: {members}");
                let hint = "remove one of the entries".to_owned();
                self.report(Rule::DependencyCycle, &field, message, Some(hint));
                continue;
            }
            self.check_older(own, awaited);
        }
    }

    /// Checks that the other Plan is not at an older version of the same distribution, for which the controller waits.
    fn check_older(&mut self, own: &Known, awaited: &Known) {
        let (Some(mine), Some(theirs)) = (&own.version, &awaited.version) else {
            return;
        };
        let parsed = mine.parse::<Version>().ok().zip(theirs.parse::<Version>().ok());
        let is_older = own.program.is_some()
            && own.program == awaited.program
            && parsed.is_some_and(|(mine, theirs)| theirs < mine);
        if is_older {
            let message = format!(
                "spec.version is {mine:?}, and that of Plan {:?} is {theirs:?}: this Plan waits until the other one is not older",
                awaited.name
            );
            let hint = "give both Plans the same version".to_owned();
            self.report(Rule::VersionSkew, "spec.version", message, Some(hint));
        }
    }

    fn report_unknown_plan(&mut self, field: &str, own: &Known, all: &[Known], name: &str) {
        let others = || all.iter().filter(|other| other.name != own.name);
        let elsewhere = others().find(|other| other.name == name);
        let why = match elsewhere {
            Some(other) => format!("is in namespace {:?}, not in that of this Plan", other.namespace),
            None => "is in none of these files".to_owned(),
        };
        let near = others().filter(|other| other.namespace == own.namespace);
        let hint = match nearest(name, near.map(|other| other.name.as_str())) {
            Some(near) => format!("did you mean {near}?"),
            None => "check that it exists in the same namespace; otherwise no node ever starts".to_owned(),
        };
        let message = format!("{field} is {name:?}, and that Plan {why}");
        self.report(Rule::UnknownPlan, field, message, Some(hint));
    }
}

/// The shortest cycle that leads from a Plan over one that it waits for back to it, in words.
fn cycle(own: &Known, first: &Known, all: &[Known]) -> Option<String> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut seen = BTreeSet::from([first.name.as_str()]);
    let mut queue = VecDeque::from([first]);
    while let Some(next) = queue.pop_front() {
        for name in &next.depends_on {
            if *name == own.name {
                let mut members = vec![own.name.as_str()];
                let mut member = Some(next.name.as_str());
                while let Some(name) = member {
                    members.push(name);
                    member = before.get(name).copied();
                }
                members.push(&own.name);
                members.reverse();
                return Some(members.join(" waits for "));
            }
            if let Some(other) = own.beside(all, name).filter(|other| seen.insert(&other.name)) {
                before.insert(&other.name, &next.name);
                queue.push_back(other);
            }
        }
    }
    None
}
