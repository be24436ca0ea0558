//! Scenarios: objects that are given, requests, and what their answers look like.
//!
//! A shape is a part of an answer: an object has at least these fields, a list has these items in this order, `null` means that
//! there is nothing, `"*"` anything, and a text that begins with `~` is contained. `${ns}` and `${id}` are the namespace of the
//! scenario and a word that only its names begin with; `save` names more of such.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use refit::rehearse::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::manifest::TEST_LABEL;

/// Longer than controllers on a busy machine take.
const SOON: Duration = Duration::from_secs(60);

/// One story.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// What it shows, as a sentence.
    #[serde(rename = "scenario")]
    pub(super) title: String,
    /// Objects that are there, with their status.
    #[serde(default)]
    given: Vec<Value>,
    steps: Vec<Step>,
    /// It shows what the cluster in the process does not play; a real one is not asked.
    #[serde(default)]
    pub(super) is_a_hole: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Method and path.
    request: String,
    #[serde(default)]
    accept: Option<String>,
    /// Content type of the body, if it is not that of its method.
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    body: Option<Value>,
    /// Status code.
    answer: u16,
    #[serde(default)]
    shape: Option<Value>,
    /// Parts of the answer by name, as JSON pointers.
    #[serde(default)]
    save: BTreeMap<String, String>,
    /// It is asked again until it is answered like that.
    #[serde(default)]
    eventually: bool,
}

/// Where a scenario is played.
pub(super) enum Place {
    InProcess(Cluster, Client),
    Real(Client),
}

/// All scenarios, in the order of their files.
pub(super) fn scenarios() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rehearse/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: &std::path::PathBuf| -> Vec<Scenario> {
        let text = std::fs::read_to_string(path).unwrap();
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    files.iter().flat_map(read).collect()
}

/// Plays a scenario. The error says which step went how.
pub(super) async fn play(scenario: &Scenario, place: &Place, ns: &str, id: &str) -> Result<(), String> {
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    words.insert("ns".to_owned(), ns.to_owned());
    words.insert("id".to_owned(), id.to_owned());
    for object in &scenario.given {
        give(place, fill_in(object, &words), ns)
            .await
            .map_err(|why| format!("given: {why}"))?;
    }
    for (number, step) in scenario.steps.iter().enumerate() {
        let answer = take(step, place, &words)
            .await
            .map_err(|why| format!("step {}, {}: {why}", number + 1, step.request))?;
        for (name, pointer) in &step.save {
            let value = answer.pointer(pointer);
            let text = value.and_then(Value::as_str).map(str::to_owned);
            let text =
                text.ok_or_else(|| format!("step {}: no text at {pointer} in {answer}", number + 1))?;
            words.insert(name.clone(), text);
        }
    }
    Ok(())
}

async fn take(step: &Step, place: &Place, words: &BTreeMap<String, String>) -> Result<Value, String> {
    let (Place::InProcess(_, client) | Place::Real(client)) = place;
    let deadline = Instant::now() + SOON;
    loop {
        let (code, answer) = send(client, step, words).await?;
        let shape = step.shape.as_ref().map(|shape| fill_in(shape, words));
        let wrong = if code == step.answer {
            shape.and_then(|shape| differs(&shape, &answer, ""))
        } else {
            Some(format!("answered with {code}"))
        };
        match wrong {
            None => return Ok(answer),
            Some(_) if step.eventually && Instant::now() < deadline => {
                sleep(Duration::from_millis(200)).await;
            }
            Some(wrong) => return Err(format!("{wrong}\n    the answer: {answer}")),
        }
    }
}

async fn send(
    client: &Client,
    step: &Step,
    words: &BTreeMap<String, String>,
) -> Result<(u16, Value), String> {
    let request = substitute(&step.request, words);
    let (method, path) = request.split_once(' ').ok_or("no path")?;
    let content = match (&step.content, method) {
        (Some(content), _) => content,
        (None, "PATCH") => "application/merge-patch+json",
        (None, _) => "application/json",
    };
    let body = step
        .body
        .as_ref()
        .map(|body| fill_in(body, words).to_string().into_bytes());
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", step.accept.as_deref().unwrap_or("application/json"));
    if body.is_some() {
        request = request.header("content-type", content);
    }
    let request = request
        .body(Body::from(body.unwrap_or_default()))
        .map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| error.to_string())?;
    let code = answer.status().as_u16();
    let bytes = answer
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes.to_bytes()).into_owned();
    // A watch is a line of JSON for each event.
    let value = if path.contains("watch=1") && code == 200 {
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<Vec<Value>, _>>().map(Value::from)
    } else {
        serde_json::from_str(&text)
    };
    Ok((code, value.unwrap_or(Value::String(text))))
}

/// Puts an object there, with its status.
async fn give(place: &Place, mut object: Value, ns: &str) -> Result<(), String> {
    let plural = match object["kind"].as_str().unwrap_or_default() {
        "PodDisruptionBudget" => "poddisruptionbudgets".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let cluster_wide = plural == "nodes";
    if cluster_wide {
        // By this a world knows what is to go with it; its namespace is its name.
        object["metadata"]["labels"][TEST_LABEL] = ns.into();
    } else {
        object["metadata"]["namespace"] = ns.into();
    }
    let client = match place {
        Place::InProcess(cluster, _) => {
            return cluster.put(object).map(drop).map_err(|fault| fault.message);
        }
        Place::Real(client) => client,
    };
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let within = if cluster_wide {
        String::new()
    } else {
        format!("/namespaces/{ns}")
    };
    let path = format!("{root}/{version}{within}/{plural}");
    let status = object.get("status").cloned();
    let step = |request: String, body: Value, answer| Step {
        request,
        accept: None,
        content: None,
        body: Some(body),
        answer,
        shape: None,
        save: BTreeMap::new(),
        eventually: true, // the namespace's service account may not be there yet
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let words = BTreeMap::new();
    let place = Place::Real(client.clone());
    take(&step(format!("POST {path}"), object, 201), &place, &words).await?;
    if let Some(status) = status {
        let patch = json!({ "status": status });
        take(
            &step(format!("PATCH {path}/{name}/status"), patch, 200),
            &place,
            &words,
        )
        .await?;
    }
    Ok(())
}

/// What of an answer is not as the shape says.
fn differs(shape: &Value, answer: &Value, path: &str) -> Option<String> {
    match (shape, answer) {
        (Value::String(any), found) if any == "*" => found.is_null().then(|| format!("{path} is not there")),
        (Value::String(text), Value::String(found)) if text.starts_with('~') => {
            let part = &text[1..];
            (!found.contains(part)).then(|| format!("{path} is {found:?}, without {part:?}"))
        }
        (Value::Object(fields), Value::Object(_)) => fields
            .iter()
            .find_map(|(name, shape)| differs(shape, &answer[name], &format!("{path}/{name}"))),
        (Value::Array(shapes), Value::Array(items)) => {
            if shapes.len() != items.len() {
                return Some(format!("{path} has {} items, not {}", items.len(), shapes.len()));
            }
            let pairs = shapes.iter().zip(items).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (shape, item))| differs(shape, item, &format!("{path}/{at}")))
        }
        (shape, found) => (shape != found).then(|| format!("{path} is {found}, not {shape}")),
    }
}

fn fill_in(value: &Value, words: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => substitute(text, words).into(),
        Value::Array(items) => items.iter().map(|item| fill_in(item, words)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (substitute(name, words), fill_in(value, words)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn substitute(text: &str, words: &BTreeMap<String, String>) -> String {
    words.iter().fold(text.to_owned(), |text, (name, word)| {
        text.replace(&format!("${{{name}}}"), word)
    })
}
