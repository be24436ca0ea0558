use std::cell::RefCell;

use super::*;
use crate::node::fixture::{BOOT, Folder, NEXT_BOOT, name};
use crate::node::{RebootWhen, keep};

/// The result of a request to end [`BOOT`], and its messages.
fn ordered(folder: &Folder, command: &[&str]) -> (Result<Outcome, Failure>, Vec<String>) {
    let order = Order {
        boot_id: BOOT.to_owned(),
        sentinel: name(),
        commands: Commands::new(command.iter().map(|part| (*part).to_owned()).collect()),
    };
    let messages = RefCell::new(Vec::new());
    let outcome = reboot(&folder.host(), &order, &|text| {
        messages.borrow_mut().push(text.to_owned());
    });
    (outcome, messages.into_inner())
}

/// A host that was upgraded in [`BOOT`], whose programs count their runs.
fn upgraded() -> Folder {
    let folder = Folder::new();
    keep(&folder.host(), &name(), &RebootWhen::Always).unwrap();
    folder.program("usr/sbin/reboot", "echo reboot \"$@\" >> run/runs");
    folder
}

fn requested(command: &str) -> Outcome {
    Outcome::Requested {
        command: command.to_owned(),
    }
}

#[test]
fn a_reboot_is_requested_each_time_in_its_boot() {
    let folder = upgraded();
    assert_eq!(ordered(&folder, &["reboot", "-f"]).0, Ok(requested("reboot -f")));
    assert_eq!(ordered(&folder, &["reboot", "-f"]).0, Ok(requested("reboot -f")));
    assert_eq!(folder.read("run/runs").unwrap(), "reboot -f\nreboot -f\n");
}

#[test]
fn in_another_boot_nothing_is_requested_with_any_sentinel() {
    let folder = upgraded();
    folder.boot(NEXT_BOOT);
    let rebooted = Ok(Outcome::Rebooted {
        boot_id: NEXT_BOOT.to_owned(),
    });
    assert_eq!(ordered(&folder, &[]).0, rebooted);
    std::fs::remove_dir_all(folder.path("run/refit")).unwrap();
    assert_eq!(ordered(&folder, &[]).0, rebooted);
    assert_eq!(folder.read("run/runs"), None);
}

#[test]
fn without_a_sentinel_of_this_boot_nothing_is_rebooted() {
    let folder = upgraded();
    let path = "run/refit/plan-uid.node-uid.hash";
    let sentinel = folder.read(path).unwrap();
    let failed = |text: Option<&str>| {
        match text {
            Some(text) => folder.write(path, text),
            None => std::fs::remove_file(folder.path(path)).unwrap(),
        }
        let failure = ordered(&folder, &[]).0.unwrap_err();
        assert_eq!(failure.fault, RebootFault::SentinelMissing);
        assert!(RebootFault::parse(&failure.to_string()).is_some());
        failure.sentence
    };
    assert_eq!(
        failed(Some(&sentinel.replace(BOOT, NEXT_BOOT))),
        format!("/run/refit/plan-uid.node-uid.hash is of the boot {NEXT_BOOT}, and the node is in {BOOT}")
    );
    assert!(
        failed(Some("x"))
            .starts_with("/run/refit/plan-uid.node-uid.hash is not a sentinel: it cannot be read: ")
    );
    assert_eq!(
        failed(None),
        format!(
            "there is no /run/refit/plan-uid.node-uid.hash on the host: nothing shows that the upgrade succeeded in boot {BOOT}"
        )
    );
    assert_eq!(folder.read("run/runs"), None);
}

#[test]
fn the_next_command_runs_if_the_first_is_missing_or_fails() {
    let folder = upgraded();
    let (outcome, messages) = ordered(&folder, &[]);
    assert_eq!(outcome, Ok(requested("reboot")));
    let mut starts = messages
        .iter()
        .map(|text| text.starts_with("systemctl is not on the host"));
    assert!(starts.any(|is| is), "{messages:?}");
    let systemctl = "echo systemctl \"$@\" >> run/runs";
    folder.program(
        "usr/bin/systemctl",
        &format!("{systemctl}; echo 'no bus' >&2; exit 1"),
    );
    let (outcome, messages) = ordered(&folder, &[]);
    assert_eq!(outcome, Ok(requested("reboot")));
    let failed = "systemctl reboot ended with exit status: 1: no bus".to_owned();
    assert!(messages.contains(&failed), "{messages:?}");
    folder.program("usr/bin/systemctl", systemctl);
    assert_eq!(ordered(&folder, &[]).0, Ok(requested("systemctl reboot")));
    let runs = "reboot\nsystemctl reboot\nreboot\nsystemctl reboot\n";
    assert_eq!(folder.read("run/runs").as_deref(), Some(runs));
}

#[test]
fn a_reboot_whose_commands_all_fail_says_why() {
    let folder = upgraded();
    let failure = ordered(&folder, &["/opt/reboot"]).0.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "CommandMissing: /opt/reboot is not on the host"
    );
    std::fs::remove_file(folder.path("usr/sbin/reboot")).unwrap();
    let failure = ordered(&folder, &[]).0.unwrap_err();
    assert_eq!(failure.fault, RebootFault::CommandMissing);
    assert!(
        failure.sentence.contains("; reboot is not on the host"),
        "{failure}"
    );
    folder.program("usr/bin/systemctl", "echo no >&2; exit 4");
    let failure = ordered(&folder, &[]).0.unwrap_err();
    assert_eq!(failure.fault, RebootFault::CommandFailed);
    let start = "systemctl reboot ended with exit status: 4: no; reboot is not on the host";
    assert!(failure.sentence.starts_with(start), "{failure}");
    std::fs::remove_dir_all(folder.path("proc")).unwrap();
    let failure = ordered(&folder, &[]).0.unwrap_err();
    assert_eq!(failure.fault, RebootFault::HostUnreadable);
}
