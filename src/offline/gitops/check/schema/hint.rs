//! What to write for a field that is missing, or whose value has the wrong type.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use serde_json::json;

use super::{SPEC, no_indices};
use crate::gitops::check::Subject;
use crate::gitops::check::images::Reference;
use crate::gitops::check::instead::{self, Runs, Unit, instead, yaml};
use crate::gitops::check::metadata::is_subdomain;
use crate::gitops::check::schedule::example_of_cron;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::yaml::{Kind, Node, Object};

impl Subject<'_> {
    /// A line to paste for a field that is missing from `object`.
    pub(super) fn line_for(&self, field: &str, object: &Object) -> Option<String> {
        let text = |name: &str| object.entry(name).and_then(|entry| entry.value.text());
        let last = field.rsplit('.').next().unwrap_or_default();
        let image = || {
            if let Some(image) = self.node("spec").and_then(image_within) {
                return yaml(&image.into());
            }
            let version = self.node("spec.version").and_then(Node::text).unwrap_or_default();
            let program = if version.contains("rke2") { "rke2" } else { "k3s" };
            format!("rancher/{program}-upgrade")
        };
        let value = match last {
            "spec" => SPEC.to_owned(),
            "upgrade" => format!("{{image: {}}}", image()),
            "image" => image(),
            "source" if text("destination").is_some() => yaml(&text("destination")?.into()),
            "destination" if text("source").is_some() => yaml(&text("source")?.into()),
            "path" if field.starts_with("spec.secrets") && text("name").is_some() => {
                yaml(&format!("/host/run/system-upgrade/secrets/{}", text("name")?).into())
            }
            "name" if text("path").is_some() || text("source").is_some() => {
                let path = text("path").or(text("source"))?.trim_end_matches('/');
                let name = path.rsplit('/').next()?.to_lowercase().replace(['.', '_'], "-");
                yaml(
                    &Some(name.trim_matches('-'))
                        .filter(|name| !name.is_empty())?
                        .into(),
                )
            }
            "operator" if object.entry("values").is_some() => "In".to_owned(),
            "operator" => "Exists".to_owned(),
            "type" if field.ends_with("seccompProfile.type") || field.ends_with("appArmorProfile.type") => {
                "RuntimeDefault".to_owned()
            }
            "fieldPath" => "spec.nodeName".to_owned(),
            "resource" => "limits.memory".to_owned(),
            _ => return example(field).map(|value| format!("add a line such as `{last}: {value}`")),
        };
        Some(format!("add `{last}: {value}`"))
    }

    /// The suggestion of `instead` as a hint.
    pub(super) fn write_instead(&self, field: &str, schema: &JSONSchemaProps, node: &Node) -> Option<String> {
        // What a template becomes is unknown, and so are its words.
        if node
            .text()
            .is_some_and(|text| is_placeholder(&text.replace('$', "")))
        {
            return None;
        }
        match instead(field, schema, node, self.written(node), self.runs(field)) {
            Some(yaml) => Some(format!("write `{}`", self.with_unique_name(field, node, yaml))),
            None if field == "spec.prepare" => self.wait_for(node.text()?.trim()),
            None => example_of_cron(field, node.text()?),
        }
    }

    /// The container that waits for a Plan, if someone wrote only the name of the Plan.
    fn wait_for(&self, plan: &str) -> Option<String> {
        if !is_subdomain(plan) {
            return None;
        }
        let image = self.node("spec.upgrade.image").and_then(Node::text);
        let image = image.unwrap_or("rancher/k3s-upgrade");
        let container = json!({ "image": image, "args": ["prepare", plan] });
        Some(format!("write `{}`", yaml(&container)))
    }

    /// What runs the text of a list of arguments.
    pub(super) fn runs(&self, field: &str) -> Runs {
        let Some((container, "args" | "arg")) = field.rsplit_once('.') else {
            return Runs::Line;
        };
        let command = self.node(&format!("{container}.command"));
        let last = command.and_then(|command| match &command.kind {
            Kind::Text(line) => line.split_whitespace().last(),
            _ => command.items().last().and_then(Node::text),
        });
        match last {
            Some(last) if instead::is_script_flag(last) => Runs::Script,
            Some(last) if instead::is_shell(last) => Runs::Shell,
            _ => Runs::Arguments,
        }
    }

    /// The volume of a hint with another name, if an earlier volume has that name.
    fn with_unique_name(&self, field: &str, node: &Node, yaml: String) -> String {
        let (Some((list, index)), Some(text)) = (field.rsplit_once('['), node.text()) else {
            return yaml;
        };
        let index = index.trim_end_matches(']').parse().unwrap_or_default();
        let name = |text: &str| Some(instead::volume(text)?["name"].as_str()?.to_owned());
        if let Some(own) = name(text).filter(|_| list.ends_with(".volumes")) {
            let items = self.node(list).map_or(&[][..], Node::items).iter().take(index);
            let mut names = items.filter_map(|item| match item.text() {
                Some(text) => name(text),
                None => item.get("name").and_then(Node::text).map(str::to_owned),
            });
            if names.any(|name| name == own) {
                return yaml.replacen(&format!("name: {own},"), &format!("name: {own}-{index},"), 1);
            }
        }
        yaml
    }

    pub(super) fn type_hint(
        &self,
        field: &str,
        schema: &JSONSchemaProps,
        wanted: &str,
        node: &Node,
    ) -> Option<String> {
        self.write_instead(field, schema, node).or_else(|| {
            if let (true, Kind::List(_)) = (field.contains(".matchLabels."), &node.kind) {
                let hint = "use matchExpressions, as in `{key: kubernetes.io/hostname, operator: In, values: [node-1, node-2]}`";
                return Some(hint.to_owned());
            }
            let hint = match Unit::of(field) {
                Unit::Duration => "write a duration such as `30s`, `15m` or `1h30m`",
                Unit::Seconds => "write a number of seconds, such as `900`",
                Unit::Time => "write a time such as `\"22:00\"`",
                Unit::Mode => "write the mode as a number, such as `0400`",
                Unit::None if wanted == "true or false" => "write `true` or `false`",
                Unit::None => return None,
            };
            Some(hint.to_owned())
        })
    }
}

/// An image in another place, as in the spec of a Job or a Pod, or a repository and a tag as in the values of a chart.
fn image_within(node: &Node) -> Option<String> {
    let text = |name: &str| node.get(name).and_then(Node::text).map(str::to_owned);
    let with_tag = || {
        let (repository, tag) = (text("repository")?, text("tag"));
        Some(tag.map_or(repository.clone(), |tag| format!("{repository}:{tag}")))
    };
    let own = text("image").or_else(with_tag);
    let own = own.filter(|image| Reference::read(image).is_some());
    own.or_else(|| {
        let below = node.object().into_iter().flat_map(|object| &object.entries);
        let below = below.map(|entry| &entry.value).chain(node.items());
        below.into_iter().find_map(image_within)
    })
}

/// An example of a required field, if no neighbouring field says what it is.
fn example(field: &str) -> Option<&'static str> {
    let (parent, last) = field.rsplit_once('.')?;
    let of = no_indices(parent);
    let of = of.rsplit('.').next().unwrap_or_default();
    Some(match (of, last) {
        ("envs", "name") => "HTTP_PROXY",
        ("volumes", "name") => "config",
        ("volumes", "source" | "destination") => "/etc/rancher",
        ("secrets", "path") => "/run/system-upgrade/secrets/my-secret",
        ("secretKeyRef" | "configMapKeyRef", "key") => "token",
        ("matchExpressions", "key") => "node-role.kubernetes.io/worker",
        (_, "name") => "my-secret",
        _ => return None,
    })
}
