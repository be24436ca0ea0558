//! The Helm chart in `deploy/chart` and the single file `deploy/refit.yaml`, with the real Helm and kubectl; and the
//! commands of the documents about installation and migration, as they are written there.

mod cluster;
mod installed;
mod takeover;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::testenv::binaries::Binaries;
use crate::testenv::controller::binary;

const NAMESPACE: &str = "system-upgrade";
const NAME: &str = "system-upgrade-controller";
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

    /// The objects of the chart with these values.
    #[track_caller]
    fn rendered(&self, flags: &str) -> BTreeMap<String, Value> {
        by_name(&self.helm(&format!(
            "template refit deploy/chart -n {NAMESPACE} --include-crds {flags}"
        )))
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

fn deployment(objects: &BTreeMap<String, Value>) -> &Value {
    let mut all = objects.iter().filter(|(name, _)| name.starts_with("Deployment "));
    all.next().map(|(_, object)| object).unwrap()
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
            assert_eq!(all.remove(name).as_ref(), Some(object), "{flags}: {name}");
        }
        all
    };
    let built = by_name(&tools.kubectl("kustomize deploy"));
    for (value, component) in [("manageCrd", "manage-crd"), ("deletePods", "delete-pods")] {
        let dir = tempfile::tempdir_in(root().join("target")).unwrap();
        let text = format!("resources: [../../deploy]\ncomponents: [../../deploy/overlays/{component}]\n");
        std::fs::write(dir.path().join("kustomization.yaml"), text).unwrap();
        let mut with = by_name(&tools.kubectl(&format!("kustomize {}", dir.path().display())));
        with.retain(|name, _| !built.contains_key(name));
        assert!(!with.is_empty(), "{component}");
        assert_eq!(added(&format!("--set {value}.create=true")), with, "{component}");
    }
    // These change the Deployment, too.
    for (values, components) in [
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

#[test]
fn values_change_the_objects_that_they_name_and_nothing_else() {
    let tools = Tools::offline();
    let plain = tools.rendered("");
    let changed = |flags: &str| -> Vec<String> {
        let other = tools.rendered(flags);
        let names = plain
            .keys()
            .chain(other.keys().filter(|name| !plain.contains_key(*name)));
        names
            .filter(|name| plain.get(*name) != other.get(*name))
            .cloned()
            .collect()
    };
    let of_deployment = [format!("Deployment {NAMESPACE}/{NAME}")];
    for flags in [
        "--set replicas=1",
        "--set image.tag=v9",
        "--set imagePullSecrets[0].name=login",
        "--set env[0].name=HTTPS_PROXY --set env[0].value=http://proxy.example.com:3128",
        "--set args[0]=--channel-host=update.k3s.io",
        "--set resources.limits.memory=1Gi",
        "--set priorityClassName=",
        "--set nodeSelector.pool=system",
        "--set-json 'affinity={\"nodeAffinity\":{}}'",
        "--set tolerations[0].operator=Exists",
        "--set topologySpreadConstraints[0].maxSkew=1",
        "--set podLabels.team=platform",
        "--set podAnnotations.note=text",
        "--set volumes[0].name=ca",
        "--set volumeMounts[0].name=ca",
    ] {
        assert_eq!(changed(flags), of_deployment, "{flags}");
    }
    let one = |kind: &str| [format!("{kind} {NAMESPACE}/{NAME}")];
    assert_eq!(
        changed("--set podDisruptionBudget.create=false"),
        one("PodDisruptionBudget")
    );
    assert_eq!(changed("--set networkPolicy.create=false"), one("NetworkPolicy"));
    assert_eq!(
        changed("--set serviceAccount.annotations.a=b"),
        one("ServiceAccount")
    );
    let config = changed("--set config.SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL=1h");
    let expected = [
        format!("ConfigMap {NAMESPACE}/default-controller-env"),
        of_deployment[0].clone(),
    ];
    assert_eq!(
        config, expected,
        "a change of the settings restarts the controller"
    );
    let without = tools.rendered("--set rbac.create=false");
    let kinds = [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ];
    for name in without.keys() {
        assert!(!kinds.contains(&name.split(' ').next().unwrap()), "{name}");
    }
}

#[test]
fn values_reach_their_fields() {
    let tools = Tools::offline();
    let digest = format!("sha256:{}", "a".repeat(64));
    let flags = format!(
        "--set {REPOSITORY} --set image.digest={digest} --set podLabels.app\\\\.kubernetes\\\\.io/name=x --set replicas=0"
    );
    let objects = tools.rendered(&flags);
    let spec = &deployment(&objects)["spec"];
    assert_eq!(spec["replicas"], 0);
    let template = &spec["template"];
    let image = template.pointer("/spec/containers/0/image").unwrap();
    assert_eq!(image, &json!(format!("registry.example.com/refit@{digest}")));
    assert_eq!(
        template["metadata"]["labels"]["app.kubernetes.io/name"], "refit",
        "the labels that select pods stay"
    );
}

#[test]
fn a_release_in_another_namespace_names_no_other() {
    let tools = Tools::offline();
    let all = "--set manageCrd.create=true --set deletePods.create=true --set monitoring.create=true";
    let text = tools.helm(&format!("template refit deploy/chart -n cattle-system {all}"));
    for object in by_name(&text).values() {
        let namespace = &object["metadata"]["namespace"];
        assert!(
            ["cattle-system", "default", "kube-system"]
                .iter()
                .any(|it| namespace == it)
                || namespace.is_null(),
            "{object}"
        );
        for subject in object["subjects"].as_array().into_iter().flatten() {
            assert_eq!(subject["namespace"], "cattle-system");
        }
        assert!(
            !object
                .to_string()
                .contains("system:serviceaccount:system-upgrade:"),
            "{object}"
        );
    }
}

#[test]
fn values_that_do_not_exist_or_have_another_type_are_refused() {
    let tools = Tools::offline();
    for flags in [
        "--set replica=2",
        "--set replicas=two",
        "--set image.repository=registry.example.com/refit:v1",
        "--set image.digest=v1",
        "--set config.lower=1",
        "--set networkPolicy.enabled=true",
    ] {
        let line = format!("template refit deploy/chart {flags}");
        let error = tools.try_run(&tools.helm, &line).expect_err(flags);
        assert!(error.contains("schema"), "{flags}: {error}");
    }
    tools.helm("lint --strict deploy/chart");
}
