//! Reads single objects, so that one that cannot be read costs the others nothing. Any kubelet can write its own Node,
//! and a controller of some namespace its pods: a time that Go accepts and [`Timestamp`] does not (it ends at
//! 9999-12-30) would otherwise fail a whole list.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use refit_api::text::shorten;

/// An object that cannot be read: what is known of it, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub why: String,
}

/// The part of an object's metadata that identifies it, each field by itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Identity {
    #[serde(deserialize_with = "lenient_text")]
    pub name: String,
    #[serde(deserialize_with = "lenient_text")]
    pub namespace: String,
    #[serde(deserialize_with = "lenient_text")]
    pub uid: String,
    #[serde(rename = "resourceVersion", deserialize_with = "lenient_text")]
    pub resource_version: String,
}

impl Identity {
    pub fn of(raw: &RawValue) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Object {
            metadata: Identity,
        }
        // serde_json skips other fields without recursion: a spec deeper than its limit of 128 levels has a name, too.
        serde_json::from_str::<Object>(raw.get())
            .unwrap_or_default()
            .metadata
    }
}

/// Reads an object. Times out of range become the nearest possible one, if the object can be read then.
///
/// # Errors
/// Fails with what is known of the object.
pub fn read<K: DeserializeOwned>(raw: &RawValue) -> Result<K, Unreadable> {
    let error = match serde_json::from_str(raw.get()) {
        Ok(object) => return Ok(object),
        Err(error) => error,
    };
    // Only after a failure, because this parses the object again, with all of its fields.
    if let Ok(mut value) = serde_json::from_str::<Value>(raw.get()) {
        bring_times_into_range(&mut value);
        if let Ok(object) = serde_json::from_value(value) {
            return Ok(object);
        }
    }
    let Identity {
        name,
        namespace,
        uid,
        resource_version,
    } = Identity::of(raw);
    Err(Unreadable {
        name,
        namespace,
        uid,
        resource_version,
        why: error.to_string(),
    })
}

/// Texts of users, in which nothing is a time.
const TEXTS: [&str; 4] = ["annotations", "labels", "data", "stringData"];

fn bring_times_into_range(value: &mut Value) {
    match value {
        Value::String(text) => {
            if looks_like_time(text) && text.parse::<Timestamp>().is_err() {
                *text = Timestamp::MAX.to_string();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(bring_times_into_range),
        Value::Object(fields) => {
            for (name, value) in fields {
                if !TEXTS.contains(&name.as_str()) {
                    bring_times_into_range(value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a text begins as RFC 3339 does: `2026-01-01T`.
fn looks_like_time(text: &str) -> bool {
    let form = b"dddd-dd-ddT";
    text.len() > form.len()
        && text.bytes().zip(form).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            other => byte == *other,
        })
}

/// A time that only informs.
#[derive(Clone, Debug, Default)]
pub struct LenientTime {
    /// Absent if it cannot be read.
    pub time: Option<Timestamp>,
    /// The text that is not a time, shortened.
    pub ignored: Option<Box<str>>,
}

impl<'de> Deserialize<'de> for LenientTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = text_of(deserializer)?;
        let time = text.as_deref().and_then(|text| text.parse().ok());
        let ignored = text
            .filter(|_| time.is_none())
            .map(|text| shorten(&text, MAX_TIME).into());
        Ok(Self { time, ignored })
    }
}

/// Length of a time in a message: that of one with nanoseconds, and some more.
const MAX_TIME: usize = 48;

/// A time that only informs: absent if it cannot be read.
///
/// # Errors
/// Fails if the input is no JSON.
pub fn lenient_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(text_of(deserializer)?.and_then(|text| text.parse().ok()))
}

/// A time whose presence has a meaning, such as that of a deletion: the last one if it cannot be read.
///
/// # Errors
/// Fails if the input is no JSON.
pub fn present_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(text_of(deserializer)?.map(|text| text.parse().unwrap_or(Timestamp::MAX)))
}

fn lenient_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(text_of(deserializer)?.unwrap_or_default())
}

/// The text if the value is one; whatever else it is, it is skipped.
fn text_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::json;

    use super::*;
    use crate::PlanFacts;
    use crate::objects::{Intern, SlimNode, SlimPod};

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    const LATE: &str = "9999-12-31T23:59:59Z";

    #[test]
    fn a_time_after_the_last_one_fails_neither_a_node_nor_a_pod() {
        let conditions = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": LATE },
            { "type": "DiskPressure", "status": "False", "lastTransitionTime": 7, "lastHeartbeatTime": {} }]);
        let node = json!({ "metadata": { "name": "n", "uid": "u" }, "status": { "conditions": conditions } });
        let node = serde_json::from_value::<SlimNode>(node).unwrap();
        assert!(node.facts(&Intern::default()).ready);
        let pod = json!({
            "metadata": { "name": "p", "uid": "u", "creationTimestamp": LATE, "deletionTimestamp": LATE,
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true }] },
            "status": { "phase": "Running", "conditions": conditions,
                "containerStatuses": [{ "name": "c", "state": { "running": { "startedAt": LATE } } }] },
        });
        let pod = serde_json::from_value::<SlimPod>(pod).unwrap();
        assert!(
            pod.facts(&Intern::default()).deleting,
            "a pod with any time of deletion is being deleted"
        );
    }

    #[test]
    fn an_object_of_any_type_is_read_with_its_times_brought_into_range() {
        let budget = raw(&json!({
            "metadata": { "name": "b", "annotations": { "note": LATE } },
            "status": {
                "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1,
                "conditions": [{ "type": "DisruptionAllowed", "status": "False", "reason": "r", "message": "m",
                    "lastTransitionTime": LATE }],
            },
        }));
        assert!(serde_json::from_str::<PodDisruptionBudget>(budget.get()).is_err());
        let budget = read::<PodDisruptionBudget>(&budget).unwrap();
        assert_eq!(
            budget.metadata.annotations.unwrap()["note"],
            LATE,
            "a user's text stays"
        );
        let conditions = budget.status.unwrap().conditions.unwrap();
        assert_eq!(conditions[0].last_transition_time.0, Timestamp::MAX);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named() {
        let metadata = json!({ "name": "n", "uid": "u", "namespace": "a", "resourceVersion": "7" });
        let odd = raw(&json!({ "metadata": metadata, "spec": { "unschedulable": "perhaps" } }));
        let why = read::<SlimNode>(&odd).unwrap_err();
        let named = [&*why.name, &*why.uid, &*why.namespace, &*why.resource_version];
        assert_eq!(named, ["n", "u", "a", "7"]);
        assert!(why.why.contains("perhaps"), "{}", why.why);
        let metadata = json!({ "name": 7, "uid": [], "labels": 1, "resourceVersion": "7" });
        let why = read::<SlimNode>(&raw(&json!({ "metadata": metadata }))).unwrap_err();
        assert_eq!((&*why.name, &*why.uid, &*why.resource_version), ("", "", "7"));
        assert_eq!(read::<SlimNode>(&raw(&json!(7))).unwrap_err().name, "");
    }

    #[test]
    fn an_object_of_any_depth_is_named() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let plan = format!(r#"{{"spec":{{"a":{deep}}},"metadata":{{"name":"p","uid":"u"}}}}"#);
        let plan = serde_json::from_str::<Box<RawValue>>(&plan).unwrap();
        assert_eq!(read::<PlanFacts>(&plan).unwrap_err().name, "p");
    }
}
