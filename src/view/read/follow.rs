//! Keeps a snapshot current, by the changes that watches deliver.

use serde_json::value::RawValue;

use super::Snapshot;
use super::lists::{PAGE, event_line, job_object, node_object, pod_object, salvaged, unreadable_gap};
use refit_api::names;
use refit_cluster::kube::watch::Selection;
use refit_facts::PlanFacts;
use refit_facts::objects::Intern;

/// The kinds whose objects a snapshot has from lists of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    Plan,
    Node,
    /// Jobs of Plans.
    Job,
    /// Pods of these Jobs.
    Pod,
    /// Events about Plans.
    Event,
}

impl ObjectKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "Plan",
            Self::Node => "Node",
            Self::Job => "Job",
            Self::Pod => "Pod",
            Self::Event => "Event",
        }
    }

    /// The objects of the kind, in a message.
    pub fn describe(self, namespace: Option<&str>) -> String {
        let plural = if self == Self::Pod {
            "pods".to_owned()
        } else {
            format!("{}s", self.name())
        };
        match namespace {
            Some(namespace) => format!("{plural} in namespace {namespace}"),
            None => plural,
        }
    }

    pub(super) fn path(self, namespace: Option<&str>) -> String {
        let (group, plural) = match self {
            Self::Plan => (format!("/apis/{}/v1", names::GROUP), "plans"),
            Self::Node => ("/api/v1".to_owned(), "nodes"),
            Self::Job => ("/apis/batch/v1".to_owned(), "jobs"),
            Self::Pod => ("/api/v1".to_owned(), "pods"),
            Self::Event => ("/api/v1".to_owned(), "events"),
        };
        match namespace {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
            None => format!("{group}/{plural}"),
        }
    }

    pub(super) fn labels(self) -> Option<&'static str> {
        matches!(self, Self::Job | Self::Pod).then_some(names::LABEL_PLAN)
    }

    pub(super) fn fields(self) -> Option<&'static str> {
        (self == Self::Event).then_some("involvedObject.kind=Plan")
    }

    /// The same objects for a watch.
    pub fn selection(self, namespace: Option<&str>) -> Selection {
        Selection {
            path: self.path(namespace),
            labels: self.labels().map(str::to_owned),
            fields: self.fields().map(str::to_owned),
            page: PAGE,
            metadata_only: false,
        }
    }
}

impl Snapshot {
    /// An object exists in this version.
    ///
    /// # Errors
    /// Fails with a sentence if it cannot be read. The snapshot then keeps the version before.
    pub fn put(&mut self, kind: ObjectKind, uid: &str, raw: &RawValue) -> Result<(), String> {
        let unreadable = |unreadable| unreadable_gap(kind, &unreadable);
        let intern = Intern::default();
        match kind {
            ObjectKind::Plan => {
                let Some(plan) = salvaged::<PlanFacts>(raw) else {
                    return Err(format!("Plan {uid} cannot be read"));
                };
                self.remove(kind, uid);
                let key = |plan: &PlanFacts| (plan.namespace().to_owned(), plan.name.clone());
                let at = self.plans.partition_point(|one| key(one) < key(&plan));
                self.plans.insert(at, plan);
            }
            ObjectKind::Node => {
                let node = node_object(raw, &intern).map_err(unreadable)?;
                let nodes = self.nodes.get_or_insert_default();
                nodes.insert(node.facts.name.to_string(), node);
            }
            ObjectKind::Job => {
                let job = job_object(raw, &intern).map_err(unreadable)?;
                self.remove(kind, uid);
                self.jobs.push(job);
            }
            ObjectKind::Pod => {
                let pod = pod_object(raw, &intern).map_err(unreadable)?;
                self.remove(kind, uid);
                self.pods.push(pod);
            }
            ObjectKind::Event => {
                self.remove(kind, uid);
                if let Some(event) = event_line(raw) {
                    let at = self.events.partition_point(|one| one.at <= event.at);
                    self.events.insert(at, event);
                }
            }
        }
        Ok(())
    }

    /// An object no longer exists.
    pub fn remove(&mut self, kind: ObjectKind, uid: &str) {
        match kind {
            ObjectKind::Plan => self.plans.retain(|plan| *plan.uid != *uid),
            ObjectKind::Node => {
                let nodes = self.nodes.get_or_insert_default();
                nodes.retain(|_, node| *node.facts.uid != *uid);
            }
            ObjectKind::Job => self.jobs.retain(|job| *job.facts.uid != *uid),
            ObjectKind::Pod => self.pods.retain(|pod| *pod.facts.uid != *uid),
            ObjectKind::Event => self.events.retain(|event| event.uid != uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &serde_json::Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn plan(namespace: &str, name: &str) -> serde_json::Value {
        json!({
            "metadata": { "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}") },
            "spec": { "upgrade": { "image": "i" } },
        })
    }

    #[test]
    fn plans_stay_in_their_order_and_an_object_that_is_gone_is_gone() {
        let mut snapshot = Snapshot::default();
        for (namespace, name) in [("b", "one"), ("a", "two"), ("b", "one"), ("a", "one")] {
            let uid = format!("{namespace}-{name}");
            let put = snapshot.put(ObjectKind::Plan, &uid, &raw(&plan(namespace, name)));
            assert_eq!(put, Ok(()));
        }
        let names = |snapshot: &Snapshot| -> Vec<String> {
            let plans = snapshot.plans.iter();
            plans
                .map(|plan| format!("{}/{}", plan.namespace(), plan.name))
                .collect()
        };
        assert_eq!(names(&snapshot), ["a/one", "a/two", "b/one"]);
        snapshot.remove(ObjectKind::Plan, "a-two");
        assert_eq!(names(&snapshot), ["a/one", "b/one"]);
    }

    #[test]
    fn an_object_that_cannot_be_read_leaves_the_version_before() {
        let mut snapshot = Snapshot::default();
        let node = |unschedulable: serde_json::Value| json!({ "metadata": { "name": "n", "uid": "u" }, "spec": { "unschedulable": unschedulable } });
        snapshot
            .put(ObjectKind::Node, "u", &raw(&node(json!(true))))
            .unwrap();
        let why = snapshot.put(ObjectKind::Node, "u", &raw(&node(json!("perhaps"))));
        assert!(
            why.unwrap_err().starts_with("Node n cannot be read: "),
            "it is named"
        );
        assert!(snapshot.node("n").unwrap().facts.unschedulable);
    }

    #[test]
    fn events_stay_in_the_order_of_their_times() {
        let mut snapshot = Snapshot::default();
        for (uid, at) in [("b", 2), ("a", 1), ("b", 3)] {
            let event = json!({
                "metadata": { "uid": uid, "namespace": "n" }, "involvedObject": { "kind": "Plan", "name": "p" },
                "lastTimestamp": format!("2026-01-05T09:00:0{at}Z"), "reason": "Resolved",
            });
            snapshot.put(ObjectKind::Event, uid, &raw(&event)).unwrap();
        }
        let uids: Vec<_> = snapshot.events.iter().map(|event| event.uid.as_str()).collect();
        assert_eq!(uids, ["a", "b"]);
    }
}
