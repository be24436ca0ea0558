//! The Helm chart in `deploy/chart` and the single file `deploy/refit.yaml`, with the real Helm and kubectl; and the
//! commands of the documents about installation and migration, as they are written there.

mod cluster;
mod installed;
mod takeover;
mod values;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::testenv::binaries::Binaries;
use crate::testenv::controller::binary;

const NAMESPACE: &str = "system-upgrade";
const NAME: &str = "system-upgrade-controller";
const DEFINITION: &str = "plans.upgrade.cattle.io";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// An image of the user's own.
const REPOSITORY: &str = "image.repository=registry.example.com/refit";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Helm and kubectl, for a cluster or for none, with a home of their own.
struct Tools {
    helm: PathBuf,
    kubectl: PathBuf,
    home: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Tools {
    fn new(kubeconfig: PathBuf) -> Self {
        Self {
            helm: Binaries::for_charts().unwrap().path("helm"),
            kubectl: Binaries::ready().unwrap().path("kubectl"),
            home: tempfile::tempdir().unwrap(),
            kubeconfig,
        }
    }

    fn offline() -> Self {
        Self::new(PathBuf::from("/nonexistent"))
    }

    fn try_run(&self, program: &Path, line: &str) -> Result<String, String> {
        let output = Command::new(program)
            .args(shlex::split(line).expect(line))
            .current_dir(root())
            .env("HOME", self.home.path())
            .env("XDG_CACHE_HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    #[track_caller]
    fn helm(&self, line: &str) -> String {
        self.try_run(&self.helm, line)
            .unwrap_or_else(|error| panic!("helm {line}: {error}"))
    }

    #[track_caller]
    fn kubectl(&self, line: &str) -> String {
        self.try_run(&self.kubectl, line)
            .unwrap_or_else(|error| panic!("kubectl {line}: {error}"))
    }

    /// Runs the commands of a document in a folder with a copy of what they name.
    #[track_caller]
    fn script(&self, dir: &Path, script: &str) {
        let bin = self.home.path().join("bin");
        if !bin.exists() {
            std::fs::create_dir(&bin).unwrap();
            for (name, program) in [
                ("helm", &self.helm),
                ("kubectl", &self.kubectl),
                ("refit", &binary()),
            ] {
                std::os::unix::fs::symlink(program, bin.join(name)).unwrap();
            }
        }
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(dir)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", format!("{}:{path}", bin.display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// A folder with a copy of the files that the documents name.
    fn checkout() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let copied = Command::new("cp")
            .arg("-r")
            .args(["deploy", "crds", "examples"])
            .arg(dir.path())
            .current_dir(root())
            .status();
        assert!(copied.unwrap().success());
        dir
    }

    fn json(&self, line: &str) -> Value {
        let text = self
            .try_run(&self.kubectl, &format!("{line} -o json"))
            .unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The objects of the chart with these values, without the labels that each of them has.
    #[track_caller]
    fn rendered(&self, flags: &str) -> BTreeMap<String, Value> {
        let mut objects = self.labelled(flags);
        objects.values_mut().for_each(without_labels_of_release);
        objects
    }

    #[track_caller]
    fn labelled(&self, flags: &str) -> BTreeMap<String, Value> {
        by_name(&self.helm(&format!("template refit deploy/chart -n {NAMESPACE} {flags}")))
    }
}

/// The conventional labels of charts, which no object may lack, and what keeps the definition of the Plan and namespaces.
fn without_labels_of_release(object: &mut Value) {
    let release = [
        ("app.kubernetes.io/instance", "refit".to_owned()),
        ("app.kubernetes.io/managed-by", "Helm".to_owned()),
        (
            "app.kubernetes.io/version",
            concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        (
            "helm.sh/chart",
            concat!("refit-", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
    ];
    for place in ["/metadata", "/spec/template/metadata"] {
        let Some(metadata) = object.pointer_mut(place).filter(|it| it.is_object()) else {
            continue;
        };
        for (label, value) in &release {
            let found = metadata["labels"]
                .as_object_mut()
                .and_then(|all| all.remove(*label));
            assert_eq!(found.as_ref(), Some(&json!(value)), "{label} of {metadata}");
        }
        let labels = metadata["labels"].as_object_mut().unwrap();
        // That of the manifests differs on a few objects, or selects pods.
        if place == "/metadata" && labels.get("app.kubernetes.io/name") == Some(&json!("refit")) {
            labels.remove("app.kubernetes.io/name");
        }
        if labels.is_empty() {
            metadata.as_object_mut().unwrap().remove("labels");
        }
    }
    let is_definition =
        object["kind"] == "CustomResourceDefinition" && object["metadata"]["name"] == DEFINITION;
    if is_definition || object["kind"] == "Namespace" {
        let kept = object["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(kept, Some(json!({ "helm.sh/resource-policy": "keep" })));
    }
}

/// `1.0` and `1` are one number.
fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            if let Some(whole) = float.and_then(|float| format!("{float}").parse::<i64>().ok()) {
                *value = json!(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        _ => {}
    }
}

/// Objects by kind, namespace and name.
fn by_name(yaml: &str) -> BTreeMap<String, Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let mut found = BTreeMap::new();
    for mut object in objects.into_iter().filter(|object| !object.is_null()) {
        normalize_numbers(&mut object);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let name = format!(
            "{} {}/{}",
            text(&object["kind"]),
            text(&metadata["namespace"]),
            text(&metadata["name"])
        );
        assert!(found.insert(name.clone(), object).is_none(), "{name} twice");
    }
    assert!(!found.is_empty());
    found
}

/// The commands of a document that a test runs, by step.
fn documented(document: &str, test: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let mark = format!("<!-- run by {test}: ");
    let blocks = text.split(&mark).skip(1).map(|rest| {
        let (step, rest) = rest
            .split_once(" -->\n\n```\n")
            .expect("a block follows the mark");
        (step.to_owned(), rest.split("```\n").next().unwrap().to_owned())
    });
    blocks.collect()
}

#[test]
fn the_chart_and_the_single_file_have_the_objects_that_kustomize_builds() {
    let tools = Tools::offline();
    let mut built = by_name(&tools.kubectl("kustomize deploy"));
    let single = by_name(&std::fs::read_to_string(root().join("deploy/refit.yaml")).unwrap());
    assert_eq!(
        single.keys().collect::<Vec<_>>(),
        built.keys().collect::<Vec<_>>()
    );
    for (name, object) in &built {
        assert_eq!(&single[name], object, "{name}");
    }
    let chart = tools.rendered("");
    built
        .remove("Namespace /system-upgrade")
        .expect("the namespace, which Helm creates otherwise");
    assert_eq!(chart.keys().collect::<Vec<_>>(), built.keys().collect::<Vec<_>>());
    for (name, object) in &built {
        assert_eq!(&chart[name], object, "{name}");
    }
}

#[test]
fn the_agent_of_the_chart_is_that_of_its_components() {
    let tools = Tools::offline();
    let with = |components: &[&str]| {
        // In the kustomization itself, whose image they get.
        let deploy = Tools::checkout();
        let listed: Vec<_> = components.iter().map(|name| format!("overlays/{name}")).collect();
        let path = deploy.path().join("deploy/kustomization.yaml");
        let mut text = std::fs::read_to_string(&path).unwrap();
        write!(text, "\ncomponents: {}\n", json!(listed)).unwrap();
        std::fs::write(&path, text).unwrap();
        by_name(&tools.kubectl(&format!("kustomize {}/deploy", deploy.path().display())))
    };
    let plain = with(&[]);
    let args = "--set-json 'agent.args=[\"--no-files\",\"--command=needs-restarting -r\"]'";
    for (components, flags) in [
        (&["agent"][..], String::new()),
        (
            &["agent", "agent-commands"][..],
            format!("--set agent.privileged=true {args}"),
        ),
        (
            &["agent", "agent-kairos"][..],
            "--set agent.kairosLabels=true".to_owned(),
        ),
        (
            &["agent", "agent-commands", "agent-kairos"][..],
            format!("--set agent.privileged=true --set agent.kairosLabels=true {args}"),
        ),
    ] {
        let built = with(components);
        let chart = tools.rendered(&format!("--set agent.create=true {flags}"));
        let added: Vec<_> = built.keys().filter(|name| !plain.contains_key(*name)).collect();
        assert_eq!(added.len(), 6, "{added:?}");
        for name in added {
            assert_eq!(chart.get(name), built.get(name), "{name}");
        }
        assert_eq!(chart.len(), built.len() - 1, "all but the namespace");
    }
}

#[test]
fn the_takeover_leaves_out_what_users_of_system_upgrade_controller_have_changed() {
    let tools = Tools::offline();
    let with = |components: &str| {
        let dir = tempfile::tempdir_in(root().join("target")).unwrap();
        let base = "../../deploy";
        let text = format!("resources: [{base}]\n{components}");
        std::fs::write(dir.path().join("kustomization.yaml"), text).unwrap();
        by_name(&tools.kubectl(&format!("kustomize {}", dir.path().display())))
    };
    let whole = with("");
    let takeover = with("components: [../../deploy/overlays/takeover]\n");
    let left_out: Vec<&String> = whole
        .keys()
        .filter(|name| !takeover.contains_key(*name))
        .collect();
    assert_eq!(
        left_out,
        [
            "ConfigMap system-upgrade/default-controller-env",
            "Namespace /system-upgrade"
        ]
    );
    assert!(takeover.iter().all(|(name, object)| whole[name] == *object));
}

#[test]
fn the_components_of_kustomize_are_values_of_the_chart() {
    let tools = Tools::offline();
    let plain = tools.rendered("");
    let added = |flags: &str| -> BTreeMap<String, Value> {
        let mut all = tools.rendered(flags);
        for (name, object) in &plain {
            // The controller writes the definition then.
            let is_left_out = flags.contains("manageCrd") && name.ends_with(DEFINITION);
            let expected = Some(object).filter(|_| !is_left_out);
            assert_eq!(all.remove(name).as_ref(), expected, "{flags}: {name}");
        }
        all
    };
    let built = by_name(&tools.kubectl("kustomize deploy"));
    for (value, component) in [
        ("manageCrd", "manage-crd"),
        ("deletePods", "delete-pods"),
        ("readWorkloads", "read-workloads"),
    ] {
        let dir = tempfile::tempdir_in(root().join("target")).unwrap();
        let text = format!("resources: [../../deploy]\ncomponents: [../../deploy/overlays/{component}]\n");
        std::fs::write(dir.path().join("kustomization.yaml"), text).unwrap();
        let mut with = by_name(&tools.kubectl(&format!("kustomize {}", dir.path().display())));
        with.retain(|name, _| !built.contains_key(name));
        assert!(!with.is_empty(), "{component}");
        assert_eq!(added(&format!("--set {value}.create=true")), with, "{component}");
    }
    // The last four change the Deployment, too.
    for (values, components) in [
        (
            "--set remediation.create=true --set remediation.machines=true",
            "../../deploy/overlays/remediation, ../../deploy/overlays/remediation-machines",
        ),
        (
            "--set maintenance.create=true --set remediation.create=true",
            "../../deploy/overlays/maintenance",
        ),
        (
            "--set maintenance.create=true",
            "../../deploy/overlays/maintenance",
        ),
        (
            "--set maintenance.create=true --set maintenance.kubevirt=true",
            "../../deploy/overlays/maintenance, ../../deploy/overlays/maintenance-kubevirt",
        ),
        ("--set nodeops.create=true", "../../deploy/overlays/nodeops"),
        (
            "--set checkDrains.create=true",
            "../../deploy/overlays/check-drains",
        ),
        (
            "--set nodeConditions.create=true",
            "../../deploy/overlays/node-conditions",
        ),
        (
            "--set maintenance.create=true --set nodeops.create=true",
            "../../deploy/overlays/maintenance, ../../deploy/overlays/nodeops",
        ),
    ] {
        let dir = tempfile::tempdir_in(root().join("target")).unwrap();
        let text = format!("resources: [../../deploy]\ncomponents: [{components}]\n");
        std::fs::write(dir.path().join("kustomization.yaml"), text).unwrap();
        let mut with = by_name(&tools.kubectl(&format!("kustomize {}", dir.path().display())));
        with.retain(|name, _| !name.starts_with("Namespace /system-upgrade"));
        assert_eq!(tools.rendered(values), with, "{components}");
    }
    let monitoring = by_name(&tools.kubectl("kustomize deploy/monitoring"));
    assert_eq!(added("--set monitoring.create=true"), monitoring);
    // Clusters of before Kubernetes 1.30 have no such policies.
    let old = tools.rendered("--kube-version 1.29.0 --set deletePods.create=true");
    assert!(
        old.keys()
            .all(|name| !name.starts_with("ValidatingAdmissionPolicy"))
    );
    assert!(old.contains_key("ClusterRole /system-upgrade-controller-pod-deleter"));
}

/// As docs/install.md has it: without the transformers, the policies would confine no account of the other namespace.
#[test]
fn kustomize_builds_for_another_namespace_what_the_chart_renders_there() {
    let tools = Tools::offline();
    let dir = Tools::checkout();
    let document = std::fs::read_to_string(root().join("docs/install.md")).unwrap();
    let blocks = document.split("```yaml\n").skip(1);
    let mut blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    let documented = blocks
        .find(|block| block.contains("\nnamespace: upgrades\n"))
        .unwrap();
    for (components, flags) in [
        ("", ""),
        (
            "components: [deploy/overlays/delete-pods]\n",
            "--set deletePods.create=true",
        ),
        (
            "components: [deploy/overlays/read-workloads, deploy/overlays/check-drains, deploy/overlays/node-conditions]\n",
            "--set readWorkloads.create=true --set checkDrains.create=true --set nodeConditions.create=true",
        ),
    ] {
        std::fs::write(
            dir.path().join("kustomization.yaml"),
            format!("{documented}{components}"),
        )
        .unwrap();
        let mut built = by_name(&tools.kubectl(&format!("kustomize {}", dir.path().display())));
        built
            .remove("Namespace /upgrades")
            .expect("the namespace has the name");
        let rendered = tools.helm(&format!("template refit deploy/chart -n upgrades {flags}"));
        let mut chart = by_name(&rendered);
        chart.values_mut().for_each(without_labels_of_release);
        assert_eq!(chart.keys().collect::<Vec<_>>(), built.keys().collect::<Vec<_>>());
        for (name, object) in &built {
            assert_eq!(&chart[name], object, "{flags} {name}");
        }
    }
}
