//! One real node: how it is set up, switched off and on, looked into, and waited for.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::lan::Place;
use super::{PATIENCE, images, kit, tree};
use crate::support::cgroup::Cgroups;
use crate::support::process::{self, Process, Program, Run};
use crate::support::wait;
use crate::support::world::World;

/// What the node runs, by file name. They are in `tests/bed/node`.
const SCRIPTS: [(&str, &str); 5] = [
    ("machine.sh", include_str!("../../bed/node/machine.sh")),
    ("boot.sh", include_str!("../../bed/node/boot.sh")),
    ("init.sh", include_str!("../../bed/node/init.sh")),
    ("systemctl.sh", include_str!("../../bed/node/systemctl.sh")),
    ("hook.sh", include_str!("../../bed/node/hook.sh")),
];

/// From power on to the first instruction, in seconds: a firmware is slower, a test is in a hurry.
const BOOT_SECONDS: &str = "0.5";

/// The configuration of the network of pods, in a node's folder.
const NETWORK: &str = "cni/pods.conflist";

/// What a node can be made to do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Without it nobody hears of the node, and pods run on as they are.
    Kubelet,
    /// Without it a node that runs is `NotReady`, and one that boots is not heard of: the kubelet ends.
    Containerd,
    /// Of pods. Without it the kubelet says that the node is `NotReady`, also of one that has just booted.
    Network,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Containerd => "containerd",
            Self::Network => "network",
        }
    }
}

/// A real node. Dropping it pulls the plug, and removes what is left.
#[derive(Debug)]
pub struct RealNode {
    name: String,
    dir: PathBuf,
    nodes: Api<Node>,
    machine: Process,
    /// After the process: they can be removed when it is gone.
    _cgroups: Cgroups,
}

impl RealNode {
    pub(super) async fn start(world: &World, name: &str) -> Result<Self> {
        let (binaries, images) = kit().await?;
        let control = world.bed.control_plane();
        let lan = control.lan().await?;
        let place = lan.place()?;
        let name = world.node_name(name);
        let dir = world.dir().join(format!("node-{name}"));
        fs::create_dir_all(dir.join("disk"))?;
        configure(&dir, &place, &binaries.path("ctr"))?;
        let user = format!("system:node:{name}");
        control.write_lan_kubeconfig(&dir.join("kubeconfig"), &user, Some("system:nodes"))?;

        let run = Run::current()
            .dir()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let cgroups = Cgroups::make(Run::current(), &format!("refit-test-{run}-{name}"))?;
        let machine = Program::new("machine", "/usr/bin/env", &dir)
            .args(["nsenter".to_owned(), format!("--net={}", lan.namespace())])
            .args(["unshare", "--pid", "--mount", "--fork", "--kill-child=KILL"])
            .arg(dir.join("machine.sh"))
            .env("NODE", &name)
            .env("NODE_DIR", &dir)
            .env("LABELS", labels(&world.node_labels()))
            .env("BED", binaries.dir())
            .env("IMAGES", images)
            .env("CGROUPS", cgroups.folders())
            .env("HIERARCHIES", cgroups.hierarchies())
            .env("MACHINE_NET", lan.machine())
            .env("NUMBER", place.number.to_string())
            .env("ADDRESS", place.address.to_string())
            .env("PODS", &place.pods)
            .env("GATEWAY", place.gateway.to_string())
            .start()?;
        Ok(Self {
            nodes: world.nodes(),
            name,
            dir,
            machine,
            _cgroups: cgroups,
        })
    }

    /// The name of the Node object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How often it has been booted, the first time included: counted by its supervisor.
    pub fn boots(&self) -> usize {
        self.boot_ids().len()
    }

    /// The boot id of each boot. The last one is that of now, or, when it is off, of before.
    pub fn boot_ids(&self) -> Vec<String> {
        let ids = fs::read_to_string(self.dir.join("boots")).unwrap_or_default();
        ids.lines().map(str::to_owned).collect()
    }

    /// Waits until it has been booted so often. Fails at once when that has been exceeded.
    pub async fn wait_boots(&self, count: usize) {
        wait::eventually(
            &format!("{} has been booted {count} times", self.name),
            PATIENCE,
            async || {
                let boots = self.boots();
                assert!(boots <= count, "{} has been booted {boots} times", self.name);
                if boots == count {
                    Ok(())
                } else {
                    Err(format!("{boots} boots"))
                }
            },
        )
        .await;
    }

    /// Waits until its Node object is Ready under the boot id of now.
    pub async fn wait_ready(&self) -> Node {
        let ready = |node: &Node| {
            let status = node.status.as_ref();
            let id = status.and_then(|status| Some(&status.node_info.as_ref()?.boot_id));
            let conditions = status.and_then(|status| status.conditions.as_ref());
            id == self.boot_ids().last()
                && conditions
                    .into_iter()
                    .flatten()
                    .any(|it| it.type_ == "Ready" && it.status == "True")
        };
        let booted =
            async { wait::object(self.nodes.clone(), &self.name, "is Ready", PATIENCE, ready).await };
        let died = async {
            while self.machine.ended().is_none() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!(
                "{} has no machine any more:\n{}",
                self.name,
                self.machine.log_tail(20)
            )
        };
        tokio::select! {
            node = booted => node,
            never = died => never,
        }
    }

    /// Whether it is on: booting counts, being between two boots does not.
    pub fn is_on(&self) -> bool {
        self.init().is_some()
    }

    /// Pulls the plug, and puts it in again: everything on it ends at once, and it boots.
    pub async fn power_cycle(&self) {
        let boots = self.boots();
        self.cut().await;
        self.wait_boots(boots + 1).await;
    }

    /// Pulls the plug.
    pub async fn power_off(&self) {
        self.stay_off();
        self.cut().await;
    }

    /// From when it next goes down, for whatever reason, it stays off.
    pub fn stay_off(&self) {
        self.say("off", true);
    }

    /// Puts the plug in.
    pub fn power_on(&self) {
        self.say("off", false);
    }

    /// How long the machine takes before the node's first instruction, from the next boot on.
    pub fn boot_takes(&self, time: Duration) {
        write(&self.dir.join("boot-seconds"), &time.as_secs_f64().to_string());
    }

    /// Ends it with SIGKILL, and keeps it from being started, in later boots too.
    pub fn stop(&self, service: Service) {
        self.keep_from(service);
        for pid in self.init().map(tree::descendants).unwrap_or_default() {
            if tree::name(pid) == service.name() {
                let _ = process::signal(pid, Signal::KILL);
            }
        }
    }

    /// A program that runs is left alone, but it is not started again, in this boot or a later one.
    pub fn keep_from(&self, service: Service) {
        self.has(service, false);
    }

    /// Undoes [`Self::stop`] and [`Self::keep_from`].
    pub fn resume(&self, service: Service) {
        self.has(service, true);
    }

    /// A path of the host, as seen from here, to be read and written. `None` while the node is off.
    pub fn host_path(&self, path: &str) -> Option<PathBuf> {
        let path = path.trim_start_matches('/');
        Some(PathBuf::from(format!("/proc/{}/root/{path}", self.init()?)))
    }

    /// A file of the host, or nothing. While the node is off: of its disk, if it has ever been written.
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

    /// Its lines. A payload that appends one each time it runs counts its runs so.
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

    /// Runs a program on the host, in all of its namespaces, and returns what it wrote. Fails the test if it fails.
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

    /// Makes an image known to the node, as a pull would; see [`super::shell`].
    pub async fn load(&self, archive: &Path) {
        let name = archive.file_name().expect("a file").to_string_lossy();
        fs::copy(archive, self.dir.join(&*name))
            .unwrap_or_else(|error| panic!("cannot copy {name}: {error}"));
        let socket = "/run/containerd/containerd.sock";
        let here = format!("/opt/node/{name}");
        let import = ["images", "import", "--local", &here];
        let words = [
            &["/opt/bed/ctr", "--address", socket, "--namespace", "k8s.io"],
            &import[..],
        ];
        self.run(&words.concat()).await;
    }

    /// Pid of the supervisor's outermost process, with which all of the node ends.
    pub fn machine_pid(&self) -> u32 {
        self.machine.pid()
    }

    /// Process 1 of the node, as a pid of this machine: the supervisor's `unshare` has one child, which is it.
    fn init(&self) -> Option<u32> {
        let supervisor = tree::children(self.machine.pid()).first().copied()?;
        let boot = tree::children(supervisor)
            .into_iter()
            .find(|pid| tree::name(*pid) == "unshare")?;
        tree::children(boot).first().copied()
    }

    /// Ends process 1, and with it every other one; returns when it is gone.
    async fn cut(&self) {
        let Some(init) = self.init() else { return };
        let _ = process::signal(init, Signal::KILL);
        wait::eventually("the node is down", PATIENCE, async || {
            if process::lives(init) {
                Err("it is up".to_owned())
            } else {
                Ok(())
            }
        })
        .await;
    }

    fn has(&self, service: Service, it_has: bool) {
        if service == Service::Network {
            // containerd watches the folder, and takes no file that ends otherwise.
            let (on, off) = (self.dir.join(NETWORK), self.dir.join("cni/off"));
            let (from, to) = if it_has { (off, on) } else { (on, off) };
            let _ = fs::rename(from, to);
        } else {
            self.say(&format!("no-{}", service.name()), !it_has);
        }
    }

    /// A file by which the scripts are told something.
    fn say(&self, what: &str, it_is_so: bool) {
        let file = self.dir.join(what);
        if it_is_so {
            write(&file, "");
        } else {
            let _ = fs::remove_file(file);
        }
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(",")
}

/// Writes all files that the node finds in `/opt/node`.
fn configure(dir: &Path, place: &Place, ctr: &Path) -> Result<()> {
    for (name, text) in SCRIPTS {
        let path = dir.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(dir.join("boot-seconds"), BOOT_SECONDS)?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "enableServer": false,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        // Renewed every quarter of it.
        "nodeLeaseDurationSeconds": 10,
        // The disk is memory, and that of the machine at large is its own business.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    });
    fs::write(dir.join("kubelet.yaml"), kubelet.to_string())?;
    fs::write(dir.join("containerd.toml"), containerd())?;
    // What containerd begins each container with, and a hook.
    let out = Command::new(ctr).args(["oci", "spec"]).output()?;
    let mut spec: Value = serde_json::from_slice(&out.stdout).context("`ctr oci spec` prints no JSON")?;
    spec["hooks"] = json!({ "createContainer": [{ "path": "/opt/node/hook.sh" }] });
    fs::write(dir.join("spec.json"), spec.to_string())?;
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{ "subnet": place.pods }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs::create_dir_all(dir.join("cni"))?;
    fs::write(dir.join(NETWORK), network.to_string()).context("cannot write the node's files")
}

fn containerd() -> String {
    let (pause, debian) = (images::PAUSE, "/opt/bed/debian");
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  # Nobody in a namespace may lower what the machine has set.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "/opt/node/spec.json"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{debian}/usr/sbin/runc"
        SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{debian}/usr/lib/cni"]
    conf_dir = "/opt/node/cni"
"#
    )
}
