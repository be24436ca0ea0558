//! Waiting until the API server's authorizer knows the roles of a ctx. It reads them from a cache that is some
//! milliseconds behind, on a busy machine some hundreds: whoever asks sooner is refused, and a test that counts refusals
//! would find some that no manifest is to blame for.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use super::cluster::create;
use crate::testenv::wait::{self, SOON};

/// Waits until every role that `objects` bind is in force for every service account that they bind it to.
pub(super) async fn wait_until_in_force(client: &Client, objects: &[Value]) {
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    for binding in objects.iter().filter(|object| object["roleRef"].is_object()) {
        let namespace = text(&binding["metadata"]["namespace"]);
        let bound = objects.iter().find(|object| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && (object["kind"] == "ClusterRole" || object["metadata"]["namespace"] == namespace.as_str())
        });
        let rule = bound.map(|role| &role["rules"][0]);
        let Some(rule) = rule.filter(|rule| rule.is_object()) else {
            continue;
        };
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            let review = review(subject, rule, &namespace);
            wait::holds("the roles are in force", async || {
                let answer: SubjectAccessReview = create(&reviews, review.clone()).await;
                answer.status.is_some_and(|status| status.allowed)
            })
            .await;
        }
    }
}

/// Whether that service account may do the first thing that the rule allows.
fn review(subject: &Value, rule: &Value, namespace: &str) -> Value {
    let (resource, subresource) = match text(&rule["resources"][0]).split_once('/') {
        Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
        None => (text(&rule["resources"][0]), String::new()),
    };
    let of = text(&subject["namespace"]);
    json!({
        "spec": {
            "user": format!("system:serviceaccount:{of}:{}", text(&subject["name"])),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{of}"), "system:authenticated"],
            "resourceAttributes": {
                "namespace": namespace,
                "verb": rule["verbs"][0],
                "group": rule["apiGroups"][0],
                "resource": resource,
                "subresource": subresource,
                "name": text(&rule["resourceNames"][0]),
            },
        },
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
