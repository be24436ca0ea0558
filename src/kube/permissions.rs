//! Checks permissions of this process with access reviews.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Error};

/// A permission.
pub(crate) struct Need {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
}

/// Whether this process has a permission, in a namespace or in all.
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

/// A missing permission, in RBAC's terms.
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
