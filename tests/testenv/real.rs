//! Real nodes: a kubelet, containerd and runc each, in namespaces of their own, on a host that can be read, written and
//! rebooted. They need root and Debian; tests that have some are ignored by `cargo cluster` and run by `just e2e`.
//!
//! ```ignore
//! #[tokio::test]
//! #[ignore = "real nodes, which need root and Debian: just e2e"]
//! async fn a_node_reboots_once() {
//!     let ctx = real::context().await;                        // like `TestContext::alone`, on a control plane for real nodes
//!     let [one, two] = real::nodes(&ctx, ["one", "two"]).await; // Ready; deleted when dropped
//!     let controller = real::controller(&ctx).start();        // a process; `real::deploy(&ctx, &one)` deploys it
//!     ctx.plan(&format!("… image: {BUSYBOX} …")).await;       // Plans select these nodes
//!     one.wait_boots(2).await;                                // counted by the supervisor
//!     assert_eq!(one.lines("/var/runs"), ["v2"]);             // files of the host, also while it is off
//!     assert_eq!(two.boots(), 1);
//! }
//! ```
//!
//! # What a node is
//! A supervisor (`tests/testenv/scripts/machine.sh`) is the machine: it gives power, a disk in memory and a network cable. The node
//! is what runs in the namespaces that it makes at each boot: its root is an overlay over the root of this machine, so that
//! an upgrade may write where it likes. `reboot -f`, `systemctl reboot` and `reboot` on the host (see `init.sh`) reboot the
//! node and nothing else; boot ids are written down by the supervisor. What is on the disk survives a reboot, `/run` does
//! not. There is no systemd: `systemctl` knows `reboot` and `poweroff` only.
//!
//! Images are [`BUSYBOX`], [`REFIT`] and the pause image, and there is no registry: `imagePullPolicy: Always` fails.
//! Pods have addresses, reach each other and the API server; there is no DNS.
//!
//! All processes end with this one, however it ends, and mounts and network with the processes; cgroups are removed by the
//! watchdog ([`super::process`]) or by the next run.

mod deployment;
mod files;
mod host;
mod images;
pub mod lan;
mod machine_lock;
mod node;
mod tree;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::OnceCell;

use super::binaries::Binaries;
use super::context::TestContext;
use super::controller::Setup;
use super::controlplane::Options;
use super::environment::TestEnv;
use super::image::Image;
pub use deployment::{Deployed, deploy};
pub use images::{BUSYBOX, REFIT};
pub use machine_lock::beside_others;
pub use node::{RealNode, Service};

/// For what takes a node some seconds on an idle machine: booting, pulling itself together, a drain.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long nothing may be heard of a node before it is `NotReady`. Shorter than Kubernetes' 50 s; a kubelet here renews its
/// lease every 2.5 s (see `node.rs`).
const GRACE: &str = "--node-monitor-grace-period=16s";

/// Where the admission plugin `PodNodeSelector` looks for what it adds to the pods of a namespace.
const SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// What this machine lacks for real nodes, a line each; empty where they can run.
pub fn missing() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testenv/scripts/missing.sh");
    match Command::new("/bin/sh").arg(script).output() {
        Ok(out) if out.status.success() => String::new(),
        Ok(out) => String::from_utf8_lossy(&out.stdout).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// A context on a control plane of its own: on a shared one, the control-plane nodes of other tests would count for the
/// majority that a controller keeps, also for some minutes after they were deleted.
pub async fn context() -> TestContext {
    on(machine_lock::beside_others().await).await
}

/// Like [`context`], while no other test has real nodes, for measurements.
pub async fn context_to_measure() -> TestContext {
    on(machine_lock::alone().await).await
}

async fn on(turn: impl Any + Send + Sync) -> TestContext {
    let mut ctx = TestContext::at(&TestEnv::own(options()).await).await;
    ctx.keep(turn);
    ctx
}

/// Makes the pods of this context require nodes with these labels, besides its own. A kubelet without them refuses bound
/// pods with `NodeAffinity`.
pub async fn pods_need(ctx: &TestContext, labels: &[(&str, &str)]) {
    let own = ctx.node_labels();
    let all = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .chain(labels.iter().copied());
    let selector: Vec<_> = all.map(|(name, value)| format!("{name}={value}")).collect();
    let only_here = json!({ "metadata": { "annotations": { SELECTOR: selector.join(",") } } });
    Api::<Namespace>::all(ctx.client.clone())
        .patch(ctx.namespace(), &PatchParams::default(), &Patch::Merge(only_here))
        .await
        .unwrap_or_else(|error| panic!("cannot annotate the namespace: {error}"));
}

/// Uptime of this machine and of its nodes: a clock that hosts, payloads and tests share.
pub fn uptime() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
    seconds(text.split(' ').next().unwrap_or_default())
}

/// What `/proc/uptime` begins with.
pub fn seconds(text: &str) -> Duration {
    let seconds = text.trim().parse();
    Duration::from_secs_f64(seconds.unwrap_or_else(|_| panic!("{text:?} are no seconds")))
}

fn options() -> Options {
    Options {
        apiserver: vec!["--enable-admission-plugins=NodeRestriction,PodNodeSelector".to_owned()],
        controller_manager: vec![GRACE.to_owned()],
    }
}

/// The controller as a process, for tests that kill it or change its settings.
pub fn controller(ctx: &TestContext) -> Setup {
    // There is no registry.
    ctx.controller()
        .env("SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY", "IfNotPresent")
        .env("REFIT_IMAGE", REFIT)
}

/// Starts nodes of this context, and waits until they are Ready. Their names are `ctx.node_name(…)`.
pub async fn nodes<const N: usize>(ctx: &TestContext, names: [&str; N]) -> [RealNode; N] {
    let starting: Vec<_> = names.iter().map(|name| RealNode::start(ctx, name)).collect();
    let started = futures::future::try_join_all(starting)
        .await
        .unwrap_or_else(|error| panic!("no real nodes: {error:#}"));
    for node in &started {
        node.wait_ready().await;
    }
    started
        .try_into()
        .unwrap_or_else(|_| unreachable!("as many as there are names"))
}

/// An image with a shell and its tools, of these names, for [`RealNode::load`].
pub async fn shell(names: &[&str]) -> Image {
    let made = kit()
        .await
        .and_then(|(binaries, _)| images::shell(names, &images::busybox(binaries)));
    made.unwrap_or_else(|error| panic!("no image: {error:#}"))
}

/// The programs of nodes and the folder with their images, made once in this process.
async fn kit() -> Result<&'static (Binaries, PathBuf)> {
    static KIT: OnceCell<(Binaries, PathBuf)> = OnceCell::const_new();
    KIT.get_or_try_init(|| async {
        let lacking = missing();
        ensure!(lacking.is_empty(), "this machine lacks:\n{}", lacking.trim_end());
        let made = tokio::task::spawn_blocking(|| {
            let binaries = Binaries::for_nodes()?;
            let images = images::make(&binaries).context("cannot make images")?;
            Ok((binaries, images))
        });
        match made.await {
            Ok(made) => made,
            Err(error) => bail!("{error}"),
        }
    })
    .await
}
