use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::node::fixture::{BOOT, Folder, NEXT_BOOT, name};

fn report(boot_id: &str) -> SentinelReport {
    SentinelReport {
        boot_id: boot_id.to_owned(),
        required: true,
    }
}

#[test]
fn the_boot_is_the_one_that_the_host_is_in() {
    let folder = Folder::new();
    let host = folder.host();
    assert_eq!(host.boot_id().unwrap(), BOOT);
    folder.boot(NEXT_BOOT);
    assert_eq!(host.boot_id().unwrap(), NEXT_BOOT, "it is read anew");
    folder.boot("of yesterday");
    assert_eq!(
        host.boot_id().unwrap_err().to_string(),
        "/proc/sys/kernel/random/boot_id on the host has \"of yesterday\", which is no boot ID"
    );
    fs::remove_dir_all(folder.path("proc")).unwrap();
    let error = host.boot_id().unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read /proc/sys/kernel/random/boot_id on the host: No such file"),
        "{error}"
    );
}

#[test]
fn a_host_that_is_not_mounted_is_said_to_be_so() {
    let error = Host::open(Path::new("/nowhere/host")).unwrap_err().to_string();
    assert!(
        error.starts_with("the host's root directory is not at /nowhere/host: No such file"),
        "{error}"
    );
}

#[test]
fn links_lead_where_they_lead_on_the_host_and_never_out_of_it() {
    let folder = Folder::new();
    let host = folder.host();
    folder.write("run/reboot-required", "");
    for path in [
        "/run/reboot-required",
        "/var/run/reboot-required",
        "/var/../run/reboot-required",
        "/../../run/./reboot-required",
        "//run//reboot-required",
    ] {
        assert!(host.exists(path).unwrap(), "{path}");
    }
    folder.write("etc/inside", "");
    folder.link("../../../../../../etc/inside", "run/upwards");
    assert!(host.exists("/run/upwards").unwrap());
    // They are there, but not on this host.
    folder.link("/etc/hostname", "run/absolute");
    folder.link("../../../../../../etc/hostname", "run/out");
    let outside = tempfile::NamedTempFile::new().unwrap();
    folder.link(outside.path().to_str().unwrap(), "run/outside");
    for path in ["/run/absolute", "/run/out", "/run/outside"] {
        assert!(!host.exists(path).unwrap(), "{path}");
    }
    for path in ["/run/none", "/none/x", "/etc/inside/x"] {
        assert!(!host.exists(path).unwrap(), "{path}");
    }
    assert!(host.exists("/").unwrap());
}

#[test]
fn links_without_end_are_an_error_and_not_an_absence() {
    let folder = Folder::new();
    folder.link("b", "run/a");
    folder.link("a", "run/b");
    let error = folder.host().exists("/run/a").unwrap_err().to_string();
    assert!(
        error.starts_with("cannot look at /run/a on the host: Too many levels of symbolic links"),
        "{error}"
    );
}

#[test]
fn a_sentinel_is_read_as_it_was_written() {
    let folder = Folder::new();
    let host = folder.host();
    assert_eq!(host.read_sentinel(&name()).unwrap(), Found::Nothing);
    host.write_sentinel(&name(), &report(BOOT)).unwrap();
    host.write_sentinel(&name(), &report(NEXT_BOOT)).unwrap();
    assert_eq!(
        host.read_sentinel(&name()).unwrap(),
        Found::Report(report(NEXT_BOOT))
    );
    let text = folder.read("run/refit/plan-uid.node-uid.hash").unwrap();
    assert_eq!(text, format!("{}\n", report(NEXT_BOOT).to_text()));
    let mode = |path: &str| fs::metadata(folder.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("run/refit"), mode("run/refit/plan-uid.node-uid.hash")),
        (0o700, 0o600)
    );
    assert_eq!(
        fs::read_dir(folder.path("run/refit")).unwrap().count(),
        1,
        "nothing else is left"
    );
    let other = "plan-uid.other-node.hash".parse().unwrap();
    assert_eq!(host.read_sentinel(&other).unwrap(), Found::Nothing);
}

#[test]
fn what_was_left_half_written_is_no_sentinel_and_in_nobody_s_way() {
    let folder = Folder::new();
    let host = folder.host();
    fs::create_dir(folder.path("run/refit")).unwrap();
    fs::set_permissions(folder.path("run/refit"), fs::Permissions::from_mode(0o755)).unwrap();
    folder.write("run/refit/.unfinished", "{\"bootId\":");
    assert_eq!(host.read_sentinel(&name()).unwrap(), Found::Nothing);
    host.try_sentinel().unwrap();
    assert_eq!(fs::read_dir(folder.path("run/refit")).unwrap().count(), 0);
    folder.write("run/refit/.unfinished", "{\"bootId\":");
    host.write_sentinel(&name(), &report(BOOT)).unwrap();
    assert_eq!(host.read_sentinel(&name()).unwrap(), Found::Report(report(BOOT)));
}

#[test]
fn garbage_under_the_name_of_a_sentinel_is_told_apart_from_nothing() {
    let folder = Folder::new();
    folder.host().try_sentinel().unwrap();
    for text in ["", "x", "{\"bootId\":\"\",\"required\":true}"] {
        folder.write("run/refit/plan-uid.node-uid.hash", text);
        let found = folder.host().read_sentinel(&name()).unwrap();
        assert!(matches!(found, Found::Garbage(_)), "{text:?}: {found:?}");
    }
}

#[test]
fn no_link_is_followed_to_write_or_to_believe_a_sentinel() {
    let folder = Folder::new();
    let host = folder.host();
    fs::create_dir(folder.path("etc/elsewhere")).unwrap();
    folder.link("/etc/elsewhere", "run/refit");
    let error = host
        .write_sentinel(&name(), &report(BOOT))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot make /run/refit on the host: "),
        "{error}"
    );
    assert_eq!(fs::read_dir(folder.path("etc/elsewhere")).unwrap().count(), 0);
    folder.write("etc/elsewhere/plan-uid.node-uid.hash", &report(BOOT).to_text());
    assert!(host.read_sentinel(&name()).is_err());

    fs::remove_file(folder.path("run/refit")).unwrap();
    host.try_sentinel().unwrap();
    folder.write("etc/precious", "precious");
    folder.link("/etc/precious", "run/refit/.unfinished");
    folder.link(
        "/etc/elsewhere/plan-uid.node-uid.hash",
        "run/refit/plan-uid.node-uid.hash",
    );
    assert!(host.read_sentinel(&name()).is_err());
    host.write_sentinel(&name(), &report(NEXT_BOOT)).unwrap();
    assert_eq!(folder.read("etc/precious").unwrap(), "precious");
    assert_eq!(
        host.read_sentinel(&name()).unwrap(),
        Found::Report(report(NEXT_BOOT))
    );
    assert_eq!(
        folder.read("etc/elsewhere/plan-uid.node-uid.hash").unwrap(),
        report(BOOT).to_text()
    );
}

#[test]
fn run_itself_may_be_a_link() {
    let folder = Folder::new();
    fs::remove_dir(folder.path("run")).unwrap();
    fs::create_dir(folder.path("etc/run")).unwrap();
    folder.link("/etc/run", "run");
    folder.host().write_sentinel(&name(), &report(BOOT)).unwrap();
    assert!(folder.path("etc/run/refit/plan-uid.node-uid.hash").is_file());
}

#[test]
fn a_folder_that_others_can_write_to_is_neither_used_nor_believed() {
    let folder = Folder::new();
    fs::create_dir(folder.path("run/refit")).unwrap();
    fs::set_permissions(folder.path("run/refit"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = folder
        .host()
        .write_sentinel(&name(), &report(BOOT))
        .unwrap_err()
        .to_string();
    let owner = rustix::process::geteuid().as_raw();
    assert_eq!(
        error,
        format!(
            "/run/refit on the host belongs to user {owner} and has mode 777: it must be refit's own, and writable for nobody \
             else; remove it"
        )
    );
    assert_eq!(fs::read_dir(folder.path("run/refit")).unwrap().count(), 0);
    // Nor is what is in it believed.
    folder.write("run/refit/plan-uid.node-uid.hash", &report(BOOT).to_text());
    assert_eq!(
        folder.host().read_sentinel(&name()).unwrap_err().to_string(),
        error
    );
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    let folder = Folder::new();
    folder.host().try_sentinel().unwrap();
    let pipe = folder.path("run/refit/plan-uid.node-uid.hash");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(matches!(
        folder.host().read_sentinel(&name()).unwrap(),
        Found::Garbage(_)
    ));
}
