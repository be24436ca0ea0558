//! The command line itself: invalid arguments, completion in bash, and the manifest with which krew installs the plugin.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::workdir::Workdir;

/// Arguments with which the controller starts.
const WHOLE: &str = "--name n --namespace ns";

#[test]
fn the_command_line_names_what_is_wrong_with_it_and_what_is_allowed() {
    // Arguments and environment, and what standard error must contain.
    for (line, variable, texts) in [
        ("", "", "--name is required, SYSTEM_UPGRADE_CONTROLLER_NAME"),
        (
            "--name n",
            "",
            "--namespace is required, SYSTEM_UPGRADE_CONTROLLER_NAMESPACE",
        ),
        (
            "controller --name 'a b' --namespace ns",
            "",
            "--name, \"a b\", 63",
        ),
        ("--name n --namespace NS", "", "--namespace, \"NS\", lower-case"),
        ("--lease-duration soon", "", "--lease-duration, soon, 45s"),
        ("--renew-deadline=-5s", "", "--renew-deadline, -5s, negative"),
        ("--threads many", "", "--threads, many, whole number"),
        (
            "--leader-elect=perhaps",
            "",
            "--leader-elect, perhaps, true or false",
        ),
        ("--log-format xml", "", "--log-format, xml, text, json"),
        ("--no-such-flag", "", "--no-such-flag"),
        ("--dashboard=true", "", "--dashboard"),
        ("dashboard --html nowhere/page.html", "", "no folder nowhere"),
        ("dashboard --html p.html --port 1", "", "--html, --port"),
        ("no-such-command", "", "no-such-command"),
        (
            WHOLE,
            "CATTLE_ELECTION_RETRY_PERIOD=x",
            "CATTLE_ELECTION_RETRY_PERIOD, \"x\", 45s",
        ),
        (WHOLE, "CATTLE_ELECTION_RENEW_DEADLINE=60s", "renew deadline"),
        (
            WHOLE,
            "SYSTEM_UPGRADE_CONTROLLER_THREADS=many",
            "SYSTEM_UPGRADE_CONTROLLER_THREADS",
        ),
        (
            WHOLE,
            "SYSTEM_UPGRADE_CONTROLLER_DEBUG=very",
            "SYSTEM_UPGRADE_CONTROLLER_DEBUG",
        ),
        (
            WHOLE,
            "REFIT_LOG_FORMAT=xml",
            "REFIT_LOG_FORMAT, \"xml\", text or json",
        ),
        (WHOLE, "REFIT_LOG==loud=", "REFIT_LOG, =loud=, refit=debug"),
        (
            WHOLE,
            "REFIT_MANAGE_CRD=no way",
            "REFIT_MANAGE_CRD, \"no way\", true or false",
        ),
        (WHOLE, "HTTPS_PROXY=gopher://x", "HTTPS_PROXY"),
        (
            WHOLE,
            "SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG=/does/not/exist",
            "/does/not/exist",
        ),
    ] {
        let mut command = assert_cmd::Command::new(crate::testenv::controller::binary());
        command.env_clear().env("HOME", "/does/not/exist");
        command
            .args(shlex::split(line).unwrap())
            .envs(variable.split_once('='));
        let output = command.timeout(Duration::from_secs(60)).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        // All but the missing file are mistakes in the arguments.
        let code = if variable.contains("KUBE_CONFIG") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{line} {variable}: {stderr}");
        assert!(
            output.stdout.is_empty(),
            "{line} {variable}: standard output is for data"
        );
        for text in texts.split(", ") {
            assert!(
                stderr.contains(text),
                "{line} {variable}: {text:?} is not in {stderr}"
            );
        }
    }
}

/// A release fills in addresses and checksums, and nothing else.
#[test]
fn the_manifest_for_krew_names_this_version_and_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubectl/refit.yaml");
    let manifest: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["kind"], "Plugin");
    assert_eq!(manifest["spec"]["version"], version);
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for platform in platforms {
        assert_eq!(platform["bin"], "refit");
        let uri = platform["uri"].as_str().unwrap();
        let arch = platform["selector"]["matchLabels"]["arch"].as_str().unwrap();
        assert!(
            uri.contains(version) && uri.ends_with(&format!("refit-linux-{arch}.tar.gz")),
            "{uri}"
        );
        assert_eq!(platform["sha256"].as_str().unwrap().len(), 64);
    }
}

#[test]
fn bash_completes_commands_flags_and_files() {
    let folder = Workdir::new([("plan.yaml", "")]);
    let program = Path::new(env!("CARGO_BIN_EXE_refit")).parent().unwrap();
    let script = folder.run("completion bash").ends(0);
    folder.write("completion.bash", &script.out);
    let complete = |words: &str| {
        let count = words.split(' ').count();
        let line = format!(
            "source completion.bash; COMP_WORDS=({words}); COMP_CWORD=$(({count} - 1)); \
             _clap_complete_refit refit \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let path = format!(
            "{}:{}",
            program.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let output = std::process::Command::new("bash")
            .args(["-c", &line])
            .current_dir(folder.path())
            .env("PATH", path)
            .env("KUBECONFIG", "/does/not/exist")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("refit resum"), "resume\n");
    assert_eq!(complete("refit retry server --wa"), "--wait\n");
    assert_eq!(complete("refit report p -o h"), "html\n");
    assert_eq!(complete("refit pin pla"), "plan.yaml\n");
    // Without a cluster there are no names of nodes, and the flags are left.
    let rest = complete("refit retry server \"\"");
    assert!(rest.lines().all(|line| line.starts_with("--")), "{rest}");
}
