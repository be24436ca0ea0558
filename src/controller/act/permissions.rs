//! Asks the API server, before anything is begun, whether this controller may do what a roll-out takes.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Error};

use crate::rollout::Missing;

/// One thing that may be allowed.
pub(crate) struct Need {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
}

/// What a roll-out takes, lists and watches aside: they are not worth a question until one of them is refused.
const NEEDS: &[Need] = &[
    Need {
        group: "upgrade.cattle.io",
        resource: "plans",
        subresource: "status",
        namespaced: true,
        verbs: &["patch"],
    },
    Need {
        group: "batch",
        resource: "jobs",
        subresource: "",
        namespaced: true,
        verbs: &["create", "patch", "delete"],
    },
    Need {
        group: "",
        resource: "nodes",
        subresource: "",
        namespaced: false,
        verbs: &["patch"],
    },
    Need {
        group: "",
        resource: "events",
        subresource: "",
        namespaced: true,
        verbs: &["create"],
    },
];

/// What a Plan takes besides that reboots its nodes.
const REBOOT_NEEDS: &[Need] = &[Need {
    group: "",
    resource: "pods",
    subresource: "",
    namespaced: true,
    verbs: &["get", "create", "delete"],
}];

/// What a Plan takes besides that waits for workloads.
const WORKLOAD_NEEDS: &[Need] = &[
    Need {
        group: "apps",
        resource: "replicasets",
        subresource: "",
        namespaced: false,
        verbs: &["get"],
    },
    Need {
        group: "apps",
        resource: "statefulsets",
        subresource: "",
        namespaced: false,
        verbs: &["get"],
    },
];

/// What is asked for only where there are Plans that take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Some reboot nodes.
    pub reboots: bool,
    /// Some wait for workloads.
    pub workloads: bool,
}

/// The lists and watches without which nobody knows how a roll-out stands.
const EYES: &[Need] = &[
    Need {
        group: "",
        resource: "nodes",
        subresource: "",
        namespaced: false,
        verbs: &["list", "watch"],
    },
    Need {
        group: "",
        resource: "pods",
        subresource: "",
        namespaced: true,
        verbs: &["list"],
    },
    Need {
        group: "",
        resource: "secrets",
        subresource: "",
        namespaced: true,
        verbs: &["list", "watch"],
    },
    Need {
        group: "batch",
        resource: "jobs",
        subresource: "",
        namespaced: true,
        verbs: &["list", "watch"],
    },
    Need {
        group: "upgrade.cattle.io",
        resource: "plans",
        subresource: "",
        namespaced: true,
        verbs: &["list", "watch"],
    },
];

async fn look(client: &Client, namespace: &str, need: &Need, list: &mut Vec<String>) -> Result<(), Error> {
    for verb in need.verbs {
        if !may(client, need.namespaced.then_some(namespace), need, verb).await? {
            list.push(phrase(need, verb, namespace));
        }
    }
    Ok(())
}

/// What is missing. `blind`: lists and watches are asked for, too.
pub(super) async fn ask(
    client: &Client,
    namespace: &str,
    blind: bool,
    wishes: Wishes,
) -> Result<Missing, Error> {
    let mut missing = Missing {
        knows_reboots: wishes.reboots,
        knows_workloads: wishes.workloads,
        ..Missing::default()
    };
    for need in NEEDS.iter().chain(EYES.iter().filter(|_| blind)) {
        let list = match need.resource {
            "secrets" => &mut missing.for_secrets,
            _ => &mut missing.for_all,
        };
        look(client, namespace, need, list).await?;
    }
    for need in REBOOT_NEEDS.iter().filter(|_| wishes.reboots) {
        look(client, namespace, need, &mut missing.for_reboots).await?;
    }
    for need in WORKLOAD_NEEDS.iter().filter(|_| wishes.workloads) {
        look(client, namespace, need, &mut missing.for_workloads).await?;
    }
    Ok(missing)
}

/// What the log says of it.
pub(super) fn sentence(missing: &Missing) -> String {
    let mut parts = Vec::new();
    if !missing.for_all.is_empty() {
        parts.push(format!("no node is started: {}", missing.for_all.join(", ")));
    }
    if !missing.for_secrets.is_empty() {
        let what = missing.for_secrets.join(", ");
        parts.push(format!("no node of a Plan with secrets is started: {what}"));
    }
    if !missing.for_reboots.is_empty() {
        let what = missing.for_reboots.join(", ");
        parts.push(format!("no node of a Plan that reboots is started: {what}"));
    }
    if !missing.for_workloads.is_empty() {
        let what = missing.for_workloads.join(", ");
        parts.push(format!(
            "no node of a Plan that waits for workloads is started: {what}"
        ));
    }
    format!("MissingPermission: {}", parts.join("; "))
}

/// Whether pods may be watched; system-upgrade-controller's roles let them be listed only.
pub async fn may_watch_pods(client: &Client, namespace: &str) -> Result<bool, Error> {
    let pods = Need {
        group: "",
        resource: "pods",
        subresource: "",
        namespaced: true,
        verbs: &[],
    };
    may(client, Some(namespace), &pods, "watch").await
}

/// Whether the one who asks may do that, in a namespace or in all.
pub(crate) async fn may(
    client: &Client,
    namespace: Option<&str>,
    need: &Need,
    verb: &str,
) -> Result<bool, Error> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: text(need.group),
                resource: text(need.resource),
                subresource: text(need.subresource),
                namespace: namespace.map(str::to_owned),
                verb: text(verb),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::<SelfSubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// What is missing, in RBAC's words.
pub(crate) fn phrase(need: &Need, verb: &str, namespace: &str) -> String {
    let mut resource = need.resource.to_owned();
    if !need.group.is_empty() {
        resource = format!("{resource}.{}", need.group);
    }
    if !need.subresource.is_empty() {
        resource = format!("{resource}/{}", need.subresource);
    }
    let place = if need.namespaced {
        format!(" in namespace {namespace}")
    } else {
        String::new()
    };
    format!("{verb} {resource}{place}")
}
