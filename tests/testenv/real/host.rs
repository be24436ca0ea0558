//! The host of a real node: its files and programs.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::node::{RealNode, write};
use super::{seconds, tree};

impl RealNode {
    /// The path of a file of the host on this machine. `None` while the node is off.
    pub fn host_path(&self, path: &str) -> Option<PathBuf> {
        let path = path.trim_start_matches('/');
        Some(PathBuf::from(format!("/proc/{}/root/{path}", self.init()?)))
    }

    /// The text of a file of the host, or of its disk while the node is off. Empty if it does not exist.
    pub fn read(&self, path: &str) -> Option<String> {
        let on_disk = || {
            let disk = self.dir.join("disk/upper");
            let machine = tree::children(self.machine.pid()).first().copied()?;
            let path = path.trim_start_matches('/');
            Some(PathBuf::from(format!(
                "/proc/{machine}/root{}/{path}",
                disk.display()
            )))
        };
        let path = self.host_path(path).or_else(on_disk)?;
        fs::read_to_string(path).ok()
    }

    /// The lines of a file. A payload that appends one per run counts its runs.
    pub fn lines(&self, path: &str) -> Vec<String> {
        let text = self.read(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Writes a file of the host.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.host_path(path).expect("the node is on");
        fs::create_dir_all(path.parent().expect("a file")).expect("folders of the host");
        write(&path, text);
    }

    /// Removes a file of the host.
    pub fn remove(&self, path: &str) {
        let path = self.host_path(path).expect("the node is on");
        fs::remove_file(&path).unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
    }

    /// Runs a program on the host, in all of its namespaces, and returns its output. Fails the test if it fails.
    pub async fn run(&self, words: &[&str]) -> String {
        let init = self.init().expect("the node is on");
        let out = tokio::process::Command::new("nsenter")
            .args(["--all", "--target", &init.to_string(), "--"])
            .args(words)
            .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .kill_on_drop(true)
            .output()
            .await
            .expect("nsenter runs");
        let (said, complained) = (
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr),
        );
        assert!(
            out.status.success(),
            "{words:?} on {}: {}\n{said}{complained}",
            self.name,
            out.status
        );
        said.into_owned()
    }

    /// Runs `systemctl reboot` on the host.
    pub fn reboot(&self) {
        let path = self.host_path("/run/initctl").expect("the node is on");
        let asked = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut init| init.write_all(b"reboot\n"));
        asked.unwrap_or_else(|error| panic!("cannot ask {}: {error}", path.display()));
    }

    /// Times of requests to reboot or power off, by [`uptime`](super::uptime).
    pub fn asked(&self) -> Vec<Duration> {
        let asked = fs::read_to_string(self.dir.join("asked")).unwrap_or_default();
        asked.lines().map(seconds).collect()
    }

    /// Loads an image; see [`super::shell`].
    pub async fn load(&self, archive: &Path) {
        let name = archive.file_name().expect("a file").to_string_lossy();
        fs::copy(archive, self.dir.join(&*name))
            .unwrap_or_else(|error| panic!("cannot copy {name}: {error}"));
        let socket = "/run/containerd/containerd.sock";
        let here = format!("/opt/node/{name}");
        let import = ["images", "import", "--local", &here];
        let words = [
            &["/opt/programs/ctr", "--address", socket, "--namespace", "k8s.io"],
            &import[..],
        ];
        self.run(&words.concat()).await;
    }
}

impl RealNode {
    /// The logs of containers with this name on this node.
    pub fn said_by(&self, container: &str) -> String {
        let pods = self.host_path("/var/log/pods").expect("the node is on");
        let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let logs = below(&pods).flat_map(|pod| below(&pod.path().join(container)).collect::<Vec<_>>());
        let texts = logs.map(|log| fs::read_to_string(log.path()).unwrap_or_default());
        texts.collect()
    }
}

/// Copies `<namespace>_<pod>_<uid>/<container>/<restarts>.log` to `<pod>-<container>-<restarts>.log`.
pub(super) fn save_logs(from: &Path, to: &Path) {
    let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    for pod in below(from) {
        let name = pod.file_name().to_string_lossy().into_owned();
        let pod_name = name.split('_').nth(1).unwrap_or(&name);
        for container in below(&pod.path()) {
            let container_name = container.file_name().to_string_lossy().into_owned();
            for log in below(&container.path()) {
                let restarts = log.file_name().to_string_lossy().into_owned();
                let copy = format!("{pod_name}-{container_name}-{restarts}");
                let _ = fs::copy(log.path(), to.join(copy));
            }
        }
    }
}
