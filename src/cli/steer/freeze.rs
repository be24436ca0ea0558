//! `refit freeze` and `refit unfreeze`: the switch for all Plans, the key `freeze` of the `ConfigMap` `refit`.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::super::cluster::{Connection, DryRunFlag};
use super::super::output;
use super::super::target::{ClusterFlags, with_client};
use super::write::whoami;
use refit_api::annotation::signature;
use refit_api::limits::{FREEZE, NAME};
use refit_cluster::clock::Clock;
use refit_cluster::drain::DryRun;
use refit_cluster::kube::{Answer, brief};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct FreezeFlags {
    /// Reason, shown in status and events
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    place: Place,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct Place {
    #[command(flatten)]
    dry_run: DryRunFlag,

    /// Namespace of the controller [default: that of the context, or else system-upgrade]
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

pub(in crate::cli) fn freeze(flags: &FreezeFlags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client: Client| {
        let by = signature(&whoami(&client).await, Clock::system().now());
        let text = flags
            .reason
            .as_ref()
            .map_or_else(|| format!("frozen {by}"), |why| format!("{why} ({by})"));
        set(&client, &flags.place, Some(&text)).await
    })
}

pub(in crate::cli) fn unfreeze(place: &Place) -> anyhow::Result<ExitCode> {
    with_client(&place.connection, async |client: Client| {
        set(&client, place, None).await
    })
}

async fn set(client: &Client, place: &Place, reason: Option<&str>) -> anyhow::Result<ExitCode> {
    let flags = ClusterFlags {
        namespace: place.namespace.clone(),
        all_namespaces: false,
        connection: place.connection.clone(),
    };
    let scope = flags.scope(client, None).await;
    let namespace = scope
        .namespace
        .context("the namespace of the controller is not known")?;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let failed = |what: &str, error: &kube::Error| {
        anyhow!("ConfigMap {namespace}/{NAME} cannot be {what}: {}", brief(error))
    };
    let known = maps.get_opt(NAME).await.map_err(|error| failed("read", &error))?;
    let frozen = known.as_ref().and_then(|map| map.data.as_ref()?.get(FREEZE));
    let dry_run = place.dry_run.dry_run;
    match (reason, frozen) {
        (Some(_), Some(why)) => output::note(format_args!("note: all Plans are frozen already: {why}")),
        (None, None) => output::note("note: Plans are not frozen"),
        (None, Some(_)) | (Some(_), None) if dry_run == DryRun::Client => {}
        _ => {
            let params = PatchParams {
                dry_run: dry_run == DryRun::Server,
                field_manager: Some("refit-cli".to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::Merge(json!({ "data": { FREEZE: reason } }));
            match maps.patch(NAME, &params, &patch).await {
                Err(error) if Answer::of(&error) == Answer::NotFound => {
                    let map = serde_json::from_value(json!({
                        "metadata": { "name": NAME }, "data": { FREEZE: reason },
                    }))?;
                    let params = PostParams {
                        dry_run: dry_run == DryRun::Server,
                        field_manager: Some("refit-cli".to_owned()),
                    };
                    maps.create(&params, &map)
                        .await
                        .map_err(|error| failed("created", &error))?;
                }
                written => drop(written.map_err(|error| failed("changed", &error))?),
            }
        }
    }
    let says = match (reason, frozen) {
        (Some(_), Some(_)) | (None, None) => return Ok(ExitCode::SUCCESS),
        (Some(reason), None) => format!("frozen: {reason}; nodes in progress finish"),
        (None, Some(_)) => "no longer frozen".to_owned(),
    };
    output::text(&format!("configmap/{NAME} {says}{}\n", dry_run.suffix()))
        .context("the result cannot be printed")?;
    Ok(ExitCode::SUCCESS)
}
