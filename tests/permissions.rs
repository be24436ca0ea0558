//! What the controller may do, and what it does: no request is refused under the roles that it is given, no rule of the shipped roles
//! is unused, and a permission that is taken away is named until it is given back.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use refit::api::Plan;
use serde_json::{Value, json};

use crate::rollout::{DISTURBED, PLAN, RollOut, Shape, line};
use crate::support::audit::Requests;
use crate::support::channel::ChannelServer;
use crate::support::faults::{Moment, Rule};
use crate::support::manifest::Manifests;
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::support::world::cluster::{create, done, find_condition};
use crate::tended::Tended;

/// The manifests' 99 would keep a broken Job busy for hours.
const BACKOFF_LIMIT: &str = "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT";

const SHAPE: Shape = Shape {
    nodes: 4,
    concurrency: 2,
    run: Duration::from_millis(200),
};

/// All that a roll-out may come across: a channel, Secrets, a window, an exclusive Plan with prepare and delay, a failure and the
/// attempt after it, an edit before anything ran, a Plan that uses refit's own fields, and the next version.
async fn main_job(rollout: &RollOut) {
    let world = &rollout.world;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "https://example.com/releases/v1.2.3+k3s1");
    let secret = json!({ "metadata": { "name": PLAN, "namespace": world.namespace() }, "stringData": { "a": "1" } });
    create(&world.secrets(), secret).await;
    let nodes = world.my_nodes().await;
    let broken = nodes[0].metadata.name.clone().expect("a name");
    rollout.kubelet.behaviour(&broken, &[("upgrade.exit-code", "1")]).await;

    let spec = json!({
        "concurrency": 2,
        "channel": channel.url("/stable"),
        "nodeSelector": {},
        "serviceAccountName": "system-upgrade",
        "secrets": [{ "name": PLAN, "path": "/run/secret" }],
        "cordon": true,
        "exclusive": true,
        "window": {
            "days": ["mo", "tu", "we", "th", "fr", "sa", "su"],
            "startTime": "00:00", "endTime": "23:59:59", "timeZone": "UTC",
        },
        "postCompleteDelay": "1s",
        "postCompleteLabels": { "example.com/version": "$(LATEST_VERSION)" },
        "maxConcurrent": "50%",
        "prepare": { "image": "example.com/prepare" },
        "upgrade": { "image": "example.com/upgrade" },
    });
    apply(world, PLAN, spec).await;
    world
        .plan_until(PLAN, "has failed on one node, and done the others", DISTURBED, |plan| {
            let counts = plan.status.as_ref().and_then(|status| status.nodes).unwrap_or_default();
            counts.failed == 1 && counts.done == 3
        })
        .await;
    let told = world.events_with("JobFailed").await;
    assert_eq!(told.len(), 1, "{told:?}");

    // Tried again when somebody asks for it.
    rollout.kubelet.behaviour(&broken, &[]).await;
    world.annotate_node(&broken, "refit.rs/retry", Some(PLAN)).await;
    world.plan_complete(PLAN, DISTURBED).await;
    assert_eq!(rollout.kubelet.runs(&broken, "upgrade").await, 2);

    // The next version, which the Secret brings about.
    let edit = json!({ "stringData": { "a": "2" } });
    world.secrets().patch(PLAN, &PatchParams::default(), &Patch::Merge(edit)).await.expect("the Secret is edited");
    let before = world.plans().get(PLAN).await.expect("the Plan").status.and_then(|status| status.latest_hash);
    let plan = world
        .plan_until(PLAN, "is Complete with another hash", DISTURBED, |plan| {
            let hash = plan.status.as_ref().and_then(|status| status.latest_hash.clone());
            let complete = find_condition(plan, "Complete").is_some_and(|it| it.status == "True");
            hash != before && complete
        })
        .await;
    let hash = plan.status.and_then(|status| status.latest_hash).expect("a hash");
    for node in world.my_nodes().await {
        assert_eq!(done(&node, PLAN).as_ref(), Some(&hash));
        let label = node.metadata.labels.unwrap_or_default().get("example.com/version").cloned();
        assert_eq!(label.as_deref(), Some("v1.2.3-k3s1"));
    }
}

async fn apply(world: &World, name: &str, spec: Value) -> Plan {
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name }, "spec": spec,
    });
    let made = world.try_apply(plan).await.unwrap_or_else(|error| panic!("{error:#}"));
    made.try_parse().expect("a Plan")
}

fn refused(requests: &Requests) -> Vec<String> {
    requests.forbidden().into_iter().map(line).collect()
}

#[tokio::test]
async fn under_the_shipped_roles_nothing_is_refused() {
    let rollout = RollOut::prepare(World::new().await, SHAPE).await;
    let controller = rollout.controller().env(BACKOFF_LIMIT, "0").start();
    main_job(&rollout).await;
    assert_eq!(controller.terminate().await.code(), Some(0));
    assert_eq!(refused(&rollout.world.controller_requests().await), [""; 0]);
}

#[tokio::test]
async fn under_system_upgrade_controllers_own_roles_and_configuration_nothing_is_refused() {
    let rollout = RollOut::prepare(World::with(Manifests::Suc).await, SHAPE).await;
    let controller = rollout.controller().env(BACKOFF_LIMIT, "0").start();
    main_job(&rollout).await;
    assert_eq!(controller.terminate().await.code(), Some(0));
    assert_eq!(refused(&rollout.world.controller_requests().await), [""; 0]);
}

/// A permission that was taken from the controller.
struct Taken<'a> {
    world: &'a World,
    roles: [Vec<PolicyRule>; 2],
}

impl<'a> Taken<'a> {
    /// Takes verbs on one resource out of all rules of the shipped roles.
    async fn from(world: &'a World, verbs: &[&str], group: &str, resource: &str) -> Self {
        let before = rules(world).await;
        let without = |rules: &[PolicyRule]| -> Vec<PolicyRule> {
            let has = |list: &Option<Vec<String>>, item: &str| list.iter().flatten().any(|it| it == item);
            let mut rules = rules.to_vec();
            for rule in &mut rules {
                if has(&rule.api_groups, group) && has(&rule.resources, resource) {
                    assert_eq!(rule.resources.as_ref().map(Vec::len), Some(1), "a rule of its own");
                    rule.verbs.retain(|verb| !verbs.contains(&verb.as_str()));
                }
            }
            rules.retain(|rule| !rule.verbs.is_empty());
            rules
        };
        let after = [without(&before[0]), without(&before[1])];
        assert_ne!(after, before, "there is no such rule");
        write_rules(world, &after).await;
        Self { world, roles: before }
    }

    async fn give_back(self) {
        write_rules(self.world, &self.roles).await;
    }
}

/// Rules of the controller, on the cluster and in its namespace.
async fn rules(world: &World) -> [Vec<PolicyRule>; 2] {
    let name = "system-upgrade-controller";
    let cluster = Api::<ClusterRole>::all(world.client.clone()).get(&world.local_name(name)).await.expect("the ClusterRole");
    let role = Api::<Role>::namespaced(world.client.clone(), world.namespace()).get(name).await.expect("the Role");
    [cluster.rules.unwrap_or_default(), role.rules.unwrap_or_default()]
}

async fn write_rules(world: &World, [cluster, role]: &[Vec<PolicyRule>; 2]) {
    let name = "system-upgrade-controller";
    let as_merge = PatchParams::default();
    let roles = Api::<ClusterRole>::all(world.client.clone());
    roles
        .patch(&world.local_name(name), &as_merge, &Patch::Merge(json!({ "rules": cluster })))
        .await
        .expect("the ClusterRole is written");
    let roles = Api::<Role>::namespaced(world.client.clone(), world.namespace());
    roles.patch(name, &as_merge, &Patch::Merge(json!({ "rules": role }))).await.expect("the Role is written");
}

/// Takes a permission away in the middle of a roll-out, waits until `says` finds its name in the Plan, gives it back, and lets the
/// roll-out end.
async fn taken_away(verb: &str, group: &str, resource: &str, says: impl Fn(&Plan) -> String) {
    let shape = Shape { nodes: 8, concurrency: 2, run: Duration::from_millis(500) };
    let mut rollout = RollOut::prepare(World::new().await, shape).await;
    rollout.rough = true;
    let controller = rollout.controller().start();
    rollout.begin().await;
    rollout.under_way(1).await;
    let taken = Taken::from(&rollout.world, &[verb], group, resource).await;
    let words = [verb, resource.split('/').next().unwrap_or_default()];
    let name = rollout
        .world
        .plan_until(PLAN, &format!("says that it may not {verb} {resource}"), DISTURBED, |plan| {
            let text = says(plan);
            words.iter().all(|word| text.contains(word))
        })
        .await;
    eprintln!("{verb} {resource}: {}", says(&name));
    controller.logs(&format!("cannot {verb} resource \"{resource}\""), SOON).await;
    taken.give_back().await;
    rollout.ends_well().await;
}

/// What the condition Complete says.
fn complete(plan: &Plan) -> String {
    find_condition(plan, "Complete").map(|it| format!("{:?} {:?}", it.reason, it.message)).unwrap_or_default()
}

#[tokio::test]
async fn without_the_permission_to_create_jobs_the_plan_says_so_until_it_is_given_back() {
    taken_away("create", "batch", "jobs", complete).await;
}

#[tokio::test]
async fn without_the_permission_to_patch_nodes_the_plan_says_so_until_it_is_given_back() {
    taken_away("patch", "", "nodes", complete).await;
}

#[tokio::test]
async fn without_the_permission_to_patch_jobs_the_plan_says_so_until_it_is_given_back() {
    taken_away("patch", "batch", "jobs", complete).await;
}
