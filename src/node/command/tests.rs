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
fn nixos_has_its_programs_elsewhere() {
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
fn a_command_gets_its_arguments_and_nothing_of_ours() {
    let folder = Folder::new();
    folder.program(
        "usr/bin/tell",
        "for each in \"$@\"; do echo \"<$each>\"; done > run/told; env >> run/told; pwd >> run/told",
    );
    run(&folder.host(), &command(&["tell", "a b", "$HOME", ""])).unwrap();
    let told = folder.read("run/told").unwrap();
    assert!(told.starts_with("<a b>\n<$HOME>\n<>\n"), "{told}");
    let mut names: Vec<_> = told
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    names.retain(|name| !matches!(*name, "PWD" | "_" | "SHLVL" | "OLDPWD")); // the shell's own
    names.sort_unstable();
    assert_eq!(names, ["HOME", "PATH"]);
    assert_eq!(
        std::path::Path::new(told.lines().last().unwrap()),
        folder.path("/").canonicalize().unwrap()
    );
}

#[test]
fn what_went_wrong_is_told_with_the_last_words() {
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
    folder.program(
        "usr/bin/bus",
        "echo 'Failed to connect to bus:' >&2; echo '  Host is down' >&2; exit 3",
    );
    assert_eq!(
        failed(&["bus", "now"]).to_string(),
        "bus now ended with exit status: 3: Failed to connect to bus: Host is down"
    );
    folder.program("usr/bin/silent", "exit 1");
    assert_eq!(
        failed(&["silent"]).to_string(),
        "silent ended with exit status: 1"
    );
    folder.program("usr/bin/killed", "kill -9 $$");
    assert_eq!(
        failed(&["killed"]).to_string(),
        "killed ended with signal: 9 (SIGKILL)"
    );
    folder.program(
        "usr/bin/talks",
        "i=0; while [ $i -lt 4000 ]; do echo \"line $i of many\" >&2; i=$((i+1)); done; exit 1",
    );
    let told = failed(&["talks"]).to_string();
    assert!(told.len() < 1200 && told.ends_with("line 3999 of many"), "{told}");
    folder.write("usr/bin/odd", "\u{7f}ELF");
    std::fs::set_permissions(
        folder.path("usr/bin/odd"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let told = failed(&["odd"]).to_string();
    assert!(told.starts_with("odd: "), "{told}");
}

#[test]
fn what_a_command_leaves_behind_is_not_waited_for() {
    let folder = Folder::new();
    folder.program("usr/bin/leaves", "sleep 5 & exit 1");
    let error = run(&folder.host(), &command(&["leaves"]))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "leaves ended with exit status: 1");
}
