//! What only time or a lack of it shows; the rest is told by scenarios that a real API server answers too.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, DeleteParams, ListParams, WatchEvent, WatchParams};
use tokio::time::Instant;

use super::*;
use crate::rehearse::{Options, in_virtual_time};

fn cluster(history: usize) -> Cluster {
    let mut options = Options::new(1, "2026-01-05T09:00:00Z".parse().unwrap());
    options.history = history;
    options.traced = true;
    Cluster::new(options)
}

fn secret(cluster: &Cluster, name: &str) {
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "default" } });
    cluster.create(secret).unwrap();
}

#[test]
fn a_generated_name_that_is_taken_already_is_another_one() {
    in_virtual_time(async {
        let cluster = cluster(2);
        // That no two of so many ends of names are equal is as likely as 12,000² / 2 misses in 27⁵: 1 in 150.
        for _ in 0..12_000 {
            let metadata = json!({ "generateName": "s-", "namespace": "default" });
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata });
            cluster.create(secret).unwrap();
        }
    })
    .unwrap();
}

#[test]
fn a_watch_from_a_forgotten_version_is_told_that_it_has_expired() {
    in_virtual_time(async {
        let cluster = cluster(2);
        for name in ["a", "b", "c", "d"] {
            secret(&cluster, name);
        }
        let api = Api::<Secret>::default_namespaced(cluster.client("test"));
        let mut watch = api.watch(&WatchParams::default(), "3").await.unwrap().boxed();
        let Some(WatchEvent::Error(status)) = watch.try_next().await.unwrap() else {
            panic!("no error")
        };
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        assert!(watch.try_next().await.unwrap().is_none());
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
        let version = api
            .list(&ListParams::default())
            .await
            .unwrap()
            .metadata
            .resource_version
            .unwrap();
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
fn pages_that_were_forgotten_have_expired() {
    in_virtual_time(async {
        let cluster = cluster(10);
        secret(&cluster, "a");
        secret(&cluster, "b");
        let api = Api::<Secret>::default_namespaced(cluster.client("test"));
        let page = api.list(&ListParams::default().limit(1)).await.unwrap();
        assert_eq!(page.items.len(), 1);
        let next = ListParams::default()
            .limit(1)
            .continue_token(&page.metadata.continue_.unwrap());
        assert_eq!(api.list(&next).await.unwrap().items.len(), 1);
        cluster.with(|state| state.store.forget());
        let Err(kube::Error::Api(status)) = api.list(&next).await else {
            panic!("no error")
        };
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    })
    .unwrap();
}

#[test]
fn what_is_not_played_is_refused_and_remembered() {
    in_virtual_time(async {
        let cluster = cluster(10);
        let api = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(cluster.client("test"));
        let Err(kube::Error::Api(status)) = api.list(&ListParams::default()).await else {
            panic!("no error")
        };
        assert_eq!((status.code, status.reason.as_str()), (501, "NotImplemented"));
        let secrets = Api::<Secret>::default_namespaced(cluster.client("test"));
        assert!(secrets.delete("a", &DeleteParams::default()).await.is_err());
        cluster.with(|state| {
            assert_eq!(state.holes().len(), 2, "{:?}", state.holes());
            assert!(state.holes()[0].contains("/configmaps"));
            assert!(state.holes()[1].starts_with("DELETE "));
            assert_eq!(state.trace().len(), 2);
        });
    })
    .unwrap();
}
