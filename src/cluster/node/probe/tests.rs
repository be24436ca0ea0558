use super::*;
use crate::node::fixture::{BOOT, Folder};
use crate::node::host::Found;
use crate::node::sentinel::{RebootWhen, keep};

fn probed(folder: &Folder, files: &[&str], command: &[&str]) -> Result<Probed, Vec<String>> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    probe(
        &folder.host(),
        None,
        &owned(files),
        &Commands::new(owned(command)),
    )
}

#[test]
fn a_probe_leaves_a_suitable_node_unchanged() {
    let folder = Folder::new();
    folder.program("usr/sbin/reboot", "touch run/rebooted");
    let found = probed(&folder, &["/run/reboot-required"], &[]).unwrap();
    assert_eq!(
        (found.boot_id.as_str(), found.program.as_str()),
        (BOOT, "/usr/sbin/reboot")
    );
    folder.program("usr/bin/systemctl", "");
    assert_eq!(probed(&folder, &[], &[]).unwrap().program, "/usr/bin/systemctl");
    assert_eq!(
        probed(&folder, &[], &["/sbin/reboot", "-f"]).unwrap().program,
        "/sbin/reboot"
    );
    assert_eq!(std::fs::read_dir(folder.path("run/refit")).unwrap().count(), 0);
    assert_eq!(folder.read("run/rebooted"), None);
}

#[test]
fn a_program_of_the_plan_is_not_replaced_by_another() {
    let folder = Folder::new();
    folder.program("usr/sbin/reboot", "");
    assert_eq!(
        probed(&folder, &[], &["/opt/reboot"]),
        Err(vec!["/opt/reboot is not on the host".to_owned()])
    );
}

#[test]
fn the_probe_reports_everything_that_is_missing_at_once() {
    let folder = Folder::new();
    std::fs::remove_dir_all(folder.path("proc")).unwrap();
    folder.write("run/refit", "a file");
    folder.link("a", "run/a");
    let wrong = probed(&folder, &["/run/a", "/run/none"], &[]).unwrap_err();
    let starts = [
        "cannot read /proc/sys/kernel/random/boot_id on the host: ",
        "cannot make /run/refit on the host: ",
        "cannot look at /run/a on the host: ",
        "systemctl is not on the host, in none of ",
        "reboot is not on the host, in none of ",
    ];
    assert_eq!(wrong.len(), starts.len(), "{wrong:#?}");
    for (sentence, start) in wrong.iter().zip(starts) {
        assert!(sentence.starts_with(start), "{sentence}");
    }
}

#[test]
fn a_sentinel_of_an_earlier_try_in_this_boot_is_removed() {
    let folder = Folder::new();
    folder.program("usr/sbin/reboot", "");
    let host = folder.host();
    let [mine, other] = ["p.n.h", "p.n.another"].map(|name| name.parse::<SentinelName>().unwrap());
    for name in [&mine, &other] {
        keep(&host, name, &RebootWhen::Always).unwrap();
    }
    for _ in ["it is there", "it is not"] {
        probe(&host, Some(&mine), &[], &Commands::new(Vec::new())).unwrap();
        assert_eq!(host.read_sentinel(&mine).unwrap(), Found::Nothing);
    }
    assert!(matches!(host.read_sentinel(&other).unwrap(), Found::Report(_)));
}
