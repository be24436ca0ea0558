//! Behaviour that depends on time; scenarios that a real API server also runs cover the rest.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::time::Instant;

use super::*;
use crate::{Options, in_virtual_time};

fn cluster(history: usize) -> Cluster {
    let mut options = Options::new(1, "2026-01-05T09:00:00Z".parse().unwrap());
    options.history = history;
    Cluster::new(options)
}

fn secret(cluster: &Cluster, name: &str) {
    let metadata = json!({ "name": name, "namespace": "default" });
    cluster
        .create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata }))
        .unwrap();
}

#[test]
fn a_generated_name_that_exists_is_generated_again() {
    in_virtual_time(async {
        let cluster = cluster(2);
        // All of them have different suffixes with a probability of 1 in 150: 12,000² / 2 pairs, 27⁵ suffixes.
        for _ in 0..12_000 {
            let metadata = json!({ "generateName": "s-", "namespace": "default" });
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata });
            cluster.create(secret).unwrap();
        }
    })
    .unwrap();
}

#[test]
fn a_quiet_watch_is_marked_every_minute_and_ends_when_its_time_is_over() {
    in_virtual_time(async {
        let cluster = cluster(10);
        let began = Instant::now();
        let api = Api::<Node>::all(cluster.client("test"));
        let params = WatchParams::default().timeout(290);
        let list = api.list(&ListParams::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let mut watch = api.watch(&params, &version).await.unwrap().boxed();
        let mut marks = 0;
        while let Some(event) = watch.try_next().await.unwrap() {
            assert!(matches!(event, WatchEvent::Bookmark(_)), "{event:?}");
            marks += 1;
        }
        assert_eq!(marks, 4);
        assert_eq!(began.elapsed().as_secs(), 290);
    })
    .unwrap();
}

#[test]
fn a_continue_token_of_a_dropped_list_expires() {
    in_virtual_time(async {
        let cluster = cluster(10);
        secret(&cluster, "a");
        secret(&cluster, "b");
        let api = Api::<Secret>::default_namespaced(cluster.client("test"));
        let page = api.list(&ListParams::default().limit(1)).await.unwrap();
        assert_eq!(page.items.len(), 1);
        let token = page.metadata.continue_.unwrap();
        let next = ListParams::default().limit(1).continue_token(&token);
        assert_eq!(api.list(&next).await.unwrap().items.len(), 1);
        cluster.with(|state| state.store.forget());
        let Err(kube::Error::Api(status)) = api.list(&next).await else {
            panic!("no error")
        };
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    })
    .unwrap();
}
