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
use kube::api::ListParams;
use serde_json::json;

use tests::support;

use support::bed::Bed;
use support::channel::ChannelServer;
use support::controller::Controller;
use support::controlplane::Options;
use support::manifest;
use support::process::Run;
use support::world::World;
use view::{Nodes, say};

/// What the release channel answers.
const RELEASE: &str = "https://github.com/k3s-io/k3s/releases/tag/v1.36.4+k3s1";
/// What the nodes run before.
const RUNNING: &str = "v1.36.3+k3s1";
const SERVERS: [&str; 1] = ["server-1"];
const AGENTS: [&str; 4] = ["agent-1", "agent-2", "agent-3", "agent-4"];

/// With this argument the demo is refit itself: the same code as in refit's binary, which cargo would have to
/// build for it.
const CONTROLLER: &str = "controller";

/// How long the roll-out may take. It takes less than a minute.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often the nodes are looked at.
const EVERY: Duration = Duration::from_millis(200);

/// A control plane with five fake nodes, the controller, and a roll-out to watch. Ctrl-C ends it.
#[derive(Parser)]
#[command(name = "cargo demo")]
struct Args {
    /// End when the roll-out is done: with 0, or with 1 and a report if it does not end
    #[arg(long)]
    once: bool,
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
    register_nodes(&world).await;
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
        if started.elapsed() > PATIENCE {
            bail!(
                "not done after {} s\n{}",
                PATIENCE.as_secs(),
                world.report(&world.client).await
            );
        }
        tokio::time::sleep(EVERY).await;
    }
    say(&format!(
        "{} nodes were upgraded in {:.0?}",
        nodes.len(),
        started.elapsed()
    ));
    if args.once {
        return Ok(());
    }
    say("the cluster stays until Ctrl-C");
    loop {
        look(&world, &plans, &mut nodes).await?;
        tokio::time::sleep(EVERY).await;
    }
}

/// One server and four agents that have opted in.
async fn register_nodes(world: &World) {
    for name in SERVERS.iter().chain(&AGENTS) {
        let mut labels =
            json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "k3s-upgrade": "enabled" });
        if SERVERS.contains(name) {
            labels["node-role.kubernetes.io/control-plane"] = json!("true");
        }
        let node = json!({ "metadata": { "name": name, "labels": labels }, "status": { "nodeInfo": { "kubeletVersion": RUNNING } } });
        let _: k8s_openapi::api::core::v1::Node = support::world::cluster::create(&world.nodes(), node).await;
    }
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
        channel.redirects(&path, RELEASE);
        plan["spec"]["channel"] = json!(channel.url(&path));
        plans.push(plan["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        world.try_apply(plan).await?;
    }
    Ok(plans)
}

/// How to look around while it goes on.
async fn introduce(world: &World, controller: &Controller) {
    say("the controller runs, and examples/k3s-upgrade.yaml is applied. To look around:");
    say(&format!(
        "  export KUBECONFIG={}",
        world.bed.kubeconfig().display()
    ));
    let kubectl = world.bed.kubectl().await;
    say(&format!("  {} get plans -A", kubectl.display()));
    say(&format!(
        "  {} describe plan k3s-agent -n {}",
        kubectl.display(),
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
