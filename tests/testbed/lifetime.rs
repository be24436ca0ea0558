//! What a test run starts ends with it, even when nothing of it gets to run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::bed::Bed;
use crate::support::controlplane::Options;
use crate::support::process::{Program, Run, lives, signal};
use crate::support::wait::{self, SOON};

/// Names the file in which [`holds_a_bed_until_it_is_killed`] writes down what it has started.
const HOLD: &str = "REFIT_TEST_HOLD";

/// Not a test: another test runs it in a process of its own, which it kills.
#[tokio::test]
#[ignore = "started by other tests in a process that they kill"]
async fn holds_a_bed_until_it_is_killed() {
    let Some(file) = std::env::var_os(HOLD) else {
        return;
    };
    let bed = Bed::own(Options::default()).await;
    let dir = Run::current().folder("other");
    let child = Program::new("sleeper", "/bin/sleep", &dir)
        .arg("1000")
        .start()
        .unwrap();
    let mut pids: Vec<_> = bed
        .control_plane()
        .pids()
        .into_iter()
        .map(|(_, pid)| pid)
        .collect();
    pids.push(child.pid());
    let held =
        json!({ "pids": pids, "watchdog": Run::current().watchdog_pid(), "dir": Run::current().dir() });
    std::fs::write(format!("{}.new", file.display()), held.to_string()).unwrap();
    std::fs::rename(format!("{}.new", file.display()), &file).unwrap();
    std::future::pending::<()>().await;
}

/// A process that has a control plane and another child.
struct Holder {
    process: std::process::Child,
    runs: TempDir,
    pids: Vec<u32>,
    watchdog: u32,
    dir: PathBuf,
}

impl Holder {
    async fn start() -> Self {
        Bed::shared().await; // whatever has to be built is built now
        let runs = TempDir::new().unwrap();
        let file = runs.path().join("held");
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "testbed::lifetime::holds_a_bed_until_it_is_killed",
                "--ignored",
            ])
            .env("REFIT_TEST_RUNS", runs.path().join("runs"))
            .env(HOLD, &file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let held: Value = wait::eventually(
            "another process has a control plane",
            Duration::from_secs(120),
            async || {
                assert!(process.try_wait().unwrap().is_none(), "it ended");
                let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
                serde_json::from_str(&text).map_err(|error| error.to_string())
            },
        )
        .await;
        let pid = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let holder = Self {
            pids: held["pids"].as_array().unwrap().iter().map(pid).collect(),
            watchdog: pid(&held["watchdog"]),
            dir: held["dir"].as_str().unwrap().into(),
            process,
            runs,
        };
        assert_eq!(holder.pids.len(), 5);
        assert!(holder.pids.iter().all(|pid| lives(*pid)), "{:?}", holder.pids);
        assert!(holder.dir.exists());
        holder
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn all_gone(&self) {
        wait::eventually("all children are gone", SOON, async || {
            let left: Vec<_> = self.pids.iter().filter(|pid| lives(**pid)).collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?} live"))
            }
        })
        .await;
    }
}

async fn removed(dir: &Path) {
    wait::eventually("the folder of the run is gone", SOON, async || {
        if dir.exists() {
            Err(format!("{} exists", dir.display()))
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn children_end_with_a_process_that_is_killed() {
    let mut holder = Holder::start().await;
    let killed = Instant::now();
    holder.kill();
    holder.all_gone().await;
    removed(&holder.dir).await;
    eprintln!("all was gone {:.1?} after the kill -9", killed.elapsed());
}

#[tokio::test]
async fn the_next_run_sweeps_what_a_killed_watchdog_left() {
    let mut holder = Holder::start().await;
    signal(holder.watchdog, Signal::KILL).unwrap();
    wait::eventually("the watchdog is gone", SOON, async || {
        if lives(holder.watchdog) {
            Err("it lives".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    holder.kill();
    assert!(
        holder.pids.iter().all(|pid| lives(*pid)),
        "nobody is left to end them"
    );

    let next = Run::begin(&holder.runs.path().join("runs")).unwrap();
    holder.all_gone().await;
    assert!(!holder.dir.exists());
    next.end();
    assert!(!next.dir().exists());
}

#[tokio::test]
async fn a_run_that_lives_is_not_swept() {
    let runs = TempDir::new().unwrap();
    let first = Run::begin(runs.path()).unwrap();
    let second = Run::begin(runs.path()).unwrap();
    assert!(first.dir().exists());
    first.end();
    assert!(second.dir().exists());
    second.end();
}

#[tokio::test]
async fn a_run_that_failed_keeps_its_logs_until_the_next_one() {
    let runs = TempDir::new().unwrap();
    let failed = Run::begin(runs.path()).unwrap();
    std::fs::write(failed.folder("a-test").join("controller.log"), "why").unwrap();
    std::fs::write(failed.data_folder("etcd").join("big"), "much").unwrap();
    failed.keep();
    failed.end();
    let dir = failed.dir().to_owned();
    drop(failed); // and with it the lock
    assert!(dir.join("a-test/controller.log").exists());
    assert!(!dir.join("data").exists());

    let next = Run::begin(runs.path()).unwrap();
    assert!(!dir.exists());
    next.end();
}

#[tokio::test]
async fn a_program_that_is_not_there_says_so_in_its_log() {
    let dir = Run::current().folder("missing");
    let process = Program::new("missing", "/no/such/program", &dir).start().unwrap();
    let status = process.end(SOON).await.unwrap();
    assert_eq!(status.code(), Some(127));
    assert!(process.log().contains("/no/such/program"), "{}", process.log());
}
