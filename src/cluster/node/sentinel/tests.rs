use super::*;
use crate::node::Found;
use crate::node::fixture::{BOOT, Folder, name};

fn kept(folder: &Folder, when: &RebootWhen) -> bool {
    let report = keep(&folder.host(), &name(), when).unwrap();
    assert_eq!(report.boot_id, BOOT);
    assert_eq!(
        folder.host().read_sentinel(&name()).unwrap(),
        Found::Report(report.clone())
    );
    report.required
}

#[test]
fn a_reboot_is_required_always_or_if_a_file_is_there() {
    let folder = Folder::new();
    assert!(kept(&folder, &RebootWhen::Always));
    let files = RebootWhen::IfPresent(vec!["/run/reboot-required".to_owned(), "/etc/again".to_owned()]);
    assert!(!kept(&folder, &files));
    folder.write("etc/again", "");
    assert!(kept(&folder, &files));
    std::fs::remove_file(folder.path("etc/again")).unwrap();
    std::fs::create_dir(folder.path("run/reboot-required")).unwrap();
    assert!(kept(&folder, &files), "whatever it is");
}

#[test]
fn a_required_file_that_cannot_be_read_leaves_no_sentinel() {
    let folder = Folder::new();
    folder.link("a", "run/a");
    let files = RebootWhen::IfPresent(vec!["/run/a".to_owned()]);
    assert!(keep(&folder.host(), &name(), &files).is_err());
    std::fs::remove_dir_all(folder.path("proc")).unwrap();
    assert!(keep(&folder.host(), &name(), &RebootWhen::Always).is_err());
    assert_eq!(folder.host().read_sentinel(&name()).unwrap(), Found::Nothing);
}
