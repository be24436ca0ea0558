//! Versions, history and watches.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::json::{Value, json};

fn secret(name: &str, label: &str) -> Value {
    json!({ "kind": "Secret", "metadata": { "name": name, "namespace": "a", "uid": name, "labels": { "x": label } } })
}

fn write(store: &mut Store, name: &str, label: &str) -> u64 {
    let change = store.commit(Kind::Secret, &Key::new("a", name), Some(secret(name, label)));
    change.version
}

fn watch_events(events: &mut UnboundedReceiver<Event>) -> Vec<(String, String, String)> {
    let events = std::iter::from_fn(|| events.try_recv().ok());
    shown(&events.collect::<Vec<_>>())
}

fn shown(events: &[Event]) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for event in events {
        let event: Value = serde_json::from_slice(&event.line(false)).unwrap();
        let text = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        all.push((
            text("/type"),
            text("/object/metadata/name"),
            text("/object/metadata/resourceVersion"),
        ));
    }
    all
}

fn event(type_: &str, name: &str, version: u64) -> (String, String, String) {
    (type_.to_owned(), name.to_owned(), version.to_string())
}

#[test]
fn every_write_of_any_kind_is_a_version_of_its_own() {
    let mut store = Store::new(10);
    let first = write(&mut store, "a", "1");
    let lease = json!({ "metadata": { "name": "l", "uid": "l" } });
    store.commit(Kind::Lease, &Key::new("", "l"), Some(lease));
    let third = write(&mut store, "a", "2");
    assert_eq!(third, first + 2);
    let stored = store.get(Kind::Secret, &Key::new("a", "a")).unwrap();
    assert_eq!(stored.meta("resourceVersion"), third.to_string());
}

#[test]
fn a_watch_sees_objects_enter_and_leave_its_filter() {
    let mut store = Store::new(10);
    let begin = store.version();
    let filter = Filter::parse(Kind::Secret, Some("a"), "x=1", "").unwrap();
    let (to, mut lines) = unbounded_channel();
    let added = write(&mut store, "a", "1");
    store.watch(Kind::Secret, filter, begin, to).unwrap();
    write(&mut store, "b", "2");
    let changed = write(&mut store, "a", "1");
    let left = write(&mut store, "a", "2");
    let back = write(&mut store, "a", "1");
    let gone = store.commit(Kind::Secret, &Key::new("a", "a"), None).version;
    let expected = [
        event("ADDED", "a", added),
        event("MODIFIED", "a", changed),
        event("DELETED", "a", left),
        event("ADDED", "a", back),
        event("DELETED", "a", gone),
    ];
    assert_eq!(watch_events(&mut lines), expected);
}

#[test]
fn a_compacted_version_cannot_be_watched_from() {
    let mut store = Store::new(2);
    let first = write(&mut store, "a", "1");
    let second = write(&mut store, "a", "2");
    write(&mut store, "a", "3");
    let watch = |store: &mut Store, since| {
        let (to, _lines) = unbounded_channel();
        store.watch(Kind::Secret, Filter::default(), since, to)
    };
    assert_eq!(
        watch(&mut store, first),
        Ok(()),
        "the two changes after it are known"
    );
    write(&mut store, "a", "4");
    assert_eq!(watch(&mut store, first), Err(second));
    store.forget();
    let now = store.version();
    assert_eq!(watch(&mut store, second), Err(now));
    assert_eq!(watch(&mut store, now), Ok(()));
}

#[test]
fn owners_and_nodes_are_indexed_by_the_current_version() {
    let mut store = Store::new(10);
    let pod = |node: &str| {
        json!({
            "metadata": { "name": "p", "namespace": "a", "uid": "p", "ownerReferences": [{ "uid": "job" }] },
            "spec": { "nodeName": node },
        })
    };
    let key = Key::new("a", "p");
    store.commit(Kind::Pod, &key, Some(pod("one")));
    assert_eq!(store.pods_on("one").count(), 1);
    assert_eq!(store.owned_by("job").count(), 1);
    let by_node = Filter::parse(Kind::Pod, None, "", "spec.nodeName=one").unwrap();
    assert_eq!(store.list(Kind::Pod, &by_node).len(), 1);
    store.commit(Kind::Pod, &key, None);
    assert_eq!(store.pods_on("one").count(), 0);
    assert_eq!(store.owned_by("job").count(), 0);
    assert_eq!(store.find("p"), None);
}

#[test]
fn a_field_that_cannot_be_selected_by_is_refused() {
    let status_error = Filter::parse(Kind::Node, None, "", "spec.unschedulable=true").unwrap_err();
    assert_eq!(status_error.code, 400);
    assert!(Filter::parse(Kind::Node, None, "", "metadata.name").is_err());
    let not_a = Filter::parse(Kind::Secret, None, "", "metadata.name!=a").unwrap();
    assert!(!not_a.matches(&Object::new(secret("a", ""), 1)));
    assert!(not_a.matches(&Object::new(secret("b", ""), 1)));
}

#[test]
fn a_watcher_that_reads_late_gets_the_newest_version_and_the_last_one_before_a_deletion() {
    let mut store = Store::new(10);
    let (to, mut events) = unbounded_channel();
    store
        .watch(Kind::Secret, Filter::default(), store.version(), to)
        .unwrap();
    write(&mut store, "a", "1");
    write(&mut store, "b", "1");
    let last_of_a = write(&mut store, "a", "2");
    let gone = store.commit(Kind::Secret, &Key::new("a", "a"), None).version;
    let last_of_b = write(&mut store, "b", "2");
    let mut events: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    drop_superseded(&mut events);
    let expected = [
        event("MODIFIED", "a", last_of_a),
        event("DELETED", "a", gone),
        event("MODIFIED", "b", last_of_b),
    ];
    assert_eq!(shown(&events), expected);
}
