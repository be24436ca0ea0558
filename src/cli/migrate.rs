//! `refit migrate --check`: what changes on a cluster that runs system-upgrade-controller.

mod read;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use super::channel_access::ChannelFlags;
use super::cluster::Connection;
use super::output_format::{OutputFormat, any_of};
use super::target::with_client;
use super::{USAGE, output};
use read::{ReadCluster, denied};
use refit_cluster::kube::brief;
use refit_offline::migrate::Permission;
use refit_offline::migrate::permissions::needed;
use refit_offline::migrate::{Finding, Reading, Severity, channels, check};
use refit_rehearse::words::pluralized;

pub(super) const EXAMPLES: &str = "Examples:
  refit migrate --check
      the cluster of the current context
  refit migrate --check --namespace cattle-system --online
      with the system-upgrade-controller of Rancher, and requests to the channels of the Plans
  refit migrate --check -o json | jq -r '.findings[] | select(.severity == \"action\") | .object'
      in CI: what needs an action
  kubectl get deployments,configmaps,plans,jobs,nodes,crds -A -o yaml > cluster.yaml
  refit migrate --check --snapshot cluster.yaml
      without access to the cluster, and without its permissions";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Report only, as without this flag
    #[arg(long)]
    check: bool,

    /// Namespace of system-upgrade-controller and of its Plans
    #[arg(long, short = 'n', value_name = "NAME", default_value = "system-upgrade")]
    namespace: String,

    /// Name of system-upgrade-controller: the label of its Jobs, and its Lease
    #[arg(long, value_name = "NAME", default_value = "system-upgrade-controller")]
    name: String,

    /// File with the objects of the cluster, as kubectl prints them, instead of a cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    snapshot: Option<String>,

    /// Query the channels as well, and compare the versions with those of the Plans
    #[arg(long)]
    online: bool,

    /// Format of the report
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Json, OutputFormat::Yaml]))]
    output: OutputFormat,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    channels: ChannelFlags,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (read, missing) = match read(flags) {
        Ok(read) => read,
        Err(error) => {
            output::error(output::error_chain(&error));
            return Ok(ExitCode::from(USAGE));
        }
    };
    let mut reading = read.reading(&flags.namespace, &flags.name);
    reading.missing = missing;
    if flags.online {
        let asked = flags.channels.ask(channels(&reading))?;
        let answers = asked.into_iter().map(|(channel, answer)| {
            let version = answer.map_err(|why| why.to_string()).and_then(|offer| {
                let newest = offer.newest().map(|newest| newest.version.clone());
                newest.ok_or_else(|| "it gives no version".to_owned())
            });
            (channel, version)
        });
        reading.answers = answers.collect();
    }
    let found = check(&reading);
    match flags.output {
        OutputFormat::Json => output::json(&format!("{:#}\n", report(flags, &found))),
        OutputFormat::Yaml => output::data(&serde_saphyr::to_string(&report(flags, &found))?),
        _ => output::text(&paragraphs(&found)),
    }
    .context("the report cannot be printed")?;
    read.errors.iter().for_each(output::error);
    if flags.snapshot.is_some() {
        output::note("permissions are not checked: only the API server of the cluster knows them");
    }
    output::note(summary(&reading, &found));
    Ok(if !read.errors.is_empty() {
        ExitCode::from(USAGE)
    } else if found.iter().any(|one| one.severity < Severity::Note) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Each finding: its severity, the object and what changes, and below it what to do.
fn paragraphs(found: &[Finding]) -> String {
    let lines = found.iter().map(|one| {
        let [object, change, remedy] =
            [&one.object, &one.change, &one.remedy].map(|text| output::one_line(text));
        format!("{}: {object}: {change}\n  {remedy}\n", one.severity.word())
    });
    lines.collect()
}

/// What was read, and the permissions that an account lacks.
fn read(flags: &Flags) -> anyhow::Result<(ReadCluster, Vec<Permission>)> {
    if let Some(file) = &flags.snapshot {
        return Ok((ReadCluster::of_file(file, &flags.namespace)?, Vec::new()));
    }
    with_client(&flags.connection, async |client| {
        let mut read = ReadCluster::of_cluster(&client, &flags.namespace).await?;
        let needed = needed(&read.reading(&flags.namespace, &flags.name));
        let missing = denied(&client, &flags.namespace, needed).await;
        let missing = missing.unwrap_or_else(|error| {
            let why =
                "permissions cannot be checked, for which this account needs to create subjectaccessreviews";
            read.errors.push(format!("{why}: {}", brief(&error)));
            Vec::new()
        });
        Ok((read, missing))
    })
}

fn counts(found: &[Finding]) -> [usize; 3] {
    [Severity::Action, Severity::Change, Severity::Note]
        .map(|severity| found.iter().filter(|one| one.severity == severity).count())
}

fn report(flags: &Flags, found: &[Finding]) -> serde_json::Value {
    let [actions, changes, notes] = counts(found);
    json!({
        "namespace": flags.namespace,
        "controller": flags.name,
        "actions": actions,
        "changes": changes,
        "notes": notes,
        "findings": found,
    })
}

fn summary(reading: &Reading<'_>, found: &[Finding]) -> String {
    let [actions, changes, notes] = counts(found);
    format!(
        "{}, {}, {}: {}, {}, {}",
        pluralized(reading.plans.len(), "Plan"),
        pluralized(reading.jobs.len(), "Job"),
        pluralized(reading.nodes.len(), "node"),
        pluralized(actions, "action"),
        pluralized(changes, "change"),
        pluralized(notes, "note")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_feed_in_a_finding_forges_no_other() {
        let finding = Finding {
            severity: Severity::Action,
            rule: "rule",
            object: "Plan a".to_owned(),
            change: "a change\naction: Plan b".to_owned(),
            remedy: "nothing\nat all".to_owned(),
        };
        assert_eq!(
            paragraphs(&[finding]),
            "action: Plan a: a change\\naction: Plan b\n  nothing\\nat all\n"
        );
        assert_eq!(paragraphs(&[]), "");
    }
}
