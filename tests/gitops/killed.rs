//! `refit pin` killed at any moment: each file is the old one or the new one.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::workdir::Workdir;

/// Number of files that a run writes.
const FILES: usize = 12;

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

/// A run that is about to write a file, and is stopped there: it looks for what killed runs left beside the file, and one of
/// those is a pipe, which nobody can open for reading as long as nobody writes into it.
struct Stopped {
    pipe: PathBuf,
    child: Child,
}

impl Stopped {
    /// `at` is at least 1.
    fn before(folder: &Path, at: usize, pin: &mut Command) -> Self {
        let pipe = folder.join(format!(".{at:02}.yaml.pipe.refit-pin"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let last = folder.join(format!("{:02}.yaml", at - 1));
        let before = fs::metadata(&last).unwrap().ino();
        let mut child = pin.stdout(Stdio::null()).spawn().unwrap();
        while fs::metadata(&last).unwrap().ino() == before {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { pipe, child }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = fs::remove_file(self.pipe);
    }
}

#[test]
fn a_run_that_is_killed_leaves_each_file_old_or_new_and_the_next_one_continues() {
    let folder = Workdir::new([]);
    let dir = folder.path();
    let (old, new) = (text("v1.33.3"), text("v1.34.1"));
    let pin = || folder.command("pin --to=v1.34.1 .");

    for at in 1..FILES {
        // Between two files.
        fill(dir, &old);
        Stopped::before(dir, at, &mut pin()).kill();
        assert_eq!(written(dir, &old, &new), at);

        // Wherever it comes to in the meantime: within a file, or a few files later.
        fill(dir, &old);
        let stopped = Stopped::before(dir, at, &mut pin());
        drop(File::options().write(true).open(&stopped.pipe).unwrap());
        stopped.kill();
        assert!(written(dir, &old, &new) >= at);
    }

    // The next write of a file removes what killed runs left beside it.
    fill(dir, &old);
    assert!(pin().output().unwrap().status.success());
    assert_eq!(written(dir, &old, &new), FILES);
    assert_eq!(fs::read_dir(dir).unwrap().count(), FILES);
}
