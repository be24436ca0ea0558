//! What refit itself runs on a node that may reboot, with nobody to look after it: the Job's containers and the reboot Pod, made
//! as the controller makes them, on a real kubelet and a real host.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use refit::api::{Plan, RebootFault, SentinelReport};
use refit::job::{Errand, JobInput, JobSettings, NodeInput, PlanInput, RebootInput, reboot_pod, render};
use serde_json::json;

use crate::support::real::{self, BUSYBOX, PATIENCE, REFIT, RealNode};
use crate::support::wait;
use crate::support::world::World;

struct Stage {
    world: World,
    node: RealNode,
    uid: String,
    plan: Plan,
}

impl Stage {
    async fn new() -> Self {
        let world = real::world().await;
        let [node] = real::nodes(&world, ["one"]).await;
        let uid = node.wait_ready().await.uid().unwrap();
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "os"},
            "spec": {"upgrade": {"image": BUSYBOX}},
        });
        let plan = world.plan(&plan.to_string()).await;
        Self {
            world,
            node,
            uid,
            plan,
        }
    }

    /// The Plan with this reboot; `upgrade` counts its runs on the host.
    fn set(&mut self, reboot: &serde_json::Value) {
        let spec = json!({
            "upgrade": {"image": BUSYBOX, "command": ["sh", "-c"], "args": ["echo run >> /host/var/lib/runs"]},
            "hostAccess": "Root",
            "reboot": reboot,
        });
        self.plan.spec = serde_json::from_value(spec).unwrap();
    }

    fn settings() -> JobSettings {
        JobSettings::new("refit", REFIT)
    }

    fn input<'a>(&'a self, hash: &'a str) -> (PlanInput<'a>, NodeInput<'a>) {
        let plan = PlanInput {
            name: "os",
            namespace: self.world.namespace(),
            uid: self.plan.metadata.uid.as_deref().unwrap(),
            labels: None,
            annotations: None,
            spec: &self.plan.spec,
            latest_version: "v1",
            latest_hash: hash,
            inputs: "inputs",
            digests: &refit::job::NO_DIGESTS,
        };
        let node = NodeInput {
            name: self.node.name(),
            uid: &self.uid,
            os: Some("linux"),
        };
        (plan, node)
    }

    fn sentinel(&self, hash: &str) -> String {
        let plan = self.plan.metadata.uid.as_deref().unwrap();
        format!("/run/refit/{plan}.{}.{hash}", self.uid)
    }

    /// Runs the Job for this hash, and gives what its sentinel says.
    async fn upgrade(&self, hash: &str) -> SentinelReport {
        let (plan, node) = self.input(hash);
        let input = JobInput {
            plan,
            node,
            name: &format!("upgrade-{hash}"),
            attempt: 1,
            unschedulable_before: None,
        };
        let mut job = render(&input, &Self::settings()).unwrap();
        job.metadata.owner_references = None; // nobody's: no controller is to look after it
        let jobs: Api<Job> = self.world.jobs();
        jobs.create(&PostParams::default(), &job).await.unwrap();
        let list = ListParams::default().labels(&format!("batch.kubernetes.io/job-name=upgrade-{hash}"));
        let message = wait::eventually("the sentinel has spoken", PATIENCE, async || {
            let pods = self.world.pods().list(&list).await.unwrap().items;
            let done = pods.iter().find(|pod| phase(pod) == "Succeeded");
            done.and_then(ended)
                .and_then(|end| end.message)
                .ok_or_else(|| format!("{:#?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()))
        })
        .await;
        SentinelReport::parse(&message).unwrap()
    }

    async fn send(&self, hash: &str, errand: Errand<'_>) -> String {
        let (plan, node) = self.input(hash);
        let input = RebootInput {
            plan,
            node,
            hash,
            errand,
            seconds: 900,
            critical: true,
        };
        let mut pod = reboot_pod(&input, &Self::settings()).unwrap();
        pod.metadata.owner_references = None;
        self.world
            .pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap()
            .name_any()
    }

    async fn pod_until(&self, name: &str, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        wait::eventually(&format!("pod {name} {what}"), PATIENCE, async || {
            let pod = self
                .world
                .pods()
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            if is(&pod) {
                Ok(pod)
            } else {
                Err(format!("{:#?}", pod.status))
            }
        })
        .await
    }

    async fn fails(&self, hash: &str, boot_id: &str) -> (RebootFault, String, i32) {
        let name = self.send(hash, Errand::Reboot { boot_id }).await;
        let pod = self
            .pod_until(&name, "has failed once", |pod| ended(pod).is_some())
            .await;
        let end = ended(&pod).unwrap();
        self.remove(&name).await;
        let message = end.message.unwrap();
        let (fault, sentence) = RebootFault::parse(&message).unwrap_or_else(|| panic!("{message}"));
        (fault, sentence.to_owned(), end.exit_code)
    }

    /// Deletes the pod, and waits until it is gone.
    async fn remove(&self, name: &str) {
        self.world
            .pods()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        wait::eventually("the pod is gone", PATIENCE, async || {
            let left = self.world.pods().get_opt(name).await.unwrap();
            left.map_or(Ok(()), |pod| Err(format!("{:#?}", pod.status)))
        })
        .await;
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// How the one main container has ended last.
fn ended(pod: &Pod) -> Option<ContainerStateTerminated> {
    let container = &pod.status.as_ref()?.container_statuses.as_ref()?[0];
    let states = [&container.state, &container.last_state];
    states
        .into_iter()
        .find_map(|state| state.as_ref()?.terminated.clone())
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn what_refit_runs_on_a_node_reboots_it_once_and_by_evidence_only() {
    let mut stage = Stage::new().await;
    stage.set(&json!({"when": "IfRequired", "requiredFiles": ["/run/reboot-required", "/var/lib/again"]}));
    let first = stage.node.boot_ids()[0].clone();
    let nothing = stage.upgrade("h1").await;
    assert_eq!(
        (nothing.boot_id.as_str(), nothing.required),
        (first.as_str(), false)
    );
    stage.node.write("/var/lib/again", "");
    let report = stage.upgrade("h2").await;
    assert_eq!((report.boot_id.as_str(), report.required), (first.as_str(), true));
    assert_eq!(stage.node.lines("/var/lib/runs").len(), 2);
    let kept = stage.node.read(&stage.sentinel("h2")).unwrap();
    assert_eq!(SentinelReport::parse(&kept), Ok(report.clone()));

    let name = stage.send("h2", Errand::Ask).await;
    let pod = stage
        .pod_until(&name, "has ended", |pod| phase(pod) == "Succeeded")
        .await;
    assert_eq!(
        SentinelReport::parse(&ended(&pod).unwrap().message.unwrap()),
        Ok(report)
    );

    // systemctl, as on any host; the request returns before anything happens.
    let name = stage.send("h2", Errand::Reboot { boot_id: &first }).await;
    stage.node.wait_boots(2).await;
    stage.node.wait_ready().await;
    let pod = stage
        .pod_until(&name, "has ended", |pod| phase(pod) == "Succeeded")
        .await;
    assert_eq!(ended(&pod).unwrap().exit_code, 0);
    let second = stage.node.boot_ids()[1].clone();
    assert_eq!(stage.node.read(&stage.sentinel("h2")), None, "/run is a tmpfs");
    stage.remove(&name).await;

    // The same again: nothing is left to do. And for the next boot there is no evidence.
    let name = stage.send("h2", Errand::Reboot { boot_id: &first }).await;
    stage
        .pod_until(&name, "has ended", |pod| phase(pod) == "Succeeded")
        .await;
    stage.remove(&name).await;
    let (fault, sentence, code) = stage.fails("h2", &second).await;
    assert_eq!((fault, code), (RebootFault::SentinelMissing, 3), "{sentence}");

    // Commands that are missing, that fail, and that do nothing.
    stage.set(&json!({"when": "Always"}));
    assert!(stage.upgrade("h3").await.required);
    stage.set(&json!({"when": "Always", "command": ["/opt/none"]}));
    let (fault, sentence, code) = stage.fails("h3", &second).await;
    assert_eq!(
        (fault, sentence.as_str(), code),
        (RebootFault::CommandMissing, "/opt/none is not on the host", 1)
    );
    stage.set(&json!({"when": "Always", "command": ["systemctl", "hibernate"]}));
    let (fault, sentence, _) = stage.fails("h3", &second).await;
    assert_eq!(fault, RebootFault::CommandFailed);
    assert_eq!(
        sentence,
        "systemctl hibernate ended with exit status: 1: systemctl hibernate: not known on this node"
    );
    stage.set(&json!({"when": "Always", "command": ["sh", "-c", "readlink /proc/self/ns/mnt /proc/1/ns/mnt > /var/lib/where"]}));
    let name = stage.send("h3", Errand::Reboot { boot_id: &second }).await;
    wait::eventually("the command has run", PATIENCE, async || {
        let lines = stage.node.lines("/var/lib/where");
        if lines.len() == 2 {
            Ok(())
        } else {
            Err(format!("{lines:?}"))
        }
    })
    .await;
    let lines = stage.node.lines("/var/lib/where");
    assert_eq!(lines[0], lines[1], "it runs where process 1 does");
    let pod = stage
        .pod_until(&name, "is running", |pod| phase(pod) == "Running")
        .await;
    assert_eq!(ended(&pod), None, "what was asked for is waited for");
    stage.remove(&name).await;
    assert_eq!(stage.node.boots(), 2);
}
