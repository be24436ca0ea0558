//! `refit pin` killed at any moment: each file is the old one or the new one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::command;

/// How many files a run writes, so that most kills fall between or into writes.
const FILES: usize = 60;
/// How many runs are killed.
const KILLS: u32 = 40;

fn text(version: &str) -> String {
    // Long enough that a write takes more than one go.
    let padding = "# a comment that makes the file longer than one write\n".repeat(2_000);
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

/// How many of the files are the new one; each must be one of the two.
fn written(folder: &Path, old: &str, new: &str) -> usize {
    (0..FILES)
        .filter(|number| {
            let found = fs::read_to_string(folder.join(format!("{number:02}.yaml"))).unwrap();
            assert!(found == old || found == new, "{} bytes of {}", found.len(), old.len());
            found == new
        })
        .count()
}

#[test]
fn a_run_that_is_killed_leaves_each_file_old_or_new_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (old, new) = (text("v1.33.3"), text("v1.34.1"));
    let arguments = ["pin", "--to=v1.34.1", "."];

    fill(dir, &old);
    let start = Instant::now();
    assert!(command(dir, &arguments).output().unwrap().status.success());
    let whole = start.elapsed();
    assert_eq!(written(dir, &old, &new), FILES);

    let mut stopped_at = BTreeSet::new();
    for kill in 0..KILLS {
        fill(dir, &old);
        let mut child = command(dir, &arguments)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // From the very start to a little past the end of a run that is not killed.
        std::thread::sleep(whole * kill / (KILLS - 5));
        child.kill().unwrap();
        child.wait().unwrap();
        stopped_at.insert(written(dir, &old, &new));
    }
    // Some were killed in the middle, or this test has shown nothing.
    let midway = stopped_at.iter().filter(|count| (1..FILES).contains(*count)).count();
    assert!(midway >= 3, "{stopped_at:?} in {whole:?}");

    // What killed runs have left beside a file goes with the next write of that file.
    fill(dir, &old);
    assert!(command(dir, &arguments).output().unwrap().status.success());
    assert_eq!(written(dir, &old, &new), FILES);
    assert_eq!(fs::read_dir(dir).unwrap().count(), FILES);
}
