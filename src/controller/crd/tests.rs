//! Registration with an API server in memory, in paused time; and the overlay alone.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// An API server for one CRD.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    crd: Option<Value>,
    version: u64,
    /// Verbs that get 403.
    forbidden: Vec<&'static str>,
    /// Changes by others just before the next writes, each applied once.
    meanwhile: Vec<fn(&mut Self)>,
    writes: Vec<String>,
    /// Number of GETs until a new or changed CRD is established.
    slow: u32,
}

impl State {
    fn store(&mut self, mut crd: Value) -> Value {
        self.version += 1;
        crd["metadata"]["resourceVersion"] = json!(self.version.to_string());
        crd["metadata"]["uid"] = json!("u");
        // Defaults that an API server sets.
        crd["spec"]["conversion"] = json!({"strategy": "None"});
        crd["status"] = json!({
            "storedVersions": ["v1"],
            "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
        });
        self.crd = Some(crd.clone());
        crd
    }

    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let verb = match *method {
            Method::GET => "get",
            Method::POST => "create",
            _ => "update",
        };
        let one = format!("{PATH}/{}", plan_crd::NAME);
        assert_eq!(path, if verb == "create" { PATH } else { &one });
        if self.forbidden.contains(&verb) {
            let message = format!("customresourcedefinitions is forbidden: cannot {verb}");
            return failure(403, "Forbidden", &message);
        }
        if verb == "get" {
            let Some(mut crd) = self.crd.clone() else {
                return failure(404, "NotFound", "not found");
            };
            if self.slow > 0 {
                self.slow -= 1;
                crd["status"]["conditions"] =
                    json!([{"type": "NamesAccepted", "status": "False", "message": "taken"}]);
            }
            return (200, crd);
        }
        if !self.meanwhile.is_empty() {
            self.meanwhile.remove(0)(self);
        }
        let sent: Value = serde_json::from_slice(body).unwrap();
        let current = self
            .crd
            .as_ref()
            .map(|crd| crd["metadata"]["resourceVersion"].clone());
        match (verb, current) {
            ("create", Some(_)) => failure(409, "AlreadyExists", "already exists"),
            ("update", None) => failure(404, "NotFound", "not found"),
            ("update", Some(current)) if current != sent["metadata"]["resourceVersion"] => {
                failure(409, "Conflict", "modified")
            }
            _ => {
                self.writes.push(verb.to_owned());
                (200, self.store(sent))
            }
        }
    }
}

fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}

impl Server {
    fn holding(crd: Value) -> Self {
        let server = Self::default();
        server.state(|state| drop(state.store(crd)));
        server
    }

    fn state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let (code, answer) =
                    server.state(|state| state.answer(&parts.method, parts.uri.path(), &body));
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(answer)?)
            }
        });
        Client::new(service, "default")
    }

    async fn register(&self, manage: bool) -> Result<Registered, CrdError> {
        register(self.client(), manage).await
    }

    fn writes(&self) -> Vec<String> {
        self.state(|state| state.writes.clone())
    }

    fn crd(&self) -> Value {
        self.state(|state| state.crd.clone().unwrap())
    }
}

fn ours() -> Value {
    serde_json::to_value(plan_crd::plans()).unwrap()
}

/// The definition of an older release, or of system-upgrade-controller: without `suspend`, with another description.
fn older() -> Value {
    let mut crd = ours();
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"].as_object_mut().unwrap().remove("suspend");
    spec["description"] = json!("older");
    crd["metadata"]["annotations"] = json!({"meta.helm.sh/release-name": "suc"});
    crd
}

/// Stores a CRD, or deletes it, after a while.
fn later(server: &Server, seconds: u64, crd: Option<Value>) {
    let server = server.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(seconds)).await;
        server.state(|state| match crd {
            Some(crd) => drop(state.store(crd)),
            None => state.crd = None,
        });
    });
}

/// A server that refuses writes.
fn read_only(server: Server) -> Server {
    server.state(|state| state.forbidden = vec!["create", "update"]);
    server
}

fn property<'a>(crd: &'a Value, name: &str) -> &'a Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][name]
}

#[tokio::test(start_paused = true)]
async fn an_absent_crd_is_created_and_waited_for() {
    let server = Server::default();
    server.state(|state| state.slow = 3);
    let start = Instant::now();
    assert_eq!(server.register(true).await.unwrap(), Registered::Created);
    assert_eq!(server.writes(), ["create"]);
    assert_eq!(start.elapsed(), 3 * POLL_INTERVAL);
    assert!(plan_crd::missing_fields(&serde_json::from_value(server.crd()).unwrap()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_is_ours_is_not_written() {
    let bare = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": plan_crd::NAME}, "spec": {},
    });
    for (crd, first, writes) in [
        (ours(), Registered::Unchanged, &[][..]),
        (older(), Registered::Updated, &["update"]),
        (bare, Registered::Updated, &["update"]),
    ] {
        let server = Server::holding(crd);
        assert_eq!(server.register(true).await.unwrap(), first);
        assert_eq!(server.register(true).await.unwrap(), Registered::Unchanged);
        assert_eq!(server.writes(), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_crd_gets_our_fields_and_keeps_its_annotations() {
    let server = Server::holding(older());
    assert_eq!(server.register(true).await.unwrap(), Registered::Updated);
    let crd = server.crd();
    assert_eq!(property(&crd, "suspend")["type"], "boolean");
    assert_eq!(
        crd["metadata"]["annotations"],
        json!({"meta.helm.sh/release-name": "suc"})
    );
}

#[tokio::test(start_paused = true)]
async fn a_field_of_a_newer_release_is_not_taken_away() {
    let mut newer = ours();
    let spec = &mut newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["later"] = json!({"type": "array", "items": {"type": "string"}});
    spec["properties"]["drain"]["properties"]["patience"] = json!({"type": "string"});
    spec["properties"]["version"]["maxLength"] = json!(3);
    let server = Server::holding(newer);
    // It is updated because of the constraint, which refit does not have.
    assert_eq!(server.register(true).await.unwrap(), Registered::Updated);
    let crd = server.crd();
    assert_eq!(
        property(&crd, "later"),
        &json!({"type": "array", "items": {"type": "string"}})
    );
    assert_eq!(
        property(&crd, "drain")["properties"]["patience"]["type"],
        "string"
    );
    assert_eq!(property(&crd, "version").get("maxLength"), None);
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_others_change_meanwhile_is_registered_all_the_same() {
    let server = Server::default();
    let stored: fn(&mut State) = |state| drop(state.store(older()));
    server.state(|state| state.meanwhile = vec![stored, stored, |state| state.crd = None]);
    // AlreadyExists, then a conflict, then a deletion, then no interference.
    assert_eq!(server.register(true).await.unwrap(), Registered::Created);
    assert_eq!(server.writes(), ["create"]);
}

#[tokio::test(start_paused = true)]
async fn a_crd_registration_that_always_conflicts_fails() {
    let server = Server::holding(older());
    let stored: fn(&mut State) = |state| drop(state.store(older()));
    server.state(|state| state.meanwhile = vec![stored; 20]);
    let error = server.register(true).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "customresourcedefinitions plans.upgrade.cattle.io is overwritten by another client each time; find and stop that client"
    );
}

#[tokio::test(start_paused = true)]
async fn without_permission_a_sufficient_crd_is_used() {
    let mut other = ours();
    other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("in other words");
    let server = read_only(Server::holding(other));
    assert_eq!(server.register(true).await.unwrap(), Registered::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn without_permission_a_crd_that_lacks_our_fields_is_an_error_that_says_what_to_do() {
    let server = read_only(Server::holding(older()));
    assert_eq!(
        server.register(true).await.unwrap_err().to_string(),
        "customresourcedefinitions plans.upgrade.cattle.io lacks the fields spec.suspend, and the controller may not update it: apply the output of `refit crd`, or grant the verb update, as deploy/overlays/manage-crd does"
    );
}

#[tokio::test(start_paused = true)]
async fn without_permission_an_absent_crd_is_waited_for() {
    let server = read_only(Server::default());
    assert_eq!(
        server.register(true).await.unwrap_err().to_string(),
        "customresourcedefinitions plans.upgrade.cattle.io does not exist, and the controller may not create it: apply the output of `refit crd`, or grant the verb create, as deploy/overlays/manage-crd does"
    );
    later(&server, 30, Some(ours()));
    assert_eq!(server.register(true).await.unwrap(), Registered::MayNotCreate);
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_is_not_ours_to_manage_is_only_waited_for() {
    let server = Server::default();
    later(&server, 59, Some(older()));
    assert_eq!(server.register(false).await.unwrap(), Registered::Unchanged);
    assert!(server.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_is_never_established_is_an_error() {
    let server = Server::default();
    server.state(|state| state.slow = 1000);
    let start = Instant::now();
    assert_eq!(
        server.register(true).await.unwrap_err().to_string(),
        "customresourcedefinitions plans.upgrade.cattle.io was not established within 60s: taken"
    );
    assert_eq!(start.elapsed(), ESTABLISHED_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_is_being_deleted_is_created_again_when_it_is_gone() {
    let mut dying = ours();
    dying["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let server = Server::holding(dying);
    later(&server, 5, None);
    assert_eq!(server.register(true).await.unwrap(), Registered::Created);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_to_read_is_named() {
    let server = Server::holding(ours());
    server.state(|state| state.forbidden = vec!["get"]);
    assert_eq!(
        server.register(true).await.unwrap_err().to_string(),
        "cannot get customresourcedefinitions plans.upgrade.cattle.io: customresourcedefinitions is forbidden: cannot get"
    );
}

#[test]
fn other_versions_stay_and_keep_what_is_stored() {
    let mut live = ours();
    live["spec"]["versions"][0]["storage"] = json!(false);
    let v2 = json!({"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    live["spec"]["versions"].as_array_mut().unwrap().push(v2.clone());
    let merged = overlay::crd(&live, &ours());
    assert!(merged == live, "ours laid over itself changed something");

    live["spec"]["versions"] = json!([v2]);
    let merged = overlay::crd(&live, &ours());
    assert_eq!(merged["spec"]["versions"][0], v2);
    assert_eq!(merged["spec"]["versions"][1]["name"], "v1");
    assert_eq!(merged["spec"]["versions"][1]["storage"], false);
}

#[test]
fn a_whole_number_has_one_representation() {
    let written = serde_json::from_str::<Value>(r#"{"a":[0.0,1.5,-3.0,7],"b":1e+300}"#).unwrap();
    assert_eq!(
        overlay::canonical(written).to_string(),
        r#"{"a":[0,1.5,-3,7],"b":1e+300}"#
    );
}
