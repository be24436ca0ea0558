//! What follows the upgrade of a node: its reboot, and until when it settles.

use crate::invalid::{ErrorList, FieldPath, at};
use crate::plan::PlanSpec;
use crate::reboot::{HostAccess, REQUIRED_FILES};

/// Maximum length of a path on Linux, in bytes, without its terminating zero.
const MAX_PATH_LEN: usize = 4095;

/// Checked for every value of `when`, so that an error is found before it matters.
pub(super) fn check_reboot(spec: &PlanSpec, errors: &mut ErrorList) {
    let reboot = spec.reboot_or_default();
    if let Some(files) = &reboot.required_files {
        check_required_files(&at("reboot.requiredFiles"), files, errors);
    }
    if let Some(command) = &reboot.command {
        check_command(&at("reboot.command"), command, errors);
    }
    errors.take(at("reboot.timeout").positive(reboot.timeout()));
    if spec.payload_reboots() {
        let others = [
            ("reboot.when", reboot.when.is_some()),
            ("reboot.requiredFiles", reboot.required_files.is_some()),
            ("reboot.command", reboot.command.is_some()),
            ("trigger", spec.trigger.is_some()),
        ];
        for (other, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
            errors.push(at("reboot.by").invalid(format_args!(
                "is Payload, so that refit does not reboot the node, and spec.{other} is about how refit does: remove one of them"
            )));
        }
    }
    if spec.has_sentinel() && spec.host_access() == HostAccess::None {
        let when = spec.reboot_when().as_str();
        let problem =
            format!("is {when}, and spec.hostAccess None keeps refit from the host: use Root or Full");
        errors.push(at("reboot.when").invalid(problem));
    }
}

fn check_required_files(list: &FieldPath, files: &[String], errors: &mut ErrorList) {
    if files.is_empty() {
        let problem = format!(
            "is empty, so nothing could require a reboot: leave it out for {}, or name files",
            REQUIRED_FILES.join(" and ")
        );
        errors.push(list.invalid(problem).hint("remove it"));
    }
    for (index, path) in files.iter().enumerate().filter(|(_, path)| !is_clean_path(path)) {
        errors.push(list.index(index).invalid(format_args!(
            "is {path:?}: it must be an absolute path on the host, such as {:?}, without \".\", \"..\", \"//\" or a \"/\" at its \
             end, and of at most {MAX_PATH_LEN} characters",
            REQUIRED_FILES[0]
        )));
    }
}

fn check_command(list: &FieldPath, command: &[String], errors: &mut ErrorList) {
    let Some(program) = command.first() else {
        let problem = "is empty: leave it out for `systemctl reboot` or `reboot`, or name a program";
        return errors.push(list.invalid(problem).hint("remove it"));
    };
    let is_name = !program.is_empty() && !program.contains('/') && program != "." && program != "..";
    if !is_name && !is_clean_path(program) && !program.contains('\0') {
        errors.push(list.index(0).invalid(format_args!(
            "is {program:?}: it must be the name of a program on the host, such as \"reboot\", or its absolute path"
        )));
    }
    for (index, _) in command
        .iter()
        .enumerate()
        .filter(|(_, argument)| argument.contains('\0'))
    {
        let problem = "has a NUL character, which no argument can have";
        errors.push(list.index(index).invalid(problem));
    }
}

/// Whether a path is absolute, without `.` or `..`.
fn is_clean_path(path: &str) -> bool {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.len() <= MAX_PATH_LEN
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_plain))
}

pub(super) fn check_settle(spec: &PlanSpec, errors: &mut ErrorList) {
    let settle = spec.settle_or_default();
    let field = at("settle.minReady");
    let min_ready = settle.min_ready(spec.may_reboot());
    let min_ready = min_ready.map_err(|error| field.invalid(format_args!("is invalid, {error}")));
    let min_ready = errors.take(min_ready).unwrap_or_default();
    if min_ready.is_negative() {
        errors.push(field.invalid("is negative"));
    }
    errors.take(settle.conditions());
    errors.take(settle.taints_gone());
    errors.take(settle.daemon_sets());
    let settled = errors.take(at("settle.timeout").positive(settle.timeout()));
    // An invalid one is reported with the reboot.
    let rebooted = spec
        .may_reboot()
        .then(|| {
            at("reboot.timeout")
                .positive(spec.reboot_or_default().timeout())
                .ok()
        })
        .flatten();
    for (name, timeout) in [
        ("spec.settle.timeout", settled),
        ("spec.reboot.timeout", rebooted),
    ] {
        if let Some(timeout) = timeout.filter(|timeout| *timeout <= min_ready) {
            let problem =
                format!("is {min_ready}, and {name} ends the wait for it after {timeout}: it must be longer");
            let hint = format!("shorten spec.settle.minReady, or lengthen {name}");
            errors.push(field.invalid(problem).hint(hint));
        }
    }
}
