//! `cargo demo`: a control plane with five fake nodes, the controller, and a roll-out of K3s to watch.
//!
//! Everything is real but the nodes, whose kubelets are played, and the release channel, which is a server on
//! loopback. The controller runs in a process of its own under the manifests of `deploy/`, and carries out
//! `examples/k3s-upgrade.yaml` as it is, its channel's host aside. Needs Rust and Go.

#[path = ".."]
mod tests {
    pub(crate) mod support;
}
mod view;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use refit::api::Plan;
use refit::rehearse::podlife::{Defaults, Delay, Exit};
use serde_json::json;
use tokio::sync::mpsc;

use tests::support;

use support::bed::Bed;
use support::channel::ChannelServer;
use support::controller::Controller;
use support::controlplane::Options;
use support::kubelet::{Act, ContainerAct, Cordons, FakeKubelet, NodeSet};
use support::manifest;
use support::process::Run;
use support::world::World;
use view::{Nodes, say};

/// The version that the release channel gives.
const RELEASE: &str = "v1.36.4+k3s1";
/// Where the channel leads; the version is the last part.
const RELEASES: &str = "https://github.com/k3s-io/k3s/releases/tag";
/// What the nodes run before.
const RUNNING: &str = "v1.36.3+k3s1";
const SERVERS: [&str; 1] = ["server-1"];
const AGENTS: [&str; 4] = ["agent-1", "agent-2", "agent-3", "agent-4"];

/// With this argument the demo is refit itself: the same code as in refit's binary, which cargo would have to
/// build for it.
const CONTROLLER: &str = "controller";

/// How long each container takes, so that there is something to see.
const STEP_MILLIS: u32 = 1500;
/// How often the nodes are looked at.
const EVERY: Duration = Duration::from_millis(200);

/// A control plane with five fake nodes, the controller, and a roll-out to watch. Ctrl-C ends it.
#[derive(Parser)]
#[command(name = "cargo demo")]
struct Args {
    /// End when the roll-out is done: with 0, or with 1 and a report if it does not end
    #[arg(long)]
    once: bool,
    /// Give up after so many seconds; the roll-out takes about fifteen
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(CONTROLLER) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        return refit::cli::run(std::env::args_os());
    }
    run(&Args::parse())
}

#[tokio::main]
async fn run(args: &Args) -> ExitCode {
    let outcome = tokio::select! {
        outcome = demo(args) => outcome,
        _ = tokio::signal::ctrl_c() => {
            say("ending everything");
            Ok(())
        }
    };
    Run::current().end();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo(args: &Args) -> Result<()> {
    say("bringing up a control plane");
    let started = Instant::now();
    let bed = Bed::own(Options::default()).await;
    say(&format!(
        "etcd, kube-apiserver, kube-controller-manager and kube-scheduler are up after {:.1?}",
        started.elapsed()
    ));
    let world = World::sole(bed).await;
    let (upgraded, mut restarts) = mpsc::unbounded_channel();
    let kubelets = world.run(nodes(upgraded)).await;
    let controller = world
        .controller()
        .program(std::env::current_exe()?)
        .arg(CONTROLLER)
        .start();
    let channel = ChannelServer::start().await;
    let plans = apply_example(&world, &channel).await?;
    introduce(&world, &controller).await;

    let started = Instant::now();
    let mut nodes = Nodes::new();
    while !look(&world, &plans, &mut nodes).await? {
        if !controller.is_running() {
            bail!("the controller has ended\n{}", world.report(&world.client).await);
        }
        if started.elapsed().as_secs() >= args.patience {
            bail!(
                "not done after {} s\n{}",
                args.patience,
                world.report(&world.client).await
            );
        }
        pass(&kubelets, &mut restarts).await;
    }
    say(&format!(
        "{} nodes were upgraded in {:.0?}",
        nodes.len(),
        started.elapsed()
    ));
    if args.once {
        return Ok(());
    }
    say("the cluster stays until Ctrl-C; this runs a Plan again on a node:");
    say("  kubectl label node agent-1 plan.upgrade.cattle.io/k3s-agent-");
    nodes.start_afresh();
    loop {
        look(&world, &plans, &mut nodes).await?;
        pass(&kubelets, &mut restarts).await;
    }
}

/// Lets a moment pass, in which kubelets that were upgraded start again.
async fn pass(kubelets: &FakeKubelet, restarts: &mut mpsc::UnboundedReceiver<String>) {
    while let Ok(node) = restarts.try_recv() {
        kubelets.set_kubelet_version(&node, RELEASE).await;
    }
    tokio::time::sleep(EVERY).await;
}

/// One server and four agents that have opted in.
fn nodes(upgraded: mpsc::UnboundedSender<String>) -> NodeSet {
    let pods = Defaults {
        init: Delay::millis(STEP_MILLIS.into()),
        run: Delay::millis(STEP_MILLIS.into()),
        ..Defaults::default()
    };
    NodeSet::named(SERVERS.iter().chain(&AGENTS))
        .label("k3s-upgrade", "enabled")
        .pods(pods)
        .act(Upgrades { upgraded })
        .each(|index, node| {
            RUNNING.clone_into(&mut node.kubelet_version);
            if index < SERVERS.len() {
                node.labels.insert(
                    "node-role.kubernetes.io/control-plane".to_owned(),
                    "true".to_owned(),
                );
            }
        })
}

/// What containers of K3s' upgrade do to a node.
struct Upgrades {
    upgraded: mpsc::UnboundedSender<String>,
}

impl ContainerAct for Upgrades {
    fn acts(&self, container: &str) -> bool {
        matches!(container, "prepare" | "upgrade") || Cordons.acts(container)
    }

    fn run(&self, act: Act) -> BoxFuture<'static, Exit> {
        let upgraded = self.upgraded.clone();
        match act.start.name.as_str() {
            "prepare" => Box::pin(async move {
                while !servers_are_upgraded(&act).await {
                    tokio::time::sleep(EVERY).await;
                }
                Exit::default()
            }),
            "upgrade" => Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(STEP_MILLIS.into())).await;
                let _ = upgraded.send(act.node);
                Exit::default()
            }),
            _ => Cordons.run(act),
        }
    }
}

/// What `prepare` of K3s' image waits for: its Plan, the last argument, is applying no node, and all servers
/// run the new version.
async fn servers_are_upgraded(act: &Act) -> bool {
    let plans = Api::<Plan>::namespaced(act.client.clone(), &act.namespace);
    let servers = ListParams::default().labels("node-role.kubernetes.io/control-plane");
    let nodes = Api::<Node>::all(act.client.clone());
    let waited_for = act.start.args.last().cloned().unwrap_or_default();
    let (Ok(plan), Ok(servers)) = tokio::join!(plans.get(&waited_for), nodes.list(&servers)) else {
        return false;
    };
    let applying = plan.status.and_then(|status| status.applying).unwrap_or_default();
    let version = |node: &Node| {
        node.status
            .as_ref()?
            .node_info
            .as_ref()
            .map(|info| info.kubelet_version == RELEASE)
    };
    applying.is_empty() && servers.items.iter().all(|node| version(node) == Some(true))
}

/// Applies the example with its channel on our server. Gives the names of its Plans.
async fn apply_example(world: &World, channel: &ChannelServer) -> Result<Vec<String>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/k3s-upgrade.yaml");
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let mut plans = Vec::new();
    for mut plan in manifest::parse(&text)? {
        let path = url::Url::parse(plan["spec"]["channel"].as_str().unwrap_or_default())?
            .path()
            .to_owned();
        channel.redirects(&path, &format!("{RELEASES}/{RELEASE}"));
        plan["spec"]["channel"] = json!(channel.url(&path));
        plans.push(plan["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        world.try_apply(plan).await?;
    }
    Ok(plans)
}

/// How to look around while it goes on.
async fn introduce(world: &World, controller: &Controller) {
    let kubectl = world.bed.kubectl().await;
    say("the controller runs, and examples/k3s-upgrade.yaml is applied. To look around:");
    say(&format!(
        "  export KUBECONFIG={}",
        world.bed.kubeconfig().display()
    ));
    say(&format!(
        "  export PATH={}:$PATH",
        kubectl.parent().unwrap_or(&kubectl).display()
    ));
    say("  kubectl get plans -A");
    say(&format!(
        "  kubectl describe plan k3s-agent -n {}",
        world.namespace()
    ));
    say(&format!("  tail -f {}", controller.log_path().display()));
}

/// Looks at everything once, shows it, and says whether all nodes are done.
async fn look(world: &World, plans: &[String], nodes: &mut Nodes) -> Result<bool> {
    let all = ListParams::default();
    let (found, pods, plan_list) = tokio::try_join!(
        async { world.nodes().list(&all).await },
        async { world.pods().list(&all).await },
        async { world.plans().list(&all).await },
    )?;
    nodes.show(&found.items, &pods.items, &plan_list.items);
    let complete = |plan: &String| {
        let plan = plan_list
            .items
            .iter()
            .find(|found| found.metadata.name.as_ref() == Some(plan));
        plan.and_then(|plan| support::world::cluster::find_condition(plan, "Complete"))
            .is_some_and(|it| it.status == "True")
    };
    Ok(plans.iter().all(complete))
}
