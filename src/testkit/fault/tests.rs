//! How requests are parsed, and which of them rules apply to.

use http::Method;

use super::{ApiRequest, Effect, Moment, Rule, Rules};

fn api_request(method: &Method, uri: &str) -> String {
    let api_request = ApiRequest::of(method, &uri.parse().unwrap());
    let ApiRequest {
        verb,
        group,
        resource,
        namespace,
        name,
    } = api_request;
    format!("{verb} {group}/{resource} {namespace}/{name}")
}

/// Requests, and verb, group, resource, namespace and name of each.
const READ: &str = "\
GET /api/v1/nodes is list /nodes /
GET /api/v1/nodes?limit=500&resourceVersion=0 is list /nodes /
GET /api/v1/nodes?allowWatchBookmarks=true&watch=true is watch /nodes /
GET /api/v1/namespaces/x/secrets?watch=true&fieldSelector=metadata.name%3Da is watch /secrets x/a
GET /api/v1/nodes/a.b is get /nodes /a.b
PATCH /api/v1/nodes/a/status?fieldManager=x is patch /nodes/status /a
POST /apis/batch/v1/namespaces/n/jobs? is create batch/jobs n/
DELETE /apis/batch/v1/namespaces/n/jobs/j is delete batch/jobs n/j
DELETE /apis/batch/v1/namespaces/n/jobs is deletecollection batch/jobs n/
PUT /apis/coordination.k8s.io/v1/namespaces/n/leases/l is update coordination.k8s.io/leases n/l
POST /api/v1/namespaces/n/pods/p/eviction is create /pods/eviction n/p
GET /api/v1/namespaces/n is get /namespaces /n
PUT /api/v1/namespaces/n/finalize is update /namespaces/finalize /n
GET /apis/upgrade.cattle.io/v1/plans is list upgrade.cattle.io/plans /
GET /readyz is get / /
GET /apis is get / /
GET /apis/batch/v1 is get batch/ /";

#[test]
fn a_request_is_parsed_as_the_api_server_parses_it() {
    for line in READ.lines() {
        let (request, expected) = line.split_once(" is ").unwrap();
        let (method, uri) = request.split_once(' ').unwrap();
        assert_eq!(api_request(&method.parse().unwrap(), uri), expected, "{line}");
    }
}

#[test]
fn leases_events_and_access_reviews_are_no_writes() {
    let is_write = |method: &Method, uri: &str| ApiRequest::of(method, &uri.parse().unwrap()).is_write();
    assert!(is_write(&Method::POST, "/apis/batch/v1/namespaces/n/jobs"));
    assert!(is_write(&Method::PATCH, "/api/v1/nodes/a"));
    assert!(!is_write(&Method::GET, "/api/v1/nodes/a"));
    assert!(!is_write(
        &Method::PUT,
        "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
    ));
    assert!(!is_write(&Method::POST, "/api/v1/namespaces/n/events"));
    assert!(!is_write(
        &Method::POST,
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    ));
}

/// The numbers of those of 60 writes that a rule has an effect on.
fn effects(seed: u64, rule: Rule) -> Vec<u64> {
    let mut rules = Rules::new(seed);
    rules.add(rule);
    let request = ApiRequest::of(&Method::PATCH, &"/api/v1/nodes/a".parse().unwrap());
    (1..=60).filter(|_| rules.apply(&request).is_some()).collect()
}

#[test]
fn a_rule_applies_to_the_requests_that_it_counts() {
    assert_eq!(effects(0, Rule::write().nth(3).answer(500)), [3]);
    assert_eq!(
        effects(0, Rule::on("patch", "nodes").every(20).answer(500)),
        [20, 40, 60]
    );
    assert_eq!(
        effects(0, Rule::on("*", "*").after(4).times(2).overtake()),
        [5, 6]
    );
    assert_eq!(effects(0, Rule::write().named("a").once().answer(500)), [1]);
    assert_eq!(effects(0, Rule::write().named("b").answer(500)), [0; 0]);
    assert_eq!(effects(0, Rule::on("create", "nodes").answer(500)), [0; 0]);
}

#[test]
fn the_seed_determines_chance() {
    let one = effects(1, Rule::write().chance(0.3).answer(500));
    assert_eq!(one, effects(1, Rule::write().chance(0.3).answer(500)));
    assert_ne!(one, effects(2, Rule::write().chance(0.3).answer(500)));
    assert!((8..=30).contains(&one.len()), "{one:?} of 60 at 30 %");
}

#[test]
fn the_first_rule_decides_and_the_others_count_along() {
    let mut rules = Rules::new(0);
    rules.add(Rule::write().once().answer(500));
    rules.add(Rule::write().nth(2).kill(Moment::After));
    let request = ApiRequest::of(&Method::PATCH, &"/api/v1/nodes/a".parse().unwrap());
    assert_eq!(rules.apply(&request), Some(Effect::Answer(Moment::Before, 500)));
    assert!(rules.is_pending());
    assert_eq!(rules.apply(&request), Some(Effect::Kill(Moment::After)));
    assert!(!rules.is_pending());
    assert_eq!(rules.apply(&request), None);
}
