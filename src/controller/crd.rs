//! The CRD of the Plan: registered at start (S5), and checked on each change.
//!
//! It is written only if the served definition differs in meaning, and is merged with it: annotations, other versions
//! and unknown fields stay. If a field is removed from a schema, the next write of each Plan drops it for good. So
//! while the served one lacks a field of refit, refit writes no Plan and starts no node.

mod overlay;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use refit_api::crd as plan_crd;
use refit_cluster::kube::{Answer, brief};

/// Time limit for the CRD to be established (S5).
const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks until then (S5).
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Number of conflicts with other writers before it is an error.
const WRITE_ATTEMPTS: u32 = 10;

/// The result of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It did not exist.
    Created,
    /// It differed.
    Updated,
    /// It was correct, or someone else manages it and it has all fields.
    Unchanged,
    /// It did not exist, and someone else has created it since.
    MayNotCreate,
}

#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    #[error("cannot {verb} customresourcedefinitions {name}: {message}")]
    Api {
        verb: &'static str,
        name: String,
        message: String,
    },
    #[error(
        "customresourcedefinitions {name} lacks the fields {missing}, and the controller may not update it: apply the output of `refit crd`, or grant the verb update, as deploy/overlays/manage-crd does"
    )]
    Outdated { name: String, missing: String },
    #[error(
        "customresourcedefinitions {name} does not exist, and the controller may not create it: apply the output of `refit crd`, or grant the verb create, as deploy/overlays/manage-crd does"
    )]
    Absent { name: String },
    #[error("customresourcedefinitions {name} was not established within {ESTABLISHED_TIMEOUT:?}: {reason}")]
    NotEstablished { name: String, reason: String },
    #[error(
        "customresourcedefinitions {name} is overwritten by another client each time; find and stop that client"
    )]
    Contended { name: String },
}

/// Ensures that the CRD exists, has refit's fields, and is established. Without `manage` it is only waited for. If
/// writes are forbidden, a CRD with all fields is enough. `client` must be exempt from the leader check.
///
/// # Errors
/// Fails if the CRD is missing or lacks fields and may not be written, is overwritten by another client each time, or
/// is not established in time.
pub async fn register(client: Client, manage: bool) -> Result<Registered, CrdError> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let ours = plan_crd::plans();
    let registrar = Registrar {
        api: Api::all_with(client, &resource),
        name: ours.name_any(),
        ours,
    };
    let deadline = Instant::now() + ESTABLISHED_TIMEOUT;
    let written = if manage {
        registrar.write(deadline).await?
    } else {
        Registered::Unchanged
    };
    registrar.wait(deadline, written).await?;
    Ok(written)
}

/// Reads and writes CRDs as untyped objects, because a PUT must not drop fields of a newer API server.
struct Registrar {
    api: Api<DynamicObject>,
    name: String,
    ours: CustomResourceDefinition,
}

impl Registrar {
    async fn write(&self, deadline: Instant) -> Result<Registered, CrdError> {
        let ours = overlay::canonical(
            serde_json::to_value(&self.ours).map_err(|error| self.broken("create", &error))?,
        );
        for _ in 0..WRITE_ATTEMPTS {
            let Some(live) = self.get().await? else {
                match self.create(&ours).await? {
                    Some(written) => return Ok(written),
                    None => continue,
                }
            };
            if live.metadata.deletion_timestamp.is_some() {
                // An update would not stop the deletion.
                self.wait_until_gone(deadline).await?;
                continue;
            }
            if let Some(written) = self.update(&live, &ours).await? {
                return Ok(written);
            }
        }
        Err(CrdError::Contended {
            name: self.name.clone(),
        })
    }

    /// `None` if another writer was first.
    async fn create(&self, ours: &Value) -> Result<Option<Registered>, CrdError> {
        let object = self.object(ours.clone())?;
        match self.api.create(&PostParams::default(), &object).await {
            Ok(_) => {
                info!(crd = %self.name, "CRD is created");
                Ok(Some(Registered::Created))
            }
            Err(error) if Answer::of(&error) == Answer::Exists => Ok(None),
            // Someone with the permission may create it in a moment.
            Err(error) if Answer::of(&error) == Answer::Forbidden => Ok(Some(Registered::MayNotCreate)),
            Err(error) => Err(self.failed("create", &error)),
        }
    }

    /// `None` if another writer was first.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is put is the object as it was read, with ours laid over it"
    )]
    async fn update(&self, live: &DynamicObject, ours: &Value) -> Result<Option<Registered>, CrdError> {
        let live =
            overlay::canonical(serde_json::to_value(live).map_err(|error| self.broken("get", &error))?);
        let wanted = overlay::crd(&live, ours);
        if wanted == live {
            return Ok(Some(Registered::Unchanged));
        }
        // `wanted` has the resourceVersion that was read, so a write of another client in between is a conflict.
        match self
            .api
            .replace(&self.name, &PostParams::default(), &self.object(wanted)?)
            .await
        {
            Ok(_) => {
                info!(crd = %self.name, "CRD is updated");
                Ok(Some(Registered::Updated))
            }
            Err(error) if matches!(Answer::of(&error), Answer::Conflict | Answer::NotFound) => Ok(None),
            Err(error) if Answer::of(&error) == Answer::Forbidden => {
                let served = serde_json::from_value(live).map_err(|error| self.broken("get", &error))?;
                let missing = plan_crd::missing_fields(&served);
                if !missing.is_empty() {
                    return Err(CrdError::Outdated {
                        name: self.name.clone(),
                        missing: missing.join(", "),
                    });
                }
                warn!(crd = %self.name, "the CRD differs from refit's, and the controller may not update it; it has all of refit's fields");
                Ok(Some(Registered::Unchanged))
            }
            Err(error) => Err(self.failed("update", &error)),
        }
    }

    async fn wait(&self, deadline: Instant, written: Registered) -> Result<(), CrdError> {
        loop {
            let live = self.get().await?;
            let reason = live
                .as_ref()
                .map_or_else(|| "it does not exist".to_owned(), why_not_established);
            if reason.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let name = self.name.clone();
                return Err(if live.is_none() && written == Registered::MayNotCreate {
                    CrdError::Absent { name }
                } else {
                    CrdError::NotEstablished { name, reason }
                });
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn wait_until_gone(&self, deadline: Instant) -> Result<(), CrdError> {
        while self
            .get()
            .await?
            .is_some_and(|live| live.metadata.deletion_timestamp.is_some())
        {
            if Instant::now() >= deadline {
                let reason = "it is being deleted".to_owned();
                return Err(CrdError::NotEstablished {
                    name: self.name.clone(),
                    reason,
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn get(&self) -> Result<Option<DynamicObject>, CrdError> {
        self.api
            .get_opt(&self.name)
            .await
            .map_err(|error| self.failed("get", &error))
    }

    fn object(&self, value: Value) -> Result<DynamicObject, CrdError> {
        serde_json::from_value(value).map_err(|error| self.broken("create", &error))
    }

    fn failed(&self, verb: &'static str, error: &kube::Error) -> CrdError {
        CrdError::Api {
            verb,
            name: self.name.clone(),
            message: brief(error),
        }
    }

    fn broken(&self, verb: &'static str, error: &serde_json::Error) -> CrdError {
        CrdError::Api {
            verb,
            name: self.name.clone(),
            message: error.to_string(),
        }
    }
}

/// Empty if the CRD is established.
fn why_not_established(live: &DynamicObject) -> String {
    let conditions = live.data["status"]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let find = |type_: &str| conditions.iter().find(|condition| condition["type"] == type_);
    if find("Established").is_some_and(|condition| condition["status"] == "True") {
        return String::new();
    }
    let refused = find("NamesAccepted").filter(|condition| condition["status"] == "False");
    let message = refused.and_then(|condition| condition["message"].as_str());
    message.unwrap_or("the API server has not said so").to_owned()
}
