//! `refit pin` killed at any moment: each file is the old one or the new one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::workdir::Workdir;

/// Number of files that a run writes, so that most kills happen between or during writes.
const FILES: usize = 30;
/// Number of killed runs, unless too few of them were in the middle.
const KILLS: usize = 30;
/// In how many of the states in between a run was killed at the least.
const MIDWAY: usize = 10;

fn text(version: &str) -> String {
    // Long enough to need several write calls.
    let padding = "# a comment that makes the file longer than one write\n".repeat(500);
    format!(
        "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: a}}\nspec:\n  version: {version}\n  upgrade: {{image: \
         i}}\n{padding}"
    )
}

fn fill(folder: &Path, text: &str) {
    for number in 0..FILES {
        fs::write(folder.join(format!("{number:02}.yaml")), text).unwrap();
    }
}

/// The number of files with the new text; each must be old or new.
fn written(folder: &Path, old: &str, new: &str) -> usize {
    (0..FILES)
        .filter(|number| {
            let found = fs::read_to_string(folder.join(format!("{number:02}.yaml"))).unwrap();
            assert!(
                found == old || found == new,
                "{} bytes of {}",
                found.len(),
                old.len()
            );
            found == new
        })
        .count()
}

#[test]
fn a_run_that_is_killed_leaves_each_file_old_or_new_and_the_next_one_continues() {
    let folder = Workdir::new([]);
    let dir = folder.path();
    let (old, new) = (text("v1.33.3"), text("v1.34.1"));
    let pin = || folder.command("pin --to=v1.34.1 .");

    let mut stopped_at = BTreeSet::new();
    // The test shows nothing unless many kills happened in the middle.
    let midway = |stopped_at: &BTreeSet<usize>| stopped_at.range(1..FILES).count();
    for kill in 0.. {
        if kill >= KILLS && midway(&stopped_at) >= MIDWAY {
            break;
        }
        assert!(kill < 40 * KILLS, "{stopped_at:?}");
        fill(dir, &old);
        let watched = dir.join(format!("{:02}.yaml", kill % KILLS * FILES / KILLS));
        let before = fs::metadata(&watched).unwrap().ino();
        let mut child = pin().stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        // It runs only while this thread lets it, so it does not run through where this thread waits for a processor. Each
        // kill comes at a later file.
        loop {
            kill_process(pid, Signal::STOP).unwrap();
            let state = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let state = waitid(WaitId::Pid(pid), state).unwrap().unwrap();
            if !state.stopped() || fs::metadata(&watched).unwrap().ino() != before {
                break;
            }
            kill_process(pid, Signal::CONT).unwrap();
            std::thread::sleep(Duration::from_micros(50));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        stopped_at.insert(written(dir, &old, &new));
    }

    // The next write of a file removes what killed runs left beside it.
    fill(dir, &old);
    assert!(pin().output().unwrap().status.success());
    assert_eq!(written(dir, &old, &new), FILES);
    assert_eq!(fs::read_dir(dir).unwrap().count(), FILES);
}
