//! Scenarios: given objects, requests, and the expected responses.
//!
//! A shape is a part of a response: an object has at least these fields, a list has these items in this order, `null`
//! is an absent value, `"*"` any value, and a text that begins with `~` is contained. `${ns}` is the namespace of the
//! scenario, `${id}` a prefix of its names, and `save` defines more variables.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use refit_rehearse::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::testenv::manifest::TEST_LABEL;

/// Longer than controllers take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// What it shows, as a sentence.
    #[serde(rename = "scenario")]
    pub(super) title: String,
    /// Existing objects, with their status.
    #[serde(default)]
    given: Vec<Value>,
    steps: Vec<ScenarioStep>,
    /// It consists of requests that the simulated cluster does not support. A real cluster does not run it.
    #[serde(default)]
    pub(super) is_unsupported: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioStep {
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
    /// Variables from the response, as JSON pointers.
    #[serde(default)]
    save: BTreeMap<String, String>,
    /// Repeated until the response is the expected one.
    #[serde(default)]
    eventually: bool,
}

/// The cluster that runs a scenario.
pub(super) enum Target {
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

/// Runs a scenario. The error names the step and the difference.
pub(super) async fn play(scenario: &Scenario, target: &Target, ns: &str, id: &str) -> Result<(), String> {
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    variables.insert("ns".to_owned(), ns.to_owned());
    variables.insert("id".to_owned(), id.to_owned());
    for object in &scenario.given {
        give(target, fill_in(object, &variables), ns)
            .await
            .map_err(|why| format!("given: {why}"))?;
    }
    for (number, step) in scenario.steps.iter().enumerate() {
        let answer = take(step, target, &variables)
            .await
            .map_err(|why| format!("step {}, {}: {why}", number + 1, step.request))?;
        for (name, pointer) in &step.save {
            let value = answer.pointer(pointer);
            let text = value.and_then(Value::as_str).map(str::to_owned);
            let text =
                text.ok_or_else(|| format!("step {}: no text at {pointer} in {answer}", number + 1))?;
            variables.insert(name.clone(), text);
        }
    }
    Ok(())
}

async fn take(
    step: &ScenarioStep,
    target: &Target,
    variables: &BTreeMap<String, String>,
) -> Result<Value, String> {
    let (Target::InProcess(_, client) | Target::Real(client)) = target;
    let deadline = Instant::now() + SOON;
    loop {
        let (code, answer) = send(client, step, variables).await?;
        let shape = step.shape.as_ref().map(|shape| fill_in(shape, variables));
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
    step: &ScenarioStep,
    variables: &BTreeMap<String, String>,
) -> Result<(u16, Value), String> {
    let request = substitute(&step.request, variables);
    let (method, path) = request.split_once(' ').ok_or("no path")?;
    let content = match (&step.content, method) {
        (Some(content), _) => content,
        (None, "PATCH") => "application/merge-patch+json",
        (None, _) => "application/json",
    };
    let body = step
        .body
        .as_ref()
        .map(|body| fill_in(body, variables).to_string().into_bytes());
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

/// Creates an object with its status.
async fn give(target: &Target, mut object: Value, ns: &str) -> Result<(), String> {
    let plural = match object["kind"].as_str().unwrap_or_default() {
        "PodDisruptionBudget" => "poddisruptionbudgets".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let cluster_wide = plural == "nodes";
    if cluster_wide {
        // The cleanup of the test finds cluster-wide objects by this label.
        object["metadata"]["labels"][TEST_LABEL] = ns.into();
    } else {
        object["metadata"]["namespace"] = ns.into();
    }
    let client = match target {
        Target::InProcess(cluster, _) => {
            return cluster.put(object).map(drop).map_err(|fault| fault.message);
        }
        Target::Real(client) => client,
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
    let target = Target::Real(client.clone());
    let send = async |request: String, body: Value, answer| {
        let step = ScenarioStep {
            request,
            body: Some(body),
            answer,
            eventually: true, // the namespace's service account may not exist yet
            ..ScenarioStep::default()
        };
        take(&step, &target, &BTreeMap::new()).await
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    send(format!("POST {path}"), object, 201).await?;
    if let Some(status) = status {
        send(
            format!("PATCH {path}/{name}/status"),
            json!({ "status": status }),
            200,
        )
        .await?;
    }
    Ok(())
}

/// The first difference between a response and its shape.
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

fn fill_in(value: &Value, variables: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => substitute(text, variables).into(),
        Value::Array(items) => items.iter().map(|item| fill_in(item, variables)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (substitute(name, variables), fill_in(value, variables)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn substitute(text: &str, variables: &BTreeMap<String, String>) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, word)| {
        text.replace(&format!("${{{name}}}"), word)
    })
}
