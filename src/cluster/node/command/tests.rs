use super::*;
use crate::node::fixture::Folder;

fn command(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

#[test]
fn a_program_is_found_where_the_host_has_it() {
    let folder = Folder::new();
    let host = folder.host();
    assert_eq!(find(&host, "reboot"), None);
    folder.write("usr/bin/reboot", "no program");
    assert_eq!(find(&host, "reboot"), None, "it cannot be run");
    std::fs::create_dir(folder.path("usr/sbin/reboot")).unwrap();
    assert_eq!(find(&host, "reboot"), None, "a directory is none");
    std::fs::remove_dir(folder.path("usr/sbin/reboot")).unwrap();
    // As on Debian: /sbin/reboot is a link to /bin/systemctl, which is in /usr/bin.
    folder.program("usr/bin/systemctl", "");
    folder.link("/bin/systemctl", "usr/sbin/reboot");
    assert_eq!(find(&host, "reboot").as_deref(), Some("/usr/sbin/reboot"));
    assert_eq!(find(&host, "/sbin/reboot").as_deref(), Some("/sbin/reboot"));
    assert_eq!(find(&host, "/sbin/none"), None);
    for program in ["", "sbin/reboot", "./reboot", "../usr/sbin/reboot"] {
        assert_eq!(find(&host, program), None, "{program:?}");
    }
}

#[test]
fn a_program_is_found_on_nixos() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("nix/sw/bin")).unwrap();
    std::fs::create_dir_all(folder.path("run/current-system")).unwrap();
    folder.link("/nix/sw", "run/current-system/sw");
    folder.program("nix/sw/bin/systemctl", "");
    assert_eq!(
        find(&folder.host(), "systemctl").as_deref(),
        Some("/run/current-system/sw/bin/systemctl")
    );
}

#[test]
fn a_command_gets_its_arguments_and_none_of_our_environment() {
    let folder = Folder::new();
    folder.program(
        "usr/bin/log",
        "(for each in \"$@\"; do echo \"<$each>\"; done; env; pwd) > run/log",
    );
    run(&folder.host(), &command(&["log", "a b", "$HOME", ""])).unwrap();
    let log = folder.read("run/log").unwrap();
    assert!(log.starts_with("<a b>\n<$HOME>\n<>\n"), "{log}");
    let names = log.lines().filter_map(|line| line.split_once('='));
    let mut names: Vec<_> = names.map(|(name, _)| name).collect();
    names.retain(|name| !matches!(*name, "PWD" | "_" | "SHLVL" | "OLDPWD")); // the shell's own
    names.sort_unstable();
    assert_eq!(names, ["HOME", "PATH"]);
    let directory = std::path::Path::new(log.lines().last().unwrap());
    assert_eq!(directory, folder.path("/").canonicalize().unwrap());
}

#[test]
fn a_failed_command_is_reported_with_the_end_of_its_output() {
    let folder = Folder::new();
    let host = folder.host();
    let failed = |parts: &[&str]| run(&host, &command(parts)).unwrap_err();
    let missing = failed(&["reboot", "-f"]);
    assert!(missing.is_missing());
    assert_eq!(
        missing.to_string(),
        "reboot is not on the host, in none of /usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin, /sbin, /bin, \
         /run/current-system/sw/bin"
    );
    assert_eq!(
        failed(&["/opt/reboot"]).to_string(),
        "/opt/reboot is not on the host"
    );
    for (command, script, error) in [
        (
            &["bus", "now"][..],
            "echo 'Failed to connect to bus:' >&2; echo '  Host is down' >&2; exit 3",
            "bus now ended with exit status: 3: Failed to connect to bus: Host is down",
        ),
        (&["silent"], "exit 1", "silent ended with exit status: 1"),
        (&["killed"], "kill -9 $$", "killed ended with signal: 9 (SIGKILL)"),
    ] {
        folder.program(&format!("usr/bin/{}", command[0]), script);
        assert_eq!(failed(command).to_string(), error);
    }
    folder.program(
        "usr/bin/talks",
        "i=0; while [ $i -lt 4000 ]; do echo \"line $i of many\" >&2; i=$((i+1)); done; exit 1",
    );
    let error = failed(&["talks"]).to_string();
    assert!(
        error.len() < 1200 && error.ends_with("line 3999 of many"),
        "{error}"
    );
    folder.program("usr/bin/odd", "");
    folder.write("usr/bin/odd", "\u{7f}ELF");
    let error = failed(&["odd"]).to_string();
    assert!(error.starts_with("odd: "), "{error}");
}

#[test]
fn a_background_process_of_a_command_is_not_waited_for() {
    let folder = Folder::new();
    folder.program("usr/bin/leaves", "sleep 5 & exit 1");
    let error = run(&folder.host(), &command(&["leaves"]))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "leaves ended with exit status: 1");
}
