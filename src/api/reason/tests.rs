//! Compares the lists of reasons with the tables of the documents, which are generated from them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::*;
use crate::open_enum::ClosedEnum as _;
use crate::{NodePhase, NodeProgress, OpenEnum, PlanCondition};
use refit_fixtures::generated::{assert_committed, committed};

fn of_kind(kind: Kind) -> impl Iterator<Item = Reason> {
    Reason::ALL
        .iter()
        .copied()
        .filter(move |reason| reason.kind() == kind)
}

/// Cells at the end that are empty may be left out.
fn row(table: &mut String, cells: &[&str]) {
    let last = cells.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
    let _ = writeln!(table, "| {} |", cells[..=last].join(" | "));
}

fn table(head: &[&str]) -> String {
    let mut table = String::new();
    row(&mut table, head);
    let _ = writeln!(table, "|{}", "---|".repeat(head.len()));
    table
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

fn conditions() -> String {
    let mut table = table(&["condition: reasons", "what it means", "remedy"]);
    let mut explained = BTreeSet::new();
    for condition in ConditionType::ALL {
        row(&mut table, &[&quoted(condition.name()), condition.about()]);
        let mut reasons: Vec<_> = Reason::ALL
            .iter()
            .filter(|reason| reason.kind() != Kind::Wait && reason.appears_in((*condition).into()))
            .collect();
        reasons.sort_by_key(|reason| !reason.is_true());
        for reason in reasons {
            let is_true = if reason.is_true() { "True:" } else { "False:" };
            let name = format!("{is_true} {}", quoted(reason.name()));
            let (about, remedy) = if explained.insert(reason.name()) {
                (reason.about(), reason.remedy())
            } else {
                ("as above", "")
            };
            row(&mut table, &[&name, about, remedy]);
        }
        if *condition == ConditionType::Complete {
            let about = "[a reason to wait](#why-does-nothing-happen)";
            row(&mut table, &["False:", about, ""]);
        }
    }
    table
}

fn phases() -> String {
    let mut table = table(&["phase", "what it means"]);
    for phase in NodePhase::ALL {
        row(&mut table, &[&quoted(phase.name()), phase.about()]);
    }
    table
}

/// The name of a reason, which leads to the page that says more, and its remedy without that link.
fn linked(reason: Reason) -> (String, &'static str) {
    let (name, remedy) = (quoted(reason.name()), reason.remedy());
    for more in ["; [more](", ". [More]("] {
        if let Some((remedy, page)) = remedy.split_once(more) {
            return (format!("[{name}]({page}"), remedy);
        }
    }
    (name, remedy)
}

fn explained(kind: Kind) -> String {
    let mut table = table(&["reason", "what it means", "remedy"]);
    for reason in of_kind(kind) {
        let (name, remedy) = linked(reason);
        row(&mut table, &[&name, reason.about(), remedy]);
    }
    table
}

/// Commands print their remedies beside them.
fn of_commands() -> String {
    let mut table = table(&["reason", "what it means"]);
    for reason in of_kind(Kind::Explain) {
        row(&mut table, &[&quoted(reason.name()), reason.about()]);
    }
    table
}

/// Those that no other table explains.
fn events(reported_in: ReportedIn) -> String {
    let mut table = table(&["event", "what it means"]);
    let reasons = of_kind(Kind::Event).filter(|reason| reason.appears_in(reported_in));
    for reason in reasons {
        let severity = match reason.severity() {
            Severity::Normal => "",
            Severity::Warning => " (warning)",
        };
        let name = format!("{}{severity}", quoted(reason.name()));
        row(&mut table, &[&name, reason.about()]);
    }
    table
}

/// A document about objects of another project.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ForeignDocument {
    NodeMaintenance,
    Kairos,
    Drain,
}

impl ForeignDocument {
    const fn of(reason: ForeignReason) -> Self {
        match reason {
            ForeignReason::BeginMaintenance
            | ForeignReason::SucceedMaintenance
            | ForeignReason::FailedMaintenance
            | ForeignReason::UncordonNode
            | ForeignReason::RemovedMaintenance => Self::NodeMaintenance,
            ForeignReason::Refused => Self::Kairos,
            ForeignReason::DrainTimeout => Self::Drain,
        }
    }

    const fn file(self) -> &'static str {
        match self {
            Self::NodeMaintenance => "docs/from-node-maintenance.md",
            Self::Kairos => "docs/from-kairos.md",
            Self::Drain => "docs/drain.md",
        }
    }

    fn table(self) -> String {
        let mut table = table(&["event", "type", "when"]);
        let reasons = ForeignReason::ALL.iter().copied();
        for reason in reasons.filter(|reason| Self::of(*reason) == self) {
            let name = quoted(reason.name());
            row(&mut table, &[&name, reason.severity().name(), reason.about()]);
        }
        table
    }
}

fn tables() -> Vec<(&'static str, String)> {
    vec![
        ("conditions", conditions()),
        ("phases", phases()),
        ("waits", explained(Kind::Wait)),
        ("commands", of_commands()),
        ("failures", explained(Kind::Failure)),
        ("reboot-pod", explained(Kind::RebootPod)),
        ("events", events(ReportedIn::PlanEvent)),
        ("node-events", events(ReportedIn::NodeEvent)),
        ("config-map-events", events(ReportedIn::ConfigMapEvent)),
    ]
}

/// The document with regenerated tables between their comments.
fn written(document: &str, tables: Vec<(&str, String)>) -> String {
    let mut document = document.to_owned();
    for (name, table) in tables {
        let (begins, ends) = (
            format!("<!-- {name}: generated from src/api/reason -->\n"),
            format!("<!-- end of {name} -->\n"),
        );
        let (before, rest) = document.split_once(&begins).expect(name);
        let (_, after) = rest.split_once(&ends).expect(name);
        document = format!("{before}{begins}\n{table}\n{ends}{after}");
    }
    document
}

#[test]
fn the_committed_tables_of_reasons_are_those_of_the_list() {
    let file = "docs/operations.md";
    assert_committed(file, &written(&committed(file), tables()));
    for document in [
        ForeignDocument::NodeMaintenance,
        ForeignDocument::Kairos,
        ForeignDocument::Drain,
    ] {
        let tables = vec![("events", document.table())];
        assert_committed(document.file(), &written(&committed(document.file()), tables));
    }
}

#[test]
fn each_reason_phase_and_condition_is_found_by_a_name_of_its_own() {
    let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        assert_eq!(Reason::named(reason.name()), Some(*reason));
        assert!(
            !reason.reported_in().is_empty() && !reason.about().is_empty(),
            "{reason}"
        );
        assert!(
            !reason.about().contains('|') && !reason.remedy().contains('|'),
            "{reason}"
        );
        let asks = matches!(
            reason.kind(),
            Kind::Wait | Kind::Failure | Kind::Hold | Kind::Explain
        );
        assert!(!asks || !reason.remedy().is_empty(), "{reason} has no remedy");
    }
    for phase in NodePhase::ALL {
        assert_eq!(NodePhase::named(phase.name()), Some(*phase));
    }
    assert_eq!(Reason::named("NoSuchReason"), None);
}

#[test]
fn reasons_of_another_version_are_read_and_written_back() {
    let entry = r#"{"name":"a","phase":"Dancing","reason":"NoMusic"}"#;
    let read: NodeProgress = serde_json::from_str(entry).unwrap();
    assert_eq!((read.phase.known(), read.phase.as_str()), (None, "Dancing"));
    assert_eq!(read.reason, Some(OpenEnum::Other("NoMusic".to_owned())));
    assert_eq!(serde_json::to_string(&read).unwrap(), entry);
    let known = r#"{"type":"Complete","status":"False","reason":"JobFailed"}"#;
    let read: PlanCondition = serde_json::from_str(known).unwrap();
    assert!(read.type_ == ConditionType::Complete && read.reason == Some(Reason::JobFailed.into()));
    assert_eq!(serde_json::to_string(&read).unwrap(), known);
    assert!(serde_json::from_str::<NodeProgress>(r#"{"phase":1}"#).is_err());
}

#[test]
fn the_definition_names_all_phases() {
    let yaml = crate::crd::to_yaml().unwrap();
    let words: BTreeSet<_> = yaml.split('`').collect();
    for phase in NodePhase::ALL {
        assert!(words.contains(phase.name()), "{phase}");
    }
}
