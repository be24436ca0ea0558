//! Tests that count requests rely on the audit log.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use refit_api::Plan;

use crate::testenv::context::TestContext;
use crate::testenv::kubeconfig;
use crate::testenv::manifest::Manifests;

#[tokio::test]
async fn a_known_number_of_requests_is_counted_exactly() {
    let ctx = TestContext::with(Manifests::Suc).await;
    let client = kubeconfig::client(ctx.kubeconfig(), "counted").await.unwrap();
    let nodes = Api::<Node>::all(client.clone());
    let plans = Api::<Plan>::namespaced(client.clone(), ctx.namespace());
    let maps = Api::<ConfigMap>::namespaced(client, ctx.namespace());
    for round in 1..=20 {
        nodes.list(&ListParams::default()).await.unwrap();
        assert!(plans.get_opt("no-such-plan").await.unwrap().is_none());
        maps.get_opt("forbidden").await.unwrap_err();
        let two_seconds = WatchParams::default().timeout(1);
        if round == 1 {
            let events: Vec<WatchEvent<Node>> = nodes
                .watch(&two_seconds, "0")
                .await
                .unwrap()
                .try_collect()
                .await
                .unwrap();
            drop(events);
        }
        let requests = ctx.controller_requests().await;
        let expected = BTreeMap::from([
            (("get", "configmaps", 403), round),
            (("get", "plans", 404), round),
            (("list", "nodes", 200), round),
            (("watch", "nodes", 200), 1),
        ]);
        assert_eq!(requests.tally(), expected, "after {round} rounds");
        assert_eq!(requests.forbidden().len(), round);
        assert_eq!(requests.by("counted").0.len(), requests.0.len());
        assert_eq!(requests.writes().count(), 0);
    }
}
