//! One real node: how it is set up, switched off and on, looked into, and waited for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use rustix::process::Signal;

use super::files::{NETWORK, configure};
use super::host::save_logs;
use super::{PATIENCE, kit, tree};
use crate::support::cgroup::Cgroups;
use crate::support::process::{self, Process, Program, Run};
use crate::support::wait;
use crate::support::world::World;

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
    pub(super) name: String,
    pub(super) dir: PathBuf,
    nodes: Api<Node>,
    pub(super) machine: Process,
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

    /// Pid of the supervisor's outermost process, with which all of the node ends.
    pub fn machine_pid(&self) -> u32 {
        self.machine.pid()
    }

    /// Process 1 of the node, as a pid of this machine: the supervisor's `unshare` has one child, which is it.
    pub(super) fn init(&self) -> Option<u32> {
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

impl Drop for RealNode {
    /// Saves what containers have said when the test has failed: the world, which is dropped after its nodes, tells it.
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(logs) = self.host_path("/var/log/pods")
        {
            save_logs(&logs, &self.dir);
        }
    }
}

pub(super) fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(",")
}
