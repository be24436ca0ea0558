//! Children that end with the test process, however it ends.
//!
//! libtest never drops a `static`, and SIGKILL runs nothing, so `Drop` and signal handlers are not enough. A watchdog is a
//! shell with the read end of a pipe whose write end is in the test process. When that process ends, the kernel closes the
//! pipe, and the watchdog kills every child and removes the run's folder. (`PR_SET_PDEATHSIG` applies to the thread that
//! forked, exists only on Linux, and needs `unsafe` before the exec.)
//!
//! The watchdog knows a child before it exists: the shell that becomes the child first writes its pid into the folder, and
//! keeps the pipe open until then. If watchdog and test process are killed together, the next run finds the folder
//! unlocked, kills the processes of that run, and removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::PipeWriter;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::{cgroup, names};

/// Environment variable by which a process is known as a child of a run: its value is the run's folder.
const MARK: &str = "REFIT_TEST_RUN";

/// Waits until the only writer of its standard input, the test process, is gone, and cleans up. `$1` is the run's folder.
/// A cgroup can be removed when its last process is gone, so that is repeated for a while (see `super::cgroup`). The logs
/// of a failed run remain until the next run.
const WATCHDOG: &str = r#"
trap '' HUP INT QUIT TERM
while read -r line; do :; done
cd "$1" || exit
for file in pid/*; do kill -KILL "${file#pid/}"; done
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=
    [ -e cgroups ] && while read -r group; do
        [ -d "$group" ] || continue
        find "$group" -depth -type d -exec rmdir {} \;
        [ -d "$group" ] && left=yes
    done <cgroups
    [ "$left" ] || break
    sleep 1
done
rm -rf pid data
[ -e keep ] || rm -rf "$1"
"#;

/// Writes its pid, closes the pipe (standard output), and becomes the program. `$1` is the folder of pids, `$2` the log.
const BECOME: &str = r#"echo >"$1/$$"; log=$2; shift 2; exec "$@" >>"$log" 2>&1"#;

/// The folder of this test process and the pipe to its watchdog.
pub struct Run {
    dir: PathBuf,
    /// Locked while this process lives, so that the next run knows.
    _lock: File,
    alive: Mutex<Option<PipeWriter>>,
    watchdog: Mutex<Child>,
}

impl Run {
    /// The only run of this process. The first call removes the folders of dead runs.
    pub fn current() -> &'static Self {
        static CURRENT: OnceLock<Run> = OnceLock::new();
        CURRENT.get_or_init(|| Self::begin(&base_dir()).expect("cannot make a folder for the test run"))
    }

    /// Begins a run below `base`, and removes dead runs there.
    pub fn begin(base: &Path) -> Result<Self> {
        if !base.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(base)?;
        }
        ensure!(
            fs::metadata(base)?.uid() == rustix::process::geteuid().as_raw(),
            "{} belongs to somebody else",
            base.display()
        );
        // The lock prevents another process from removing a folder that is not locked yet.
        let births = File::create(base.join("births"))?;
        births.lock()?;
        sweep(base)?;
        let dir = base.join(format!("run-{}", names::random()));
        fs::create_dir(&dir)?;
        fs::create_dir(dir.join("pid"))?;
        fs::create_dir(dir.join("data"))?;
        let lock = File::create(dir.join("lock"))?;
        lock.lock()?;
        drop(births);

        let (read, write) = std::io::pipe()?;
        let watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "refit-watchdog"])
            .arg(&dir)
            .stdin(read)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // Ctrl-C on the terminal is for the test process
            .spawn()
            .context("cannot start /bin/sh as watchdog")?;
        Ok(Self {
            dir,
            _lock: lock,
            alive: Mutex::new(Some(write)),
            watchdog: Mutex::new(watchdog),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new folder for logs and configuration, removed after the run unless it failed.
    pub fn folder(&self, name: &str) -> PathBuf {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).expect("cannot make a folder in the run's folder");
        dir
    }

    /// A new folder for large files, always removed after the run.
    pub fn data_folder(&self, name: &str) -> PathBuf {
        self.folder(&format!("data/{name}"))
    }

    /// Keeps logs after the end of the process, until the next run.
    pub fn keep(&self) {
        let _ = File::create(self.dir.join("keep"));
    }

    /// Ends all children and removes the folder before the end of the process. Nothing can be started afterwards.
    pub fn end(&self) {
        drop(self.alive.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self
            .watchdog
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wait();
    }

    pub fn watchdog_pid(&self) -> u32 {
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner).id()
    }
}

/// The folder of all runs of this user. `REFIT_TEST_RUNS` moves it.
pub fn base_dir() -> PathBuf {
    std::env::var_os("REFIT_TEST_RUNS").map_or_else(
        || std::env::temp_dir().join(format!("refit-test-{}", rustix::process::geteuid().as_raw())),
        PathBuf::from,
    )
}

/// Ends and removes the runs whose process is gone.
fn sweep(base: &Path) -> Result<()> {
    for entry in fs::read_dir(base)?.flatten() {
        let dir = entry.path();
        let dead = File::open(dir.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        if !dead {
            continue;
        }
        let mark = OsString::from(format!("{MARK}={}", dir.display()));
        for pid in fs::read_dir(dir.join("pid")).into_iter().flatten().flatten() {
            let pid = pid.file_name();
            // The pid may have been reused.
            if environment_of(&pid).any(|variable| variable == mark.as_encoded_bytes()) {
                let _ = pid
                    .to_str()
                    .and_then(|pid| pid.parse().ok())
                    .map(|pid| signal(pid, Signal::KILL));
            }
        }
        cgroup::remove_listed(&dir);
        let _ = fs::remove_dir_all(&dir);
    }
    Ok(())
}

/// Environment of a process, where the system shows it (Linux).
fn environment_of(pid: &OsStr) -> impl Iterator<Item = Vec<u8>> {
    let bytes = fs::read(Path::new("/proc").join(pid).join("environ")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .map(<[u8]>::to_vec)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Sends a signal. An error means that there is no such process (or, never here, that it is not ours).
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    Ok(rustix::process::kill_process(raw(pid)?, signal)?)
}

/// A line of the memory status in proc(5), such as `VmHWM:`, in bytes (Linux).
pub fn memory(pid: u32, line: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kibibytes = status.lines().find_map(|found| found.strip_prefix(line))?;
    Some(kibibytes.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Processor time of a process (Linux).
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may hold anything: state is field 3 of proc(5), utime 14 and stime 15.
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// Processor time of all processes since the machine started (Linux).
pub fn machine_busy() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu")?
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice and system; idle and iowait are none; irq and softirq.
    let busy = [0, 1, 2, 5, 6].into_iter().filter_map(|field| ticks.get(field));
    Some(Duration::from_millis(busy.sum::<u64>() * 10))
}

fn raw(pid: u32) -> Result<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).context("no pid")
}

/// Whether a process exists and is not a zombie.
pub fn lives(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // pid (name) state …, and the name may contain anything
        Ok(stat) => !stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) if Path::new("/proc/self").exists() => false,
        Err(_) => raw(pid).is_ok_and(|pid| rustix::process::test_kill_process(pid).is_ok()),
    }
}

pub struct Program {
    name: String,
    path: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    log: PathBuf,
}

impl Program {
    /// `name` is for messages. The output is appended to `<dir>/<name>.log`.
    pub fn new(name: &str, path: impl Into<PathBuf>, dir: &Path) -> Self {
        Self {
            name: name.to_owned(),
            path: path.into(),
            args: Vec::new(),
            envs: Vec::new(),
            log: dir.join(format!("{name}.log")),
        }
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Starts it with a minimal environment and that of [`Self::env`].
    pub fn start(self) -> Result<Process> {
        let run = Run::current();
        let pids = run.dir.join("pid");
        let alive = match &*run.alive.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(pipe) => pipe.try_clone()?,
            None => anyhow::bail!("the run is over"),
        };
        let kept = ["PATH", "HOME", "TMPDIR", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];
        let child = Command::new("/bin/sh")
            .args(["-c", BECOME, &self.name])
            .arg(&pids)
            .arg(&self.log)
            .arg(&self.path)
            .args(&self.args)
            .env_clear()
            .envs(
                kept.iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env(MARK, &run.dir)
            .envs(self.envs)
            .stdin(Stdio::null())
            .stdout(alive)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let pid = child.id();
        let known_as = pids.join(pid.to_string());
        Ok(Process {
            name: self.name,
            pid,
            log: self.log,
            known_as,
            child: Mutex::new(child),
        })
    }
}

/// Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    log: PathBuf,
    known_as: PathBuf,
    child: Mutex<Child>,
}

impl Process {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Does nothing if the process has ended, because its pid may have been reused.
    pub fn signal(&self, which: Signal) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(child.try_wait(), Ok(None)) {
            let _ = signal(self.pid, which);
        }
    }

    /// Sends SIGSTOP, and waits until all threads have stopped.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let pid = raw(self.pid).expect("the pid of a child");
        // NOWAIT leaves the state for other callers.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while self.ended().is_none() && matches!(waitid(WaitId::Pid(pid), stopped), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    pub fn ended(&self) -> Option<ExitStatus> {
        let status = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_wait()
            .ok()
            .flatten();
        if status.is_some() {
            let _ = fs::remove_file(&self.known_as);
        }
        status
    }

    /// Waits for its end. `None` if it runs longer than `limit`.
    pub async fn end(&self, limit: Duration) -> Option<ExitStatus> {
        let started = Instant::now();
        loop {
            match self.ended() {
                None if started.elapsed() < limit => tokio::time::sleep(Duration::from_millis(10)).await,
                answer => return answer,
            }
        }
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
        let _ = fs::remove_file(&self.known_as);
    }

    pub fn log_path(&self) -> &Path {
        &self.log
    }

    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log(), lines)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
