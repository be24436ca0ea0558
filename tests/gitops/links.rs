//! Folders that hold more than files: links out of them, and named pipes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::pin::plan;
use crate::workdir::run_in;

fn pin(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let ran = run_in(folder, &[&["pin"], arguments].concat().join(" "));
    (ran.code, ran.out, ran.err)
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn pin_does_not_write_through_a_link_that_leads_out_of_its_folder() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, elsewhere) = (dir.path(), elsewhere.path().canonicalize().unwrap());
    let text = |version: &str| plan("a", "https://channel.invalid/", version);
    let victim = elsewhere.join("victim.yaml");
    fs::write(&victim, text("v1.33.4+k3s1")).unwrap();
    fs::create_dir(dir.join("plans")).unwrap();
    fs::write(
        dir.join("plans/own.yaml"),
        text("v1.33.4+k3s1").replace("name: a", "name: b"),
    )
    .unwrap();
    symlink(&victim, dir.join("plans/link.yaml")).unwrap();
    for arguments in [&["plans"][..], &["plans/*.yaml"], &["*/link.yaml", "plans"]] {
        fs::write(
            dir.join("plans/own.yaml"),
            text("v1.33.4+k3s1").replace("name: a", "name: b"),
        )
        .unwrap();
        let (code, out, err) = pin(dir, &[&["--to", "v1.34.1+k3s1"], arguments].concat());
        assert_eq!(code, 2, "{arguments:?}: {out}{err}");
        let message = format!(
            "plans/link.yaml is a link out of its folder, to {}",
            victim.display()
        );
        assert!(
            format!("{out}{err}").contains(&message),
            "{arguments:?}: {out}{err}"
        );
        assert_eq!(
            read(&elsewhere, "victim.yaml"),
            text("v1.33.4+k3s1"),
            "{arguments:?}"
        );
        assert!(
            read(dir, "plans/own.yaml").contains("v1.34.1+k3s1"),
            "the others are written"
        );
    }
    // Who names the link means its file.
    assert_eq!(pin(dir, &["--to", "v1.34.1+k3s1", "plans/link.yaml"]).0, 0);
    assert_eq!(read(&elsewhere, "victim.yaml"), text("v1.34.1+k3s1"));
}

#[test]
fn pin_does_not_wait_for_a_pipe_in_a_folder_nor_for_one_behind_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let made = Command::new("mkfifo")
        .arg(dir.join("pipe.yaml"))
        .status()
        .unwrap();
    assert!(made.success());
    symlink("pipe.yaml", dir.join("link.yaml")).unwrap();
    symlink("/dev/zero", dir.join("zero.yaml")).unwrap();
    let text = |version: &str| plan("a", "https://channel.invalid/", version);
    for arguments in [&["."][..], &["*.yaml"]] {
        fs::write(dir.join("a.yaml"), text("v1.33.4+k3s1")).unwrap();
        let (_, out, err) = pin(dir, &[&["--to", "v1.34.1+k3s1"], arguments].concat());
        assert_eq!(read(dir, "a.yaml"), text("v1.34.1+k3s1"), "{out}{err}");
    }
    let (code, _, err) = pin(dir, &["--to", "v1.34.1+k3s1", "pipe.yaml", "zero.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("pipe.yaml: a FIFO, and not a file"), "{err}");
    assert!(err.contains("zero.yaml: a device, and not a file"), "{err}");
}
