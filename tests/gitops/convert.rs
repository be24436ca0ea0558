//! `refit convert`: Plans from the objects of kured, the Flatcar update operator and kairos-operator. What comes of each
//! field is tested beside the code; here the Plans are valid and roll out.

use std::process::Command;

use crate::workdir::Workdir;

const KURED: &str = include_str!("convert/kured.yaml");

const OTHERS: &str = include_str!("convert/others.yaml");

#[test]
fn the_daemonset_of_kured_becomes_a_plan_with_what_differs_as_comments() {
    let dir = Workdir::new([("kured.yaml", KURED)]);
    let from = "DaemonSet kube-system/kured (kured.yaml:2)";
    dir.run("convert kured.yaml")
        .ends(0)
        .err_has(&format!("{from}: --drain-delay was left out"))
        .prints(include_str!("convert/kured.out.yaml"));
}

#[test]
fn each_converted_plan_is_valid() {
    let dir = Workdir::new([("a.yaml", KURED), ("b.yaml", OTHERS)]);
    let plans = dir.run("convert a.yaml b.yaml").ends(0).out;
    assert_eq!(plans.matches("kind: Plan").count(), 4, "{plans}");
    let both = "# From DaemonSet reboot-coordinator/flatcar-linux-update-agent (b.yaml:4) and Deployment";
    assert!(plans.contains(both), "{plans}");
    dir.run_with("validate -", &[], &plans)
        .ends(0)
        .err_has("4 Plans in 1 file: 0 errors, 0 warnings, 2 notes\n"); // all nodes, as the NodeOps say
    let json = dir.run("convert b.yaml -o json -n upgrades").ends(0).json();
    assert_eq!(json["items"].as_array().unwrap().len(), 3);
    assert_eq!(json["items"][2]["metadata"]["namespace"], "upgrades");
    let one = dir.run("convert a.yaml -o json").ends(0).json();
    assert_eq!(one["kind"], "Plan");
}

#[test]
fn converted_node_ops_roll_out_in_a_rehearsal() {
    let dir = Workdir::new([("b.yaml", OTHERS)]);
    let plans = dir.run("convert b.yaml").ends(0).out;
    let ops: Vec<&str> = plans.split("---\n").skip(1).collect();
    assert_eq!(ops.len(), 2);
    dir.run_with("rehearse -", &[], &ops.join("---\n")).ends(0);
}

#[test]
fn an_object_that_cannot_be_converted_is_named_and_the_others_are_printed() {
    let dir = Workdir::new([
        ("kured.yaml", KURED),
        (
            "bad.yaml",
            "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: bad}, spec: {command: 3}}",
        ),
        (
            "other.yaml",
            "{apiVersion: v1, kind: Secret, metadata: {name: s}}",
        ),
        ("broken.yaml", "a: [b"),
        ("twice.yaml", KURED),
    ]);
    dir.run("convert kured.yaml bad.yaml")
        .ends(1)
        .err_has("error: NodeOp bad (bad.yaml:1): invalid type: ")
        .out_has("name: kured");
    dir.run("convert other.yaml")
        .ends(2)
        .err_has("nothing in these files can be converted: refit knows the DaemonSet of kured");
    dir.run("convert broken.yaml")
        .ends(1)
        .err_has("error: broken.yaml:1: this is not YAML");
    dir.run("convert nowhere.yaml").ends(2).err_has("nowhere.yaml");
    dir.run("convert kured.yaml twice.yaml")
        .ends(1)
        .err_has("two Plans would be called kured");
}

/// What a container of a converted Plan runs.
fn script(plan: &str, container: &str) -> String {
    let plan: serde_json::Value = serde_saphyr::from_str(plan).unwrap();
    plan["spec"][container]["args"][0].as_str().unwrap().to_owned()
}

#[test]
fn the_preflight_of_an_upgrade_skips_a_node_of_the_same_version_and_no_other() {
    let dir = Workdir::new([("b.yaml", OTHERS)]);
    let plans = dir.run("convert b.yaml").ends(0).out;
    let root = dir.path().to_str().unwrap();
    let script = script(plans.split("---\n").last().unwrap(), "preflight")
        .replace("version \"\"", &format!("version {root}/image"))
        .replace("/host", &format!("{root}/host"))
        .replace("/dev/termination-log", &format!("{root}/said"));
    for folder in ["image/etc", "host/etc"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    let run = || {
        let _ = std::fs::remove_file(dir.path().join("said"));
        let status = Command::new("sh").args(["-c", &script]).status().unwrap();
        (
            status.code(),
            std::fs::read_to_string(dir.path().join("said")).unwrap_or_default(),
        )
    };
    let release = |version: &str| {
        format!("KAIROS_VERSION={version}\nKAIROS_SOFTWARE_VERSION_PREFIX=k3s\nKAIROS_SOFTWARE_VERSION=v1\n")
    };
    assert_eq!(run().0, Some(0), "neither has a version");
    dir.write("image/etc/kairos-release", release("v3"));
    assert_eq!(run().0, Some(0), "the host has none");
    dir.write("host/etc/os-release", release("v2"));
    assert_eq!(run().0, Some(0), "the host has another");
    dir.write("host/etc/kairos-release", release("v3"));
    assert_eq!(run(), (Some(77), "node is already at v3-k3sv1\n".to_owned()));
}
