//! Nothing of real nodes is left when the test process is killed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::Value;
use tempfile::TempDir;

use crate::testenv::process::lives;
use crate::testenv::real;
use crate::testenv::wait;
use crate::testenv_tests::lifetime::hold_in_process;

/// What nodes could leave on this machine, apart from the effects of other tests.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
    interfaces: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

impl Machine {
    /// `runs` is the folder of runs below which the nodes are.
    fn look(runs: &Path, run: Option<&str>) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut cgroups = BTreeSet::new();
        if let Some(run) = run {
            collect(Path::new("/sys/fs/cgroup"), run, 6, &mut cgroups);
        }
        let interfaces = std::fs::read_dir("/sys/class/net").unwrap().flatten();
        Self {
            mounts: mounts
                .lines()
                .filter(|line| line.contains(runs.to_str().unwrap()))
                .map(str::to_owned)
                .collect(),
            cgroups,
            interfaces: interfaces
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect(),
            namespaces: processes_of(runs),
        }
    }
}

/// Folders whose names hold the name of the run.
fn collect(folder: &Path, run: &str, depth: u32, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().contains(run) {
                found.insert(path.clone());
            }
            if depth > 0 {
                collect(&path, run, depth - 1, found);
            }
        }
    }
}

/// Processes of runs in that folder, in any namespace, identified by their environment. A namespace lives as long as one of
/// them.
fn processes_of(runs: &Path) -> BTreeSet<String> {
    let mark = format!("REFIT_TEST_RUN={}", runs.display());
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|it| it.starts_with(mark.as_bytes()))
        })
        .map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("{} {}", entry.file_name().to_string_lossy(), name.trim_end())
        })
        .collect()
}

/// A process that has nodes.
struct Holder {
    process: Child,
    runs: TempDir,
    machines: Vec<u32>,
    dir: PathBuf,
    before: Machine,
}

impl Holder {
    async fn start() -> Self {
        let runs = TempDir::new().unwrap();
        let before = Machine::look(runs.path(), None);
        let (process, held) = hold_in_process("holds_nodes_until_it_is_killed", runs.path()).await;
        let pid = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let holder = Self {
            machines: held["machines"].as_array().unwrap().iter().map(pid).collect(),
            dir: held["dir"].as_str().unwrap().into(),
            process,
            runs,
            before,
        };
        assert!(holder.machines.len() == 2 && holder.machines.iter().all(|pid| lives(*pid)));
        let now = holder.look();
        assert!(!now.cgroups.is_empty(), "cgroups are found");
        assert!(
            now.namespaces.iter().any(|it| it.ends_with(" kubelet")),
            "{now:#?}"
        );
        assert_eq!(now.interfaces, holder.before.interfaces);
        assert_eq!(now.mounts, holder.before.mounts);
        holder
    }

    fn look(&self) -> Machine {
        let run = self.dir.file_name().unwrap().to_str().unwrap();
        Machine::look(self.runs.path(), Some(run))
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn all_is_as_before(&self) {
        wait::until(
            "all is as before",
            async || self.look(),
            |now| *now == self.before && !self.dir.exists(),
        )
        .await;
    }
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn nothing_is_left_of_nodes_whose_test_was_killed() {
    let _turn = real::beside_others().await;
    let mut holder = Holder::start().await;
    holder.kill();
    holder.all_is_as_before().await;
}
