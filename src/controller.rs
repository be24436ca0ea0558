//! The shell round the core: watches fill the world, `decide` answers, `act` carries it out.

pub mod client;
pub mod crd;
pub mod lease;
pub mod settings;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use tracing::info;

use crate::clock::Clock;
use client::{ApiServer, ClientError, brief};
use crd::CrdError;
use lease::{Elector, Leadership, LeaseLost};
use settings::Settings;

/// Why the controller ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the API server cannot be asked")]
    Client(#[from] ClientError),
    #[error("cannot get namespaces kube-system, whose UID names the cluster: {0}")]
    ClusterId(String),
    #[error("the CRD cannot be used")]
    Crd(#[from] CrdError),
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
}

/// Runs the controller until `shutdown` resolves, or until it cannot go on.
pub async fn run(
    settings: Settings,
    clock: Clock,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let server = ApiServer::find(&settings.api, &settings.proxies).await?;
    let unguarded = server.unguarded()?;
    info!(
        server = server.url(),
        namespace = settings.namespace,
        name = settings.name,
        "starting"
    );
    let mut shutdown = std::pin::pin!(shutdown);
    let start = async {
        let namespaces = Api::<Namespace>::all(unguarded.clone());
        let system = namespaces
            .get("kube-system")
            .await
            .map_err(|error| Error::ClusterId(brief(&error)))?;
        crd::register(unguarded.clone(), settings.manage_crd).await?;
        Ok::<_, Error>(system.uid().unwrap_or_default())
    };
    let cluster_id = tokio::select! {
        started = start => started?,
        () = &mut shutdown => return Ok(()),
    };
    let (leadership, election) = if settings.leader_elect {
        let elector = Elector::new(
            unguarded,
            &settings.namespace,
            &settings.name,
            &settings.identity,
            settings.lease,
            clock,
        );
        (elector.leadership(), Some(elector.start()))
    } else {
        (Leadership::always(), None)
    };
    let _guarded = server.guarded(leadership.clone())?;
    let work = async {
        leadership.wait_until_leader().await;
        info!(cluster = cluster_id, "leading");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = work => {}
        () = leadership.lost() => return Err(LeaseLost { name: settings.name }.into()),
        () = shutdown => {}
    }
    if let Some(election) = election {
        election.release().await;
    }
    Ok(())
}
