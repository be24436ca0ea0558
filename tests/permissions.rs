//! What the controller may do, and what it does: no request is refused under the roles that it is given, no rule of the shipped roles
//! is unused, and a permission that is taken away is named until it is given back.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use refit::api::Plan;
use serde_json::{Value, json};

use crate::rollout::{DISTURBED, PLAN, RollOut, Shape, line};
use crate::support::audit::Requests;
use crate::support::channel::ChannelServer;
use crate::support::faults::Rule;
use crate::support::manifest::Manifests;
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::support::world::cluster::{create, done, find_condition};
use crate::tended::Tended;

/// Reason of condition and event.
const MISSING: &str = "MissingPermission";

/// The manifests' 99 would keep a broken Job busy for hours.
const BACKOFF_LIMIT: &str = "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT";

const SHAPE: Shape = Shape {
    nodes: 4,
    concurrency: 2,
    run: Duration::from_millis(200),
};

const BROAD: Shape = Shape {
    nodes: 8,
    concurrency: 2,
    run: Duration::from_millis(500),
};

/// All that a roll-out may come across: a channel, Secrets, a window, an exclusive Plan with prepare and delay, a failure and the
/// attempt after it, a Plan that uses refit's own fields, the next version, and a Plan that is deleted while nodes are at work.
async fn main_job(rollout: &RollOut) {
    let world = &rollout.world;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "https://example.com/releases/v1.2.3+k3s1");
    let secret =
        json!({ "metadata": { "name": PLAN, "namespace": world.namespace() }, "stringData": { "a": "1" } });
    create(&world.secrets(), secret).await;
    let nodes = world.my_nodes().await;
    let broken = nodes[0].metadata.name.clone().expect("a name");
    rollout
        .kubelet
        .behaviour(&broken, &[("upgrade.exit-code", "1")])
        .await;

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
        .plan_until(
            PLAN,
            "has failed on one node, and done the others",
            DISTURBED,
            |plan| {
                let counts = plan
                    .status
                    .as_ref()
                    .and_then(|status| status.nodes)
                    .unwrap_or_default();
                counts.failed == 1 && counts.done == 3
            },
        )
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
    world
        .secrets()
        .patch(PLAN, &PatchParams::default(), &Patch::Merge(edit))
        .await
        .expect("the Secret is edited");
    let before = world
        .plans()
        .get(PLAN)
        .await
        .expect("the Plan")
        .status
        .and_then(|status| status.latest_hash);
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
        let label = node
            .metadata
            .labels
            .unwrap_or_default()
            .get("example.com/version")
            .cloned();
        assert_eq!(label.as_deref(), Some("v1.2.3-k3s1"));
    }

    // Deleted while it works: nothing is left of it but what is done.
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        rollout
            .kubelet
            .behaviour(name, &[("upgrade.run-delay", "1m")])
            .await;
    }
    let edit = json!({ "spec": { "version": "v2.0.0" } });
    world.edit_plan(PLAN, edit).await;
    wait::eventually("a node is cordoned for it", DISTURBED, async || {
        let cordoned = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let nodes = world.my_nodes().await;
        nodes
            .iter()
            .any(cordoned)
            .then_some(())
            .ok_or_else(|| format!("{nodes:?}"))
    })
    .await;
    world
        .plans()
        .delete(PLAN, &DeleteParams::default())
        .await
        .expect("the Plan is deleted");
    wait::eventually("nothing is left of the Plan", DISTURBED, async || {
        let jobs = world.jobs_of(PLAN).await.len();
        let nodes = world.my_nodes().await;
        let held: Vec<_> = nodes.iter().filter(|node| is_held(node)).collect();
        if jobs == 0 && held.is_empty() {
            Ok(())
        } else {
            Err(format!("{jobs} Jobs; {held:?}"))
        }
    })
    .await;
}

/// What only a Plan takes that reboots its nodes, and waits for what it has evicted.
async fn reboots(rollout: &RollOut) {
    let world = &rollout.world;
    let behave = async |steering: &[(&str, &str)]| {
        for node in world.my_nodes().await {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            rollout.kubelet.behaviour(name, steering).await;
        }
    };
    behave(&[("upgrade.run-delay", "never")]).await;
    let spec = json!({
        "concurrency": 2, "version": "v1", "nodeSelector": {}, "serviceAccountName": "system-upgrade",
        "cordon": true, "reboot": { "when": "Always" }, "settle": { "minReady": "0s", "workloads": true },
        "upgrade": { "image": "example.com/upgrade" },
    });
    apply(world, "reboots", spec).await;
    let (name, mut ledger) = wait::eventually("a node is held", DISTURBED, async || {
        let nodes = world.my_nodes().await;
        let held = nodes.iter().find_map(|node| {
            let ledger = crate::scene::ledger(node).filter(|ledger| !ledger.holders.is_empty())?;
            Some((node.metadata.name.clone()?, ledger))
        });
        held.ok_or_else(|| "none is".to_owned())
    })
    .await;
    // What a drain leaves there; both are gone by the time they are looked for.
    ledger.holders[0].evicted = vec!["ReplicaSet/shop/web".to_owned(), "StatefulSet/shop/db".to_owned()];
    world
        .annotate_node(&name, "refit.rs/cordon", Some(&ledger.to_text()))
        .await;
    behave(&[]).await;
    world.plan_complete("reboots", DISTURBED).await;
    wait::eventually("no pod is left that reboots a node", DISTURBED, async || {
        let those = ListParams::default().labels(refit::api::names::LABEL_ROLE);
        let left = world.pods().list(&those).await.expect("pods").items.len();
        if left == 0 {
            Ok(())
        } else {
            Err(format!("{left} are"))
        }
    })
    .await;
}

/// The node is cordoned, or has something of refit's on it.
fn is_held(node: &Node) -> bool {
    let ours = |(key, _): (&String, &String)| key.contains("refit.rs/");
    node.spec.as_ref().and_then(|spec| spec.unschedulable).is_some()
        || node.metadata.annotations.iter().flatten().any(ours)
}

async fn apply(world: &World, name: &str, spec: Value) -> Plan {
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name }, "spec": spec,
    });
    let made = world
        .try_apply(plan)
        .await
        .unwrap_or_else(|error| panic!("{error:#}"));
    made.try_parse().expect("a Plan")
}

fn refused(requests: &Requests) -> Vec<String> {
    requests.forbidden().into_iter().map(line).collect()
}

/// Takes the definition of the Plan away: the controller is to register it.
async fn unregister(world: &World) -> Api<CustomResourceDefinition> {
    let crds = Api::<CustomResourceDefinition>::all(world.client.clone());
    let crd = refit::api::crd::NAME;
    crds.delete(crd, &DeleteParams::default())
        .await
        .expect("the definition is deleted");
    // The API server gives up on a definition whose storage had only just begun, until something about it changes.
    let mut looks = 0;
    wait::eventually("the definition is gone", SOON, async || {
        looks += 1;
        let again =
            json!({ "metadata": { "annotations": { "refit-test/looks": (looks / 20).to_string() } } });
        match crds
            .patch(crd, &PatchParams::default(), &Patch::Merge(again))
            .await
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Ok(_) => Err("it is there".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    crds
}

#[tokio::test]
async fn under_system_upgrade_controllers_own_roles_and_configuration_nothing_is_refused() {
    let world = World::alone_with(Manifests::Suc).await;
    let rollout = RollOut::prepare(world, SHAPE).await;
    unregister(&rollout.world).await;
    let controller = rollout.controller().env(BACKOFF_LIMIT, "0").start();
    controller.logs("watching", SOON).await;
    main_job(&rollout).await;
    assert_eq!(controller.terminate().await.code(), Some(0));
    assert_eq!(refused(&rollout.world.controller_requests().await), [""; 0]);
}

/// A verb on a resource in a namespace, as a rule grants it and a request uses it; the cluster is the namespace without a name.
type Right = (String, String, String);

fn granted(rules: &[PolicyRule], namespace: &str) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        let groups = rule.api_groups.as_deref().expect("a group");
        for (group, resource) in groups
            .iter()
            .flat_map(|group| rule.resources.iter().flatten().map(move |it| (group, it)))
        {
            for verb in &rule.verbs {
                rights.insert((namespace.to_owned(), qualified(group, resource), verb.clone()));
            }
        }
    }
    rights
}

fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

#[tokio::test]
async fn under_the_shipped_roles_nothing_is_refused_and_each_of_their_rules_is_used() {
    let rollout = RollOut::prepare(World::alone().await, SHAPE).await;
    let world = &rollout.world;
    let namespace = world.namespace();
    let crds = unregister(world).await;
    let crd = refit::api::crd::NAME;

    // Each kind of write goes wrong once in a way that makes the controller look.
    let faults = world.faults(0).await;
    for (verb, resource) in [("patch", "plans/status"), ("create", "jobs"), ("patch", "nodes")] {
        faults.add(Rule::on(verb, resource).nth(2).lose_answer());
    }
    let setup = rollout.controller().through(&faults).env(BACKOFF_LIMIT, "0");
    // In a pod it looks for itself.
    let setup = setup.env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    let controller = setup.start();
    controller.logs("watching", SOON).await;
    main_job(&rollout).await;
    reboots(&rollout).await;
    assert_eq!(controller.terminate().await.code(), Some(0));

    // Somebody's older definition is brought up to date.
    let mut versions = crds.get(crd).await.expect("the definition").spec.versions;
    versions[0].additional_printer_columns = None;
    let edit = json!({ "spec": { "versions": versions } });
    crds.patch(crd, &PatchParams::default(), &Patch::Merge(edit))
        .await
        .expect("the definition is edited");
    let again = controller.start_again();
    again.leading().await;

    let requests = world.controller_requests().await;
    assert_eq!(refused(&requests), [""; 0]);
    let mut used = BTreeSet::new();
    for request in requests.0 {
        // That is everybody's right.
        if request.resource == "selfsubjectaccessreviews" {
            continue;
        }
        // The namespace of a Namespace is itself, and workloads are where their users want them: that is granted on the cluster.
        let place = if request.resource == "namespaces" || request.group == "apps" {
            String::new()
        } else {
            request.namespace
        };
        used.insert((place, qualified(&request.group, &request.resource), request.verb));
    }
    let [cluster, role] = rules(world).await;
    let about_nodes = Api::<Role>::namespaced(world.client.clone(), "default");
    let about_nodes = about_nodes
        .get(&world.local_name("system-upgrade-controller"))
        .await
        .expect("the Role in default");
    let mut rights = granted(&cluster, "");
    rights.extend(granted(&role, namespace));
    rights.extend(granted(&about_nodes.rules.unwrap_or_default(), "default"));
    let (unused, missing): (Vec<_>, Vec<_>) = (
        rights.difference(&used).collect(),
        used.difference(&rights).collect(),
    );
    assert!(
        unused.is_empty() && missing.is_empty(),
        "unused: {unused:#?}; done without a rule: {missing:#?}"
    );
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
                    assert_eq!(
                        rule.resources.as_ref().map(Vec::len),
                        Some(1),
                        "a rule of its own"
                    );
                    rule.verbs.retain(|verb| !verbs.contains(&verb.as_str()));
                }
            }
            rules.retain(|rule| !rule.verbs.is_empty());
            rules
        };
        let after = [without(&before[0]), without(&before[1])];
        assert_ne!(after, before, "there is no such rule");
        write_rules(world, &after).await;
        for verb in verbs {
            until_refused(world, verb, group, resource).await;
        }
        Self { world, roles: before }
    }

    async fn give_back(self) {
        write_rules(self.world, &self.roles).await;
    }
}

/// The authorizer knows of a change of roles a moment after it was written.
async fn until_refused(world: &World, verb: &str, group: &str, resource: &str) {
    let reviews = Api::<SubjectAccessReview>::all(world.client.clone());
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "spec": {
            "user": world.user(),
            "resourceAttributes": {
                "namespace": world.namespace(), "verb": verb,
                "group": group, "resource": resource, "subresource": subresource,
            },
        },
    });
    wait::eventually("the permission is gone", SOON, async || {
        let answer: SubjectAccessReview = create(&reviews, review.clone()).await;
        if answer.status.is_some_and(|status| status.allowed) {
            Err(review.to_string())
        } else {
            Ok(())
        }
    })
    .await;
}

/// Rules of the controller, on the cluster and in its namespace.
async fn rules(world: &World) -> [Vec<PolicyRule>; 2] {
    let name = "system-upgrade-controller";
    let cluster = Api::<ClusterRole>::all(world.client.clone())
        .get(&world.local_name(name))
        .await
        .expect("the ClusterRole");
    let role = Api::<Role>::namespaced(world.client.clone(), world.namespace())
        .get(name)
        .await
        .expect("the Role");
    [cluster.rules.unwrap_or_default(), role.rules.unwrap_or_default()]
}

async fn write_rules(world: &World, [cluster, role]: &[Vec<PolicyRule>; 2]) {
    let name = "system-upgrade-controller";
    let as_merge = PatchParams::default();
    let roles = Api::<ClusterRole>::all(world.client.clone());
    roles
        .patch(
            &world.local_name(name),
            &as_merge,
            &Patch::Merge(json!({ "rules": cluster })),
        )
        .await
        .expect("the ClusterRole is written");
    let roles = Api::<Role>::namespaced(world.client.clone(), world.namespace());
    roles
        .patch(name, &as_merge, &Patch::Merge(json!({ "rules": role })))
        .await
        .expect("the Role is written");
}

/// Takes a permission away in the middle of a roll-out, waits until `says` finds its name in the Plan, gives it back, and lets the
/// roll-out end.
async fn taken_away(verb: &str, group: &str, resource: &str, says: impl Fn(&Plan) -> String) {
    let mut rollout = RollOut::prepare(World::new().await, BROAD).await;
    rollout.rough = true;
    let controller = rollout.controller().start();
    rollout.begin().await;
    rollout.under_way(1).await;
    let taken = Taken::from(&rollout.world, &[verb], group, resource).await;
    let words = [verb, resource.split('/').next().unwrap_or_default()];
    rollout
        .world
        .plan_until(
            PLAN,
            &format!("says that it may not {verb} {resource}"),
            DISTURBED,
            |plan| {
                let text = says(plan);
                words.iter().all(|word| text.contains(word))
            },
        )
        .await;
    controller.logs(&refusal(verb, resource), SOON).await;
    taken.give_back().await;
    rollout.ends_well().await;
    told_once(&rollout).await;
}

/// However often something was refused, that is one event.
async fn told_once(rollout: &RollOut) {
    let told = rollout.world.events_with(MISSING).await;
    assert!(told.len() <= 1, "{told:?}");
}

/// How the log has the API server's own words: in quotes.
fn refusal(verb: &str, resource: &str) -> String {
    format!(r#"cannot {verb} resource \"{resource}\""#)
}

/// What the condition Complete says.
fn complete(plan: &Plan) -> String {
    find_condition(plan, "Complete")
        .map(|it| format!("{:?} {:?}", it.reason, it.message))
        .unwrap_or_default()
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

#[tokio::test]
async fn without_the_permission_to_patch_plans_nobody_starts_until_it_is_given_back() {
    let mut rollout = RollOut::prepare(World::new().await, BROAD).await;
    rollout.rough = true;
    let controller = rollout.controller().start();
    rollout.begin().await;
    rollout.under_way(1).await;
    let taken = Taken::from(&rollout.world, &["patch"], "upgrade.cattle.io", "plans/status").await;
    controller.logs(&refusal("patch", "plans/status"), SOON).await;
    // Those that status names go on to their end, and nobody takes their place.
    wait::eventually("all that were begun are done", SOON, async || {
        let nodes = rollout.world.my_nodes().await;
        let done = nodes.iter().filter(|node| done(node, PLAN).is_some()).count();
        let jobs = rollout.world.jobs_of(PLAN).await.len();
        if done == jobs {
            Ok(())
        } else {
            Err(format!("{done} of {jobs}"))
        }
    })
    .await;
    let begun = rollout.world.jobs_of(PLAN).await.len();
    assert!(begun < BROAD.nodes, "nothing is left to be started");
    // Two tries more, with five seconds between them.
    let tries = || {
        controller
            .log()
            .matches(&refusal("patch", "plans/status"))
            .count()
    };
    let before = tries();
    wait::eventually("it has tried again", SOON, async || {
        if tries() > before {
            Ok(())
        } else {
            Err("no".to_owned())
        }
    })
    .await;
    assert_eq!(
        rollout.world.jobs_of(PLAN).await.len(),
        begun,
        "a node was started that status does not name"
    );
    taken.give_back().await;
    rollout.ends_well().await;
}

#[tokio::test]
async fn without_the_permission_to_read_secrets_the_plan_says_so_until_it_is_given_back() {
    let mut rollout = RollOut::prepare(World::new().await, SHAPE).await;
    rollout.rough = true;
    let taken = Taken::from(&rollout.world, &["get"], "", "secrets").await;
    let controller = rollout.controller().start();
    rollout.begin().await;
    let plan = rollout
        .world
        .plan_condition(PLAN, "Validated", "False", SOON)
        .await;
    let message = find_condition(&plan, "Validated")
        .and_then(|it| it.message.clone())
        .unwrap_or_default();
    assert!(message.contains("cannot get resource \"secrets\""), "{message}");
    controller.logs(&refusal("get", "secrets"), SOON).await;
    taken.give_back().await;
    rollout.ends().await;
    let plan = rollout.world.plans().get(PLAN).await.expect("the Plan");
    assert_eq!(
        find_condition(&plan, "Validated")
            .map(|it| it.status.clone())
            .as_deref(),
        Some("True")
    );
}

/// Takes the permission to list and watch a kind away in the middle of a roll-out, and its watch with it.
async fn blinded(resource: &str) {
    let mut rollout = RollOut::prepare(World::new().await, BROAD).await;
    rollout.rough = true;
    let faults = rollout.world.faults(0).await;
    let controller = rollout.controller().through(&faults).start();
    rollout.begin().await;
    rollout.under_way(1).await;
    let taken = Taken::from(&rollout.world, &["list", "watch"], "", resource).await;
    // The API server lets a watch that is open go on.
    faults.cut_watches(resource);
    controller.logs(&refusal("watch", resource), SOON).await;
    let (list, watch) = (format!("list {resource}"), format!("watch {resource}"));
    rollout
        .world
        .plan_until(
            PLAN,
            &format!("says that it may not watch {resource}"),
            DISTURBED,
            |plan| {
                let text = complete(plan);
                [MISSING, &list, &watch].iter().all(|word| text.contains(word))
            },
        )
        .await;
    let begun = rollout.world.jobs_of(PLAN).await.len();
    assert!(begun < BROAD.nodes, "nothing is left to be started");
    taken.give_back().await;
    rollout.ends_well().await;
    told_once(&rollout).await;
}

#[tokio::test]
async fn without_the_permission_to_watch_nodes_nobody_starts_until_it_is_given_back() {
    blinded("nodes").await;
}

#[tokio::test]
async fn without_the_permission_to_watch_secrets_no_plan_with_secrets_starts_until_it_is_given_back() {
    blinded("secrets").await;
}

#[tokio::test]
async fn without_the_permission_to_watch_secrets_from_the_start_plans_that_have_none_are_carried_out() {
    let mut rollout = RollOut::prepare(World::new().await, SHAPE).await;
    rollout.rough = true;
    let world = &rollout.world;
    let taken = Taken::from(world, &["list", "watch"], "", "secrets").await;
    let controller = rollout.controller().start();
    rollout.begin().await;
    let without = json!({
        "concurrency": 2, "version": "v1", "nodeSelector": {}, "upgrade": { "image": "example.com/other" },
    });
    apply(world, "without", without).await;
    world.plan_complete("without", DISTURBED).await;
    world
        .plan_until(PLAN, "says that it may not watch secrets", SOON, |plan| {
            let text = complete(plan);
            [MISSING, "list secrets", "watch secrets"]
                .iter()
                .all(|word| text.contains(word))
        })
        .await;
    assert_eq!(world.jobs_of(PLAN).await.len(), 0);
    controller.logs(&refusal("list", "secrets"), SOON).await;
    controller
        .logs("no node of a Plan with secrets is started", SOON)
        .await;
    let told = world.events_with(MISSING).await;
    assert_eq!(told.len(), 1, "{told:?}");
    taken.give_back().await;
    rollout.ends().await;
}

/// Of what cannot be listed nothing is known, so that no status is written: an event says why nothing happens.
#[tokio::test]
async fn without_the_permission_to_list_from_the_start_each_plan_is_told_and_nothing_else_is_done() {
    for (group, resource) in [("", "nodes"), ("batch", "jobs")] {
        let mut rollout = RollOut::prepare(World::new().await, SHAPE).await;
        rollout.rough = true;
        let taken = Taken::from(&rollout.world, &["list", "watch"], group, resource).await;
        let controller = rollout.controller().start();
        rollout.begin().await;
        controller.logs(&refusal("list", resource), SOON).await;
        let mut told = Vec::new();
        wait::eventually("an event says what is missing", SOON, async || {
            told = rollout.world.events_with(MISSING).await;
            if told.is_empty() {
                Err("none yet".to_owned())
            } else {
                Ok(())
            }
        })
        .await;
        let text = told[0].message.as_deref().unwrap_or_default();
        assert!(text.contains(&format!("list {resource}")), "{text}");
        let plan = rollout.world.plans().get(PLAN).await.unwrap();
        assert!(plan.status.is_none(), "{:?}", plan.status);
        assert_eq!(rollout.world.jobs_of(PLAN).await.len(), 0);
        taken.give_back().await;
        rollout.ends_well().await;
        let told = rollout.world.events_with(MISSING).await;
        assert_eq!(told.len(), 1, "{told:?}");
    }
}

#[tokio::test]
async fn without_the_permission_to_create_events_nobody_starts_until_it_is_given_back() {
    let mut rollout = RollOut::prepare(World::new().await, BROAD).await;
    rollout.rough = true;
    let controller = rollout.controller().start();
    rollout.begin().await;
    rollout.under_way(1).await;
    let taken = Taken::from(&rollout.world, &["create"], "", "events").await;
    rollout
        .world
        .plan_until(PLAN, "says that it may not create events", DISTURBED, |plan| {
            let text = complete(plan);
            let nobody = plan
                .status
                .as_ref()
                .and_then(|status| status.applying.as_ref())
                .is_none();
            [MISSING, "create events"].iter().all(|word| text.contains(word)) && nobody
        })
        .await;
    controller.logs(&refusal("create", "events"), SOON).await;
    let begun = rollout.world.jobs_of(PLAN).await.len();
    assert!(begun < BROAD.nodes, "nothing is left to be started");
    taken.give_back().await;
    let plan = rollout.ends().await;
    // Nodes that ended meanwhile did so without an event: none is left half done for want of one.
    rollout.check_but_events(&plan).await;
    let told = rollout.world.events_with("JobComplete").await.len();
    assert!((1..BROAD.nodes).contains(&told), "{told}");
}

#[tokio::test]
async fn without_the_permission_to_renew_its_lease_a_controller_ends_until_it_is_given_back() {
    // Longer than a Lease of the tests.
    let shape = Shape {
        nodes: 12,
        concurrency: 1,
        run: Duration::from_secs(1),
    };
    let mut rollout = RollOut::prepare(World::new().await, shape).await;
    rollout.rough = true;
    let tended = Tended::start(rollout.world.controller());
    rollout.begin().await;
    rollout.under_way(1).await;
    let taken = Taken::from(&rollout.world, &["update"], "coordination.k8s.io", "leases").await;
    let lost = "leaderelection lost for";
    tended.now().logs(lost, DISTURBED).await;
    // The next one does not lead, and says why.
    let of_next = || {
        tended
            .now()
            .log()
            .rsplit(lost)
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let cannot = r#"cannot update resource "leases""#;
    wait::eventually("the next one is refused as well", SOON, async || {
        let log = of_next();
        if log.contains(cannot) { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(tended.ends()[0].code(), Some(1));
    let writes = || async { rollout.world.controller_requests().await.count("create", "jobs") };
    let begun = writes().await;
    assert!(begun < shape.nodes, "nothing is left to be started");
    assert!(!of_next().contains("leading"), "{}", of_next());
    taken.give_back().await;
    rollout.ends_well().await;
}
