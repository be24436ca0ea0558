//! Which Plans `dependsOn` waits for: cycles, and Plans that are in none of the files.

use super::metadata::is_subdomain;
use super::prepare::Known;
use super::subject::Subject;
use super::waits::Waits;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::Rule;
use refit_base::nearest::nearest;
use refit_base::version::Version;

impl Subject<'_> {
    /// Checks which Plans this one waits for.
    pub(super) fn check_dependencies(&mut self, own: &Known, waits: &Waits<'_>) {
        for (index, name) in own.depends_on.iter().enumerate() {
            let field = format!("spec.dependsOn[{index}].name");
            // The controller says the rest of these.
            if !is_subdomain(name) || is_placeholder(name) || *name == own.name {
                continue;
            }
            let Some(awaited) = waits.beside(own, name) else {
                self.report_unknown_plan(&field, own, waits, name);
                continue;
            };
            if let Some(members) = waits.cycle(own, name) {
                let message =
                    format!("{field} makes a cycle, so that none of its Plans upgrades a node: {members}");
                let hint = "remove one of the entries; control-plane nodes come before agents".to_owned();
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

    fn report_unknown_plan(&mut self, field: &str, own: &Known, waits: &Waits<'_>, name: &str) {
        let others = || waits.all.iter().filter(|other| other.name != own.name);
        let why = waits.elsewhere(own, name);
        let near = others().filter(|other| own.is_beside(other));
        let hint = match nearest(name, near.map(|other| other.name.as_str())) {
            Some(near) => format!("did you mean {near}?"),
            None => "check that it exists in the same namespace; otherwise no node ever starts".to_owned(),
        };
        let message = format!("{field} is {name:?}, and that Plan {why}");
        self.report(Rule::UnknownPlan, field, message, Some(hint));
    }
}
