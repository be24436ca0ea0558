use super::*;
use crate::cluster::Options;
use crate::in_virtual_time;
use refit_api::sentinel::is_boot_id;

fn node(name: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "uid": format!("uid-of-{name}"), "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": {
            "conditions": [{ "type": "Ready", "status": ready, "lastHeartbeatTime": "2026-02-03T04:05:06Z" }],
            "nodeInfo": { "bootID": "b", "kubeletVersion": "v1.33.1" },
            "images": [{ "names": ["large"] }],
        },
    })
}

/// A pod with an owner, as kubectl prints it.
fn pod(name: &str, node: &str, owner: (&str, &str), ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "labels": { "app": "web" },
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": format!("uid-of-{}", owner.1),
                "controller": true,
            }],
        },
        "spec": { "nodeName": node, "restartPolicy": "Always", "containers": [{ "name": "web", "image": "web" }] },
        "status": {
            "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }],
            "containerStatuses": [{ "name": "web", "containerID": "containerd://1", "ready": true }],
        },
    })
}

#[test]
fn a_snapshot_beyond_its_memory_budget_is_refused_by_name() {
    let yaml = format!("a: [{}]\n", "0,".repeat(50_000));
    let json = format!("{{\"a\": [{}0]}}", "0,".repeat(50_000));
    for text in [&yaml, &json] {
        let parse = |bytes: usize| within_memory(bytes, || parse_objects("c.yaml", text).is_ok());
        assert_eq!(parse(8 << 20), (true, true));
        assert!(!parse(1 << 20).1);
    }
    assert_eq!(
        SnapshotError::TooLarge("c.yaml".to_owned()).to_string(),
        "c.yaml: the snapshot is larger than its memory budget: 1 GiB of text and 2 GiB of objects; leave out objects \
         that do not matter, such as pods of other nodes"
    );
    // Anchors within anchors are refused by the limits of the parser.
    let anchors: Vec<_> = (0..100).map(|depth| format!("&a{depth} [")).collect();
    let anchors = anchors.concat();
    let nested = format!("a: {anchors}{}{}\n", "0,".repeat(100_000), "]".repeat(100));
    assert!(parse("c.yaml", &nested).is_err());
}

fn budget() -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": "shop", "uid": "uid-of-budget" },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } },
    })
}

fn find<'s>(snapshot: &'s Snapshot, kind: &str, name: &str) -> Option<&'s Value> {
    let mut all = snapshot.objects.iter();
    all.find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
}

#[test]
fn documents_lists_and_json_are_read_and_mistakes_have_their_line() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- {kind: Node, metadata: {name: a}}\n---\nkind: PodList\nitems: \
                [{kind: Pod}]\n---\nkind: Plan\n";
    let kinds = |text: &str| -> Vec<String> {
        let objects = parse("f", text).unwrap();
        objects
            .iter()
            .map(|one| one["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds(list), ["Node", "Pod", "Plan"]);
    assert_eq!(
        kinds("{\"kind\":\"List\",\"items\":[{\"kind\":\"Node\"}]}"),
        ["Node"]
    );
    let error = parse("f.yaml", "kind: List\nitems: [\n").unwrap_err().to_string();
    assert!(
        error.starts_with("f.yaml:") && error.contains("neither YAML nor JSON"),
        "{error}"
    );
    let error = parse("f.json", "{\n\"kind\" 1}").unwrap_err().to_string();
    assert!(
        error.starts_with("f.json:2: this is neither YAML nor JSON"),
        "{error}"
    );
}

#[test]
fn a_snapshot_without_nodes_is_an_error() {
    let error = take("f", vec![budget()]).unwrap_err().to_string();
    assert!(
        error.starts_with("f: there is no Node in it, only 1 PodDisruptionBudget;"),
        "{error}"
    );
    let error = take("f", Vec::new()).unwrap_err().to_string();
    assert!(error.contains("only nothing"), "{error}");
}

#[test]
fn pods_of_unsupported_owners_get_a_set_of_their_own() {
    let objects = vec![
        node("one", true),
        pod("db-0", "one", ("StatefulSet", "db"), true),
        pod("db-1", "one", ("StatefulSet", "db"), true),
        pod("agent", "one", ("DaemonSet", "agent"), true),
        pod("job-1", "one", ("Rollout", "rollout"), true),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "db" } }),
    ];
    let snapshot = take("f", objects).unwrap();
    let set = find(&snapshot, "StatefulSet", "db").unwrap();
    assert_eq!(set["spec"]["replicas"], 2);
    assert_eq!(set["metadata"]["uid"], "uid-of-db", "as its pods name it");
    assert!(set["spec"]["template"]["spec"]["nodeName"].is_null());
    let owner = &find(&snapshot, "Pod", "job-1").unwrap()["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "ReplicaSet");
    assert!(find(&snapshot, "ReplicaSet", "rollout").is_some());
    assert!(find(&snapshot, "DaemonSet", "agent").is_some());
    assert_eq!(
        snapshot.notes,
        ["left out, because refit does not simulate it: 1 Deployment"]
    );
    assert_eq!(snapshot.taken, "2026-02-03T04:05:06Z".parse().ok());
    assert_eq!(snapshot.nodes, ["one"]);
    let node = find(&snapshot, "Node", "one").unwrap();
    assert_eq!(node["metadata"]["uid"], "uid-of-one");
    assert!(node["status"]["images"].is_null());
}

/// The report of an upgrade in another boot is no evidence, so that each node with `reboot` would fail.
#[test]
fn each_node_has_a_boot_as_a_kernel_names_it() {
    let real = "0f5b1f0e-9a3c-4c55-8b7e-2f0d6a1b3c4d";
    let mut with_real = node("one", true);
    with_real["status"]["nodeInfo"]["bootID"] = real.into();
    let snapshot = take("f", vec![with_real, node("two", true), node("three", true)]).unwrap();
    let boot = |name: &str| find(&snapshot, "Node", name).unwrap()["status"]["nodeInfo"]["bootID"].clone();
    assert_eq!(boot("one"), real);
    assert!(is_boot_id(boot("two").as_str().unwrap()));
    assert_ne!(boot("two"), boot("three"));
}

#[test]
fn owner_references_to_missing_objects_are_dropped() {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "uid-of-web",
            "ownerReferences": [{ "kind": "Deployment", "name": "web", "uid": "gone", "controller": true }],
        },
        "spec": { "replicas": 1 },
    });
    let mut old = set.clone();
    old["metadata"]["name"] = "web-old".into();
    old["spec"]["replicas"] = 0.into();
    let snapshot = take("f", vec![node("one", true), set.take(), old]).unwrap();
    let set = find(&snapshot, "ReplicaSet", "web").unwrap();
    assert_eq!(set["metadata"]["ownerReferences"], json!([]));
    assert!(find(&snapshot, "ReplicaSet", "web-old").is_none());
}

/// Disruptions allowed and healthy pods of the budget, and ready pods, after a minute.
fn later_on(objects: Vec<Value>) -> (i64, i64, usize) {
    let snapshot = take("f", objects).unwrap();
    in_virtual_time(async {
        let cluster = Cluster::new(Options::new(1, "2026-02-03T04:05:06Z".parse().unwrap()));
        cluster.restore(&snapshot).unwrap();
        cluster
            .run_while(tokio::time::sleep(std::time::Duration::from_secs(60)))
            .await;
        let budget = cluster.get(Kind::Budget, "shop", "web").unwrap();
        let number = |field: &str| budget["status"][field].as_i64().unwrap();
        let pods = cluster.with(|state| {
            assert_eq!(state.unsupported_requests(), [""; 0]);
            state.all(Kind::Pod).count()
        });
        (number("disruptionsAllowed"), number("currentHealthy"), pods)
    })
    .unwrap()
}

#[test]
fn pods_of_a_snapshot_keep_their_readiness() {
    let set = ("ReplicaSet", "web");
    let objects = |ready: [bool; 3]| {
        vec![
            node("one", true),
            node("two", true),
            budget(),
            pod("web-1", "one", set, ready[0]),
            pod("web-2", "one", set, ready[1]),
            pod("web-3", "two", set, ready[2]),
        ]
    };
    assert_eq!(later_on(objects([true; 3])), (1, 3, 3));
    assert_eq!(later_on(objects([true, true, false])), (0, 2, 3));
    assert_eq!(
        later_on(objects([false; 3])),
        (0, 0, 3),
        "and no better ones are created"
    );
}

#[test]
fn pods_that_have_ended_or_are_being_deleted_are_left_out() {
    let mut done = pod("done", "one", ("Job", "backup"), false);
    done["status"]["phase"] = "Succeeded".into();
    let mut leaving = pod("leaving", "one", ("ReplicaSet", "web"), true);
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let mut pending = pod("pending", "", ("ReplicaSet", "web"), false);
    pending["status"] = json!({ "phase": "Pending" });
    let snapshot = take("f", vec![node("one", true), done, leaving, pending]).unwrap();
    assert!(find(&snapshot, "Pod", "done").is_none() && find(&snapshot, "Pod", "leaving").is_none());
    assert!(find(&snapshot, "Pod", "pending").is_some());
    assert_eq!(snapshot.notes, ["1 pod is without a node and stay so"]);
}

/// The error of a snapshot with an object that is edited.
fn mistake_of(mut object: Value, edit: impl FnOnce(&mut Value)) -> String {
    edit(&mut object);
    take("f", vec![node("one", true), object])
        .unwrap_err()
        .to_string()
}

#[test]
fn an_object_that_cannot_be_read_is_an_error_and_not_left_out() {
    let of_node = |edit: fn(&mut Value)| mistake_of(node("two", true), edit);
    let labels = "metadata.labels";
    assert_eq!(
        of_node(|node| node["metadata"]["labels"]["role"] = true.into()),
        format!("f: Node two: {labels}.role must be text, but is true; write \"true\"")
    );
    assert_eq!(
        of_node(|node| node["metadata"]["labels"]["pool"] = 1.into()),
        format!("f: Node two: {labels}.pool must be text, but is 1; write \"1\"")
    );
    assert_eq!(
        of_node(|node| node["metadata"]["labels"] = json!(["a"])),
        format!("f: Node two: {labels} must be an object of texts, but is [\"a\"]")
    );
    assert_eq!(
        of_node(|node| node["metadata"]["name"] = Value::Null),
        "f: Node: metadata.name is missing"
    );
    assert_eq!(
        of_node(|node| node["status"]["conditions"] = json!([{ "type": "Ready", "status": true }])),
        "f: Node two: the field status cannot be read: invalid type: boolean `true`, expected a string"
    );
    let of_budget = mistake_of(budget(), |budget| budget["spec"]["minAvailable"] = json!([1]));
    assert!(
        of_budget.starts_with(
            "f: PodDisruptionBudget shop/web: the field minAvailable cannot be read: invalid type"
        ),
        "{of_budget}"
    );
}

#[test]
fn fields_that_are_left_empty_are_not_there() {
    for field in ["unschedulable", "taints"] {
        let mut bare = node("one", true);
        bare["spec"][field] = Value::Null;
        assert_eq!(take("f", vec![bare]).unwrap().nodes, ["one"], "{field}");
    }
    let mut bare = node("one", true);
    bare["spec"] = Value::Null;
    assert_eq!(take("f", vec![bare]).unwrap().nodes, ["one"]);
}

#[test]
fn items_of_a_node_list_are_nodes_though_they_do_not_say_so() {
    let mut bare = node("one", true);
    let bare = bare.as_object_mut().unwrap();
    for field in ["apiVersion", "kind"] {
        bare.remove(field);
    }
    let list = json!({ "apiVersion": "v1", "kind": "NodeList", "items": [Value::Object(bare.clone())] });
    let snapshot = take("f", parse("f", &list.to_string()).unwrap()).unwrap();
    assert_eq!(snapshot.nodes, ["one"]);
}

#[test]
fn a_budget_of_an_old_version_is_left_out_with_the_version_to_write() {
    let mut old = budget();
    old["apiVersion"] = "policy/v1beta1".into();
    let snapshot = take("f", vec![node("one", true), old]).unwrap();
    assert_eq!(
        snapshot.notes,
        [
            "left out, because refit does not simulate it: 1 PodDisruptionBudget of policy/v1beta1 (write policy/v1)"
        ]
    );
}
