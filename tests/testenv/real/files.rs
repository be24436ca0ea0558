//! The files in `/opt/node`: scripts, and the configuration of containerd, the kubelet and the pod network.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::images;
use super::lan::NodeAddresses;

/// Scripts from `tests/testenv/scripts`.
const SCRIPTS: [(&str, &str); 5] = [
    ("machine.sh", include_str!("../scripts/machine.sh")),
    ("boot.sh", include_str!("../scripts/boot.sh")),
    ("init.sh", include_str!("../scripts/init.sh")),
    ("systemctl.sh", include_str!("../scripts/systemctl.sh")),
    ("hook.sh", include_str!("../scripts/hook.sh")),
];

/// Seconds from power-on to the first instruction. Real firmware is slower.
const BOOT_SECONDS: &str = "0.5";

/// The configuration of the pod network, in a node's folder.
pub(super) const NETWORK: &str = "cni/pods.conflist";

/// Writes all files for `/opt/node`.
pub(super) fn configure(dir: &Path, addresses: &NodeAddresses, ctr: &Path) -> Result<()> {
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
        // The kubelet renews it after a quarter of this.
        "nodeLeaseDurationSeconds": 10,
        // The disk is in memory, so evictions by its usage would be wrong.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    });
    fs::write(dir.join("kubelet.yaml"), kubelet.to_string())?;
    fs::write(dir.join("containerd.toml"), containerd())?;
    // containerd's base of each container, with a hook.
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
                "ranges": [[{ "subnet": addresses.pods }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs::create_dir_all(dir.join("cni"))?;
    fs::write(dir.join(NETWORK), network.to_string()).context("cannot write the node's files")
}

fn containerd() -> String {
    let (pause, debian) = (images::PAUSE, "/opt/programs/debian");
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
