//! Finds the Plan and the nodes that a command names.

use anyhow::{anyhow, bail};
use clap::Args;
use kube::Client;
use kube::api::{Api, ListParams};

use super::cluster::{Connection, runtime};
use super::output;
use refit_api::Plan;
use refit_base::names::shortened;
use refit_base::nearest::nearest;
use refit_cluster::clock::Clock;
use refit_cluster::kube::{Answer, brief};
use refit_view::{PlanOverview, Scope, Snapshot};

/// Names in a message.
const MAX_NAMED: usize = 20;
/// Where Plans are by convention, if neither a flag nor the context names a namespace.
const USUAL_NAMESPACE: &str = "system-upgrade";

#[derive(Args, Clone, Debug, Default)]
pub(super) struct ClusterFlags {
    /// Namespace of the Plan [default: that of the context, or else system-upgrade]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub(super) namespace: Option<String>,

    /// Look for Plans in all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,

    #[command(flatten)]
    pub(super) connection: Connection,
}

/// `[namespace/]name`.
fn parts<'a>(namespace: Option<&'a str>, plan: &'a str) -> (Option<&'a str>, &'a str) {
    match plan.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (namespace, plan),
    }
}

impl ClusterFlags {
    /// Where to look for this Plan, or for all Plans. A note says which namespace is meant if nobody has named one.
    pub(super) async fn scope(&self, client: &Client, plan: Option<&str>) -> Scope {
        let (scope, note) = self.choose(client, plan).await;
        if let Some(note) = note {
            output::note(note);
        }
        scope
    }

    /// As [`Self::scope`], without printing the note.
    pub(super) async fn choose(&self, client: &Client, plan: Option<&str>) -> (Scope, Option<String>) {
        let (namespace, name) = parts(self.namespace.as_deref(), plan.unwrap_or_default());
        if namespace.is_some() || self.all_namespaces {
            return (scope(namespace), None);
        }
        let name = plan.map(|_| name);
        let (namespace, why) = match self.connection.namespace() {
            None => (USUAL_NAMESPACE.to_owned(), "as the context names none".to_owned()),
            // The usual one only if that finds the Plan.
            Some(own)
                if own != USUAL_NAMESPACE
                    && !has_plan(client, &own, name).await
                    && has_plan(client, USUAL_NAMESPACE, name).await =>
            {
                let what = if plan.is_some() { "such Plan" } else { "Plan" };
                let why = format!("as {own}, that of the context, has no {what}");
                (USUAL_NAMESPACE.to_owned(), why)
            }
            Some(own) => (own, "that of the context".to_owned()),
        };
        let note = format!("namespace {namespace}, {why}; -n or -A chooses another");
        (scope(Some(&namespace)), Some(note))
    }

    /// Where to look for what belongs to an object that is in no namespace: everywhere, unless a flag says otherwise.
    pub(super) fn everywhere(&self) -> Scope {
        scope(self.namespace.as_deref())
    }
}

fn scope(namespace: Option<&str>) -> Scope {
    Scope {
        namespace: namespace.map(str::to_owned),
        fallback_namespace: USUAL_NAMESPACE.to_owned(),
    }
}

/// Whether there is this Plan, or any, as far as the user may see.
async fn has_plan(client: &Client, namespace: &str, name: Option<&str>) -> bool {
    let plans = Api::<Plan>::namespaced(client.clone(), namespace);
    if let Some(name) = name {
        let plan = plans.get_metadata_opt(name).await;
        return plan.is_ok_and(|plan| plan.is_some());
    }
    let any = plans.list_metadata(&ListParams::default().limit(1)).await;
    any.is_ok_and(|plans| !plans.items.is_empty())
}

pub(super) async fn read(client: &Client, scope: &Scope) -> anyhow::Result<Snapshot> {
    let read = Snapshot::read(client, scope, Clock::system().now()).await;
    read.map_err(|error| unread(&error))
}

/// Only the Plans.
pub(super) async fn read_plans(client: &Client, scope: &Scope) -> anyhow::Result<Snapshot> {
    let read = Snapshot::read_plans(client, scope, Clock::system().now()).await;
    read.map_err(|error| unread(&error))
}

/// Why Plans cannot be read.
fn unread(error: &kube::Error) -> anyhow::Error {
    match error {
        // An empty list is not an error, so the API server does not know the kind.
        error if Answer::of(error) == Answer::NotFound => anyhow!(
            "the cluster has no Plans: its API server does not know plans.{}; install refit, or only the definition: refit crd | \
             kubectl apply -f -",
            refit_api::names::GROUP
        ),
        error => anyhow!("Plans cannot be read: {}", brief(error)),
    }
}

/// The Plan of this name, with or without its namespace.
///
/// # Errors
/// Fails with the names of the Plans that there are.
pub(super) fn find<'a>(snapshot: &'a Snapshot, plan: &str) -> anyhow::Result<PlanOverview<'a>> {
    let (namespace, name) = parts(None, plan);
    let is_there = |one: &&refit_facts::PlanFacts| namespace.is_none_or(|wanted| wanted == one.namespace());
    let there: Vec<_> = snapshot.plans.iter().filter(is_there).collect();
    let found: Vec<_> = there.iter().filter(|one| *one.name == *name).collect();
    match found.as_slice() {
        [one] => Ok(PlanOverview::new(snapshot, one)),
        [] => bail!("{}", unknown("Plan", name, there.iter().map(|one| &*one.name))),
        several => {
            let namespaces: Vec<_> = several.iter().map(|one| one.namespace()).collect();
            bail!(
                "there is a Plan {name} in the namespaces {}: name one with -n",
                namespaces.join(", ")
            )
        }
    }
}

/// Checks that the nodes exist.
///
/// # Errors
/// Fails with the names of the nodes that there are.
pub(super) fn check_nodes(view: &PlanOverview<'_>, nodes: &[String]) -> anyhow::Result<()> {
    let Some(known) = &view.snapshot.nodes else {
        return Ok(());
    };
    match nodes.iter().find(|name| !known.contains_key(*name)) {
        Some(name) => bail!("{}", unknown("Node", name, known.keys().map(String::as_str))),
        None => Ok(()),
    }
}

/// That a name is unknown, and which ones are not.
pub(super) fn unknown<'n>(kind: &str, name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return format!("{kind} {name} not found: there are no {kind}s");
    }
    let meant = nearest(name, known.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!(", did you mean {meant}?"));
    let separator = if meant.is_empty() { ";" } else { "" };
    format!(
        "there is no {kind} {name}{meant}{separator} there are {}",
        shortened(&known, MAX_NAMED)
    )
}

/// Runs `work` with a client. SIGINT ends the process, which writes nothing by halves: each object is one request.
pub(super) fn with_client<T>(
    connection: &Connection,
    work: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async { work(connection.client().await?).await });
    // A name resolution that hangs on its thread would delay the exit.
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn without_a_namespace_it_is_that_of_the_context_or_else_the_usual_one_where_the_plan_is() {
        // An API server on which the Plan p is in this namespace alone.
        let cluster = |namespace: &'static str| {
            let answer = move |request: Request<Body>| async move {
                let is_there = request.uri().path().contains(&format!("/{namespace}/plans/p"));
                let (code, body) = if is_there {
                    let metadata = json!({ "name": "p", "namespace": namespace });
                    (
                        200,
                        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata }),
                    )
                } else {
                    (
                        404,
                        json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no" }),
                    )
                };
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            };
            Client::new(tower::service_fn(answer), "default")
        };
        let folder = tempfile::tempdir().unwrap();
        let flags = |context: &str| {
            let kubeconfig = folder.path().join("config");
            let text = format!(
                "{{current-context: a, contexts: [{{name: a, context: {{cluster: c, user: u{context}}}}}]}}"
            );
            std::fs::write(&kubeconfig, text).unwrap();
            let connection = Connection {
                kubeconfig: Some(kubeconfig),
                ..Connection::default()
            };
            ClusterFlags {
                connection,
                ..ClusterFlags::default()
            }
        };
        let of_team = flags(", namespace: team");
        for (flags, cluster_of, namespace, note) in [
            (&of_team, "team", "team", "that of the context"),
            (
                &of_team,
                "system-upgrade",
                "system-upgrade",
                "as team, that of the context, has no such Plan",
            ),
            (&of_team, "other", "team", "that of the context"),
        ] {
            let (scope, says) = flags.choose(&cluster(cluster_of), Some("p")).await;
            assert_eq!(scope.namespace.as_deref(), Some(namespace), "{cluster_of}");
            assert!(says.unwrap().contains(note), "{cluster_of}");
        }
        let named = of_team.choose(&cluster("team"), Some("other/p")).await;
        assert_eq!((named.0.namespace.as_deref(), named.1), (Some("other"), None));
        let none = flags("").choose(&cluster("team"), Some("p")).await;
        assert_eq!(none.0.namespace.as_deref(), Some(USUAL_NAMESPACE));
        assert!(none.1.unwrap().contains("as the context names none"));
        let all = ClusterFlags {
            all_namespaces: true,
            ..flags("")
        };
        assert_eq!(all.choose(&cluster("team"), Some("p")).await.0.namespace, None);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let known = ["server", "agent"];
        assert_eq!(
            unknown("Plan", "sever", known.into_iter()),
            "there is no Plan sever, did you mean server? there are server, agent"
        );
        assert_eq!(
            unknown("Plan", "x", known.into_iter()),
            "there is no Plan x; there are server, agent"
        );
        assert_eq!(
            unknown("Node", "x", [].into_iter()),
            "Node x not found: there are no Nodes"
        );
    }
}
