//! Cgroups of a real node: one in each hierarchy of the machine (cgroup v1), or one (v2). They do not end with the node's
//! processes, so each is listed in the run's folder before it is created. The watchdog, or the next run, removes them.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::process::Run;

/// The file in a run's folder that lists its cgroups.
pub const LIST: &str = "cgroups";

/// The controllers that a kubelet requires.
const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];

/// Maximum time until a killed process has left its cgroup.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// The cgroups of a node. Dropping it removes them, after the node's processes.
#[derive(Debug)]
pub struct Cgroups {
    /// The name in mounts: `cpu`, `cpu,cpuacct`, `name=systemd`; `unified` for v2.
    hierarchies: Vec<String>,
    folders: Vec<PathBuf>,
}

impl Cgroups {
    /// `name` must be unique.
    pub fn make(run: &Run, name: &str) -> Result<Self> {
        let parents = parents()?;
        let mut list = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(run.dir().join(LIST))?;
        let mut made = Self {
            hierarchies: Vec::new(),
            folders: Vec::new(),
        };
        for (hierarchy, parent) in parents {
            let folder = parent.join(name);
            writeln!(list, "{}", folder.display())?;
            fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            made.hierarchies.push(hierarchy.clone());
            made.folders.push(folder.clone());
            if hierarchy.split(',').any(|controller| controller == "cpuset") {
                // A new cgroup accepts no process while this is empty.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::copy(parent.join(file), folder.join(file))?;
                }
            }
            if hierarchy == "unified" {
                let has = fs::read_to_string(folder.join("cgroup.controllers"))?;
                ensure!(
                    NEEDED
                        .iter()
                        .all(|it| has.split_whitespace().any(|one| one == *it)),
                    "a kubelet needs the cgroup controllers {}, and {} has only: {}",
                    NEEDED.join(", "),
                    folder.display(),
                    has.trim()
                );
            }
        }
        Ok(made)
    }

    /// Names of the hierarchies, separated by spaces.
    pub fn hierarchies(&self) -> String {
        self.hierarchies.join(" ")
    }

    /// The node's folders, separated by spaces.
    pub fn folders(&self) -> String {
        let folders: Vec<_> = self
            .folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        folders.join(" ")
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        remove_all(&self.folders);
    }
}

/// Removes the cgroups of a dead run.
pub fn remove_listed(run: &Path) {
    let list = fs::read_to_string(run.join(LIST)).unwrap_or_default();
    let folders: Vec<_> = list.lines().map(PathBuf::from).collect();
    remove_all(&folders);
}

/// Removes cgroups with their descendants once they have no processes.
fn remove_all(folders: &[PathBuf]) {
    let started = Instant::now();
    for folder in folders {
        while !remove(folder) && started.elapsed() < GONE_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes a cgroup and its descendants. Returns whether it is gone. Its files do not prevent the removal.
fn remove(folder: &Path) -> bool {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(folder).is_ok() || !folder.exists()
}

/// The parents of nodes' cgroups: our own in v1, the root in v2, because inner cgroups of v2 hold no processes.
fn parents() -> Result<Vec<(String, PathBuf)>> {
    let own = fs::read_to_string("/proc/self/cgroup").context("this kernel has no cgroups")?;
    let mounts = Mounts::read()?;
    let mut v1 = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(hierarchy), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        if let Some(mount) = mounts.v1(hierarchy).filter(|_| !hierarchy.is_empty()) {
            let below = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
            v1.push((hierarchy.to_owned(), mount.point.join(below)));
        }
    }
    if v1
        .iter()
        .any(|(hierarchy, _)| hierarchy.split(',').any(|controller| controller == "memory"))
    {
        return Ok(v1);
    }
    let top = mounts.v2().context("no cgroups are mounted")?;
    for controller in NEEDED.into_iter().chain(["cpuset", "io"]) {
        // systemd has already done so.
        let _ = fs::write(top.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    Ok(vec![("unified".to_owned(), top)])
}

/// The mounts of cgroups in `/proc/self/mountinfo`.
struct Mounts(Vec<Mount>);

struct Mount {
    /// The mounted part of the hierarchy.
    root: PathBuf,
    point: PathBuf,
    kind: String,
    options: String,
}

impl Mounts {
    fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self(text.lines().filter_map(Mount::parse).collect()))
    }

    fn v1(&self, hierarchy: &str) -> Option<&Mount> {
        self.0.iter().find(|mount| {
            let has = |part| mount.options.split(',').any(|option| option == part);
            mount.kind == "cgroup" && hierarchy.split(',').all(has)
        })
    }

    fn v2(&self) -> Option<PathBuf> {
        let mount = self.0.iter().find(|mount| mount.kind == "cgroup2")?;
        Some(mount.point.clone())
    }
}

impl Mount {
    /// `25 24 0:22 /root /point rw - type source options`, with optional fields before the dash.
    fn parse(line: &str) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut what = what.split(' ');
        let mount = Self {
            root: place.next()?.into(),
            point: place.next()?.into(),
            kind: what.next()?.to_owned(),
            options: what.nth(1)?.to_owned(),
        };
        mount.kind.starts_with("cgroup").then_some(mount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hierarchy_is_found_by_all_of_its_controllers() {
        let lines = [
            "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct",
            "31 25 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            "32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd",
            "33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate",
            "34 25 0:30 / /data rw - ext4 /dev/vda rw",
        ];
        let mounts = Mounts(lines.iter().filter_map(|line| Mount::parse(line)).collect());
        let at = |hierarchy| mounts.v1(hierarchy).map(|mount| mount.point.clone());
        assert_eq!(mounts.0.len(), 4);
        assert_eq!(at("cpu,cpuacct"), Some("/sys/fs/cgroup/cpu,cpuacct".into()));
        assert_eq!(at("memory"), Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(mounts.v1("memory").unwrap().root, Path::new("/docker/abc"));
        assert_eq!(at("name=systemd"), Some("/sys/fs/cgroup/systemd".into()));
        assert_eq!(at("cpu,memory"), None);
        assert_eq!(mounts.v2(), Some("/sys/fs/cgroup/unified".into()));
    }
}
