//! Kubernetes objects from YAML files, renamed so that several tests can share a cluster.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Scope};
use serde_json::{Value, json};

/// Label with the test's id on all its objects outside its namespace. Plans select Nodes by it.
pub const TEST_LABEL: &str = "test";

/// The namespace in the manifests. A test with this id uses them unchanged.
pub const HOME: &str = "system-upgrade";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manifests {
    /// `deploy/` of this repository, with the components that grant more.
    #[default]
    Shipped,
    /// `deploy/` of this repository, without any component.
    Base,
    /// system-upgrade-controller's roles and `ConfigMap` (S65), in `tests/fixtures/suc-rbac.yaml`.
    Suc,
}

/// The manifests of a test, in its namespace and with its names.
#[derive(Clone, Debug)]
pub struct Installation {
    pub objects: Vec<Value>,
    /// The service account of the controller.
    pub service_account: String,
    /// The controller's environment, from `ConfigMap`s and from literal values of its Deployment.
    pub environment: BTreeMap<String, String>,
    /// For nodes that can run it.
    pub deployment: Option<Value>,
}

/// Components with roles that a few Plans or installations need.
const COMPONENTS: [&str; 2] = ["manage-crd", "delete-pods"];

fn yaml_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    // All of them in one file.
    files.retain(|path| path.file_name().is_some_and(|name| name != "refit.yaml"));
    files.sort();
    Ok(files)
}

impl Manifests {
    fn files(self) -> Result<Vec<PathBuf>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        match self {
            Self::Suc => Ok(vec![root.join("tests/fixtures/suc-rbac.yaml")]),
            Self::Base => yaml_files(&root.join("deploy")),
            Self::Shipped => {
                let mut files = yaml_files(&root.join("deploy"))?;
                for component in COMPONENTS {
                    files.extend(yaml_files(&root.join("deploy/overlays").join(component))?);
                }
                Ok(files)
            }
        }
    }

    /// The manifests for a test.
    pub fn install_for(self, test: &str) -> Result<Installation> {
        let mut objects = Vec::new();
        for file in self.files()? {
            let yaml =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            objects.extend(parse(&yaml).with_context(|| file.display().to_string())?);
        }
        Installation::of(&objects, test)
    }
}

impl Installation {
    /// Objects in the namespace of the controller move to that of the test. Others get a name and label of the test.
    fn of(manifests: &[Value], test: &str) -> Result<Self> {
        let of_kind = |kind| manifests.iter().find(move |object| object["kind"] == kind);
        let whole = of_kind("Deployment");
        let deployment = whole.map(|object| &object["spec"]["template"]["spec"]);
        let account = of_kind("ServiceAccount").context("the manifests have no ServiceAccount")?;
        let service_account = match deployment {
            Some(pod) => text(&pod["serviceAccountName"]),
            None => text(&account["metadata"]["name"]),
        };
        let mut environment = BTreeMap::new();
        for configuration in manifests.iter().filter(|object| object["kind"] == "ConfigMap") {
            environment.extend(strings(&configuration["data"]));
        }
        environment.extend(
            deployment
                .iter()
                .flat_map(|pod| pairs(&pod["containers"][0]["env"])),
        );

        // The test creates its namespace, and starts the controller.
        let made = [
            "ServiceAccount",
            "ConfigMap",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
        ];
        let objects = manifests
            .iter()
            .filter(|object| made.iter().any(|kind| object["kind"] == *kind));
        let objects = objects.map(|object| moved(object.clone(), test)).collect();
        Ok(Self {
            objects,
            service_account,
            environment,
            deployment: whole.map(|object| moved(object.clone(), test)),
        })
    }
}

fn moved(mut object: Value, test: &str) -> Value {
    let at_home = object["metadata"]["namespace"] == HOME;
    if at_home {
        object["metadata"]["namespace"] = json!(test);
    } else {
        object["metadata"]["name"] = json!(local_name(test, &text(&object["metadata"]["name"])));
        object["metadata"]["labels"][TEST_LABEL] = json!(test);
    }
    if object["roleRef"].is_object() && !(at_home && object["roleRef"]["kind"] == "Role") {
        object["roleRef"]["name"] = json!(local_name(test, &text(&object["roleRef"]["name"])));
    }
    for subject in object
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if subject["namespace"] == HOME {
            subject["namespace"] = json!(test);
        }
    }
    object
}

/// The name of an object outside of the controller's namespace for a test.
pub fn local_name(test: &str, name: &str) -> String {
    if test == HOME {
        name.to_owned()
    } else {
        format!("{test}-{name}")
    }
}

/// The objects of a file with one or more YAML documents.
pub fn parse(yaml: &str) -> Result<Vec<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    for object in &objects {
        ensure!(
            object["kind"].is_string() && object["apiVersion"].is_string(),
            "no Kubernetes object: {object}"
        );
    }
    Ok(objects)
}

/// Creates an object, or patches the existing one like `kubectl patch --type=merge`. Returns the stored object.
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let (api, name) = api_of(client, object).await?;
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    match api.create(&PostParams::default(), &typed).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(api
            .patch(&name, &PatchParams::default(), &Patch::Merge(object))
            .await?),
        answer => answer.with_context(|| {
            format!(
                "cannot make {} {name}",
                object["kind"].as_str().unwrap_or_default()
            )
        }),
    }
}

/// The API of an object, and its name.
async fn api_of(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String)> {
    let (group, version) = match text(&object["apiVersion"]).split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text(&object["apiVersion"])),
    };
    let kind = GroupVersionKind {
        group,
        version,
        kind: text(&object["kind"]),
    };
    let (resource, capabilities) = discover(client, &kind).await?;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    Ok((api, text(&object["metadata"]["name"])))
}

/// Resource and scope of a kind. They are the same on every cluster, so each is queried once.
async fn discover(client: &Client, kind: &GroupVersionKind) -> Result<(ApiResource, ApiCapabilities)> {
    static KNOWN: LazyLock<Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>> =
        LazyLock::new(Mutex::default);
    if let Some(known) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(kind) {
        return Ok(known.clone());
    }
    let found = kube::discovery::pinned_kind(client, kind)
        .await
        .with_context(|| format!("no such kind: {kind:?}"))?;
    KNOWN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(kind.clone(), found.clone());
    Ok(found)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strings(map: &Value) -> impl Iterator<Item = (String, String)> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
}

fn pairs(list: &Value) -> impl Iterator<Item = (String, String)> {
    let entries = list.as_array().into_iter().flatten();
    entries.filter_map(|entry| {
        Some((
            entry["name"].as_str()?.to_owned(),
            entry["value"].as_str()?.to_owned(),
        ))
    })
}
