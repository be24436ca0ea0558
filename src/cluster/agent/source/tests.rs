use std::cell::RefCell;
use std::fs;
use std::path::Path;

use super::*;

fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let host = Host::open(dir.path()).unwrap();
    (dir, host)
}

fn sources(host: Host, commands: &[&str]) -> Sources {
    Sources {
        own: Host::open(Path::new("/")).unwrap(),
        files: Files {
            host,
            paths: vec!["/run/reboot-required".to_owned()],
        },
        commands: commands.iter().map(|text| text.parse().unwrap()).collect(),
        update_engine: None,
        kairos: None,
        runner: Vec::new(),
    }
}

#[tokio::test]
async fn a_file_that_exists_needs_a_reboot_for_its_packages() {
    let (dir, host) = host(&[
        ("/run/reboot-required", "*** System restart required ***\n"),
        ("/run/reboot-required.pkgs", "linux-image-6.8\n\n libc6 \n"),
    ]);
    let sources = sources(host, &[]);
    let found = sources.look(&|_| {}).await;
    assert!(
        matches!(found[0].answer, Answer::Needed { since: Some(_) }),
        "{found:?}"
    );
    assert_eq!(found[0].packages, ["linux-image-6.8", "libc6"]);
    fs::remove_file(dir.path().join("run/reboot-required")).unwrap();
    let found = sources.look(&|_| {}).await;
    assert_eq!((found[0].answer, found[0].packages.len()), (Answer::NotNeeded, 0));
}

#[tokio::test]
async fn a_host_without_the_folder_of_the_file_needs_no_reboot() {
    let (_dir, host) = host(&[]);
    assert_eq!(
        sources(host, &[]).look(&|_| {}).await[0].answer,
        Answer::NotNeeded
    );
}

#[tokio::test]
async fn a_command_says_by_its_exit_code_whether_the_host_needs_a_reboot() {
    let (_dir, host) = host(&[]);
    let notes = RefCell::new(Vec::new());
    let commands = ["true", "false", "1:false", "/does/not/exist", "7:true"];
    let found = sources(host, &commands)
        .look(&|note| notes.borrow_mut().push(note.to_owned()))
        .await;
    let answers: Vec<_> = found[1..].iter().map(|finding| finding.answer).collect();
    let needed = Answer::Needed { since: None };
    assert_eq!(
        answers,
        [
            needed,
            Answer::NotNeeded,
            needed,
            Answer::Unknown,
            Answer::NotNeeded
        ]
    );
    let notes = notes.into_inner();
    assert!(
        notes.len() == 1 && notes[0].starts_with("/does/not/exist says nothing: "),
        "{notes:?}"
    );
}

#[test]
fn the_boot_is_that_of_the_machine() {
    let (_dir, host) = host(&[]);
    let boot = sources(host, &[]).boot().unwrap();
    let known = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(boot.id, known.trim());
    assert!(boot.began.unwrap().as_second() > 0);
}
