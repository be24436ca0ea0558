//! Why the API server would refuse the Plan's Jobs: what `refit_job::check` finds, and some of what it leaves to the API
//! server.

use super::subject::Subject;
use super::value::yaml_text;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::reference::{ANY_VERSION, Reference};
use crate::gitops::rule::Rule;
use crate::gitops::yaml::Node;
use refit_api::{ContainerSpec, Plan, PlanSpec, SecretSpec};
pub(super) use refit_job::render::all_containers as containers;
use refit_job::{JobError, JobSettings, PlanInput, Remark, inputs};

/// `SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS` in the manifests of refit and of system-upgrade-controller.
const DEADLINE: i64 = 900;
/// A valid UID: only a cluster assigns real ones.
const ANY_UID: &str = "00000000-0000-0000-0000-000000000000";
/// A hash of the usual length, 56 digits.
pub(super) const ANY_HASH: &str = "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f";

/// The default Job settings of the controller.
pub(super) fn settings() -> JobSettings {
    JobSettings {
        active_deadline_seconds: DEADLINE,
        ..JobSettings::new("system-upgrade-controller", "refit")
    }
}

/// The version as a tag, or [`ANY_VERSION`].
pub(super) fn version_of(spec: &PlanSpec) -> String {
    let version = spec.version.as_deref().unwrap_or_default();
    let munged = refit_base::version::tag::munge(version);
    if refit_base::version::tag::check(&munged).is_ok() {
        munged
    } else {
        ANY_VERSION.to_owned()
    }
}

impl Subject<'_> {
    pub(super) fn check_jobs(&mut self, plan: &Plan) {
        let (spec, settings, version) = (&plan.spec, settings(), version_of(&plan.spec));
        let input = PlanInput {
            name: plan.metadata.name.as_deref().unwrap_or("plan"),
            namespace: "",
            uid: ANY_UID,
            labels: plan.metadata.labels.as_ref(),
            annotations: plan.metadata.annotations.as_ref(),
            spec,
            latest_version: &version,
            latest_hash: ANY_HASH,
            inputs: &inputs::inputs(spec, &version),
            digests: &refit_job::NO_DIGESTS,
        };
        let found = refit_job::check(&input, &settings);
        for error in found.errors {
            self.report_job_error(spec, &error);
        }
        for remark in found.remarks {
            // The deadline depends on the controller's environment, which is unknown here.
            let field = match remark {
                Remark::DrainTimeoutExceedsDeadline => "spec.drain.timeout",
                Remark::DrainExceedsDeadline(_) => "spec.drain",
                Remark::SecurityContextIgnored { .. } => continue,
            };
            let hint = "raise spec.jobActiveDeadlineSecs; otherwise the Job ends first, and the next one drains from the start";
            self.report(
                Rule::DrainTimeout,
                field,
                format!("{field}: {remark}"),
                Some(hint.to_owned()),
            );
        }
        self.check_tolerations(spec);
        for (container, of) in containers(spec) {
            self.check_container(container, of);
        }
        self.check_secrets(spec);
    }

    fn report_job_error(&mut self, spec: &PlanSpec, error: &JobError) {
        let volume = |named: &dyn Fn(&str, &str) -> bool| {
            containers(spec).find_map(|(container, of)| {
                // If two volumes conflict, the second one is the mistake.
                let volumes = of.volumes.as_deref().unwrap_or_default();
                let index = volumes
                    .iter()
                    .rposition(|one| named(&one.name, &one.destination))?;
                Some(format!("spec.{container}.volumes[{index}]"))
            })
        };
        if error.is_for_windows() {
            return; // whether the cluster has such nodes is unknown here
        }
        let field = match error {
            JobError::Image { container, image, .. } => {
                let field = format!("spec.{container}.image");
                // A missing image and a placeholder are reported elsewhere.
                if !is_placeholder(image) && self.node(&field).and_then(Node::text).is_some() {
                    self.report(Rule::BadImage, &field, error.to_string(), image_hint(image));
                }
                return;
            }
            // The schema reports a missing field.
            JobError::VolumeName(name) if name.is_empty() && self.has_missing_field() => return,
            JobError::VolumeName(name) | JobError::VolumeConflict(name) => {
                volume(&|volume, _| volume == name)
            }
            JobError::VolumePath { path, .. } if path.is_empty() && self.has_missing_field() => return,
            JobError::VolumePath { name, .. } => volume(&|volume, _| volume == name),
            JobError::MountConflict { path, .. } => {
                let secrets = spec.secrets.as_deref().unwrap_or_default();
                let secret = secrets.iter().rposition(|secret| secret.path == *path);
                volume(&|_, destination| destination == path)
                    .or_else(|| secret.map(|index| format!("spec.secrets[{index}].path")))
            }
            // Not about the Plan, or already reported by the controller's validation.
            JobError::PlanName(_)
            | JobError::ControllerName(_)
            | JobError::Version(_)
            | JobError::NoHash
            | JobError::OwnImage
            | JobError::PostCompleteDelay(_)
            | JobError::PodSelector(_) => return,
            _ => None,
        };
        self.report(
            Rule::BadJob,
            field.as_deref().unwrap_or("spec"),
            error.to_string(),
            None,
        );
    }

    fn has_missing_field(&self) -> bool {
        self.found.iter().any(|found| found.rule == Rule::MissingField)
    }

    fn check_container(&mut self, container: &str, of: &ContainerSpec) {
        // The API server accepts `Rancher/x`, and the container runtime takes `Rancher` for a registry.
        let registry = of.image.split_once('/').map_or("", |(registry, _)| registry);
        if registry.contains(|c: char| c.is_ascii_uppercase())
            && !registry.contains(['.', ':'])
            && !is_placeholder(&of.image)
            && Reference::read(&of.image).is_some()
        {
            let field = format!("spec.{container}.image");
            let message = format!("{field} is {:?}; the name of an image is in lower case", of.image);
            let lower = registry.to_lowercase();
            let hint = format!("write `{}`", yaml_text(&of.image.replacen(registry, &lower, 1)));
            self.report(Rule::BadImage, &field, message, Some(hint));
        }
        for (index, variable) in of.envs.iter().flatten().enumerate() {
            let field = format!("spec.{container}.envs[{index}]");
            let name = &variable.name;
            let sources = variable.value_from.as_ref().map(|from| {
                let from = serde_json::to_value(from).unwrap_or_default();
                from.as_object().map_or(0, serde_json::Map::len)
            });
            if name.is_empty() && !self.has(&format!("{field}.name")) {
                continue; // the schema has said so
            }
            self.check_field_path(&field);
            // API servers with relaxed validation accept all printable ASCII characters except `=` (KEP-4369).
            let problem = if name.is_empty() {
                "its name is missing".to_owned()
            } else if name.contains('=') || !name.chars().all(|c| matches!(c, ' '..='~')) {
                format!("its name is {name:?}; it must be printable ASCII without '='")
            } else if sources.is_some() && variable.value.as_deref().is_some_and(|value| !value.is_empty()) {
                format!("{name} has both value and valueFrom")
            } else if sources.is_some_and(|sources| sources != 1) {
                format!("valueFrom of {name} must have exactly one source")
            } else {
                continue;
            };
            self.report(Rule::BadJob, &field, format!("{field}: {problem}"), None);
        }
        for (index, volume) in of.volumes.iter().flatten().enumerate() {
            let field = format!("spec.{container}.volumes[{index}].destination");
            if without_drive(&volume.destination).contains(':') {
                let message = format!("{field} is {:?}; it must not contain ':'", volume.destination);
                self.report(Rule::BadJob, &field, message, None);
            }
        }
        let context = of.security_context.as_ref();
        let is = |flag: Option<bool>, value: bool| flag == Some(value);
        if context.is_some_and(|c| is(c.privileged, true) && is(c.allow_privilege_escalation, false)) {
            let field = format!("spec.{container}.securityContext");
            let message = format!("{field} is privileged, and cannot have allowPrivilegeEscalation: false");
            self.report(Rule::BadJob, &field, message, None);
        }
    }

    /// The API server refuses a `fieldRef` to any other field of the pod.
    fn check_field_path(&mut self, variable: &str) {
        // `validEnvDownwardAPIFieldPathExpressions` in pkg/apis/core/validation/validation.go.
        const PATHS: [&str; 9] = [
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.hostIP",
            "status.hostIPs",
            "status.podIP",
            "status.podIPs",
        ];
        let field = format!("{variable}.valueFrom.fieldRef.fieldPath");
        let Some(path) = self.node(&field).and_then(Node::text) else {
            return;
        };
        let is_map = ["metadata.labels['", "metadata.annotations['"]
            .iter()
            .any(|start| path.starts_with(start) && path.ends_with("']"));
        if is_map || is_placeholder(path) || PATHS.contains(&path) {
            return;
        }
        let message = format!(
            "{field} is {path:?}; it must be a field of the pod such as spec.nodeName or status.hostIP"
        );
        let hint = did_you_mean(path, &PATHS);
        self.report(Rule::BadJob, &field, message, hint);
    }

    fn check_secrets(&mut self, spec: &PlanSpec) {
        for (index, secret) in spec.secrets.iter().flatten().enumerate() {
            self.check_mode(secret, &format!("spec.secrets[{index}].defaultMode"));
            let field = format!("spec.secrets[{index}].path");
            if without_drive(&secret.path).contains(':') {
                let message = format!("{field} is {:?}; it must not contain ':'", secret.path);
                self.report(Rule::BadJob, &field, message, None);
            }
        }
    }

    fn check_mode(&mut self, secret: &SecretSpec, field: &str) {
        let Some((mode, node)) = secret.default_mode.zip(self.node(field)) else {
            return;
        };
        if !(0..=0o777).contains(&mode) {
            // The author probably thought of `chmod`.
            let written = self.written(node);
            let is_octal = u32::from_str_radix(written, 8).is_ok_and(|mode| mode <= 0o777);
            let hint = is_octal.then(|| format!("write `0{written}`"));
            let message = format!("{field} is {mode}; it must be from 0 to 511, which is 0777");
            self.report(Rule::BadJob, field, message, hint);
        }
    }
}

/// The image that was meant, if the text is one behind a scheme, or with the `+` of a version.
fn image_hint(image: &str) -> Option<String> {
    let bare = image.trim();
    let bare = bare.split_once("://").map_or(bare, |(_, bare)| bare);
    let bare = bare.replace('+', "-");
    let is_image = bare != image && Reference::read(&bare).is_some();
    is_image.then(|| format!("write `{}`", yaml_text(&bare)))
}

pub(super) fn did_you_mean(text: &str, words: &[&str]) -> Option<String> {
    let near = refit_base::nearest::nearest(text, words.iter().copied())?;
    Some(format!("did you mean `{near}`?"))
}

/// A path without the drive of a Windows path, such as `C:`.
fn without_drive(path: &str) -> &str {
    match path.split_at_checked(2) {
        Some((drive, rest)) if drive.ends_with(':') && rest.starts_with(['\\', '/']) => rest,
        _ => path,
    }
}
