use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::node::fixture::{BOOT, Folder, NEXT_BOOT, name};

/// The file of the sentinel [`name`].
const SENTINEL: &str = "run/refit/plan-uid.node-uid.hash";

fn report(boot_id: &str) -> SentinelReport {
    SentinelReport {
        boot_id: boot_id.to_owned(),
        required: true,
    }
}

/// Number of files in a folder.
fn count(folder: &Folder, path: &str) -> usize {
    fs::read_dir(folder.path(path)).unwrap().count()
}

fn set_mode(folder: &Folder, path: &str, mode: u32) {
    fs::set_permissions(folder.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_boot_id_is_read_from_the_host_each_time() {
    let folder = Folder::new();
    let host = folder.host();
    assert_eq!(host.boot_id().unwrap(), BOOT);
    folder.boot(NEXT_BOOT);
    assert_eq!(host.boot_id().unwrap(), NEXT_BOOT, "it is read anew");
    folder.boot("of yesterday");
    assert_eq!(
        host.boot_id().unwrap_err().to_string(),
        "/proc/sys/kernel/random/boot_id on the host has \"of yesterday\", which is not a boot ID"
    );
    fs::remove_dir_all(folder.path("proc")).unwrap();
    let error = host.boot_id().unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read /proc/sys/kernel/random/boot_id on the host: No such file"),
        "{error}"
    );
}

#[test]
fn a_host_that_is_not_mounted_is_an_error() {
    let error = Host::open(Path::new("/nowhere/host")).unwrap_err().to_string();
    assert!(
        error.starts_with("the host's root directory is not at /nowhere/host: No such file"),
        "{error}"
    );
}

#[test]
fn links_are_followed_within_the_host_and_never_out_of_it() {
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
    // The targets exist, but not on this host.
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
fn a_loop_of_links_is_an_error_and_not_an_absence() {
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
    let text = folder.read(SENTINEL).unwrap();
    assert_eq!(text, format!("{}\n", report(NEXT_BOOT).to_text()));
    let mode = |path: &str| fs::metadata(folder.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run/refit"), mode(SENTINEL)), (0o700, 0o600));
    assert_eq!(count(&folder, "run/refit"), 1, "nothing else is left");
    let other = "plan-uid.other-node.hash".parse().unwrap();
    assert_eq!(host.read_sentinel(&other).unwrap(), Found::Nothing);
}

#[test]
fn a_half_written_sentinel_is_ignored_and_overwritten() {
    let folder = Folder::new();
    let host = folder.host();
    fs::create_dir(folder.path("run/refit")).unwrap();
    set_mode(&folder, "run/refit", 0o755);
    folder.write("run/refit/.unfinished", "{\"bootId\":");
    assert_eq!(host.read_sentinel(&name()).unwrap(), Found::Nothing);
    host.try_sentinel().unwrap();
    assert_eq!(count(&folder, "run/refit"), 0);
    folder.write("run/refit/.unfinished", "{\"bootId\":");
    host.write_sentinel(&name(), &report(BOOT)).unwrap();
    assert_eq!(host.read_sentinel(&name()).unwrap(), Found::Report(report(BOOT)));
}

#[test]
fn an_unreadable_sentinel_is_distinguished_from_none() {
    let folder = Folder::new();
    folder.host().try_sentinel().unwrap();
    for text in ["", "x", "{\"bootId\":\"\",\"required\":true}"] {
        folder.write(SENTINEL, text);
        let found = folder.host().read_sentinel(&name()).unwrap();
        assert!(matches!(found, Found::Garbage(_)), "{text:?}: {found:?}");
    }
}

#[test]
fn no_link_is_followed_to_read_or_write_a_sentinel() {
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
    assert_eq!(count(&folder, "etc/elsewhere"), 0);
    folder.write("etc/elsewhere/plan-uid.node-uid.hash", &report(BOOT).to_text());
    assert!(host.read_sentinel(&name()).is_err());

    fs::remove_file(folder.path("run/refit")).unwrap();
    host.try_sentinel().unwrap();
    folder.write("etc/precious", "precious");
    folder.link("/etc/precious", "run/refit/.unfinished");
    folder.link("/etc/elsewhere/plan-uid.node-uid.hash", SENTINEL);
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
fn a_folder_that_others_can_write_to_is_not_used() {
    let folder = Folder::new();
    fs::create_dir(folder.path("run/refit")).unwrap();
    set_mode(&folder, "run/refit", 0o777);
    let host = folder.host();
    let error = host
        .write_sentinel(&name(), &report(BOOT))
        .unwrap_err()
        .to_string();
    let owner = rustix::process::geteuid().as_raw();
    assert_eq!(
        error,
        format!(
            "/run/refit on the host belongs to user {owner} and has mode 777: it must be refit's own, and writable by no other user; remove it"
        )
    );
    assert_eq!(count(&folder, "run/refit"), 0);
    // Nor does refit trust its content.
    folder.write(SENTINEL, &report(BOOT).to_text());
    assert_eq!(host.read_sentinel(&name()).unwrap_err().to_string(), error);
}

#[test]
fn a_pipe_in_place_of_a_sentinel_does_not_block() {
    let folder = Folder::new();
    folder.host().try_sentinel().unwrap();
    let pipe = folder.path(SENTINEL);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let found = folder.host().read_sentinel(&name()).unwrap();
    assert!(matches!(found, Found::Garbage(_)), "{found:?}");
}
