//! `NodeOp` and `NodeOpUpgrade` of kairos-operator (`operator.kairos.io/v1alpha1`).

use k8s_openapi::api::core::v1::{EnvVar, LocalObjectReference, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;

use super::{Note, base, drain_timeout};
use refit_api::{
    ContainerSpec, ControlPlaneOrder, DrainSpec, FailurePolicy, FailureSpec, OrderSpec, PlanSpec, RebootSpec,
    RebootWhen, VolumeSpec,
};
use refit_base::go::GoDuration;

/// The image of a `NodeOp` that names none.
const DEFAULT_IMAGE: &str = "busybox:latest";
/// Where Jobs have the host's root directory, in both.
const HOST: &str = "/host";
/// A Plan needs a version; another one runs it again.
const FIRST_VERSION: &str = "1";
/// Longest value of a label, which a version becomes.
const MAX_VERSION: usize = 63;
/// Exit code with which a preflight skips a node.
const SKIP: &str = "77";

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeOp {
    spec: NodeOpSpec,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeOpSpec {
    node_selector: Option<LabelSelector>,
    command: Vec<String>,
    image: String,
    host_mount_path: Option<String>,
    image_pull_secrets: Option<Vec<LocalObjectReference>>,
    cordon: bool,
    uncordon_on_failure: bool,
    drain_options: Option<DrainOptions>,
    reboot_on_success: bool,
    backoff_limit: Option<i64>,
    concurrency: i64,
    stop_on_failure: bool,
    preflight: Option<Preflight>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct DrainOptions {
    enabled: bool,
    force: bool,
    grace_period_seconds: Option<i32>,
    ignore_daemon_sets: Option<bool>,
    delete_empty_dir_data: bool,
    timeout_seconds: Option<i64>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Preflight {
    command: Vec<String>,
    image: String,
    active_deadline_seconds: Option<i64>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeOpUpgrade {
    spec: NodeOpUpgradeSpec,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeOpUpgradeSpec {
    node_selector: Option<LabelSelector>,
    image: String,
    image_pull_secrets: Option<Vec<LocalObjectReference>>,
    concurrency: i64,
    stop_on_failure: Option<bool>,
    upgrade_active: Option<bool>,
    upgrade_recovery: Option<bool>,
    force: Option<bool>,
    debug: Option<bool>,
    uncordon_on_failure: bool,
    exclude_paths: Vec<String>,
}

pub(super) fn convert(op: &NodeOp) -> Result<(PlanSpec, Vec<Note>), String> {
    let op = &op.spec;
    if op.command.is_empty() {
        return Err("spec.command is absent: a NodeOp needs one".to_owned());
    }
    let image = Some(op.image.clone()).filter(|image| !image.is_empty());
    let image = image.unwrap_or_else(|| DEFAULT_IMAGE.to_owned());
    let mut notes = vec![Note::from(
        "a Plan runs once for each version: change spec.version, or `refit rerun`, to run it again."
            .to_owned(),
    )];
    let at = op.host_mount_path.as_deref().unwrap_or(HOST);
    let volumes = (at != HOST).then(|| {
        vec![VolumeSpec {
            name: "host".to_owned(),
            source: "/".to_owned(),
            destination: at.to_owned(),
        }]
    });
    let drain = op
        .drain_options
        .as_ref()
        .filter(|drain| op.cordon && drain.enabled);
    let timeout = drain
        .and_then(|drain| drain.timeout_seconds)
        .filter(|seconds| *seconds > 0);
    let timeout = timeout
        .and_then(|seconds| seconds.checked_mul(1_000_000_000))
        .map(GoDuration::from_nanos);
    let preflight = op.preflight.as_ref().map(|preflight| {
        let image = Some(&preflight.image)
            .filter(|image| !image.is_empty())
            .unwrap_or(&image);
        // The definition defaults the field to 120, so a 120 need not be the author's.
        if preflight
            .active_deadline_seconds
            .is_some_and(|seconds| seconds != 120)
        {
            notes.push(Note::of(
                "spec.preflight.activeDeadlineSeconds",
                "preflight.activeDeadlineSeconds was left out: the Job's deadline applies to all of it.",
            ));
        }
        if at != HOST {
            notes.push(Note::of(
                "spec.hostMountPath",
                format!("the preflight has the host's files at {HOST}, and not at {at}."),
            ));
        }
        skipped_by_message(image, &preflight.command)
    });
    if drain.is_some_and(|drain| !drain.force) {
        notes.push(unmanaged_pods());
    }
    if op.drain_options.as_ref().is_some_and(|drain| drain.enabled) && !op.cordon {
        notes.push(Note::of(
            "spec.drainOptions",
            "drainOptions had no effect without cordon, and was left out.",
        ));
    }
    if op.backoff_limit.is_some() {
        notes.push(Note::of(
            "spec.backoffLimit",
            "backoffLimit was left out: SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT of the controller holds for all Jobs, and failure.retries for \
             further Jobs.",
        ));
    }
    common_notes(op.image_pull_secrets.as_ref(), &mut notes);
    let spec = PlanSpec {
        version: Some(FIRST_VERSION.to_owned()),
        preflight: preflight.map(Box::new),
        upgrade: Some(Box::new(ContainerSpec {
            image: tagged(&image),
            command: Some(op.command.clone()),
            envs: Some(vec![EnvVar {
                name: "HOST_DIR".to_owned(),
                value: Some(at.to_owned()),
                ..EnvVar::default()
            }]),
            volumes,
            ..ContainerSpec::default()
        })),
        cordon: (op.cordon && drain.is_none()).then_some(true),
        drain: drain.map(|drain| DrainSpec {
            force: drain.force.then_some(true),
            grace_period: drain.grace_period_seconds,
            ignore_daemon_sets: drain.ignore_daemon_sets.filter(|ignored| !ignored),
            delete_emptydir_data: drain.delete_empty_dir_data.then_some(true),
            timeout: drain_timeout(timeout),
            ..DrainSpec::default()
        }),
        reboot: op.reboot_on_success.then(always),
        ..selected(
            op.node_selector.as_ref(),
            op.concurrency,
            op.stop_on_failure,
            op.uncordon_on_failure,
            op.image_pull_secrets.as_ref(),
        )
    };
    Ok((spec, notes))
}

pub(super) fn upgrade(op: &NodeOpUpgrade) -> (PlanSpec, Vec<Note>) {
    let op = &op.spec;
    let active = op.upgrade_active.unwrap_or(true);
    let recovery = op.upgrade_recovery.unwrap_or(false);
    let force = op.force.unwrap_or(false);
    let mut notes = Vec::new();
    let version = tag(&op.image).filter(|tag| tag.len() <= MAX_VERSION).unwrap_or_else(|| {
        notes.push(Note::of(
            "spec.image",
            "the tag of the image is absent or too long for a version: change spec.version with each image, or the Plan does not run \
             again.",
        ));
        FIRST_VERSION
    });
    notes.push(unmanaged_pods());
    if !active && !recovery {
        notes.push(Note::of(
            "spec.upgradeActive",
            "with neither upgradeActive nor upgradeRecovery the active system is upgraded without a reboot, as by kairos-operator.",
        ));
    }
    common_notes(op.image_pull_secrets.as_ref(), &mut notes);
    let shell = |script: String| ContainerSpec {
        image: tagged(&op.image),
        command: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
        args: Some(vec![script]),
        ..ContainerSpec::default()
    };
    let spec = PlanSpec {
        version: Some(version.to_owned()),
        preflight: (!force).then(|| Box::new(shell(is_other_version()))),
        upgrade: Some(Box::new(shell(script(op, active, recovery)))),
        // kairos-operator drains for every NodeOpUpgrade, which has no field for it.
        drain: Some(DrainSpec::default()),
        reboot: active.then(always),
        ..selected(
            op.node_selector.as_ref(),
            op.concurrency,
            op.stop_on_failure.unwrap_or(false),
            op.uncordon_on_failure,
            op.image_pull_secrets.as_ref(),
        )
    };
    (spec, notes)
}

fn always() -> RebootSpec {
    RebootSpec {
        when: Some(RebootWhen::Always),
        ..RebootSpec::default()
    }
}

/// What both have: nodes, limits, and what follows from a failure.
fn selected(
    nodes: Option<&LabelSelector>,
    concurrency: i64,
    stop: bool,
    uncordon: bool,
    pull_secrets: Option<&Vec<LocalObjectReference>>,
) -> PlanSpec {
    let everywhere = concurrency <= 0;
    PlanSpec {
        // 0 means all nodes.
        concurrency: (!everywhere).then_some(concurrency),
        max_concurrent: everywhere.then(|| IntOrString::String("100%".to_owned())),
        node_selector: Some(nodes.cloned().unwrap_or_default()),
        // kairos-operator starts control-plane nodes first.
        order: Some(vec![OrderSpec {
            control_plane: Some(ControlPlaneOrder::First),
            ..OrderSpec::default()
        }]),
        failure: Some(FailureSpec {
            policy: Some(if stop {
                FailurePolicy::Stop
            } else {
                FailurePolicy::Continue
            }),
            uncordon: uncordon.then_some(true),
            ..FailureSpec::default()
        }),
        // Its Jobs name their node, so that no taint keeps them away.
        tolerations: Some(vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]),
        image_pull_secrets: pull_secrets.filter(|secrets| !secrets.is_empty()).cloned(),
        ..base(None)
    }
}

fn unmanaged_pods() -> Note {
    let text = "a pod without a controller fails the drain, unless drain.force is true; kairos-operator left such pods on the node.";
    Note::from(text.to_owned())
}

fn common_notes(pull_secrets: Option<&Vec<LocalObjectReference>>, notes: &mut Vec<Note>) {
    notes.push(Note::from(
        "control-plane nodes come first, and the others wait for them; remove `order` to take all at once."
            .to_owned(),
    ));
    if pull_secrets.is_some_and(|secrets| !secrets.is_empty()) {
        notes.push(Note::of(
            "spec.imagePullSecrets",
            "imagePullSecrets must be in the namespace of the Plan.",
        ));
    }
}

fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    let (_, tag) = name.rsplit('/').next()?.split_once(':')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

/// An image without tag would get the Plan's version.
fn tagged(image: &str) -> String {
    if tag(image).is_some() || image.contains('@') || image.is_empty() {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

/// A preflight of kairos-operator, which skips a node by words in its termination message, and not by an exit code.
fn skipped_by_message(image: &str, command: &[String]) -> ContainerSpec {
    let wrapped = format!("\"$@\" || exit 1; [ ! -s /dev/termination-log ] || exit {SKIP}");
    let words = ["/bin/sh", "-c", &wrapped, "preflight"].map(str::to_owned);
    ContainerSpec {
        image: tagged(image),
        command: Some(words.into_iter().chain(command.iter().cloned()).collect()),
        ..ContainerSpec::default()
    }
}

/// Skips a node that has the version of the image. What has no version is upgraded.
fn is_other_version() -> String {
    format!(
        r#"set -eu
version() {{
  for file in "$1/etc/kairos-release" "$1/etc/os-release"; do
    if [ -f "$file" ]; then
      (set +u; . "$file"; echo "$KAIROS_VERSION-$KAIROS_SOFTWARE_VERSION_PREFIX$KAIROS_SOFTWARE_VERSION")
      return
    fi
  done
  echo -
}}
new=$(version "")
if [ "$new" != - ] && [ "$new" = "$(version {HOST})" ]; then
  echo "node is already at $new" > /dev/termination-log
  exit {SKIP}
fi
"#
    )
}

fn script(op: &NodeOpUpgradeSpec, active: bool, recovery: bool) -> String {
    let debug = if op.debug.unwrap_or(false) { " --debug" } else { "" };
    // The kubelet and the container runtime put these files into the container, so they are not those of the image.
    let excluded = ["/etc/hostname", "/etc/hosts"]
        .into_iter()
        .chain(op.exclude_paths.iter().map(String::as_str));
    let excluded: Vec<String> = excluded
        .map(|path| format!(" --exclude-path '{}'", path.replace('\'', r"'\''")))
        .collect();
    let excluded = excluded.concat();
    let upgrade = |which: &str| format!("kairos-agent{debug} upgrade{which} --source dir:/{excluded}\n");
    let mut script = format!("set -eux\nmount --rbind {HOST}/dev /dev\nmount --rbind {HOST}/run /run\n");
    if recovery {
        script.push_str(&upgrade(" --recovery"));
    }
    if active || !recovery {
        script.push_str(&upgrade(""));
    }
    script
}
