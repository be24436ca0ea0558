//! Checks permissions of this process with access reviews.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Error};

#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub scope: Scope,
    pub verbs: &'static [&'static str],
}

/// Where a permission holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For objects that are in no namespace.
    Cluster,
    Namespace,
    AllNamespaces,
}

impl Need {
    pub const fn new(
        group: &'static str,
        resource: &'static str,
        scope: Scope,
        verbs: &'static [&'static str],
    ) -> Self {
        Self {
            group,
            resource,
            subresource: "",
            scope,
            verbs,
        }
    }
}

/// Whether this process has a permission, in a namespace or in all.
///
/// # Errors
/// Fails if the API server does not answer the access review, or refuses it.
pub async fn may(client: &Client, namespace: Option<&str>, need: &Need, verb: &str) -> Result<bool, Error> {
    may_for(client, namespace, need, verb, None).await
}

/// Whether this process has a permission for one object, or for all.
///
/// # Errors
/// As [`may`].
async fn may_for(
    client: &Client,
    namespace: Option<&str>,
    need: &Need,
    verb: &str,
    name: Option<&str>,
) -> Result<bool, Error> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        group: text(need.group),
        resource: text(need.resource),
        subresource: text(need.subresource),
        namespace: namespace.map(str::to_owned),
        verb: text(verb),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    allows(client, attributes).await
}

/// Whether this process may read objects of a resource, in a namespace or in all.
///
/// # Errors
/// As [`may`].
pub async fn may_get(
    client: &Client,
    namespace: Option<&str>,
    group: &str,
    resource: &str,
) -> Result<bool, Error> {
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: namespace.map(str::to_owned),
        verb: Some("get".to_owned()),
        ..ResourceAttributes::default()
    };
    allows(client, attributes).await
}

async fn allows(client: &Client, attributes: ResourceAttributes) -> Result<bool, Error> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    // Every account may create this review (ClusterRole `system:basic-user`), so no role of refit has a rule for it.
    let answer = Api::<SelfSubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Whether this process has all verbs of a permission, for one object, or for all.
///
/// # Errors
/// As [`may`].
pub async fn may_all(
    client: &Client,
    namespace: Option<&str>,
    need: &Need,
    name: Option<&str>,
) -> Result<bool, Error> {
    for verb in need.verbs {
        if !may_for(client, namespace, need, verb, name).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a service account has a permission. The API server stores nothing of the review.
///
/// # Errors
/// Fails if the API server does not answer the access review, or if this process may not create one.
pub async fn account_may(
    client: &Client,
    namespace: &str,
    account: &str,
    attributes: ResourceAttributes,
) -> Result<bool, Error> {
    // The API server takes groups only from the spec of the review; an account that authenticates has these three.
    let groups = ["system:serviceaccounts", "system:authenticated"].map(str::to_owned);
    let of_namespace = format!("system:serviceaccounts:{namespace}");
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(groups.into_iter().chain([of_namespace]).collect()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = Api::<SubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// A missing permission, in RBAC's terms.
pub fn phrase(need: &Need, verb: &str, namespace: &str) -> String {
    let mut resource = need.resource.to_owned();
    if !need.group.is_empty() {
        resource = format!("{resource}.{}", need.group);
    }
    if !need.subresource.is_empty() {
        resource = format!("{resource}/{}", need.subresource);
    }
    let place = match need.scope {
        Scope::Cluster => String::new(),
        Scope::Namespace => format!(" in namespace {namespace}"),
        Scope::AllNamespaces => " in all namespaces".to_owned(),
    };
    format!("{verb} {resource}{place}")
}
