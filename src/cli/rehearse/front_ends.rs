//! Objects other than Plans in a rehearsal: a `NodeOp` becomes the Plan that the controller would make of it, and a
//! `NodeMaintenance` holds its node.

use std::collections::BTreeSet;

use super::flags::Flags;
use super::input::{InputPlan, NAMESPACE, RehearsalInput};
use crate::cli::output;
use refit_controller::settings::{FrontEndName, Settings};
use refit_facts::objects::maintenance::KIND;
use refit_formats::convert::op_plan::LABEL_OWNER;
use refit_formats::convert::{Written, op_plan};
use refit_rehearse::json::{Value, json};
use refit_rehearse::run::InitialCluster;
use refit_rehearse::snapshot::Snapshot;

/// A `NodeOp` or a `NodeOpUpgrade` of a file.
#[derive(Clone, Debug)]
pub(super) struct InputOp {
    /// File and line.
    pub(super) place: String,
    /// Kind, namespace and name.
    pub(super) title: String,
    pub(super) written: Written,
}

/// Adds the Plans of node operations: of those in files to the Plans of the files, and of those on the cluster to its Plans.
/// They are in the namespace of the controller.
pub(super) fn add_plans(flags: &Flags, given: &mut RehearsalInput, snapshot: Option<&mut Snapshot>) {
    let of_files = given.plans.first().map(|plan| plan.namespace().to_owned());
    let of_cluster = snapshot.as_ref().and_then(|snapshot| {
        let plan = snapshot.plans.first()?;
        Some(plan["metadata"]["namespace"].as_str()?.to_owned())
    });
    let namespace = flags.namespace.clone().or(of_files).or(of_cluster);
    let namespace = namespace.unwrap_or_else(|| NAMESPACE.to_owned());
    for op in std::mem::take(&mut given.node_ops) {
        let InputOp {
            place,
            title,
            written,
        } = op;
        if let Some(phase) = begun(&written) {
            output::note(format_args!(
                "{place}: {title}: skipped, it has begun already (status.phase is {phase}), so that the controller makes no Plan of it"
            ));
            continue;
        }
        match op_plan::plan(&written, &namespace) {
            Ok(converted) => {
                let mut plan = converted.plan;
                let name = plan.metadata.name.clone().unwrap_or_default();
                let name = unused(name, given);
                output::note(format_args!(
                    "{place}: {title}: the controller makes Plan {name} of it, and that is rehearsed"
                ));
                for note in &converted.notes {
                    output::note(format_args!("{place}: {title}: {}", note.text));
                }
                plan.metadata.name = Some(name);
                let value = serde_json::json!(plan).into();
                given.plans.push(InputPlan {
                    place,
                    plan,
                    value,
                    images: None,
                    unknown_version: None,
                });
            }
            Err(why) => given.errors.push(format!("{place}: {title}: {why}")),
        }
    }
    if let Some(snapshot) = snapshot {
        add_plans_of_cluster(snapshot, &namespace);
    }
}

/// A name that no Plan of the files has: only the UID, which a file lacks, distinguishes objects of one name.
fn unused(name: String, given: &RehearsalInput) -> String {
    let is_used = |name: &str| given.plans.iter().any(|plan| plan.name() == name);
    if !is_used(&name) {
        return name;
    }
    let mut numbered = (2..).map(|number: u32| format!("{name}-{number}"));
    numbered.find(|name| !is_used(name)).unwrap_or(name)
}

fn add_plans_of_cluster(snapshot: &mut Snapshot, namespace: &str) {
    let owner = |plan: &Value| {
        plan["metadata"]["labels"][LABEL_OWNER]
            .as_str()
            .map(str::to_owned)
    };
    let owners: BTreeSet<String> = snapshot.plans.iter().filter_map(owner).collect();
    for object in std::mem::take(&mut snapshot.node_ops) {
        let uid = object.meta("uid").to_owned();
        let is_being_deleted = object["metadata"]["deletionTimestamp"].is_string();
        let written = Written {
            api_version: object["apiVersion"].as_str().unwrap_or_default().to_owned(),
            kind: object["kind"].as_str().unwrap_or_default().to_owned(),
            value: serde_json::to_value(&object).unwrap_or_default(),
        };
        if begun(&written).is_some() || is_being_deleted || owners.contains(&uid) {
            continue;
        }
        let title = format!(
            "{} {}/{}",
            written.kind,
            object.meta("namespace"),
            object.meta("name")
        );
        match op_plan::plan(&written, namespace) {
            Ok(converted) => {
                let mut plan: Value = serde_json::json!(converted.plan).into();
                plan["metadata"]["labels"] = json!({ LABEL_OWNER: uid });
                plan["metadata"]["creationTimestamp"] = object["metadata"]["creationTimestamp"].clone();
                let name = plan.meta("name");
                snapshot
                    .notes
                    .push(format!("the controller makes Plan {name} of {title}"));
                snapshot.plans.push(plan);
            }
            Err(why) => snapshot
                .notes
                .push(format!("the controller refuses {title}: {why}")),
        }
    }
}

/// The phase of an object that has begun: it has had its Plan, or another controller.
fn begun(written: &Written) -> Option<&str> {
    let phase = written.value["status"]["phase"].as_str();
    phase.filter(|phase| !phase.is_empty())
}

/// Has the controller handle the nodes in maintenance, if there are any, and says for which nodes they are.
pub(super) fn enable(
    settings: &mut Settings,
    objects: &[Value],
    cluster: &InitialCluster,
    assumed: &mut Vec<String>,
) {
    // They are Plans already.
    settings.enable.retain(|one| *one != FrontEndName::Nodeops);
    let on_cluster = match cluster {
        InitialCluster::Snapshot(snapshot) => snapshot.objects.as_slice(),
        InitialCluster::Generated { .. } => &[],
    };
    let nodes = cluster.nodes();
    let maintenances = objects.iter().chain(on_cluster);
    for object in maintenances.filter(|one| one["kind"] == KIND) {
        if !settings.enable.contains(&FrontEndName::Maintenance) {
            settings.enable.push(FrontEndName::Maintenance);
        }
        let name = object.meta("name");
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        assumed.push(if nodes.contains(node) {
            format!("{KIND} {name} holds Node {node} until the end")
        } else {
            format!("{KIND} {name} holds nothing: there is no Node {node}")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::rehearse::input::read;
    use refit_offline::gitops::Source;

    fn flags(namespace: Option<&str>) -> Flags {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            flags: Flags,
        }
        let namespace = namespace.map(|name| format!("--namespace={name}"));
        let arguments = ["rehearse", "a.yaml"].map(str::to_owned);
        Command::parse_from(arguments.into_iter().chain(namespace)).flags
    }

    fn given(text: &str) -> RehearsalInput {
        read(&[Source::new("a.yaml", None, text.to_owned())])
    }

    const OP: &str = "apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: firmware, namespace: apps}
spec: {command: [/update.sh], concurrency: 2, cordon: true}
";

    #[test]
    fn a_node_op_of_a_file_becomes_the_plan_of_the_controller_in_its_namespace() {
        let mut input = given(&format!("{OP}---\n{}", OP.replace("apps", "other")));
        assert_eq!(input.errors, [""; 0]);
        add_plans(&flags(Some("upgrades")), &mut input, None);
        let plans: Vec<_> = input
            .plans
            .iter()
            .map(|plan| (plan.namespace(), plan.name()))
            .collect();
        assert_eq!(
            plans,
            [("upgrades", "nodeop-firmware"), ("upgrades", "nodeop-firmware-2")]
        );
        assert_eq!(input.plans[0].value["kind"], "Plan");
        assert_eq!(input.plans[0].value["spec"]["concurrency"], 2);
        assert_eq!(input.plans[1].place, "a.yaml:6");
    }

    #[test]
    fn a_node_op_that_has_begun_gets_no_plan_and_a_mistake_has_its_line() {
        let mut input = given(&format!("{OP}status: {{phase: Running}}\n"));
        add_plans(&flags(None), &mut input, None);
        assert!(input.plans.is_empty() && input.errors.is_empty());
        let input = given(&OP.replace("[/update.sh]", "/update.sh"));
        assert_eq!(
            input.errors,
            ["a.yaml:4:17: spec.command must be a list, but is text [wrong-type]"]
        );
    }
}
