//! What `prepare <plan>` of the images of K3s and RKE2 waits for. On a cluster only its log says so.

use super::plan::condition;
use super::read::{PlanObject, Snapshot};
use refit_api::prepare::Prepare;
use refit_api::{ConditionType, ObjectRef};
use refit_base::nearest::nearest;

/// Label of the nodes whose versions the script compares.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// What `prepare` of a Plan waits for, with what would end that, and the object.
pub fn awaited(snapshot: &Snapshot, plan: &PlanObject) -> Option<(String, ObjectRef)> {
    let (name, own) = (awaited_plan(plan)?, &*plan.facts.name);
    let siblings = || snapshot.plans.iter().filter(|it| it.namespace == plan.namespace);
    let find = |name: &str| siblings().find(|it| &*it.facts.name == name);
    let about = ObjectRef::plan(&*name);
    let Some(other) = find(&name) else {
        let others = siblings().map(|it| &*it.facts.name).filter(|other| *other != own);
        let remedy = match nearest(&name, others) {
            Some(near) => format!(" (did you mean Plan {near}?)"),
            None => "; apply it too, or name another one in spec.prepare.args".to_owned(),
        };
        return Some((format!("Plan {name}, which does not exist{remedy}"), about));
    };
    if name == own {
        let text = format!(
            "Plan {name} itself, which is applying while it waits; name the Plan of the control-plane nodes in \
             spec.prepare.args"
        );
        return Some((text, about));
    }
    if is_complete(other) {
        return of_versions(snapshot, plan, other);
    }
    let next = |name: &String| {
        let plan = find(name)?;
        let mut depends = plan.facts.object.spec.depends_on.iter().flatten();
        let open = depends.find(|it| !find(&it.name).is_some_and(is_complete));
        open.map(|it| it.name.clone()).or_else(|| awaited_plan(plan))
    };
    let chain = std::iter::successors(Some(name.clone()), next).take(snapshot.plans.len());
    let chain: Vec<String> = chain.take_while(|it| it != own).collect();
    if chain.last().and_then(next).as_deref() != Some(own) {
        return Some((format!("Plan {name}, which is not complete"), about));
    }
    let rest = chain.iter().skip(1).map(String::as_str).chain([own]);
    let rest: Vec<_> = rest.map(|name| format!("which waits for Plan {name}")).collect();
    let of = match chain.len() {
        1 => "the two".to_owned(),
        others => format!("these {} Plans", others + 1),
    };
    let text = format!(
        "Plan {name}, {}; remove `prepare` from one of {of}",
        rest.join(", ")
    );
    Some((text, about))
}

/// The Plan that `prepare` of another one names.
fn awaited_plan(plan: &PlanObject) -> Option<String> {
    let container = plan.facts.object.spec.prepare.as_deref()?;
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let (command, args) = (words(&container.command), words(&container.args));
    let prepare = Prepare::parse(&container.image, &command, &args)?;
    prepare.plan().map(str::to_owned)
}

fn is_complete(plan: &PlanObject) -> bool {
    let complete = condition(plan, ConditionType::Complete).is_some_and(|it| it.status == "True");
    complete && plan.facts.status().observed_generation >= Some(plan.facts.generation())
}

/// Of a Plan that is complete, the nodes of the control plane that have another version.
fn of_versions(snapshot: &Snapshot, plan: &PlanObject, other: &PlanObject) -> Option<(String, ObjectRef)> {
    // The version is an image tag, in which `+` is not allowed.
    let tag = |version: &str| version.replace('+', "-");
    let wanted = tag(plan.facts.status().latest_version.as_deref()?);
    let nodes = snapshot.nodes.as_ref()?;
    let control = nodes
        .iter()
        .filter(|(_, node)| node.labels.contains_key(CONTROL_PLANE));
    let mut control = control.peekable();
    if control.peek().is_none() {
        let text = format!("a control-plane node, but no node has the label {CONTROL_PLANE}");
        return Some((text, ObjectRef::plan(&*other.facts.name)));
    }
    let (name, node) = control.find(|(_, node)| tag(&node.facts.kubelet) != wanted)?;
    let text = format!(
        "control-plane nodes of version {wanted}, and {name} runs {}",
        node.facts.kubelet
    );
    let version = other.facts.status().latest_version.as_deref();
    let text = match version.filter(|version| tag(version) != wanted) {
        Some(version) => format!(
            "{text}; Plan {} has {version}; give both Plans the same version",
            other.facts.name
        ),
        None => text,
    };
    Some((text, ObjectRef::node(name)))
}
