//! The Helm chart in `deploy/chart` and the single file `deploy/refit.yaml`, with the real Helm and kubectl; and the
//! commands of the documents about installation and migration, as they are written there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::testenv::binaries::Binaries;
use crate::testenv::controller::binary;
use crate::testenv::controlplane::Options;
use crate::testenv::environment::TestEnv;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::wait::{self, SOON};

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
            *namespace == "cattle-system" || *namespace == "default" || namespace.is_null(),
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

/// A control plane without anything of refit, and fake nodes for its pods.
struct Cluster {
    tools: Tools,
    _env: TestEnv,
    _kubelet: FakeKubelet,
}

impl Cluster {
    async fn new(servers: usize, agents: usize) -> Self {
        let env = TestEnv::own(Options::default()).await;
        let nodes = NodeSet::numbered("server-", servers).label(CONTROL_PLANE, "true");
        let mut nodes = nodes
            .steer("run-delay", "1s")
            .steer(&format!("{NAME}.run-delay"), "never");
        nodes
            .nodes
            .extend(NodeSet::numbered("agent-", agents).steer("run-delay", "1s").nodes);
        let kubelet = FakeKubelet::start(&env.kubelet_config().await, nodes).await;
        let kubeconfig = env.kubeconfig();
        let tools = tokio::task::spawn_blocking(|| Tools::new(kubeconfig))
            .await
            .unwrap();
        tools.kubectl("delete crd plans.upgrade.cattle.io");
        Self {
            tools,
            _env: env,
            _kubelet: kubelet,
        }
    }

    async fn until(&self, what: &str, object: &str, is: impl Fn(&Value) -> bool) -> Value {
        let line = format!("get {object} -n {NAMESPACE}");
        wait::until(what, async || self.tools.json(&line), is).await
    }

    /// Starts a controller with the account that the release created.
    fn controller(&self, identity: &str) -> Controller {
        let token = self
            .tools
            .kubectl(&format!("create token {NAME} -n {NAMESPACE} --duration 1h"));
        let mut config: Value =
            serde_saphyr::from_str(&self.tools.kubectl("config view --raw --flatten")).unwrap();
        config["users"][0]["user"] = json!({ "token": token.trim() });
        let path = self.tools.home.path().join(format!("{identity}.kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        let map = self
            .tools
            .json(&format!("get configmap default-controller-env -n {NAMESPACE}"));
        let settings = map["data"].as_object().unwrap().iter();
        let log = std::fs::File::create(self.tools.home.path().join(format!("{identity}.log"))).unwrap();
        let child = Command::new(binary())
            .args(["--name", NAME, "--namespace", NAMESPACE, "--kubeconfig"])
            .arg(path)
            .envs(settings.map(|(name, value)| (name, value.as_str().unwrap())))
            .env("REFIT_IDENTITY", identity)
            .env("REFIT_IMAGE", "registry.example.com/refit:v0.1.0")
            .stderr(log)
            .spawn();
        Controller(child.unwrap())
    }

    async fn leads(&self, identity: &str) {
        let is_holder = |lease: &Value| lease["spec"]["holderIdentity"] == identity;
        self.until(&format!("{identity} leads"), &format!("lease {NAME}"), is_holder)
            .await;
    }

    fn plan(&self, version: &str) {
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
            "metadata": { "name": "agents", "namespace": NAMESPACE },
            "spec": {
                "concurrency": 1, "version": version, "serviceAccountName": "system-upgrade", "cordon": true,
                "nodeSelector": { "matchExpressions": [{ "key": CONTROL_PLANE, "operator": "DoesNotExist" }] },
                "upgrade": { "image": "example.com/upgrade" },
            },
        });
        let file = self.tools.home.path().join("plan.json");
        std::fs::write(&file, plan.to_string()).unwrap();
        self.tools.kubectl(&format!("apply -f {}", file.display()));
    }

    async fn complete(&self, version: &str) {
        let is_complete = |plan: &Value| {
            let conditions = plan["status"]["conditions"].as_array().into_iter().flatten();
            let mut complete = conditions.filter(|one| one["type"] == "Complete" && one["status"] == "True");
            plan["status"]["latestVersion"] == version && complete.next().is_some()
        };
        self.until(
            &format!("the Plan is complete at {version}"),
            "plan agents",
            is_complete,
        )
        .await;
    }

    fn job_uids(&self) -> Vec<String> {
        let jobs = self.tools.json(&format!("get jobs -n {NAMESPACE}"));
        let all = jobs["items"].as_array().into_iter().flatten();
        all.map(|job| job["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The node of each running pod of the Deployment, by image.
    fn running(&self) -> Vec<(String, String)> {
        let pods = self.tools.json(&format!("get pods -n {NAMESPACE}"));
        let all = pods["items"].as_array().into_iter().flatten();
        let running = all.filter(|pod| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        running
            .map(|pod| {
                (
                    text(&pod["spec"]["containers"][0]["image"]),
                    text(&pod["spec"]["nodeName"]),
                )
            })
            .collect()
    }
}

/// A controller that is killed with its value.
struct Controller(Child);

impl Controller {
    async fn terminate(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        wait::eventually("the controller has ended", SOON, async || {
            match self.0.try_wait() {
                Ok(Some(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_available(replicas: u64) -> impl Fn(&Value) -> bool {
    move |deployment| {
        let status = &deployment["status"];
        let count = |name: &str| status[name].as_u64().unwrap_or_default();
        let is_current = status["observedGeneration"] == deployment["metadata"]["generation"];
        is_current
            && [
                count("readyReplicas"),
                count("updatedReplicas"),
                count("replicas"),
            ] == [replicas; 3]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_upgraded_rolled_back_and_uninstalled_around_roll_outs() {
    let cluster = Cluster::new(3, 3).await;
    let tools = &cluster.tools;
    let deployment = format!("deployment {NAME}");
    let chart = format!("deploy/chart -n {NAMESPACE} --reuse-values");
    let test = "the_chart_is_installed_upgraded_rolled_back_and_uninstalled_around_roll_outs";
    let steps = documented("deploy/chart/README.md", test);

    tools.script(root(), &steps["install"]);
    cluster
        .until("two replicas run", &deployment, is_available(2))
        .await;
    let nodes: Vec<String> = cluster.running().into_iter().map(|(_, node)| node).collect();
    assert_ne!(nodes[0], nodes[1], "on different nodes");
    let one = cluster.controller("one");
    cluster.leads("one").await;
    let other = cluster.controller("other");
    cluster.plan("v1");
    cluster.complete("v1").await;

    // In the middle of a roll-out the leader ends, and the release is upgraded.
    cluster.plan("v2");
    let has_begun =
        |plan: &Value| plan["status"]["latestVersion"] == "v2" && plan["status"]["nodes"]["applying"] == 1;
    cluster
        .until("a node is being upgraded", "plan agents", has_begun)
        .await;
    let before = cluster.job_uids();
    one.terminate().await;
    cluster.leads("other").await;
    tools.helm(&format!(
        "upgrade refit {chart} --set config.SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL=1h --set image.tag=v0.1.1"
    ));
    cluster.complete("v2").await;
    cluster
        .until("two replicas run", &deployment, is_available(2))
        .await;
    let after = cluster.job_uids();
    assert!(
        before.iter().all(|uid| after.contains(uid)),
        "no Job was replaced: {before:?} {after:?}"
    );
    assert_eq!(after.len(), 6, "one Job for each node and version");
    let images = |wanted: &str| {
        cluster
            .running()
            .iter()
            .all(|(image, _)| image == &format!("registry.example.com/refit:{wanted}"))
    };
    assert!(images("v0.1.1"), "{:?}", cluster.running());

    tools.script(root(), &steps["roll back"]);
    cluster
        .until("two replicas run", &deployment, is_available(2))
        .await;
    wait::holds("the old image runs", async || images("v0.1.0")).await;
    let map = tools.json(&format!("get configmap default-controller-env -n {NAMESPACE}"));
    assert_eq!(map["data"]["SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL"], "15m");

    tools.kubectl(&format!("delete plan agents -n {NAMESPACE}"));
    other.terminate().await;
    tools.script(root(), &steps["upgrade"]);
    tools.script(root(), &steps["uninstall"]);
    cluster
        .until("the Deployment is gone", &deployment, Value::is_null)
        .await;
    let kinds =
        "deployments,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies";
    let left = tools.kubectl(&format!("get {kinds} -n {NAMESPACE} -o name"));
    let of_kubernetes = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    assert_eq!(left.lines().collect::<Vec<_>>(), of_kubernetes);
    let wide = tools.kubectl("get clusterroles,clusterrolebindings -o name");
    assert!(!wide.contains("system-upgrade"), "{wide}");
    tools.kubectl("get crd plans.upgrade.cattle.io");
    for node in tools.json("get nodes")["items"].as_array().unwrap() {
        assert!(node["spec"]["unschedulable"].is_null(), "{node}");
        let annotations = node["metadata"]["annotations"].to_string();
        assert!(!annotations.contains("refit.rs"), "{annotations}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_commands_install_roll_out_upgrade_and_uninstall() {
    let cluster = Cluster::new(1, 2).await;
    let tools = &cluster.tools;
    let dir = Tools::checkout();
    let test = "the_documented_commands_install_roll_out_upgrade_and_uninstall";
    let steps = documented("docs/install.md", test);
    let run = |step: &str| tools.script(dir.path(), &steps[step]);
    run("install");
    let of_refit = |image: &str| image == "registry.example.com/refit:v0.1.0";
    assert_eq!(
        cluster
            .running()
            .iter()
            .filter(|(image, _)| of_refit(image))
            .count(),
        2
    );
    let controller = cluster.controller("one");
    run("first roll-out");
    run("rehearse");
    let recipes = documented("docs/operations.md", test);
    for step in ["retry", "recipes"] {
        let script = recipes[step]
            .replace("PLAN", "hello")
            .replace("NODE", "agent-0000");
        tools.script(dir.path(), &script);
    }
    // Nothing had failed, so the annotation is still there.
    tools.kubectl("annotate node agent-0000 refit.rs/retry-");
    run("single file");
    run("upgrade");
    run("uninstall");
    drop(controller);
    for kind in [
        "namespace system-upgrade",
        "crd plans.upgrade.cattle.io",
        "clusterrole system-upgrade-controller",
    ] {
        assert_eq!(tools.json(&format!("get {kind}")), Value::Null, "{kind}");
    }
    run("labels");
    for node in tools.json("get nodes")["items"].as_array().unwrap() {
        let metadata = node["metadata"].to_string();
        assert!(
            !metadata.contains("upgrade.cattle.io") && !metadata.contains("refit.rs"),
            "{metadata}"
        );
    }
}

/// system-upgrade-controller on a cluster of one server, with its roles, settings and Deployment.
async fn with_suc(agents: usize) -> (Cluster, (String, String)) {
    let cluster = Cluster::new(1, agents).await;
    let tools = &cluster.tools;
    tools.kubectl(&format!("create namespace {NAMESPACE}"));
    tools.kubectl("apply -f tests/fixtures/suc-rbac.yaml");
    tools.kubectl("apply -f tests/fixtures/suc-deployment.yaml");
    tools.kubectl("apply --server-side -f crds/plans.upgrade.cattle.io.yaml");
    cluster
        .until(
            "system-upgrade-controller runs",
            &format!("deployment {NAME}"),
            is_available(1),
        )
        .await;
    let suc = cluster.running().remove(0);
    assert!(suc.0.starts_with("rancher/system-upgrade-controller:"), "{suc:?}");
    (cluster, suc)
}

impl Cluster {
    /// A pod of refit is on the node and does not start, and system-upgrade-controller runs on.
    async fn keeps(&self, suc: &(String, String)) {
        let line = format!("get pods -n {NAMESPACE} -l app.kubernetes.io/name=refit");
        let on_nodes = async || {
            let pods = self.tools.json(&line);
            let all = pods["items"].as_array().into_iter().flatten();
            all.filter(|pod| pod["spec"]["nodeName"].is_string()).count()
        };
        wait::until("a pod of refit is on the node", on_nodes, |count| *count > 0).await;
        wait::always(
            "system-upgrade-controller runs",
            Duration::from_secs(3),
            async || {
                let running = self.running();
                if running.contains(suc) {
                    Ok(())
                } else {
                    let spec =
                        self.tools.json(&format!("get deployment {NAME} -n {NAMESPACE}"))["spec"].clone();
                    let events = self
                        .tools
                        .kubectl(&format!("get events,pods -n {NAMESPACE} -o wide"));
                    Err(format!("{running:?}\n{spec:#}\n{events}"))
                }
            },
        )
        .await;
    }

    /// Only refit runs, with both replicas.
    async fn is_taken_over(&self) {
        self.until("refit runs", &format!("deployment {NAME}"), is_available(2))
            .await;
        let of_refit = |running: &Vec<(String, String)>| {
            running.len() == 2
                && running
                    .iter()
                    .all(|(image, _)| image == "registry.example.com/refit:v0.1.0")
        };
        wait::until("only refit runs", async || self.running(), of_refit).await;
    }
}

/// An image that cannot be pulled must not take a working controller away, also where there is one node for both. In
/// these tests a container that does not start stands for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_by_the_manifests_keeps_system_upgrade_controller_until_refit_is_ready() {
    let (cluster, suc) = with_suc(0).await;
    let tools = &cluster.tools;
    let dir = Tools::checkout();
    let test = "a_takeover_by_the_manifests_keeps_system_upgrade_controller_until_refit_is_ready";
    let steps = documented("docs/migrate.md", test);
    tools.script(dir.path(), &steps["check"]);
    tools.script(dir.path(), &steps["snapshot"]);
    let settings = format!("configmap default-controller-env -n {NAMESPACE}");
    let patch = r#"{"data":{"SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL":"3h"}}"#;
    tools.kubectl(&format!("patch {settings} --type merge -p '{patch}'"));

    let file = dir.path().join("deploy/deployment.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    let never = "    metadata:\n      annotations: {fake-kubelet/start-delay: 8760h}\n      labels:\n";
    let broken = good.replacen("    metadata:\n      labels:\n", never, 1);
    assert_ne!(good, broken);
    std::fs::write(&file, broken).unwrap();
    tools.script(dir.path(), &steps["takeover"]);
    cluster.keeps(&suc).await;

    std::fs::write(&file, good).unwrap();
    tools.script(dir.path(), &steps["takeover"]);
    cluster.is_taken_over().await;
    let map = tools.json(&format!("get {settings}"));
    assert_eq!(map["data"]["SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL"], "3h");
    let pod = tools.json(&format!("get pods -n {NAMESPACE}"))["items"][0]["spec"].clone();
    assert_eq!(pod["serviceAccountName"], NAME);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_by_the_chart_keeps_system_upgrade_controller_until_refit_is_ready() {
    let (cluster, suc) = with_suc(1).await;
    let tools = &cluster.tools;
    let test = "a_takeover_by_the_chart_keeps_system_upgrade_controller_until_refit_is_ready";
    let script = documented("deploy/chart/README.md", test)
        .remove("check and take over")
        .unwrap();
    let same = &documented("docs/migrate.md", test)["takeover by the chart"];
    assert!(script.ends_with(same), "both documents have the same command");
    let never = "--set-string podAnnotations.fake-kubelet/start-delay=8760h";
    tools.script(root(), &format!("{} {never}", script.trim_end()));
    cluster.keeps(&suc).await;

    tools.helm(&format!(
        "upgrade refit deploy/chart -n {NAMESPACE} --set {REPOSITORY} --force-conflicts"
    ));
    cluster.is_taken_over().await;
    let controller = cluster.controller("one");
    cluster.plan("v1");
    cluster.complete("v1").await;

    // And back: the Plan, its Jobs and the marks of nodes stay, and nothing else of refit.
    let (jobs, nodes) = (
        cluster.job_uids(),
        tools.json("get nodes -l plan.upgrade.cattle.io/agents"),
    );
    assert_eq!(
        (jobs.len(), nodes["items"].as_array().map(Vec::len)),
        (1, Some(1))
    );
    controller.terminate().await;
    let dir = Tools::checkout();
    let read = |file: &str| std::fs::read_to_string(root().join("tests/fixtures").join(file)).unwrap();
    let manifests = format!("{}\n---\n{}", read("suc-rbac.yaml"), read("suc-deployment.yaml"));
    std::fs::write(dir.path().join("system-upgrade-controller.yaml"), manifests).unwrap();
    tools.script(dir.path(), &documented("docs/migrate.md", test)["go back"]);
    let is_back = |running: &Vec<(String, String)>| running.as_slice() == std::slice::from_ref(&suc);
    wait::until(
        "only system-upgrade-controller runs",
        async || cluster.running(),
        is_back,
    )
    .await;
    assert_eq!(cluster.job_uids(), jobs);
    let is_done = tools.json("get nodes -l plan.upgrade.cattle.io/agents");
    assert_eq!(is_done["items"].as_array().map(Vec::len), Some(1));
    let kinds = "deployments,configmaps,serviceaccounts,roles,poddisruptionbudgets,networkpolicies";
    let left = tools.kubectl(&format!(
        "get {kinds} -n {NAMESPACE} -l app.kubernetes.io/managed-by=Helm -o name"
    ));
    assert_eq!(left, "");
}
