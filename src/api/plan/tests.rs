//! Parses what an API server stores: every Plan of `tests/fixtures/schema-cases.yaml` that one admits.

use serde_json::{Value, json};

use super::*;

/// Plans and statuses from an API server, with the description of each case.
fn stored() -> Vec<(String, Value)> {
    let cases: Vec<Value> =
        serde_saphyr::from_str(include_str!("../../../tests/fixtures/schema-cases.yaml")).unwrap();
    let admitted = cases.into_iter().filter(|case| case.get("refused").is_none());
    admitted
        .map(|case| {
            let sent = case
                .get("plan")
                .cloned()
                .unwrap_or_else(|| json!({"status": case["status"]}));
            let stored = case.get("stored").cloned().map_or(sent, |stored| {
                if case.get("status").is_some() {
                    json!({"status": stored})
                } else {
                    stored
                }
            });
            (case["case"].as_str().unwrap().to_owned(), stored)
        })
        .collect()
}

fn with_names(mut plan: Value) -> Value {
    plan["apiVersion"] = json!("upgrade.cattle.io/v1");
    plan["kind"] = json!("Plan");
    plan["metadata"] = json!({"name": "x"});
    plan
}

#[test]
fn whatever_an_api_server_stores_can_be_read_and_written_back_unchanged() {
    let mut compared = 0;
    for (case, stored) in stored() {
        let stored = with_names(stored);
        let plan: Plan =
            serde_json::from_value(stored.clone()).unwrap_or_else(|error| panic!("{case}: {error}"));
        let mut written = serde_json::to_value(&plan).unwrap();
        if stored.get("spec").is_none() {
            assert_eq!(written["spec"], json!({}), "{case}");
            written.as_object_mut().unwrap().remove("spec");
        }
        // refit keeps quantities as text: the number 1 comes back as "1", which is the same to Kubernetes.
        let same = |value: &Value| value.to_string().replace(r#""divisor":"1""#, r#""divisor":1"#);
        assert_eq!(same(&written), same(&stored), "{case}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn a_plan_stored_under_another_schema_is_read_with_what_it_has() {
    let read = |spec: Value| serde_json::from_value::<PlanSpec>(spec).unwrap();
    assert_eq!(read(json!({})), PlanSpec::default());
    let empty = read(json!({"upgrade": {}, "bogus": 1}));
    assert_eq!(empty.upgrade, Some(Box::default()));
    let partial = json!({"upgrade": {"volumes": [{"name": "v"}]}, "secrets": [{}]});
    assert_eq!(read(partial).secrets, Some(vec![SecretSpec::default()]));
}

#[test]
fn a_drain_timeout_is_nanoseconds_of_any_size_or_text() {
    let read = |timeout: Value| {
        serde_json::from_value::<DrainSpec>(json!({"timeout": timeout}))
            .unwrap()
            .timeout
    };
    assert_eq!(
        read(json!(60_000_000_000_i64)),
        Some(DrainTimeout::Nanoseconds(60_000_000_000))
    );
    assert_eq!(read(json!(i64::MIN)), Some(DrainTimeout::Nanoseconds(i64::MIN)));
    assert_eq!(read(json!("60s")), Some(DrainTimeout::Text("60s".to_owned())));
    assert_eq!(read(Value::Null), None);
}
