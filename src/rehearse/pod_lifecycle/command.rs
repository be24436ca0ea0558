//! The command of a container, rendered as by a kubelet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, ObjectFieldSelector, Pod};

use refit_api::complete_label::expand_with;

/// A container as its process would see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStart {
    pub name: String,
    /// `restartCount` of this start.
    pub attempt: i32,
    pub image: String,
    /// Entrypoint; empty means the image's.
    pub command: Vec<String>,
    /// Arguments with `$(NAME)` expanded.
    pub args: Vec<String>,
    /// Environment without variables from Secrets, `ConfigMaps`, files, labels, annotations and resources.
    pub env: BTreeMap<String, String>,
}

impl ContainerStart {
    /// The command of a container; `None` if the pod has no such container.
    #[must_use]
    pub fn render(pod: &Pod, name: &str, attempt: i32) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let container = containers.find(|container| container.name == name)?;
        let env = environment(pod, container);
        let expand = |texts: &Option<Vec<String>>| {
            texts
                .iter()
                .flatten()
                .map(|text| expand(text, &env))
                .collect::<Vec<String>>()
        };
        Some(Self {
            name: name.to_owned(),
            attempt,
            image: container.image.clone().unwrap_or_default(),
            command: expand(&container.command),
            args: expand(&container.args),
            env,
        })
    }
}

/// Variables in the order of the spec: a value may refer to earlier ones.
fn environment(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            Some(source) => from_source(pod, source),
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &env)),
        };
        if let Some(value) = value {
            env.insert(variable.name.clone(), value);
        }
    }
    env
}

fn from_source(pod: &Pod, source: &EnvVarSource) -> Option<String> {
    let ObjectFieldSelector { field_path, .. } = source.field_ref.as_ref()?;
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let value = match field_path.as_str() {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        _ => return None,
    };
    Some(value.unwrap_or_default())
}

fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    expand_with(text, |name| env.get(name).map(String::as_str))
}
