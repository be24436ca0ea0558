//! The processes of a test run end with it, even if it is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::testenv::controlplane::Options;
use crate::testenv::environment::TestEnv;
use crate::testenv::process::{Program, Run, lives, signal};
use crate::testenv::real::{self, PATIENCE};
use crate::testenv::wait;

/// The file to which the process that is killed writes what it has started.
const HOLD: &str = "REFIT_TEST_HOLD";

/// Where the process that is killed writes what it has started.
fn held() -> PathBuf {
    let file = std::env::var_os(HOLD);
    file.expect("no test of its own: another one runs it, in a process that it kills")
        .into()
}

/// Writes that, and waits to be killed.
async fn hold(file: &Path, held: Value) {
    let new = file.with_extension("new");
    std::fs::write(&new, held.to_string()).unwrap();
    std::fs::rename(&new, file).unwrap();
    std::future::pending::<()>().await;
}

/// Not a test: `e2e::remains` runs it in a process that it kills. It is here because `just e2e` runs all that is there.
#[tokio::test]
#[ignore = "started by other tests in a process that they kill"]
async fn holds_nodes_until_it_is_killed() {
    let file = held();
    let ctx = real::context().await;
    let nodes = real::nodes(&ctx, ["one", "two"]).await;
    let machines: Vec<_> = nodes.iter().map(real::RealNode::machine_pid).collect();
    hold(
        &file,
        json!({ "machines": machines, "dir": Run::current().dir() }),
    )
    .await;
}

/// Not a test: other tests run it in a process that they kill.
#[tokio::test]
#[ignore = "started by other tests in a process that they kill"]
async fn holds_a_test_env_until_it_is_killed() {
    let file = held();
    let test_env = TestEnv::own(Options::default()).await;
    let dir = Run::current().folder("other");
    let child = Program::new("sleeper", "/bin/sleep", &dir)
        .arg("1000")
        .start()
        .unwrap();
    let mut pids: Vec<_> = test_env
        .control_plane()
        .pids()
        .into_iter()
        .map(|(_, pid)| pid)
        .collect();
    pids.push(child.pid());
    let held =
        json!({ "pids": pids, "watchdog": Run::current().watchdog_pid(), "dir": Run::current().dir() });
    hold(&file, held).await;
}

/// Runs one of the two above in a process, whose runs are in that folder, and waits for what it has started.
pub(crate) async fn hold_in_process(test: &str, folder: &Path) -> (Child, Value) {
    let file = folder.join("held");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("testenv_tests::lifetime::{test}"),
            "--ignored",
        ])
        .env("REFIT_TEST_RUNS", folder.join("runs"))
        .env(HOLD, &file)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    // It may have to build programs first.
    let held = wait::eventually("another process has started all", 10 * PATIENCE, async || {
        assert!(process.try_wait().unwrap().is_none(), "it ended");
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    })
    .await;
    (process, held)
}

/// A process with a control plane and another child.
struct Holder {
    process: Child,
    runs: TempDir,
    pids: Vec<u32>,
    watchdog: u32,
    dir: PathBuf,
}

impl Holder {
    async fn start() -> Self {
        TestEnv::shared().await; // builds the programs
        let runs = TempDir::new().unwrap();
        let (process, held) = hold_in_process("holds_a_test_env_until_it_is_killed", runs.path()).await;
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
        wait::until(
            "all children are gone",
            async || self.pids.iter().filter(|pid| lives(**pid)).collect::<Vec<_>>(),
            Vec::is_empty,
        )
        .await;
    }
}

async fn removed(dir: &Path) {
    wait::holds("the folder of the run is gone", async || !dir.exists()).await;
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
    wait::holds("the watchdog is gone", async || !lives(holder.watchdog)).await;
    holder.kill();
    assert!(
        holder.pids.iter().all(|pid| lives(*pid)),
        "their watchdog is gone"
    );

    let next = Run::begin(&holder.runs.path().join("runs")).unwrap();
    holder.all_gone().await;
    assert!(!holder.dir.exists());
    next.end();
    assert!(!next.dir().exists());
}
