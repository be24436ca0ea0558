//! What `prepare <plan>` of the images of K3s and RKE2 waits for. On a cluster only its log says so.

use super::plan::is_current;
use super::read::Snapshot;
use super::remedy::{Remedy, edit};
use refit_api::prepare::Prepare;
use refit_api::{ConditionType, ObjectRef};
use refit_base::nearest::nearest;
use refit_facts::PlanFacts;

/// Label of the nodes whose versions the script compares.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// What `prepare` of a Plan waits for.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// The object, and what is wrong with it.
    pub what: String,
    pub about: Option<ObjectRef>,
    /// What would end the wait, and the commands for that, unless it is the Plan `about`.
    pub remedy: Option<Remedy>,
}

/// What `prepare` of a Plan waits for, in the order of the script: it polls until the Plan exists, then until that applies
/// to no node, and then until all control-plane nodes have the version.
pub fn awaited(snapshot: &Snapshot, plan: &PlanFacts) -> Option<Awaited> {
    let (name, own) = (awaited_plan(plan)?, &*plan.name);
    let edit = |name: &str| edit(plan.namespace(), name);
    let Some(other) = find(snapshot, plan, &name) else {
        let siblings = snapshot
            .plans
            .iter()
            .filter(|it| it.namespace() == plan.namespace());
        let others = siblings.map(|it| &*it.name).filter(|other| *other != own);
        let advice = match nearest(&name, others) {
            Some(near) => format!(" (did you mean Plan {near}?)"),
            None => "; apply it too, or name another one in spec.prepare.args".to_owned(),
        };
        let list = format!("kubectl get plans -n {}", plan.namespace());
        return Some(Awaited {
            what: format!("Plan {name}, which does not exist{advice}"),
            about: Some(ObjectRef::plan(&*name)),
            remedy: Some((
                "create the Plan, or correct spec.prepare.args".to_owned(),
                vec![list, edit(own)],
            )),
        });
    };
    if name == own {
        let advice = "name the Plan of the control-plane nodes in spec.prepare.args";
        return Some(Awaited {
            what: format!("Plan {name} itself, which is applying while it waits; {advice}"),
            about: None,
            remedy: Some((advice.to_owned(), vec![edit(own)])),
        });
    }
    let applying = other.status().applying.as_ref();
    let mut is = "still applying";
    if applying.is_none_or(Vec::is_empty) {
        let (awaited, may_change) = of_versions(snapshot, plan, other)?;
        if !may_change || is_complete(other) {
            return Some(awaited);
        }
        is = "not complete";
    }
    let about = Some(ObjectRef::plan(&*name));
    let Some((chain, depends)) = cycle(snapshot, plan, &name) else {
        return Some(Awaited {
            what: format!("Plan {name}, which is {is}"),
            about,
            remedy: None,
        });
    };
    let rest = chain.iter().skip(1).map(String::as_str).chain([own]);
    let rest: Vec<_> = rest.map(|name| format!("which waits for Plan {name}")).collect();
    let of = match chain.len() {
        1 => "the two".to_owned(),
        others => format!("these {} Plans", others + 1),
    };
    let fields = if depends {
        "`prepare` or `dependsOn`"
    } else {
        "`prepare`"
    };
    let advice = format!("remove {fields} from one of {of}");
    Some(Awaited {
        what: format!("Plan {name}, {}; {advice}", rest.join(", ")),
        about,
        remedy: Some((
            advice,
            std::iter::once(own)
                .chain(chain.iter().map(String::as_str))
                .map(edit)
                .collect(),
        )),
    })
}

/// The Plan that `prepare` of another one names.
pub fn awaited_plan(plan: &PlanFacts) -> Option<String> {
    let container = plan.object.spec.prepare.as_deref()?;
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let (command, args) = (words(&container.command), words(&container.args));
    let prepare = Prepare::parse(&container.image, &command, &args)?;
    prepare.plan().map(str::to_owned)
}

/// The Plan of this name beside another one.
pub fn find<'a>(snapshot: &'a Snapshot, beside: &PlanFacts, name: &str) -> Option<&'a PlanFacts> {
    let mut siblings = snapshot
        .plans
        .iter()
        .filter(|it| it.namespace() == beside.namespace());
    siblings.find(|it| &*it.name == name)
}

fn is_complete(plan: &PlanFacts) -> bool {
    let complete = plan.status().is_true(ConditionType::Complete);
    complete && is_current(plan)
}

/// The Plans from this one on of which each waits for the next, and the last for `own`; and whether one waits by
/// `dependsOn`. Nothing waits for a complete Plan.
fn cycle(snapshot: &Snapshot, own: &PlanFacts, name: &str) -> Option<(Vec<String>, bool)> {
    let is_open = |name: &String| !find(snapshot, own, name).is_some_and(is_complete);
    let (mut chain, mut depends) = (vec![name.to_owned()], false);
    while chain.len() < snapshot.plans.len() {
        let last = find(snapshot, own, chain.last()?)?;
        let all = last.object.spec.depends_on.iter().flatten();
        let dependency = all.map(|it| it.name.clone()).find(is_open);
        depends |= dependency.is_some();
        let next = dependency.or_else(|| awaited_plan(last).filter(is_open))?;
        if next == *own.name {
            return Some((chain, depends));
        }
        chain.push(next);
    }
    None
}

/// The nodes of the control plane that have another version than the Plan, and whether the other Plan may change that.
fn of_versions(snapshot: &Snapshot, plan: &PlanFacts, other: &PlanFacts) -> Option<(Awaited, bool)> {
    // The version is an image tag, in which `+` is not allowed.
    let tag = |version: &str| version.replace('+', "-");
    let edit = |plan: &PlanFacts| edit(plan.namespace(), &plan.name);
    let wanted = tag(plan.status().latest_version.as_deref()?);
    let nodes = snapshot.nodes.as_ref()?;
    let control = nodes
        .iter()
        .filter(|(_, node)| node.facts.labels.get(CONTROL_PLANE).is_some());
    let mut control = control.peekable();
    if control.peek().is_none() {
        let awaited = Awaited {
            what: format!("a control-plane node, but no node has the label {CONTROL_PLANE}"),
            about: None,
            remedy: Some((
                "label the nodes of the control plane, or remove spec.prepare".to_owned(),
                vec!["kubectl get nodes --show-labels".to_owned(), edit(plan)],
            )),
        };
        return Some((awaited, false));
    }
    let (name, node) = control.find(|(_, node)| tag(&node.facts.kubelet) != wanted)?;
    let what = format!(
        "control-plane nodes of version {wanted}, and {name} runs {}",
        node.facts.kubelet
    );
    let version = other.status().latest_version.as_deref();
    let (what, remedy) = match version.filter(|version| tag(version) != wanted) {
        Some(version) => {
            let advice = "give both Plans the same version";
            let of_other = &other.name;
            (
                format!("{what}; Plan {of_other} has {version}; {advice}"),
                (advice.to_owned(), vec![edit(other), edit(plan)]),
            )
        }
        None => (
            what,
            (
                "see why the node does not run that version though the Plan is complete".to_owned(),
                vec![
                    format!("kubectl describe node {name}"),
                    format!("refit explain -n {} {} {name}", other.namespace(), other.name),
                ],
            ),
        ),
    };
    let awaited = Awaited {
        what,
        about: Some(ObjectRef::node(name)),
        remedy: Some(remedy),
    };
    Some((awaited, true))
}
