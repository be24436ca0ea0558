//! The `ConfigMap` `refit`. Without the permission there are no limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::{NotifyConfig, Observer};
use crate::watches::{Named, News, Permission, Subject, named};
use refit_api::limits::NAME;
use refit_cluster::kube::permissions::{Need, Scope};
use refit_cluster::kube::watch::Selection;
use refit_rollout::{GlobalLimits, Observation};

const NEED: Need = Need::new("", "configmaps", Scope::Namespace, &["list", "watch"]);

impl Observer {
    pub(crate) async fn limits(self) {
        let map = Subject {
            selection: Selection {
                fields: Some(format!("metadata.name={NAME}")),
                ..self.all::<ConfigMap>(true)
            },
            permission: Some(Permission {
                need: NEED,
                namespace: self.namespace.clone(),
                // By name, because the shipped Role grants the verbs for this name only.
                name: Some(NAME),
            }),
            ..Subject::default()
        };
        let (mut map_now, mut is_known) = (named::<ConfigMap>(), false);
        let limits = |news| {
            let limits = match news {
                News::Change(change) => match map_now(change)? {
                    Named::There(map) => GlobalLimits::Present(data(map)),
                    Named::Absent(_) | Named::Deleted => GlobalLimits::Absent,
                    Named::Unreadable(unreadable) => GlobalLimits::Unreadable(unreadable.why),
                },
                News::NotPermitted => {
                    tracing::warn!(
                        namespace = self.namespace,
                        "the controller may not list and watch the ConfigMap refit, so its limits for all Plans do not hold; apply \
                         deploy/rbac.yaml to allow it"
                    );
                    GlobalLimits::Absent
                }
                // Without any answer so far no node starts, and Plans say why. What is known stays until the next answer.
                News::Failed(_, why) if !is_known => {
                    return Some(Observation::Limits(GlobalLimits::Unreadable(why)));
                }
                News::Failed(..) | News::Watching => return None,
            };
            is_known = true;
            match &limits {
                GlobalLimits::Absent => drop(self.notify.send_replace(NotifyConfig::default())),
                GlobalLimits::Present(data) => drop(self.notify.send_replace(NotifyConfig::of(data))),
                // What was configured stays.
                GlobalLimits::Unreadable(_) => {}
            }
            Some(Observation::Limits(limits))
        };
        self.follow(map, limits).await;
    }
}

/// The keys and values. A binary value is not valid for any key.
fn data(map: ConfigMap) -> BTreeMap<String, String> {
    let binary = map.binary_data.into_iter().flatten();
    let mut data: BTreeMap<String, String> = map.data.unwrap_or_default();
    data.extend(binary.map(|(key, _)| (key, String::new())));
    data
}
