//! `refit logs`: what the containers of a Plan's pod on a node have printed, or those of `before` and `after`.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt as _};

use super::output;
use super::target::{self, ClusterFlags, find, unknown, with_client};
use refit_api::names::{LABEL_HOOK, LABEL_PLAN};
use refit_cluster::kube::pages::on_node;
use refit_cluster::kube::{Answer, brief};

pub(super) const EXAMPLES: &str = "Examples:
  refit logs k3s-agent worker-1                 every container, one after the other
  refit logs k3s-agent worker-1 -c upgrade -f   what the upgrade prints, as it prints it
  refit logs k3s-server                         the last `before` or `after`";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Plan by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    /// Node [default: the pod of `before` or `after`]
    #[arg(value_name = "NODE")]
    node: Option<String>,

    /// Only this container, such as drain or upgrade
    #[arg(short = 'c', long, value_name = "NAME")]
    container: Option<String>,

    /// Follow what a running container prints, until it ends
    #[arg(short = 'f', long)]
    follow: bool,

    #[command(flatten)]
    place: ClusterFlags,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client: Client| {
        let scope = flags.place.scope(&client, Some(&flags.plan)).await;
        let snapshot = target::read_plans(&client, &scope).await?;
        let view = find(&snapshot, &flags.plan)?;
        let pods = Api::<Pod>::namespaced(client, view.plan.namespace());
        let plan = &view.plan.name;
        let of_plan = match &flags.node {
            Some(node) => on_node(node).labels(&format!("{LABEL_PLAN}={plan},!{LABEL_HOOK}")),
            None => ListParams::default().labels(&format!("{LABEL_PLAN}={plan},{LABEL_HOOK}")),
        };
        let found = pods.list(&of_plan).await;
        let found = found.map_err(|error| anyhow::anyhow!("pods cannot be listed: {}", brief(&error)))?;
        let newest = found
            .items
            .into_iter()
            .max_by_key(|pod| pod.creation_timestamp().map(|at| at.0));
        let Some(pod) = newest else {
            match &flags.node {
                Some(node) => bail!(
                    "{} has no pod on Node {node}: none was started, or its Job is deleted; refit explain {} {node} says what is known",
                    view.title(),
                    flags.plan,
                ),
                None => bail!(
                    "{} has no pod of spec.before or spec.after: none was started, or its Job is deleted; for one on a node, name the \
                     node",
                    view.title()
                ),
            }
        };
        show(&pods, &pod, flags, &mut output::text).await
    })
}

/// The containers in the order in which they run.
fn containers(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    all.map(|container| container.name.clone()).collect()
}

async fn show(
    pods: &Api<Pod>,
    pod: &Pod,
    flags: &Flags,
    print: &mut impl FnMut(&str) -> std::io::Result<()>,
) -> anyhow::Result<ExitCode> {
    let mut names = containers(pod);
    if let Some(wanted) = &flags.container {
        if !names.contains(wanted) {
            bail!(
                "{}",
                unknown("container", wanted, names.iter().map(String::as_str))
            );
        }
        names.retain(|name| name == wanted);
    }
    let name = pod.name_any();
    output::note(format_args!("pod {}/{name}", pod.namespace().unwrap_or_default()));
    let with_titles = names.len() > 1;
    for container in names {
        if with_titles {
            print(&format!("==> {container} <==\n")).context("the log cannot be printed")?;
        }
        let params = LogParams {
            container: Some(container.clone()),
            follow: flags.follow,
            ..LogParams::default()
        };
        match pods.log_stream(&name, &params).await {
            Ok(log) => {
                let mut lines = log.lines();
                while let Some(line) = lines.try_next().await.context("the log breaks off")? {
                    print(&format!("{line}\n")).context("the log cannot be printed")?;
                }
            }
            // The API server says so of a container that has not started.
            Err(error) if Answer::of(&error) == Answer::Invalid => {
                output::note(format_args!("{container}: {}", brief(&error)));
            }
            Err(error) => bail!("the log of {container} cannot be read: {}", brief(&error)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::*;

    #[tokio::test]
    async fn the_containers_are_printed_in_their_order_and_one_that_has_not_started_is_only_noted() {
        let transport = tower::service_fn(|request: Request<Body>| async move {
            let (code, text) = match request.uri().query().unwrap_or_default() {
                query if query.contains("container=drain") => {
                    (200, "evicting shop/web-0\nevicted\n".to_owned())
                }
                _ => {
                    let message = "container \"upgrade\" in pod \"p\" is waiting to start";
                    let status =
                        json!({ "kind": "Status", "status": "Failure", "code": 400, "message": message });
                    (400, status.to_string())
                }
            };
            Ok::<_, BoxError>(
                Response::builder()
                    .status(code)
                    .body(Body::from(text.into_bytes()))?,
            )
        });
        let pods = Api::<Pod>::namespaced(Client::new(transport, "n"), "n");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n" },
            "spec": { "initContainers": [{ "name": "drain" }], "containers": [{ "name": "upgrade" }] },
        }))
        .unwrap();
        let flags = |container: Option<&str>| Flags {
            plan: "plan".to_owned(),
            node: Some("node".to_owned()),
            container: container.map(str::to_owned),
            follow: false,
            place: ClusterFlags::default(),
        };
        let mut seen = String::new();
        let mut print = |text: &str| {
            seen.push_str(text);
            Ok(())
        };
        show(&pods, &pod, &flags(None), &mut print).await.unwrap();
        assert_eq!(
            seen,
            "==> drain <==\nevicting shop/web-0\nevicted\n==> upgrade <==\n"
        );
        let unknown = show(&pods, &pod, &flags(Some("drian")), &mut |_: &str| Ok(())).await;
        let message = unknown.unwrap_err().to_string();
        assert!(message.contains("did you mean drain?"), "{message}");
    }
}
