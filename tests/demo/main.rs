//! `cargo demo`: a control plane with five fake nodes, the controller, and a roll-out of K3s to watch.
//!
//! Everything is real except for the nodes, whose kubelets are simulated, and the release channel, which is a server on
//! loopback. The controller runs in its own process with the manifests of `deploy/`, and rolls out
//! `examples/k3s-upgrade.yaml`, in which only the host of the channel is replaced. Needs Rust and Go.

#[path = ".."]
mod tests {
    pub(crate) mod testenv;
}
mod view;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use refit_api::Plan;
use refit_rehearse::pod_lifecycle::{Defaults, Delay, Exit};
use serde_json::json;
use tokio::sync::mpsc;

use tests::testenv;

use testenv::channel::ChannelServer;
use testenv::context::TestContext;
use testenv::controller::{Controller, binary};
use testenv::controlplane::Options;
use testenv::environment::TestEnv;
use testenv::kubelet::{ContainerTask, CordonTasks, FakeKubelet, NodeSet, TaskRunner};
use testenv::manifest;
use testenv::process::{Process, Program, Run};
use testenv::wait::{self, SOON};
use view::{Nodes, say};

/// The version of the release channel, that of the control plane: agents wait until it has theirs.
const RELEASE: &str = "v1.36.3+k3s1";
/// The target of the channel's redirect, without the version.
const RELEASES: &str = "https://github.com/k3s-io/k3s/releases/tag";
/// The version of the nodes at the start.
const RUNNING: &str = "v1.36.2+k3s1";
const SERVERS: [&str; 1] = ["server-1"];
const AGENTS: [&str; 4] = ["agent-1", "agent-2", "agent-3", "agent-4"];

/// Duration of each container, so that its step can be seen.
const STEP_MILLIS: u32 = 1500;
/// Interval at which the nodes are shown.
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

#[tokio::main]
async fn main() -> ExitCode {
    let args = &Args::parse();
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
    let test_env = TestEnv::own(Options::default()).await;
    say(&format!(
        "etcd, kube-apiserver, kube-controller-manager and kube-scheduler are up after {:.1?}",
        started.elapsed()
    ));
    let ctx = TestContext::sole(test_env).await;
    let (upgraded, mut restarts) = mpsc::unbounded_channel();
    let kubelets = ctx.run(nodes(upgraded)).await;
    let controller = ctx.controller().start();
    let channel = ChannelServer::start().await;
    let plans = apply_example(&ctx, &channel).await?;
    let (_page, address) = page(&ctx).await?;
    introduce(&ctx, &controller, &address).await;

    let started = Instant::now();
    let mut nodes = Nodes::new();
    while !look(&ctx, &plans, &mut nodes).await? {
        if !controller.is_running() {
            bail!("the controller has ended\n{}", ctx.report(&ctx.client).await);
        }
        if started.elapsed().as_secs() >= args.patience {
            let report = ctx.report(&ctx.client).await;
            bail!("not done after {} s\n{report}", args.patience);
        }
        pass(&kubelets, &mut restarts).await;
    }
    let (count, took) = (nodes.len(), started.elapsed());
    say(&format!("{count} nodes were upgraded in {took:.0?}"));
    if args.once {
        return Ok(());
    }
    say("the cluster stays until Ctrl-C; this runs a Plan again on a node:");
    say("  kubectl label node agent-1 plan.upgrade.cattle.io/k3s-agent-");
    nodes.start_afresh();
    loop {
        look(&ctx, &plans, &mut nodes).await?;
        pass(&kubelets, &mut restarts).await;
    }
}

/// Waits for a moment, in which upgraded kubelets restart.
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
        .task_runner(Upgrades { upgraded })
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

/// The containers of K3s' upgrade.
struct Upgrades {
    upgraded: mpsc::UnboundedSender<String>,
}

impl TaskRunner for Upgrades {
    fn has_task(&self, container: &str) -> bool {
        matches!(container, "prepare" | "upgrade") || CordonTasks.has_task(container)
    }

    fn run(&self, act: ContainerTask) -> BoxFuture<'static, Exit> {
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
            _ => CordonTasks.run(act),
        }
    }
}

/// The condition that `prepare` of K3s' image waits for: the Plan in its last argument is applying no node, and all servers
/// run the new version.
async fn servers_are_upgraded(act: &ContainerTask) -> bool {
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

/// Applies the example with its channel on our server. Returns the names of its Plans.
async fn apply_example(ctx: &TestContext, channel: &ChannelServer) -> Result<Vec<String>> {
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
        ctx.try_apply(plan).await?;
    }
    Ok(plans)
}

/// `refit dashboard`, and the address that it prints.
async fn page(ctx: &TestContext) -> Result<(Process, String)> {
    let process = Program::new("dashboard", binary(), ctx.dir())
        .args(["dashboard", "-A", "--port", "0", "--kubeconfig"])
        .arg(ctx.test_env.kubeconfig())
        .start()?;
    let address = wait::eventually("the page is served", SOON, async || {
        let log = process.log();
        let address = log.lines().find(|line| line.starts_with("http://"));
        address.map(str::to_owned).ok_or(log)
    })
    .await;
    Ok((process, address))
}

/// Prints commands for use during the roll-out.
async fn introduce(ctx: &TestContext, controller: &Controller, page: &str) {
    let kubectl = ctx.test_env.kubectl().await;
    let (kubeconfig, log) = (ctx.test_env.kubeconfig(), controller.log_path());
    let (path, refit) = (kubectl.parent().unwrap_or(&kubectl), binary());
    say("the controller runs, and examples/k3s-upgrade.yaml is applied. To watch it in a browser:");
    say(&format!("  {page}"));
    say("To look around:");
    say(&format!("  export KUBECONFIG={}", kubeconfig.display()));
    say(&format!(
        "  export PATH={}:{}:$PATH",
        path.display(),
        refit.parent().unwrap_or(&refit).display()
    ));
    say("  refit status -A -w");
    say("  kubectl get plans -A");
    say(&format!(
        "  kubectl describe plan k3s-agent -n {}",
        ctx.namespace()
    ));
    say(&format!("  tail -f {}", log.display()));
}

/// Shows all nodes once. Returns whether all Plans are Complete.
async fn look(ctx: &TestContext, plans: &[String], nodes: &mut Nodes) -> Result<bool> {
    let all = ListParams::default();
    let (found, pods, plan_list) = tokio::try_join!(
        async { ctx.nodes().list(&all).await },
        async { ctx.pods().list(&all).await },
        async { ctx.plans().list(&all).await },
    )?;
    nodes.show(&found.items, &pods.items, &plan_list.items);
    let complete = |plan: &String| {
        let plan = plan_list
            .items
            .iter()
            .find(|found| found.metadata.name.as_ref() == Some(plan));
        plan.and_then(|plan| testenv::context::cluster::find_condition(plan, "Complete"))
            .is_some_and(|it| it.status == "True")
    };
    Ok(plans.iter().all(complete))
}
