//! On a host in separate namespaces, with its own process 1, mount namespace, boot ID and `/run`. Creating them needs
//! permissions, so `just e2e` runs these tests, and `.ci/run` where it can.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
const NAME: &str = "plan-uid.node-uid.hash";

/// A shell that is process 1 of its own namespaces.
fn unshare(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation=private",
    ]);
    command.args(["sh", "-euc", script]);
    command
}

fn program(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "needs root, to create namespaces: just e2e"]
fn the_command_runs_in_the_mount_namespace_of_process_1() {
    let dir = tempfile::TempDir::new().unwrap();
    let outside = |name: &str| dir.path().join(name);
    fs::write(outside("boot_id"), format!("{BOOT}\n")).unwrap();
    fs::write(outside("message"), "").unwrap();
    program(
        &outside("reboot"),
        "#!/bin/sh\nreadlink /proc/self/ns/mnt > /run/rebooted\n",
    );
    // The host, then a container on it that sees another /run, as a pod with hostPID does.
    let script = format!(
        "mount -t tmpfs none /run
         mkdir /run/bin && cp {dir}/reboot /run/bin/reboot
         mount --bind {dir}/boot_id /proc/sys/kernel/random/boot_id
         {refit} sentinel --host / --name {NAME} --always >&2
         readlink /proc/self/ns/mnt > {dir}/host-namespace
         unshare --mount --propagation=private sh -euc '
             mount -t tmpfs none /run
             readlink /proc/self/ns/mnt > {dir}/own-namespace
             exec {refit} reboot --boot-id {BOOT} --sentinel {NAME} --message-file {dir}/message -- /run/bin/reboot
         ' 2> {dir}/said &
         while ! grep -q 'waiting for the end' {dir}/said; do
             kill -0 $! || exit 1
             sleep 0.1
         done
         cp /run/rebooted {dir}/rebooted
         kill $!",
        dir = dir.path().display(),
        refit = env!("CARGO_BIN_EXE_refit"),
    );
    let output = unshare(&script).stdin(Stdio::null()).output().unwrap();
    let read = |name: &str| fs::read_to_string(outside(name)).unwrap_or_default();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), read("said"));
    assert!(output.status.success(), "{said}");
    let host = read("host-namespace");
    assert_eq!(read("rebooted"), host, "{said}");
    assert_ne!(read("own-namespace"), host);
    assert!(
        !Path::new("/run/refit").join(NAME).exists(),
        "this machine is unchanged"
    );
}

#[test]
#[ignore = "needs root, to create namespaces: just e2e"]
fn process_1_is_not_the_host_in_a_pod_without_hostpid() {
    let dir = tempfile::TempDir::new().unwrap();
    let message = dir.path().join("message");
    fs::write(&message, "").unwrap();
    let script = format!(
        "exec {} reboot --boot-id {BOOT} --sentinel {NAME} --message-file {}",
        env!("CARGO_BIN_EXE_refit"),
        message.display()
    );
    let output = unshare(&script).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        fs::read_to_string(&message).unwrap(),
        "HostUnreadable: process 1 is refit itself, not the host's: the pod needs hostPID"
    );
}
