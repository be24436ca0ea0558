//! A real node.

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
use crate::testenv::cgroup::Cgroups;
use crate::testenv::context::TestContext;
use crate::testenv::process::{self, Process, Program, Run};
use crate::testenv::wait;

/// A part of a node that tests can stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Without it the node reports nothing, and pods continue.
    Kubelet,
    /// Without it a running node is `NotReady`, and the kubelet of a booting node ends.
    Containerd,
    /// The pod network. Without it the kubelet reports `NotReady`.
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

/// Dropping it cuts the power and removes the node.
#[derive(Debug)]
pub struct RealNode {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    nodes: Api<Node>,
    pub(super) machine: Process,
    /// Dropped after the process, because only then they can be removed.
    _cgroups: Cgroups,
}

impl RealNode {
    pub(super) async fn start(ctx: &TestContext, name: &str) -> Result<Self> {
        let (binaries, images) = kit().await?;
        let control = ctx.test_env.control_plane();
        let lan = control.lan().await?;
        let addresses = lan.addresses()?;
        let name = ctx.node_name(name);
        let dir = ctx.dir().join(format!("node-{name}"));
        fs::create_dir_all(dir.join("disk"))?;
        configure(&dir, &addresses, &binaries.path("ctr"))?;
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
            .env("LABELS", labels(&ctx.node_labels()))
            .env("PROGRAMS", binaries.dir())
            .env("IMAGES", images)
            .env("CGROUPS", cgroups.folders())
            .env("HIERARCHIES", cgroups.hierarchies())
            .env("MACHINE_NET", lan.machine())
            .env("NUMBER", addresses.number.to_string())
            .env("ADDRESS", addresses.address.to_string())
            .env("PODS", &addresses.pods)
            .env("GATEWAY", addresses.gateway.to_string())
            .start()?;
        Ok(Self {
            nodes: ctx.nodes(),
            name,
            dir,
            machine,
            _cgroups: cgroups,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of boots, counted by its supervisor.
    pub fn boots(&self) -> usize {
        self.boot_ids().len()
    }

    /// The boot ID of each boot.
    pub fn boot_ids(&self) -> Vec<String> {
        let ids = fs::read_to_string(self.dir.join("boots")).unwrap_or_default();
        ids.lines().map(str::to_owned).collect()
    }

    /// Waits for a number of boots. Fails at once if there are more.
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

    /// Waits until its Node is Ready with the current boot ID.
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

    /// Whether it is on or booting.
    pub fn is_on(&self) -> bool {
        self.init().is_some()
    }

    /// Cuts the power and restores it, so that it boots.
    pub async fn power_cycle(&self) {
        let boots = self.boots();
        self.cut().await;
        self.wait_boots(boots + 1).await;
    }

    /// Cuts the power: everything ends at once.
    pub async fn power_off(&self) {
        self.stay_off();
        self.cut().await;
    }

    /// Keeps it off after it next goes down.
    pub fn stay_off(&self) {
        self.say("off", true);
    }

    /// Restores the power.
    pub fn power_on(&self) {
        self.say("off", false);
    }

    /// Sets the time before the first instruction, from the next boot on.
    pub fn boot_takes(&self, time: Duration) {
        write(&self.dir.join("boot-seconds"), &time.as_secs_f64().to_string());
    }

    /// Kills a service, and prevents its start, in later boots too.
    pub fn stop(&self, service: Service) {
        self.keep_from(service);
        for pid in self.init().map(tree::descendants).unwrap_or_default() {
            if tree::name(pid) == service.name() {
                let _ = process::signal(pid, Signal::KILL);
            }
        }
    }

    /// Prevents the next start of a service, in later boots too.
    pub fn keep_from(&self, service: Service) {
        self.has(service, false);
    }

    /// Reverts [`Self::stop`] and [`Self::keep_from`].
    pub fn resume(&self, service: Service) {
        self.has(service, true);
    }

    /// Pid of the supervisor's outermost process. The node ends with it.
    pub fn machine_pid(&self) -> u32 {
        self.machine.pid()
    }

    /// Process 1 of the node as a pid of this machine: the only child of the supervisor's `unshare`.
    pub(super) fn init(&self) -> Option<u32> {
        let supervisor = tree::children(self.machine.pid()).first().copied()?;
        let boot = tree::children(supervisor)
            .into_iter()
            .find(|pid| tree::name(*pid) == "unshare")?;
        tree::children(boot).first().copied()
    }

    /// Kills process 1, and with it all others, and waits until it is gone.
    async fn cut(&self) {
        let Some(init) = self.init() else { return };
        let _ = process::signal(init, Signal::KILL);
        wait::holds("the node is down", async || !process::lives(init)).await;
    }

    fn has(&self, service: Service, it_has: bool) {
        if service == Service::Network {
            // containerd watches the folder for files with this extension.
            let (on, off) = (self.dir.join(NETWORK), self.dir.join("cni/off"));
            let (from, to) = if it_has { (off, on) } else { (on, off) };
            let _ = fs::rename(from, to);
        } else {
            self.say(&format!("no-{}", service.name()), !it_has);
        }
    }

    /// Creates or removes a flag file for the scripts.
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
    /// Saves the logs of containers if the test has failed; the context, which is dropped after its nodes, reports them.
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
