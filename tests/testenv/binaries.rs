//! The programs of the control plane and of real nodes, built from Go modules or taken from packages of Debian.
//!
//! `binaries/programs.rs` and `tests/testenv/go/*/go.{mod,sum}` pin all sources; they are compiled into the tests. The cache
//! has a folder for each set of programs, named by a digest of its inputs. A program is renamed into place, so those in the
//! cache are complete.

mod debian;
mod programs;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::terminal;
pub use programs::{CHARTS, CONTROL_PLANE, MONITORING, NODES, Program, Set};
use programs::{Module, Source};
use programs::{NEXT_CONTROL_PLANE, OLDEST_CONTROL_PLANE};

/// Options of every build, as a part of the digest.
const BUILD_FLAGS: [&str; 3] = ["-mod=readonly", "-trimpath", "-buildvcs=false"];

/// Chooses the control plane: the minor version of one of [`CONTROL_PLANES`]. Without it, the newest.
const KUBERNETES: &str = "REFIT_KUBERNETES";

/// The control planes that can be chosen; the first is the default.
const CONTROL_PLANES: [&Set; 3] = [&CONTROL_PLANE, &OLDEST_CONTROL_PLANE, &NEXT_CONTROL_PLANE];

/// Extension of incomplete programs.
const UNFINISHED: &str = "unfinished";

/// Pause between progress messages without a terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// The folder with the programs of one set.
#[derive(Clone, Debug)]
pub struct Binaries {
    dir: PathBuf,
    set: &'static Set,
}

impl Binaries {
    /// The control plane, built if it is not in the cache. Blocks, for up to ten minutes on two cores.
    pub fn ready() -> Result<Self> {
        let chosen = std::env::var(KUBERNETES).unwrap_or_default();
        Self::of(control_plane_of(&chosen)?)
    }

    /// The programs of real nodes; about two minutes after the control plane.
    pub fn for_nodes() -> Result<Self> {
        Self::of(&NODES)
    }

    /// Prometheus and promtool; up to four minutes.
    pub fn for_monitoring() -> Result<Self> {
        Self::of(&MONITORING)
    }

    /// Helm; about three minutes.
    pub fn for_charts() -> Result<Self> {
        Self::of(&CHARTS)
    }

    fn of(set: &'static Set) -> Result<Self> {
        let dir = cache_dir()?.join("programs").join(digest(set, &toolchain("go")?));
        let found = Self { dir, set };
        found
            .fill(terminal::say, |program, output, label| match &program.source {
                Source::Go { module, package } => build(&found, program, module, package, output, label),
                Source::Debian(packages) => debian::unpack(&found.dir, packages, output, label),
            })
            .with_context(|| format!("cannot build the test environment in {}", found.dir.display()))?;
        Ok(found)
    }

    /// The control plane's programs in an empty folder.
    pub fn in_folder(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            set: &CONTROL_PLANE,
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Alpha features of this control plane that tests are about.
    pub fn feature_gates(&self) -> &'static [&'static str] {
        if version_of(self.set) == version_of(&NEXT_CONTROL_PLANE) {
            &["--feature-gates=NodeLifecycleConditions=true"]
        } else {
            &[]
        }
    }

    /// Builds missing programs with `make`, which writes a program to the given path. Other processes and threads wait for
    /// them, and never see incomplete programs.
    pub fn fill(
        &self,
        print: impl Fn(&str),
        make: impl Fn(&Program, &Path, &str) -> Result<()>,
    ) -> Result<()> {
        let missing = || {
            self.set
                .programs
                .iter()
                .filter(|program| !self.path(program.name).exists())
        };
        if missing().next().is_none() {
            return Ok(());
        }
        fs::create_dir_all(&self.dir)?;
        let lock = File::create(self.dir.join("lock"))?;
        if lock.try_lock().is_err() {
            print(&format!(
                "another process builds {}, waiting for it",
                self.set.what
            ));
            lock.lock()?;
        }
        // Files of a killed build. Its `go` may still run, so names are never reused.
        for entry in fs::read_dir(&self.dir)?.flatten() {
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == UNFINISHED)
            {
                let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
            }
        }
        let missing: Vec<_> = missing().collect();
        if !missing.is_empty() {
            let cold: u64 = missing.iter().map(|program| program.cold_seconds).sum();
            print(&format!(
                "building {} programs of {}, once; from nothing this takes about {} minutes on 2 cores",
                missing.len(),
                self.set.what,
                cold.div_ceil(60)
            ));
        }
        for (index, program) in missing.iter().enumerate() {
            let unfinished = self
                .dir
                .join(format!("{}.{}.{UNFINISHED}", program.name, std::process::id()));
            make(
                program,
                &unfinished,
                &format!("{} ({} of {})", program.name, index + 1, missing.len()),
            )?;
            fs::rename(&unfinished, self.path(program.name))?;
        }
        Ok(())
    }

    pub fn path(&self, program: &str) -> PathBuf {
        self.dir.join(program)
    }
}

/// Builds a program, and reports the progress.
fn build(
    Binaries { dir, set }: &Binaries,
    program: &Program,
    module: &Module,
    package: &str,
    output: &Path,
    label: &str,
) -> Result<()> {
    let folder = dir.join("src").join(module.name);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("go.mod"), module.go_mod)?;
    fs::write(folder.join("go.sum"), module.go_sum)?;
    let log = dir.join(format!("{}.log", program.name));

    let started = Instant::now();
    terminal::overwrite(&format!("building {label}"));
    let mut child = go("go")
        .arg("build")
        .args(BUILD_FLAGS)
        .arg(format!("-tags={}", module.tags))
        .arg("-ldflags")
        .arg(linker_flags(set))
        .arg("-o")
        .arg(output)
        .arg(package)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .spawn()?;
    let mut printed = started;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(200));
        let line = format!(
            "building {label}: {} s of up to {} s on 2 cores",
            started.elapsed().as_secs(),
            program.cold_seconds
        );
        if printed.elapsed() >= PROGRESS_EVERY {
            printed = Instant::now();
            terminal::say(&line);
        } else {
            terminal::overwrite(&line);
        }
    };
    if !status.success() {
        bail!(
            "`go build {package}` failed, {status}:\n{}",
            fs::read_to_string(&log).unwrap_or_default().trim_end()
        );
    }
    terminal::say(&format!("built {label} in {} s", started.elapsed().as_secs()));
    Ok(())
}

/// `$REFIT_CACHE`, else the user's cache folder + `refit`.
pub fn cache_dir() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = set("REFIT_CACHE") {
        return Ok(dir);
    }
    if let Some(dir) = set("XDG_CACHE_HOME") {
        return Ok(dir.join("refit"));
    }
    let home = set("HOME")
        .context("neither REFIT_CACHE nor HOME is set, so there is no folder for the test environment")?;
    let below = if cfg!(target_os = "macos") {
        "Library/Caches/refit"
    } else {
        ".cache/refit"
    };
    Ok(home.join(below))
}

/// The Go command, without settings of the user that could change a build.
fn go(program: &str) -> Command {
    let mut go = Command::new(program);
    go.env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env_remove("GOFLAGS");
    go
}

/// Version and platform of the installed Go.
pub fn toolchain(program: &str) -> Result<String> {
    let hint = || {
        let needed = required_go();
        format!(
            "the tests build etcd and Kubernetes from source and needs Go {needed} or newer (https://go.dev/dl); \
             or set REFIT_TEST_KUBECONFIG to use a cluster that runs"
        )
    };
    let out = go(program)
        .args(["env", "GOVERSION", "GOOS", "GOARCH"])
        .current_dir(std::env::temp_dir())
        .output()
        .with_context(|| format!("cannot run `{program}`: {}", hint()))?;
    ensure!(
        out.status.success(),
        "`{program} env` failed: {}: {}",
        String::from_utf8_lossy(&out.stderr).trim(),
        hint()
    );
    Ok(String::from_utf8_lossy(&out.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" "))
}

/// The Go version that the modules require.
pub fn required_go() -> &'static str {
    CONTROL_PLANE
        .modules
        .iter()
        .filter_map(|module| module.go_mod.lines().find_map(|line| line.strip_prefix("go ")))
        .max_by_key(|version| {
            version
                .split('.')
                .map(|part| part.parse::<u32>().unwrap_or(0))
                .collect::<Vec<_>>()
        })
        .expect("a go.mod says its Go version")
}

/// Whether the control plane of the tests is the newest.
pub fn is_newest() -> bool {
    let chosen = std::env::var(KUBERNETES).unwrap_or_default();
    control_plane_of(&chosen).is_ok_and(|set| version_of(set) == kubernetes_version())
}

/// The control plane of a minor version such as `1.32`; the newest without one.
fn control_plane_of(minor: &str) -> Result<&'static Set> {
    let minor_of = |set: &Set| {
        let version = version_of(set).trim_start_matches('v');
        version
            .rsplit_once('.')
            .map_or(version, |(minor, _)| minor)
            .to_owned()
    };
    if minor.is_empty() {
        return Ok(&CONTROL_PLANE);
    }
    let mut all = CONTROL_PLANES.into_iter();
    all.find(|set| minor_of(set) == minor).with_context(|| {
        let known = CONTROL_PLANES.map(minor_of).join(" or ");
        format!("{KUBERNETES} is {minor:?}; the tests can build {known}")
    })
}

/// The Kubernetes version of the newest control plane and of the kubelets, such as `v1.36.3`.
pub fn kubernetes_version() -> &'static str {
    version_of(&CONTROL_PLANE)
}

/// The Kubernetes version of the programs of a set.
fn version_of(set: &Set) -> &'static str {
    set.kubernetes
        .go_mod
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .and_then(|rest| rest.split_whitespace().next())
        .expect("the go.mod requires k8s.io/kubernetes")
}

/// Without the version a server reports v0.0.0, which clients that compare versions refuse.
fn linker_flags(set: &Set) -> String {
    let version = version_of(set);
    let minor = version.split('.').nth(1).unwrap_or_default();
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor} -X {package}.gitTreeState=clean"
    )
}

/// Digest of all inputs of a build.
fn digest(set: &Set, toolchain: &str) -> String {
    let mut hash = Sha256::new();
    let flags = linker_flags(set);
    let modules = set.modules.iter();
    for part in modules
        .flat_map(|module| [module.go_mod, module.go_sum])
        .chain([toolchain, &flags])
        .chain(BUILD_FLAGS)
        .chain(set.programs.iter().flat_map(|program| program.source.parts()))
    {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_chooses_the_kubernetes_of_the_control_plane_and_an_unknown_one_is_refused() {
        let version = |minor| control_plane_of(minor).map(version_of);
        assert_eq!(version("").unwrap(), kubernetes_version());
        assert!(version("1.32").unwrap().starts_with("v1.32."));
        assert!(version("1.37").unwrap().starts_with("v1.37."));
        let error = version("1.12").unwrap_err().to_string();
        assert!(error.contains("1.32"), "{error}");
    }
}
