//! The commands with which people see and steer roll-outs, as programs on a real control plane: also under a role that only
//! reads, and as a plugin of the real kubectl.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, ListParams};
use refit_api::Plan;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Harness, is_cordoned};
use crate::testenv::context::cluster::create;
use crate::testenv::manifest::TEST_LABEL;
use crate::workdir::Workdir;

#[derive(Debug)]
pub(crate) struct Ran {
    code: Option<i32>,
    pub(crate) out: String,
    err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            self.out.contains(text) || self.err.contains(text),
            "{text:?}: {self:#?}"
        );
        self
    }
}

pub(crate) struct UserCli<'a> {
    harness: &'a Harness,
    kubeconfig: PathBuf,
}

impl<'a> UserCli<'a> {
    pub(crate) fn admin(harness: &'a Harness) -> Self {
        Self {
            harness,
            kubeconfig: harness.ctx.test_env.kubeconfig(),
        }
    }

    /// Those who may read Plans, nodes and what belongs to them.
    pub(crate) async fn viewer(harness: &'a Harness) -> Self {
        let kubeconfig = viewer(harness, &["get", "list"]).await;
        Self { harness, kubeconfig }
    }

    async fn run(&self, program: &Path, line: &str) -> Ran {
        let namespace = self.harness.ctx.namespace();
        let mut command = Command::new(program);
        command.args(line.split_whitespace()).args(["-n", namespace]);
        self.finish(command).await
    }

    async fn finish(&self, mut command: Command) -> Ran {
        let output = command
            .env("KUBECONFIG", &self.kubeconfig)
            .kill_on_drop(true)
            .output()
            .await;
        let output = output.unwrap();
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) async fn refit(&self, line: &str) -> Ran {
        self.run(Path::new(env!("CARGO_BIN_EXE_refit")), line).await
    }

    /// Without a namespace, which the context names.
    pub(crate) async fn refit_anywhere(&self, line: &str) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
        command.args(line.split_whitespace());
        self.finish(command).await
    }
}

/// An account that may only read, with these verbs, and its kubeconfig.
pub(crate) async fn viewer(harness: &Harness, verbs: &[&str]) -> PathBuf {
    let ctx = &harness.ctx;
    let name = ctx.local_name("viewer");
    let labels = json!({ TEST_LABEL: ctx.namespace() });
    let account = json!({ "metadata": { "name": "viewer", "namespace": ctx.namespace() } });
    let rule = |group: &str, resources: Value| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let role = json!({
        "kind": "ClusterRole",
        "metadata": { "name": name, "labels": labels },
        "rules": [
            rule("", json!(["nodes", "pods", "events"])), rule("batch", json!(["jobs"])),
            rule("upgrade.cattle.io", json!(["plans"])), rule("policy", json!(["poddisruptionbudgets"])),
        ],
    });
    let binding = json!({
        "metadata": { "name": name, "labels": labels },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "viewer", "namespace": ctx.namespace() }],
    });
    create::<ServiceAccount>(&Api::namespaced(ctx.client.clone(), ctx.namespace()), account).await;
    create::<ClusterRole>(&Api::all(ctx.client.clone()), role.clone()).await;
    create::<ClusterRoleBinding>(&Api::all(ctx.client.clone()), binding.clone()).await;
    ctx.in_force(&[role, binding]).await;
    let token = ctx.token("viewer").await;
    ctx.write_kubeconfig("viewer", &token)
}

#[tokio::test]
async fn users_see_and_steer_a_roll_out_with_what_they_may_do() {
    let harness = Harness::held(["one", "two"]).await;
    let _controller = harness.ctx.start_and_warm_up().await;
    harness.plan("p", json!({})).await;
    let (first, second) = harness.first_of_two("p").await;
    harness.upgrading("p", first).await;
    let (running, waiting) = (harness.node(first), harness.node(second));
    let admin = UserCli::admin(&harness);
    let viewer = UserCli::viewer(&harness).await;

    let seen = admin
        .refit("status p")
        .await
        .ends(0)
        .says("0/2 done; 1 Upgrading, 1 Waiting");
    assert!(seen.out.contains(&running), "{seen:#?}");
    let seen = viewer
        .refit("status p")
        .await
        .ends(0)
        .says("0/2 done; 1 Upgrading, 1 Waiting");
    assert!(!seen.out.contains("not shown"), "{seen:#?}");
    let namespace = harness.ctx.namespace();
    viewer
        .refit_anywhere("status p")
        .await
        .ends(0)
        .says(&format!("{namespace}/p  "))
        .says(&format!("namespace {namespace}, that of the context; -n or -A"));
    viewer
        .refit_anywhere("status -A")
        .await
        .ends(0)
        .says(&format!("{namespace}/p  "));
    viewer
        .refit(&format!("explain p {waiting}"))
        .await
        .ends(1)
        .says("its slots are held by");
    viewer
        .refit(&format!("explain p {running}"))
        .await
        .ends(0)
        .says("continues: Upgrading");
    viewer
        .refit("suspend p")
        .await
        .ends(1)
        .says("cannot be written")
        .says("forbidden");
    admin
        .refit("status pp")
        .await
        .ends(1)
        .says("there is no Plan pp, did you mean p?");
    admin
        .refit("retry p nowhere")
        .await
        .ends(1)
        .says("there is no Node nowhere");
    admin.refit("retry p").await.ends(1).says("no node has failed");

    admin
        .refit("suspend p --reason storage")
        .await
        .ends(0)
        .says("plan.upgrade.cattle.io/p suspended");
    let plans = Api::<Plan>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let plan = plans.get("p").await.unwrap();
    assert_eq!(plan.spec.suspend, Some(true));
    let note = plan.metadata.annotations.unwrap()["refit.rs/suspended"].clone();
    assert!(
        note.starts_with("by ") && note.ends_with(": storage") && !note.contains("unknown"),
        "{note}"
    );
    admin
        .refit("suspend p")
        .await
        .ends(0)
        .says("is suspended already (by ");
    admin
        .refit("resume p --dry-run=server")
        .await
        .ends(0)
        .says("resumed (server dry run)");
    let plan = plans.get("p").await.unwrap();
    assert_eq!(plan.spec.suspend, Some(true));
    harness.release(first).await;
    admin
        .refit("abort p --wait --timeout 2m")
        .await
        .ends(0)
        .says("aborted");
    viewer
        .refit(&format!("explain p {waiting}"))
        .await
        .ends(1)
        .says("Aborted")
        .says("refit resume");
    admin
        .refit("explain")
        .await
        .ends(1)
        .says("Aborted")
        .says("refit resume");
    let table = admin
        .refit("status")
        .await
        .ends(0)
        .says("PLAN ")
        .says("see below");
    assert!(table.out.contains("Aborted"), "{table:#?}");
    admin
        .refit("status --as nobody --as-group nobodies")
        .await
        .ends(1)
        .says("User \"nobody\" cannot list");
    assert!(!is_cordoned(&harness.get(second).await));

    admin.refit("resume p -o json").await.ends(0).says("resumed");
    harness.upgrading("p", second).await;
    harness.release(second).await;
    harness.complete("p").await;
    admin
        .refit(&format!("rerun p {running} --wait --timeout 2m"))
        .await
        .ends(0)
        .says("to run again");
    let report = viewer.refit("report p -o json").await.ends(0);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["nodes"].as_array().unwrap().len(), 2, "{report:#}");
}

#[tokio::test]
async fn kubectl_runs_refit_as_its_plugin() {
    let harness = Harness::new(["one"]).await;
    let _controller = harness.ctx.start_and_warm_up().await;
    harness.plan("p", json!({})).await;
    harness.complete("p").await;
    let folder = Workdir::new([]);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_refit"), folder.path().join("kubectl-refit")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_refit"), folder.path().join("refit")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubectl/kubectl_complete-refit");
    std::os::unix::fs::symlink(script, folder.path().join("kubectl_complete-refit")).unwrap();
    let kubectl = harness.ctx.test_env.kubectl().await;
    let user = UserCli::admin(&harness);
    let run = async |args: &[&str]| {
        let mut command = Command::new(&kubectl);
        let path = format!(
            "{}:{}",
            folder.path().display(),
            std::env::var("PATH").unwrap_or_default()
        );
        command.args(args).env("PATH", path);
        user.finish(command).await.ends(0)
    };
    let namespace = harness.ctx.namespace();
    let plugin = run(&["refit", "status", "p", "-n", namespace]).await;
    let status = user.refit("status p").await.ends(0);
    assert_eq!(plugin.out, status.out);
    assert!(plugin.out.contains("1/1 done"), "{plugin:#?}");
    run(&["plugin", "list"]).await.says("kubectl-refit");
    run(&["refit", "status", "--help"])
        .await
        .says("Usage: kubectl refit status");
    let found = run(&["__complete", "refit", "retry", "-n", namespace, "p", ""]).await;
    assert!(
        found.out.lines().any(|line| line == harness.node("one")),
        "{found:#?}"
    );
}

#[tokio::test]
async fn several_plans_are_suspended_together_and_one_command_freezes_all() {
    let harness = Harness::held(["one"]).await;
    for plan in ["p", "q"] {
        harness.plan(plan, json!({})).await;
    }
    let admin = UserCli::admin(&harness);
    let plans = Api::<Plan>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let suspended = async || {
        let plans = plans.list(&ListParams::default()).await.unwrap();
        let is_suspended = |plan: &&Plan| plan.spec.suspend == Some(true);
        let names = plans.iter().filter(is_suspended).map(kube::ResourceExt::name_any);
        names.collect::<Vec<_>>()
    };
    let done = admin.refit("suspend p q --reason maintenance").await.ends(0);
    done.says("plan.upgrade.cattle.io/p suspended")
        .says("plan.upgrade.cattle.io/q suspended");
    assert_eq!(suspended().await, ["p", "q"]);
    admin.refit("resume --all").await.ends(0);
    assert_eq!(suspended().await, [""; 0]);
    // A Plan that does not exist does not keep the others from being suspended.
    let done = admin.refit("suspend nosuch q").await.ends(1);
    done.says("there is no Plan nosuch");
    assert_eq!(suspended().await, ["q"]);
    admin.refit("suspend").await.ends(2).says("PLAN");

    let maps = Api::<ConfigMap>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let freeze = async || {
        let map = maps.get_opt("refit").await.unwrap();
        map.and_then(|map| map.data?.remove("freeze"))
    };
    admin.refit("freeze --dry-run").await.ends(0).says("frozen");
    assert_eq!(freeze().await, None);
    let done = admin.refit("freeze --reason storage").await.ends(0);
    done.says("configmap/refit frozen: storage (by ");
    assert!(freeze().await.unwrap().starts_with("storage (by "));
    admin
        .refit("freeze")
        .await
        .ends(0)
        .says("frozen already: storage");
    admin.refit("unfreeze").await.ends(0).says("no longer frozen");
    assert_eq!(freeze().await, None);
    admin.refit("unfreeze").await.ends(0).says("not frozen");
    admin.refit("logs p").await.ends(1).says("name the node");
    let node = harness.node("one");
    admin
        .refit(&format!("logs p {node}"))
        .await
        .ends(1)
        .says("has no pod on Node");
}
