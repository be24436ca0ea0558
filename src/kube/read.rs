//! Reads single objects, so that one that cannot be read costs the others nothing. Any kubelet can write its own Node,
//! and a controller of some namespace its pods: a time that Go accepts and [`Timestamp`] does not (it ends at
//! 9999-12-30) would otherwise fail a whole list.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{GetParams, ListParams};
use kube::core::request::Error as RequestError;
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Error, Resource};
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::text::shorten;

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
pub(super) struct Identity {
    #[serde(deserialize_with = "lenient_text")]
    pub(super) name: String,
    #[serde(deserialize_with = "lenient_text")]
    pub(super) namespace: String,
    #[serde(deserialize_with = "lenient_text")]
    pub(super) uid: String,
    #[serde(rename = "resourceVersion", deserialize_with = "lenient_text")]
    pub(super) resource_version: String,
}

impl Identity {
    pub(super) fn of(raw: &RawValue) -> Self {
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

/// Sends a request, and reads the object of the response.
///
/// # Errors
/// Fails if the request does, or with [`Error::SerdeError`] if the object cannot be read.
pub async fn send<K: DeserializeOwned>(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, RequestError>,
) -> Result<K, Error> {
    let request = request.map_err(Error::BuildRequest)?;
    let response: Box<RawValue> = client.request(request).await?;
    read(&response).map_err(|unreadable| Error::SerdeError(serde_json::Error::custom(unreadable.why)))
}

/// The object of this name, if it exists. `Api::get_opt` fails for a time out of range in `managedFields`, which whoever may
/// write the object can set.
///
/// # Errors
/// As [`send`].
pub async fn get<K>(client: &Client, namespace: Option<&str>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let request = Request::new(K::url_path(&(), namespace)).get(name, &GetParams::default());
    optional(send(client, request).await)
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    /// null in an empty list of metadata.
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

/// How often to restart a list whose continue token has expired.
const RESTARTS: u32 = 3;

/// All pages of a list.
///
/// # Errors
/// Fails if a request does, or if an item cannot be read as `T`.
pub async fn list<T: DeserializeOwned>(
    client: &Client,
    request: &Request,
    mut params: ListParams,
    metadata_only: bool,
) -> Result<Vec<T>, Error> {
    let (mut all, mut restarts) = (Vec::new(), 0);
    loop {
        let page = if metadata_only {
            request.list_metadata(&params)
        } else {
            request.list(&params)
        };
        let page: Page<T> = match client.request(page.map_err(Error::BuildRequest)?).await {
            Ok(page) => page,
            // A continue token holds a resource version, and etcd is compacted every five minutes by default
            // (kube-apiserver, `--etcd-compaction-interval`).
            Err(Error::Api(status)) if status.code == 410 && restarts < RESTARTS => {
                restarts += 1;
                params.continue_token = None;
                all.clear();
                continue;
            }
            Err(error) => return Err(error),
        };
        all.extend(page.items.into_iter().flatten());
        params.continue_token = page.metadata.next.filter(|next| !next.is_empty());
        if params.continue_token.is_none() {
            return Ok(all);
        }
    }
}

/// The metadata of the objects of a list. One that cannot be read is left out, and does not fail the others.
///
/// # Errors
/// Fails if a request does.
pub async fn list_metadata<K>(
    client: &Client,
    namespace: Option<&str>,
    params: ListParams,
) -> Result<Vec<ObjectMeta>, Error>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), namespace));
    let listed = list::<Box<RawValue>>(client, &request, params, true).await?;
    let of = |raw: Box<RawValue>| match read::<PartialObjectMeta<K>>(&raw) {
        Ok(object) => Some(object.metadata),
        Err(unreadable) => {
            let Unreadable { name, why, .. } = unreadable;
            tracing::warn!(kind = %K::kind(&()), name, why, "left out of a list, because its metadata cannot be read");
            None
        }
    };
    Ok(listed.into_iter().filter_map(of).collect())
}

/// The metadata of the object of this name, if it exists.
///
/// # Errors
/// As [`send`].
pub async fn get_metadata<K>(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<ObjectMeta>, Error>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), namespace)).get_metadata(name, &GetParams::default());
    let object = optional(send::<PartialObjectMeta<K>>(client, request).await)?;
    Ok(object.map(|object| object.metadata))
}

fn optional<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
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
pub(super) struct LenientTime {
    /// Absent if it cannot be read.
    pub(super) time: Option<Timestamp>,
    /// The text that is not a time, shortened.
    pub(super) ignored: Option<Box<str>>,
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
pub(super) fn lenient_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    Ok(text_of(deserializer)?.and_then(|text| text.parse().ok()))
}

/// A time whose presence has a meaning, such as that of a deletion: the last one if it cannot be read.
pub(crate) fn present_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    Ok(text_of(deserializer)?.map(|text| text.parse().unwrap_or(Timestamp::MAX)))
}

fn lenient_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(text_of(deserializer)?.unwrap_or_default())
}

/// The text if the value is one; whatever else it is, it is skipped.
fn text_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct Text;
    impl<'de> Visitor<'de> for Text {
        type Value = Option<String>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("anything")
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(text.to_owned()))
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_any(self)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            // serde_json fails if a visitor returns before the end of a list or of an object.
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok(None)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(None)
        }
    }
    deserializer.deserialize_any(Text)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::json;

    use super::*;
    use crate::kube::objects::{Intern, RawPlan, SlimNode, SlimPod};

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
        assert_eq!(read::<RawPlan>(&plan).unwrap_err().name, "p");
    }
}
