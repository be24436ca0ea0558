//! The `ConfigMap` `refit`. Its permission is asked for before the watch, so that under roles that lack it nothing is
//! refused; system-upgrade-controller's do.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use super::{NotifyConfig, Observer};
use refit_api::limits::NAME;
use refit_cluster::kube::Answer;
use refit_cluster::kube::brief;
use refit_cluster::kube::permissions::{Need, may_all};
use refit_cluster::kube::watch::{Selection, Watch, WatchEvent};
use refit_rollout::{GlobalLimits, Observation};

/// How long to wait before the permission is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(300);
/// How long to wait after the question failed.
const RETRY: Duration = Duration::from_secs(5);

const NEED: Need = Need {
    group: "",
    resource: "configmaps",
    subresource: "",
    namespaced: true,
    verbs: &["list", "watch"],
};

impl Observer {
    /// Watches the `ConfigMap` `refit`. Without the permission there are no limits.
    pub async fn limits(self) {
        let mut known = false;
        loop {
            // By name, because the shipped Role grants the verbs for this name only.
            match may_all(&self.client, Some(&self.namespace), &NEED, Some(NAME)).await {
                Ok(true) => self.watch_limits(&mut known).await,
                Ok(false) => {
                    known = true;
                    self.notify.send_replace(NotifyConfig::default());
                    tracing::warn!(
                        namespace = self.namespace,
                        "the controller may not list and watch the ConfigMap refit, so its limits for all Plans do not hold; apply \
                         deploy/rbac.yaml to allow it"
                    );
                    self.send(Observation::Limits(GlobalLimits::Absent)).await;
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                Err(error) => {
                    let why = brief(&error);
                    tracing::warn!(error = why, "cannot check the permission for the ConfigMap refit");
                    self.limits_unknown(known, &format!("its permission cannot be checked: {why}"))
                        .await;
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Without any answer so far no node starts, and Plans say why.
    async fn limits_unknown(&self, known: bool, why: &str) {
        if !known {
            self.send(Observation::Limits(GlobalLimits::Unreadable(why.to_owned())))
                .await;
        }
    }

    /// Returns when the permission is gone. What was known stays until the next answer.
    async fn watch_limits(&self, known: &mut bool) {
        let selection = Selection {
            fields: Some(format!("metadata.name={NAME}")),
            ..self.all::<ConfigMap>(true)
        };
        let mut watch = Watch::<ConfigMap>::new(self.client.clone(), selection);
        let mut found = false;
        loop {
            let limits = match watch.next().await {
                WatchEvent::ListStarted => {
                    found = false;
                    continue;
                }
                WatchEvent::ListFinished if found => continue,
                WatchEvent::Watching => continue,
                WatchEvent::ListFinished | WatchEvent::Deleted { .. } => GlobalLimits::Absent,
                WatchEvent::Object(map) => {
                    found = true;
                    let mut data: BTreeMap<String, String> = map.data.unwrap_or_default();
                    // A binary value is not valid for any key.
                    data.extend(
                        map.binary_data
                            .into_iter()
                            .flatten()
                            .map(|(key, _)| (key, String::new())),
                    );
                    GlobalLimits::Present(data)
                }
                WatchEvent::Unreadable(unreadable) => {
                    found = true;
                    GlobalLimits::Unreadable(unreadable.why)
                }
                WatchEvent::VersionsReset => return self.give_up().await,
                WatchEvent::Failed(error) => {
                    let why = error.to_string();
                    tracing::warn!(
                        error = why,
                        "the watch of the ConfigMap refit broke off and starts again"
                    );
                    if error.answer() == Answer::Forbidden {
                        return;
                    }
                    self.limits_unknown(*known, &why).await;
                    continue;
                }
            };
            *known = true;
            match &limits {
                GlobalLimits::Absent => drop(self.notify.send_replace(NotifyConfig::default())),
                GlobalLimits::Present(data) => drop(self.notify.send_replace(NotifyConfig::of(data))),
                // What was configured stays.
                GlobalLimits::Unreadable(_) => {}
            }
            self.send(Observation::Limits(limits)).await;
        }
    }
}
