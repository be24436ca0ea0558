//! What a command writes, or why it makes no sense. Pure.

use serde_json::json;

use super::edit::{Action, Changes, Edit, NodeChange, PlanChange, Request, Wanted};
use super::start::{start, still_counts};
use refit_api::annotation::entries;
use refit_api::approval::WaveApproval;
use refit_api::{Hook, HookPhase, NodePhase, NodeProgress, Reason, WavePhase, WaveStatus, annotation, names};
use refit_base::version::tag::munge;
use refit_facts::record::{Phase, Record};
use refit_view::PlanOverview;
use refit_view::read::NodeObject;

/// What to write for a request.
///
/// # Errors
/// Fails with the reason why the request makes no sense.
pub(super) fn changes(request: &Request<'_>) -> Result<Changes, String> {
    let view = request.view;
    let mut changes = Changes {
        namespace: view.plan.namespace().to_owned(),
        name: view.plan.name.to_string(),
        ..Changes::default()
    };
    if view.foreign {
        return Err(format!(
            "the status of Plan {} is of another controller than refit, which would ignore this",
            view.title()
        ));
    }
    let mut plan = |wanted| match wanted {
        Wanted::Write(change) => changes.plan = Some(change),
        Wanted::Nothing(why) => changes.notes.push(why),
    };
    match request.action {
        Action::Suspend { reason } => plan(suspend(request, reason.as_deref())),
        Action::Resume => plan(resume(request)),
        Action::Abort { reason } => plan(abort(request, reason.as_deref())?),
        Action::Approve { version, wave } => {
            plan(approve(request, version.as_deref(), wave.as_deref())?);
        }
        Action::Retry => {
            changes.plan = retry_hook(request);
            changes.nodes = match retry(request) {
                Err(_) if changes.plan.is_some() => Vec::new(),
                nodes => nodes?,
            };
            changes.notes = waits(view);
        }
        Action::Skip { always } => skip(request, *always, &mut changes)?,
        Action::Unskip => unskip(request, &mut changes)?,
        Action::Rerun => {
            changes.nodes = rerun(request)?;
            let says = format!("runs again on {} nodes", changes.nodes.len());
            let note = PlanChange::annotation(names::ANNOTATION_RERUN, &request.signature, says);
            changes.plan = Some(note);
            changes.notes = waits(view);
        }
        Action::Start { limits, reason } => {
            plan(start(request, limits, reason)?);
            changes.notes.extend(waits(view));
            changes.notes.extend(still_counts(view, limits));
        }
    }
    Ok(changes)
}

pub(super) fn annotation<'a>(view: &'a PlanOverview<'_>, key: &str) -> Option<&'a str> {
    view.plan.annotation(key)
}

/// The author in an annotation, in brackets.
fn by(text: Option<&str>) -> String {
    text.and_then(annotation::author)
        .map_or_else(String::new, |author| format!(" ({author})"))
}

fn is_suspended(view: &PlanOverview<'_>) -> bool {
    view.plan.object.spec.suspend.unwrap_or_default()
}

/// Notes about what keeps nodes from starting although they are to.
fn waits(view: &PlanOverview<'_>) -> Vec<String> {
    let aborted = annotation(view, names::ANNOTATION_ABORT).is_some();
    let held = [(is_suspended(view), "suspended"), (aborted, "aborted")];
    let held = held.into_iter().find(|(is, _)| *is);
    held.map(|(_, word)| format!("Plan {} is {word}: nodes start after refit resume", view.title()))
        .into_iter()
        .collect()
}

fn signed(request: &Request<'_>, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{}: {reason}", request.signature),
        None => request.signature.clone(),
    }
}

fn suspend(request: &Request<'_>, reason: Option<&str>) -> Wanted {
    let view = request.view;
    if is_suspended(view) {
        let by = by(annotation(view, names::ANNOTATION_SUSPENDED));
        return Wanted::Nothing(format!("Plan {} is suspended already{by}", view.title()));
    }
    let note = signed(request, reason);
    Wanted::Write(PlanChange {
        patch: json!({
            "metadata": { "annotations": { names::ANNOTATION_SUSPENDED: note } }, "spec": { "suspend": true },
        }),
        says: match view.counts.applying {
            0 => "suspended".to_owned(),
            running => format!("suspended; {running} nodes in progress finish"),
        },
    })
}

fn resume(request: &Request<'_>) -> Wanted {
    let view = request.view;
    let aborted = annotation(view, names::ANNOTATION_ABORT).is_some();
    if !is_suspended(view) && !aborted {
        let held = match &view.obstacle {
            Some(obstacle) if !view.complete => {
                format!("; it is held by {}: {}", obstacle.reason, obstacle.message)
            }
            _ => String::new(),
        };
        return Wanted::Nothing(format!(
            "Plan {} is neither suspended nor aborted{held}",
            view.title()
        ));
    }
    let mut patch = json!({ "metadata": { "annotations": {
        names::ANNOTATION_SUSPENDED: null, names::ANNOTATION_ABORT: null,
    } } });
    if is_suspended(view) {
        patch["spec"] = json!({ "suspend": null });
    }
    Wanted::Write(PlanChange {
        patch,
        says: "resumed".to_owned(),
    })
}

fn abort(request: &Request<'_>, reason: Option<&str>) -> Result<Wanted, String> {
    let view = request.view;
    if let Some(text) = annotation(view, names::ANNOTATION_ABORT) {
        return Ok(Wanted::Nothing(format!(
            "Plan {} is aborted already{}",
            view.title(),
            by(Some(text))
        )));
    }
    if view.complete && view.counts.applying == 0 {
        return Err(format!(
            "Plan {} is complete: there is nothing to abort; refit suspend keeps it from starting again",
            view.title()
        ));
    }
    let note = signed(request, reason);
    let says = "aborted; drains stop, and upgrades that run finish".to_owned();
    let change = PlanChange::annotation(names::ANNOTATION_ABORT, &note, says);
    Ok(Wanted::Write(change))
}

/// Approves the wave or the version that waits.
fn approve(request: &Request<'_>, version: Option<&str>, wave: Option<&str>) -> Result<Wanted, String> {
    let view = request.view;
    let status = view.plan.status();
    let waiting = view
        .wave()
        .filter(|wave| wave.phase == WavePhase::AwaitingApproval);
    let channel = status.channel.as_ref();
    let proposed = channel.filter(|channel| {
        channel
            .reason
            .as_ref()
            .is_some_and(|it| *it == Reason::NotApproved)
    });
    match (waiting, proposed.and_then(|channel| channel.candidate.as_deref())) {
        (Some(waiting), Some(candidate)) if version.is_none() && wave.is_none() => Err(format!(
            "wave {} and version {candidate} of Plan {} wait for approval: use --wave or --version",
            waiting.name,
            view.title()
        )),
        (Some(waiting), _) if version.is_none() => approve_wave(request, waiting, wave),
        _ if wave.is_some() => Err(match view.wave() {
            Some(is) => format!(
                "no wave of Plan {} waits for approval: wave {} is {}",
                view.title(),
                is.name,
                is.phase
            ),
            None => format!("Plan {} has no wave that has begun", view.title()),
        }),
        _ => approve_version(request, version).map(Wanted::Write),
    }
}

fn approve_wave(request: &Request<'_>, waiting: &WaveStatus, wanted: Option<&str>) -> Result<Wanted, String> {
    let (view, name) = (request.view, &waiting.name);
    if let Some(wanted) = wanted.filter(|wanted| wanted != name) {
        return Err(format!(
            "wave {name} waits for approval in Plan {}, not {wanted}",
            view.title()
        ));
    }
    let known = annotation(view, names::ANNOTATION_APPROVE).unwrap_or_default();
    if let Some(entry) = WaveApproval::all(known, &waiting.hash).find(|entry| entry.plan == name) {
        return Ok(Wanted::Nothing(format!(
            "wave {name} of Plan {} is approved already{}",
            view.title(),
            by(Some(entry.text))
        )));
    }
    let entry = format!("{} {}", WaveApproval::new(name, &waiting.hash), request.signature);
    let versions = entries(known).filter(|one| one.version.is_none());
    let waves = WaveApproval::all(known, &waiting.hash);
    let all: Vec<&str> = versions
        .chain(waves)
        .map(|one| one.text)
        .chain([&*entry])
        .collect();
    let says = format!(
        "approved wave {name} at version {}",
        view.version().unwrap_or_default()
    );
    let change = PlanChange::annotation(names::ANNOTATION_APPROVE, &all.join(", "), says);
    Ok(Wanted::Write(change))
}

fn approve_version(request: &Request<'_>, wanted: Option<&str>) -> Result<PlanChange, String> {
    let view = request.view;
    let channel = view.plan.status().channel.as_ref();
    let candidate =
        channel.and_then(|channel| Some((channel.candidate.as_deref()?, channel.reason.as_ref()?)));
    let title = view.title();
    let Some((candidate, reason)) = candidate else {
        return Err(format!("nothing waits for approval in Plan {title}"));
    };
    if *reason != Reason::NotApproved {
        let why = channel
            .and_then(|channel| channel.message.as_deref())
            .unwrap_or_default();
        return Err(format!(
            "version {candidate} of Plan {title} does not wait for approval, it is held back by {reason}: {why}"
        ));
    }
    if let Some(wanted) = wanted.filter(|wanted| munge(wanted) != munge(candidate)) {
        return Err(format!(
            "version {candidate} waits for approval in Plan {title}, not {wanted}"
        ));
    }
    let entry = format!("{candidate} {}", request.signature);
    // The waves of the present roll-out keep their approvals.
    let known = annotation(view, names::ANNOTATION_APPROVE).unwrap_or_default();
    let hash = view.plan.status().latest_hash.as_deref().unwrap_or_default();
    let waves = WaveApproval::all(known, hash).map(|one| one.text);
    let all: Vec<&str> = [&*entry].into_iter().chain(waves).collect();
    let says = format!("approved version {candidate}");
    Ok(PlanChange::annotation(
        names::ANNOTATION_APPROVE,
        &all.join(", "),
        says,
    ))
}

/// The nodes that a request names, or all to which it applies; an error for the first to which it does not.
fn chosen(
    request: &Request<'_>,
    all: Vec<String>,
    none: &str,
    why_not: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, String> {
    if request.nodes.is_empty() {
        return if all.is_empty() {
            Err(format!("{none} in Plan {}", request.view.title()))
        } else {
            Ok(all)
        };
    }
    match request.nodes.iter().find_map(|node| why_not(node)) {
        Some(why) => Err(why),
        None => Ok(request.nodes.to_vec()),
    }
}

/// Where a node is under the Plan, for refusals.
pub(super) fn place(view: &PlanOverview<'_>, node: &str) -> String {
    match (view.node(node), view.has_done_label(node)) {
        (Some(known), _) => match &known.reason {
            Some(reason) => format!("Node {node} is {} ({reason})", known.phase),
            None => format!("Node {node} is {}", known.phase),
        },
        (None, true) => format!("Node {node} is done"),
        (None, false) => format!("Node {node} is not in the status of Plan {}", view.title()),
    }
}

fn object<'a>(view: &PlanOverview<'a>, node: &str) -> Option<&'a NodeObject> {
    view.snapshot.node(node)
}

fn label_key(view: &PlanOverview<'_>) -> String {
    names::plan_label(&view.plan.name)
}

fn retry(request: &Request<'_>) -> Result<Vec<NodeChange>, String> {
    let view = request.view;
    let can_retry = |node: &NodeProgress| node.is_failed() || released(view, node).is_some();
    let all = view
        .nodes
        .iter()
        .filter(|node| can_retry(node))
        .map(|node| node.name.clone())
        .collect();
    let why_not = |node: &str| {
        let can_retry = view.node(node).is_some_and(can_retry);
        (!can_retry).then(|| {
            let place = place(view, node);
            format!("{place}: only a failed node can be retried, or one that its drain has released")
        })
    };
    let nodes = chosen(request, all, "no node has failed", why_not)?;
    let plan = view.plan.name.to_string();
    let change = |name: String| {
        let known = view.node(&name);
        let attempt = known.and_then(|node| {
            let released = released(view, node).map(|record| record.attempt);
            released.or(node.attempt)
        });
        let attempt = attempt.unwrap_or(1);
        NodeChange {
            says: format!("to be retried, attempt {}", attempt + 1),
            name,
            edit: Edit::Entry {
                annotation: names::ANNOTATION_RETRY,
                plan: plan.clone(),
                entry: Some(format!("{plan} {}", request.signature)),
            },
        }
    };
    Ok(nodes.into_iter().map(change).collect())
}

/// The record of a node that waits because its drain has released it (`drain.waitFor`).
fn released<'a>(view: &PlanOverview<'a>, node: &NodeProgress) -> Option<&'a Record> {
    let record = object(view, &node.name)?.facts.records.get(&*view.plan.name)?;
    let is_current = view.plan.status().latest_hash.as_deref() == Some(&*record.hash);
    (record.phase == Phase::Skipped && is_current && !node.has_slot()).then_some(record)
}

/// The next attempt of `before` or `after`, if it has failed and no node is named.
fn retry_hook(request: &Request<'_>) -> Option<PlanChange> {
    let status = request.view.plan.status();
    let (hook, failed) = Hook::ALL.into_iter().find_map(|hook| {
        let of = hook.status(status)?;
        let is_failed = of.phase == HookPhase::Failed && status.latest_hash.as_ref() == Some(&of.hash);
        (is_failed && request.nodes.is_empty()).then_some((hook, of))
    })?;
    let note = format!("{} {}", failed.job, request.signature);
    let says = format!("to retry `{}`, attempt {}", hook.as_str(), failed.attempt + 1);
    Some(PlanChange::annotation(names::ANNOTATION_RETRY, &note, says))
}

/// The entry of `refit.rs/skip` that counts for the Plan now.
pub(super) fn skip_entry<'a>(view: &PlanOverview<'a>, node: &str) -> Option<&'a str> {
    let text = object(view, node)?.facts.skip.as_deref()?;
    let version = view.plan.status().latest_version.as_deref();
    let mut all = entries(text);
    all.find(|entry| entry.concerns(&view.plan.name, version))
        .map(|entry| entry.text)
}

fn skip(request: &Request<'_>, always: bool, changes: &mut Changes) -> Result<(), String> {
    let view = request.view;
    let plan = view.plan.name.to_string();
    let entry = match (view.version(), always) {
        (_, true) => format!("{plan} {}", request.signature),
        (Some(version), false) => format!("{plan}@{version} {}", request.signature),
        (None, false) => {
            return Err(format!(
                "Plan {} has no version yet at which to skip nodes: use --always",
                view.title()
            ));
        }
    };
    let why_not = |node: &str| {
        let is_done = view.node(node).is_none() && view.has_done_label(node);
        is_done.then(|| format!("Node {node} is done: there is nothing to skip"))
    };
    let skipped = |node: &str| {
        let known = skip_entry(view, node)?;
        Some(format!("Node {node} is skipped already{}", by(Some(known))))
    };
    let nodes = changes.without(chosen(request, Vec::new(), "no node is named", why_not)?, skipped);
    let change = |name: String| NodeChange {
        says: match view.node(&name) {
            Some(node) if node.is_failed() => {
                "skipped; its failure is dropped, its slot and its cordon are released"
            }
            Some(node) if node.phase == NodePhase::Upgrading => "skipped after its upgrade, which finishes",
            _ => "skipped",
        }
        .to_owned(),
        name,
        edit: Edit::Entry {
            annotation: names::ANNOTATION_SKIP,
            plan: plan.clone(),
            entry: Some(entry.clone()),
        },
    };
    changes.nodes = nodes.into_iter().map(change).collect();
    Ok(())
}

fn unskip(request: &Request<'_>, changes: &mut Changes) -> Result<(), String> {
    let view = request.view;
    let not_skipped = |node: &str| {
        let is_skipped = view.snapshot.nodes.is_none() || skip_entry(view, node).is_some();
        (!is_skipped).then(|| format!("Node {node} is not skipped by Plan {}", view.title()))
    };
    let named = chosen(request, Vec::new(), "no node is named", |_| None)?;
    let nodes = changes.without(named, not_skipped);
    let change = |name: String| NodeChange {
        says: "no longer skipped".to_owned(),
        name,
        edit: Edit::Entry {
            annotation: names::ANNOTATION_SKIP,
            plan: view.plan.name.to_string(),
            entry: None,
        },
    };
    changes.nodes = nodes.into_iter().map(change).collect();
    Ok(())
}

fn rerun(request: &Request<'_>) -> Result<Vec<NodeChange>, String> {
    let view = request.view;
    let Some(hash) = view.plan.status().latest_hash.clone() else {
        return Err(format!(
            "Plan {} has no version yet: no node is done",
            view.title()
        ));
    };
    if view.snapshot.nodes.is_none() {
        return Err("Nodes cannot be read, and their labels say which are done".to_owned());
    }
    if view.plan.object.spec.skips_at_version().is_some() {
        return Err(format!(
            "Plan {} would run on no node that has its version: remove spec.skipWhen first",
            view.title()
        ));
    }
    // A node that still settles has its label, and its slot.
    let is_done =
        |node: &str| view.has_done_label(node) && view.node(node).is_none_or(|node| !node.has_slot());
    let known = view.snapshot.nodes.iter().flatten();
    let all = known
        .filter(|(name, _)| is_done(name))
        .map(|(name, _)| name.clone())
        .collect();
    let why_not = |node: &str| {
        (!is_done(node)).then(|| format!("{}: only a node that is done can run again", place(view, node)))
    };
    let nodes = chosen(request, all, "no node is done", why_not)?;
    let change = |name: String| NodeChange {
        says: "to run again".to_owned(),
        name,
        edit: Edit::Unlabel {
            key: label_key(view),
            value: hash.clone(),
        },
    };
    Ok(nodes.into_iter().map(change).collect())
}
