//! What the values of the chart change, and what they do not.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{DEFINITION, NAME, NAMESPACE, REPOSITORY, Tools, by_name};

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
        "--set extraEnv[0].name=HTTPS_PROXY --set extraEnv[0].value=http://proxy.example.com:3128",
        "--set extraEnvFrom[0].secretRef.name=proxy",
        "--set extraArgs[0]=--channel-host=update.k3s.io",
        "--set podSecurityContext.fsGroup=1",
        "--set securityContext.runAsUser=1",
        "--set updateStrategy.type=Recreate",
        "--set revisionHistoryLimit=0",
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
    for flags in ["annotations.a=b", "create=false"] {
        assert_eq!(
            changed(&format!("--set serviceAccount.{flags}")),
            one("ServiceAccount")
        );
    }
    assert_eq!(
        changed("--set crds.create=false"),
        [format!("CustomResourceDefinition /{DEFINITION}")]
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

/// Each role and account that an object names is there.
#[track_caller]
fn assert_names_exist(objects: &BTreeMap<String, Value>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (of, object) in objects {
        let namespace = text(&object["metadata"]["namespace"]);
        let mut named = Vec::new();
        if let Some(role) = object.get("roleRef") {
            let place = if role["kind"] == "Role" { &*namespace } else { "" };
            named.push(format!("{} {place}/{}", text(&role["kind"]), text(&role["name"])));
        }
        for subject in object["subjects"].as_array().into_iter().flatten() {
            named.push(format!(
                "ServiceAccount {}/{}",
                text(&subject["namespace"]),
                text(&subject["name"])
            ));
        }
        if let Some(account) = object.pointer("/spec/template/spec/serviceAccountName") {
            named.push(format!("ServiceAccount {namespace}/{}", text(account)));
        }
        for name in named {
            assert!(objects.contains_key(&name), "{of} names {name}");
        }
    }
}

#[test]
fn values_reach_their_fields() {
    let tools = Tools::offline();
    let digest = format!("sha256:{}", "a".repeat(64));
    let monitoring = "--set monitoring.create=true --set monitoring";
    let extra = r#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"of-{{ .Release.Name }}"}}]"#;
    let null = r#"--set-json podSecurityContext={\"runAsUser\":null}"#;
    let here = |kind: &str, name: &str| format!("{kind} {NAMESPACE}/{name}");
    let controller = here("Deployment", NAME);
    let pod = "/spec/template/spec";
    let labels = "/spec/template/metadata/labels";
    let of_name = "app.kubernetes.io~1name";
    for (flags, object, path, value) in [
        (
            "--set replicas=0".to_owned(),
            &controller,
            "/spec/replicas".to_owned(),
            json!(0),
        ),
        (
            format!("--set {REPOSITORY} --set image.digest={digest}"),
            &controller,
            format!("{pod}/containers/0/image"),
            json!(format!("registry.example.com/refit@{digest}")),
        ),
        // The labels that select pods stay.
        (
            "--set podLabels.app\\\\.kubernetes\\\\.io/name=x".to_owned(),
            &controller,
            format!("{labels}/{of_name}"),
            json!("refit"),
        ),
        (
            "--set commonLabels.team=a".to_owned(),
            &controller,
            format!("{labels}/team"),
            json!("a"),
        ),
        (
            "--set commonLabels.team=a".to_owned(),
            &format!("CustomResourceDefinition /{DEFINITION}"),
            "/metadata/labels/team".to_owned(),
            json!("a"),
        ),
        (
            "--set nameOverride=nodes".to_owned(),
            &here("PodDisruptionBudget", NAME),
            format!("/spec/selector/matchLabels/{of_name}"),
            json!("nodes"),
        ),
        (
            "--set nameOverride=nodes".to_owned(),
            &controller,
            format!("{labels}/{of_name}"),
            json!("nodes"),
        ),
        // No selector of a Deployment or DaemonSet can change.
        (
            "--set nameOverride=nodes --set agent.create=true".to_owned(),
            &here("DaemonSet", "system-upgrade-agent"),
            format!("/spec/selector/matchLabels/{of_name}"),
            json!("refit"),
        ),
        (
            "--set fullnameOverride=nodes".to_owned(),
            &here("Deployment", "nodes"),
            "/spec/selector/matchLabels".to_owned(),
            json!({ "upgrade.cattle.io/controller": NAME }),
        ),
        (
            "--set fullnameOverride=nodes".to_owned(),
            &"ClusterRoleBinding /system-upgrade".to_owned(),
            "/roleRef/name".to_owned(),
            json!("nodes"),
        ),
        (
            "--set serviceAccount.name=account --set maintenance.create=true".to_owned(),
            &controller,
            format!("{pod}/serviceAccountName"),
            json!("account"),
        ),
        (
            null.to_owned(),
            &controller,
            format!("{pod}/securityContext/runAsUser"),
            Value::Null,
        ),
        (
            "--set securityContext.readOnlyRootFilesystem=false".to_owned(),
            &controller,
            format!("{pod}/containers/0/securityContext/readOnlyRootFilesystem"),
            json!(false),
        ),
        (
            format!("{monitoring}.labels.release=stack"),
            &here("ServiceMonitor", NAME),
            "/metadata/labels/release".to_owned(),
            json!("stack"),
        ),
        (
            format!("{monitoring}.labels.release=stack"),
            &here("PrometheusRule", "refit"),
            "/metadata/labels/release".to_owned(),
            json!("stack"),
        ),
        (
            format!("{monitoring}.interval=1m"),
            &here("ServiceMonitor", NAME),
            "/spec/endpoints/0/interval".to_owned(),
            json!("1m"),
        ),
        (
            format!("{monitoring}.dashboard.annotations.grafana_folder=Nodes"),
            &here("ConfigMap", "refit-dashboard"),
            "/metadata/annotations".to_owned(),
            json!({ "grafana_folder": "Nodes" }),
        ),
        (
            "--set plans.workers.spec.version=v1 --set plans.workers.annotations.a=b".to_owned(),
            &here("Plan", "workers"),
            "/spec".to_owned(),
            json!({ "version": "v1" }),
        ),
        (
            format!("--set-json 'extraObjects={extra}'"),
            &"ConfigMap /of-refit".to_owned(),
            "/metadata".to_owned(),
            json!({ "name": "of-refit" }),
        ),
    ] {
        let objects = tools.labelled(&flags);
        assert_names_exist(&objects);
        let found = objects.get(object).unwrap_or_else(|| panic!("{flags}: {object}"));
        assert_eq!(found.pointer(&path), Some(&value), "{flags}: {object}");
    }
}

#[test]
fn a_release_in_another_namespace_names_no_other() {
    let tools = Tools::offline();
    let all = "--set manageCrd.create=true --set deletePods.create=true --set readWorkloads.create=true --set monitoring.create=true";
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
        let text = object.to_string();
        for other in ["system:serviceaccount:system-upgrade:", "'system-upgrade'"] {
            assert!(!text.contains(other), "{other}: {object}");
        }
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
        "--set env[0].name=A",
        "--set monitoring.interval=often",
        "--set plans.workers.version=v1",
    ] {
        let line = format!("template refit deploy/chart {flags}");
        let error = tools.try_run(&tools.helm, &line).expect_err(flags);
        assert!(error.contains("schema"), "{flags}: {error}");
    }
    tools.helm("lint --strict deploy/chart");
}
