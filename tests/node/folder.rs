//! On a host in a folder.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use refit_api::{RebootFault, SentinelReport};
use tempfile::TempDir;

const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
const NEXT_BOOT: &str = "6f2c1e5f-1bab-4b63-88b4-1e3f4b5c6d7e";
const NAME: &str = "plan-uid.node-uid.hash";

/// A host, and the message file of a container on it.
struct Host(TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(TempDir::new().unwrap());
        for dir in ["proc/sys/kernel/random", "run", "usr/bin", "var"] {
            fs::create_dir_all(host.path(dir)).unwrap();
        }
        std::os::unix::fs::symlink("/run", host.path("var/run")).unwrap();
        host.boot(BOOT);
        host.program("reboot", "echo reboot >> run/runs");
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join("host").join(path)
    }

    fn boot(&self, id: &str) {
        fs::write(self.path("proc/sys/kernel/random/boot_id"), format!("{id}\n")).unwrap();
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path("usr/bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn message_file(&self) -> PathBuf {
        self.0.path().join("termination-log")
    }

    /// The message of the last container. A kubelet creates the file anew for each.
    fn message(&self) -> String {
        fs::read_to_string(self.message_file()).unwrap()
    }

    fn refit(&self, args: &[&str]) -> Command {
        fs::write(self.message_file(), "").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
        command.args(args.iter().take(1)).arg("--host").arg(self.path(""));
        if args[0] != "probe" {
            command.arg("--message-file").arg(self.message_file());
        }
        command.args(&args[1..]);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.refit(args).output().unwrap()
    }

    fn keep(&self) {
        assert_eq!(code(&self.run(&["sentinel", "--name", NAME, "--always"])), 0);
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A process that must not end by itself.
struct Waiting(std::process::Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_probe_prints_what_it_found_or_everything_that_is_missing() {
    let host = Host::new();
    let output = host.run(&["probe", "--required-file=/var/run/reboot-required"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        stderr(&output),
        format!("the node is in boot {BOOT}, and /usr/bin/reboot can reboot it\n")
    );
    fs::remove_dir_all(host.path("run/refit")).unwrap();
    fs::write(host.path("run/refit"), "").unwrap();
    let output = host.run(&["probe", "--", "kexec", "-e"]);
    assert_eq!(code(&output), 1);
    let error = stderr(&output);
    let [folder, command] = error.lines().collect::<Vec<_>>()[..] else {
        panic!("{error}")
    };
    assert!(
        folder.starts_with("error: cannot make /run/refit on the host: "),
        "{error}"
    );
    assert!(
        command.starts_with("error: kexec is not on the host, in none of "),
        "{error}"
    );
}

#[test]
fn a_sentinel_writes_the_same_report_on_the_host_in_its_message_and_on_stdout() {
    let host = Host::new();
    let files = [
        "--required-file=/run/reboot-required",
        "--required-file=/var/run/again",
    ];
    for required in [false, true] {
        if required {
            fs::write(host.path("run/again"), "").unwrap();
        }
        let output = host.run(&[&["sentinel", "--name", NAME], &files[..]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let expected = SentinelReport {
            boot_id: BOOT.to_owned(),
            required,
        };
        assert_eq!(SentinelReport::parse(&host.message()), Ok(expected.clone()));
        let line = format!("{}\n", host.message());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), line);
        assert_eq!(host.read(&format!("run/refit/{NAME}")), Some(line));
        assert_eq!(stderr(&host.run(&["sentinel", "--name", NAME, "--always"])), "");
        let asked = host.run(&["reboot", "--ask", "--sentinel", NAME]);
        assert_eq!(code(&asked), 0);
        assert!(
            SentinelReport::parse(&host.message()).unwrap().required,
            "the last one counts"
        );
    }
}

#[test]
fn without_a_message_file_the_report_is_on_stdout_only() {
    let host = Host::new();
    let mut refit = host.refit(&["sentinel", "--name", NAME, "--always"]);
    fs::remove_file(host.message_file()).unwrap();
    let output = refit.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(SentinelReport::parse(&String::from_utf8(output.stdout).unwrap()).is_ok());
    assert!(!host.message_file().exists());
}

#[test]
fn a_requested_reboot_is_waited_for_with_any_command() {
    for (command, runs) in [(&[][..], Some("reboot\n")), (&["--", "true"][..], None)] {
        let host = Host::new();
        host.program("true", "exit 0");
        host.keep();
        let args = [&["reboot", "--boot-id", BOOT, "--sentinel", NAME][..], command].concat();
        let mut waiting = Waiting(host.refit(&args).stderr(Stdio::piped()).spawn().unwrap());
        let stderr = waiting.0.stderr.take().unwrap();
        // It says so when the command has ended.
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("waiting for the end")));
        assert_eq!(host.read("run/runs").as_deref(), runs);
        // As a kubelet ends it, and systemd before a reboot.
        let pid = rustix::process::Pid::from_child(&waiting.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = waiting.0.wait().unwrap();
        assert_eq!(status.signal(), Some(15), "it has waited until then: {status}");
        assert_eq!(host.message(), "");
    }
}

#[test]
fn in_the_next_boot_reboot_succeeds_and_requests_nothing() {
    let host = Host::new();
    host.keep();
    host.boot(NEXT_BOOT);
    let output = host.run(&["reboot", "--boot-id", BOOT, "--sentinel", NAME]);
    assert_eq!(code(&output), 0);
    assert_eq!(stderr(&output), format!("the node is in boot {NEXT_BOOT} now\n"));
    assert_eq!(host.read("run/runs"), None);
}

#[test]
fn a_failed_reboot_is_reported_in_the_exit_code_and_the_message() {
    let host = Host::new();
    let failed = |args: &[&str], expected: (i32, RebootFault)| {
        let output = host.run(&[&["reboot", "--sentinel", NAME][..], args].concat());
        let message = host.message();
        let (fault, sentence) = RebootFault::parse(&message).unwrap_or_else(|| panic!("{message}"));
        assert_eq!((code(&output), fault), expected, "{message}");
        assert!(
            stderr(&output).ends_with(&format!("error: {message}\n")),
            "{}",
            stderr(&output)
        );
        assert!(output.stdout.is_empty());
        sentence.to_owned()
    };
    failed(&["--boot-id", BOOT], (3, RebootFault::SentinelMissing));
    failed(&["--ask"], (3, RebootFault::SentinelMissing));
    host.keep();
    let missing = ["--boot-id", BOOT, "--", "/opt/none", "now"];
    let sentence = failed(&missing, (1, RebootFault::CommandMissing));
    assert_eq!(sentence, "/opt/none is not on the host");
    assert_eq!(host.read("run/runs"), None);
}

#[test]
fn invalid_arguments_are_refused() {
    let host = Host::new();
    for args in [
        &["sentinel", "--name", NAME][..],
        &["sentinel", "--name", "../../x", "--always"],
        &["sentinel", "--name", NAME, "--always", "--required-file=/x"],
        &["reboot", "--sentinel", NAME],
        &["reboot", "--boot-id", BOOT],
        &["reboot", "--boot-id", "yesterday", "--sentinel", NAME],
        &["reboot", "--ask", "--boot-id", BOOT, "--sentinel", NAME],
        &["reboot", "--ask", "--sentinel", NAME, "--", "reboot"],
        &["probe", "reboot"],
    ] {
        let output = host.run(args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
    }
    assert_eq!(host.read("run/runs"), None);
}
