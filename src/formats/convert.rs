//! `refit convert`: Plans from the objects of other programs that reboot or upgrade nodes.
//!
//! Pure. What a Plan cannot say becomes a note, so that nothing is lost in silence. The pages `docs/from-*.md` have the
//! same mappings in words.

mod flags;
mod flatcar;
mod kured;
mod node_op;
pub mod op_plan;
mod workload;

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use refit_api::{DrainTimeout, Plan, PlanSpec};
use refit_base::go::GoDuration;
use refit_facts::objects::node_op::{AnyOp, GROUP, VERSION};
use workload::Program;

/// The objects that can be converted, for messages.
pub const KINDS: &str = "the DaemonSet of kured, the DaemonSet or the Deployment of the Flatcar update operator, and NodeOps \
                         and NodeOpUpgrades of kairos-operator";

/// The service account that `deploy/` has for work on nodes.
const SERVICE_ACCOUNT: &str = "system-upgrade";
/// Time for image pulls and restarts of containers, in addition to that of a drain.
const BESIDE_DRAIN: i64 = 300;

/// An object as it is written in a file.
#[derive(Clone, Debug)]
pub struct Written {
    pub api_version: String,
    pub kind: String,
    pub value: Value,
}

impl From<&AnyOp> for Written {
    fn from(op: &AnyOp) -> Self {
        let annotations = &op.metadata.annotations;
        Self {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: op.kind.name().to_owned(),
            value: json!({
                "metadata": { "name": op.name(), "uid": op.uid(), "annotations": annotations },
                "spec": op.spec,
            }),
        }
    }
}

/// A Plan that does what an object did.
#[derive(Clone, Debug)]
pub struct Converted {
    pub plan: Plan,
    pub notes: Vec<Note>,
    /// The program that it is a part of, if another object also has a part.
    part: Option<Part>,
}

/// A sentence about what differs, or has to be done in addition to the Plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub text: String,
    /// The field of the object that the Plan lacks, or that does something else there.
    pub field: Option<&'static str>,
}

impl Note {
    fn of(field: &'static str, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            field: Some(field),
        }
    }
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        Self { text, field: None }
    }
}

/// The agent or the operator of Flatcar.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    program: Program,
    /// Of the object. Agent and operator run in the same one.
    namespace: String,
}

/// A Plan that does what `object` does, in `namespace`; `None` if the object is of no program that refit knows.
///
/// # Errors
/// Fails if the object has a field of another type, or a value that means nothing to its own program either, or if its
/// annotation has no fields of a Plan.
pub fn convert(object: &Written, namespace: &str) -> Option<Result<Converted, String>> {
    let converted = before_annotation(object, namespace)?;
    Some(match op_plan::annotation(object) {
        None => converted,
        Some(text) => converted.and_then(|converted| op_plan::with_annotation(converted, text)),
    })
}

/// The Plan without the fields of an annotation.
fn before_annotation(object: &Written, namespace: &str) -> Option<Result<Converted, String>> {
    let group = object.api_version.split('/').next().unwrap_or_default();
    let mut part = None;
    let converted = match (group, object.kind.as_str()) {
        ("apps", "DaemonSet" | "Deployment") => {
            let workload = match read::<workload::Workload>(&object.value) {
                Ok(workload) => workload,
                // A patch of Kustomize for something else is not an error.
                Err(why) => return workload::is_mentioned(&object.value).then_some(Err(why)),
            };
            let (program, container) = workload.program()?;
            let namespace = object.value["metadata"]["namespace"].as_str();
            part = (program != Program::Kured).then(|| Part {
                program,
                namespace: namespace.unwrap_or_default().to_owned(),
            });
            match program {
                Program::Kured => with_notes(kured::convert(&workload, container)),
                Program::FlatcarAgent => with_notes(flatcar::agent(&workload, container)),
                Program::FlatcarOperator => with_notes(flatcar::operator(&workload, container)),
            }
        }
        ("operator.kairos.io", "NodeOp") => read(&object.value).and_then(|op| node_op::convert(&op)),
        ("operator.kairos.io", "NodeOpUpgrade") => read(&object.value).map(|op| node_op::upgrade(&op)),
        _ => return None,
    };
    Some(converted.map(|(spec, notes)| {
        let name = object.value["metadata"]["name"].as_str();
        let generated = object.value["metadata"]["generateName"].as_str();
        let name = name.unwrap_or_else(|| generated.unwrap_or(&object.kind).trim_end_matches('-'));
        let mut plan = Plan::new(&name.to_lowercase(), spec);
        plan.metadata.namespace = Some(namespace.to_owned());
        Converted { plan, notes, part }
    }))
}

/// Joins the Plans for agent and operator of Flatcar where a namespace has one of each. Each Plan comes with what it
/// was made from.
pub fn join_parts(mut plans: Vec<(String, Converted)>) -> Vec<(String, Converted)> {
    let parts = plans.iter().filter_map(|(_, one)| one.part.as_ref());
    let namespaces: BTreeSet<String> = parts.map(|part| part.namespace.clone()).collect();
    for namespace in namespaces {
        let indices = |program: Program| -> Vec<usize> {
            let part = Some(Part {
                program,
                namespace: namespace.clone(),
            });
            let all = plans.iter().enumerate();
            all.filter(|(_, (_, one))| one.part == part)
                .map(|(index, _)| index)
                .collect()
        };
        let agents = indices(Program::FlatcarAgent);
        let operators = indices(Program::FlatcarOperator);
        // If there are several, it is not known which belong together.
        let ([agent], [operator]) = (&agents[..], &operators[..]) else {
            continue;
        };
        let joined = flatcar::join(&plans[*agent].1, &plans[*operator].1);
        let (later, _) = plans.remove(*agent.max(operator));
        let (from, plan) = &mut plans[*agent.min(operator)];
        *from = format!("{from} and {later}");
        *plan = joined;
    }
    plans
}

/// A spec, and what a Plan cannot say.
type WithNotes<N> = Result<(PlanSpec, Vec<N>), String>;

fn with_notes(converted: WithNotes<String>) -> WithNotes<Note> {
    converted.map(|(spec, notes)| (spec, notes.into_iter().map(Note::from).collect()))
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// What all of them have: one node at a time unless they say otherwise, and Jobs that end after their drain.
fn base(drain_timeout: Option<GoDuration>) -> PlanSpec {
    PlanSpec {
        service_account_name: Some(SERVICE_ACCOUNT.to_owned()),
        // 0 means no limit: a drain without one waits for as long as it takes.
        job_active_deadline_secs: Some(drain_timeout.map_or(0, |timeout| seconds(timeout) + BESIDE_DRAIN)),
        ..PlanSpec::default()
    }
}

fn seconds(duration: GoDuration) -> i64 {
    duration.as_nanos() / 1_000_000_000
}

fn drain_timeout(timeout: Option<GoDuration>) -> Option<DrainTimeout> {
    timeout.map(|timeout| DrainTimeout::Text(timeout.to_string()))
}

#[cfg(test)]
mod tests;
