//! `refit validate` as it is run: arguments, forms of output, exit codes, standard input, channels.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use super::{command, folder, refit, stderr, stdout};
use crate::support::channel::ChannelServer;

const GOOD: &str = "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: good, namespace: system-upgrade}
spec:
  concurrency: 1
  version: v1
  nodeSelector: {matchLabels: {a: b}}
  serviceAccountName: system-upgrade
  upgrade: {image: i}
";

fn write(name: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), text).unwrap();
    folder
}

fn validate(arguments: &[&str], folder: &tempfile::TempDir) -> (i32, String, String) {
    let output = refit(folder.path(), &[&["validate"], arguments].concat());
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

#[test]
fn a_clean_file_ends_with_0_and_a_mistake_with_1_and_its_line() {
    let dir = write("plan.yaml", GOOD);
    assert_eq!(
        validate(&["plan.yaml"], &dir),
        (
            0,
            String::new(),
            "1 Plan in 1 file: 0 errors, 0 warnings, 0 notes\n".to_owned()
        )
    );
    let dir = write("plan.yaml", &GOOD.replace("serviceAccountName", "serviceAccount"));
    let (code, out, err) = validate(&["plan.yaml"], &dir);
    assert_eq!(code, 1, "{err}");
    assert_eq!(
        out,
        "plan.yaml:8:3: error: a Plan has no field spec.serviceAccount [unknown-field]\n  hint: did you mean \
         `serviceAccountName`?\n"
    );
    assert_eq!(err, "1 Plan in 1 file: 1 error, 0 warnings, 0 notes\n");
}

#[test]
fn what_cannot_be_read_ends_with_2_and_the_rest_is_still_told() {
    let dir = write("plan.yaml", &GOOD.replace("concurrency: 1", "concurrency: 0"));
    let (code, out, err) = validate(&["none.yaml", "plan.yaml"], &dir);
    assert_eq!(code, 2);
    assert!(
        out.contains("plan.yaml:5:16: warning:") && out.contains("[no-concurrency]"),
        "{out}"
    );
    assert!(
        err.starts_with("error: none.yaml: no such file or folder\n"),
        "{err}"
    );
    let (code, _, err) = validate(&[], &dir);
    assert_eq!(code, 2, "{err}");
    let (code, _, err) = validate(&["--allow=no-concurency", "plan.yaml"], &dir);
    assert_eq!(code, 2);
    assert!(err.contains("did you mean no-concurrency?"), "{err}");
}

#[test]
fn rules_are_switched_off_and_weighed_anew_by_their_names() {
    let dir = write(
        "plan.yaml",
        &GOOD.replace("concurrency: 1", "concurrency: 0\n  suspend: true"),
    );
    assert_eq!(validate(&["plan.yaml"], &dir).0, 1);
    let (code, out, _) = validate(&["--allow", "no-concurrency,suspended", "plan.yaml"], &dir);
    assert_eq!((code, out.as_str()), (0, ""));
    let (code, out, _) = validate(&["--allow", "no-concurrency", "plan.yaml"], &dir);
    assert_eq!(code, 0, "a note is no failure");
    assert!(out.contains("note: "), "{out}");
    let (code, out, _) = validate(
        &["--allow", "no-concurrency", "--deny", "suspended", "plan.yaml"],
        &dir,
    );
    assert_eq!(code, 1);
    assert!(out.contains("error: ") && out.contains("[suspended]"), "{out}");
}

#[test]
fn json_has_all_that_is_found_and_github_gets_annotations() {
    let dir = write("plan.yaml", &GOOD.replace("image: i", "image: i, imgae: x"));
    let (code, out, _) = validate(&["-o", "json", "plan.yaml"], &dir);
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&report["plans"], &report["files"], &report["errors"]),
        (&1.into(), &1.into(), &1.into())
    );
    let found = &report["findings"][0];
    assert_eq!(
        (
            &found["file"],
            &found["line"],
            &found["column"],
            &found["rule"],
            &found["severity"],
            &found["plan"],
            &found["field"]
        ),
        (
            &"plan.yaml".into(),
            &9.into(),
            &23.into(),
            &"unknown-field".into(),
            &"error".into(),
            &"system-upgrade/good".into(),
            &"spec.upgrade.imgae".into()
        )
    );
    assert_eq!(found["hint"], "did you mean `image`?");
    let (code, out, _) = validate(&["-o", "github", "plan.yaml"], &dir);
    assert_eq!(code, 1);
    assert_eq!(
        out,
        "::error file=plan.yaml,line=9,col=23,title=refit%3A unknown-field::a Plan has no field \
         spec.upgrade.imgae%0Ahint: did you mean `image`?\n"
    );
}

#[test]
fn standard_input_is_read_as_kustomize_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path(), &["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: a}}\n---\n{}",
        GOOD.replace("version: v1\n", "\n")
    );
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let out = stdout(&output);
    assert!(
        out.starts_with("<stdin>:8:1: error: cannot resolve plan: missing channel and version [no-version]"),
        "{out}"
    );
}

#[test]
fn a_plan_in_two_files_is_told_where_it_is_for_the_second_time() {
    let dir = write("a.yaml", GOOD);
    std::fs::write(dir.path().join("b.yaml"), format!("# later\n{GOOD}")).unwrap();
    let (code, out, _) = validate(&["."], &dir);
    assert_eq!(code, 1);
    assert!(
        out.starts_with("./b.yaml:4:18: warning: Plan \"system-upgrade/good\" is already in ./a.yaml:3"),
        "{out}"
    );
    let (code, out, _) = validate(&["--namespace=cattle-system", "a.yaml"], &dir);
    assert_eq!(code, 1);
    assert!(
        out.starts_with("a.yaml:3:35: warning:") && out.contains("[other-namespace]"),
        "{out}"
    );
}

#[test]
fn patches_of_kustomize_are_passed_over_in_a_folder_and_judged_when_named() {
    let dir = write("plan.yaml", GOOD);
    let patch = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: good}\nspec: {version: v2}\n";
    std::fs::write(dir.path().join("patch.yaml"), patch).unwrap();
    let kustomization = "resources: [plan.yaml]\npatches: [{path: patch.yaml}]\n";
    std::fs::write(dir.path().join("kustomization.yaml"), kustomization).unwrap();
    let (code, out, err) = validate(&["."], &dir);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(
        err.starts_with("./patch.yaml is a patch of Kustomize, and passed over\n1 Plan in 2 files"),
        "{err}"
    );
    assert_eq!(validate(&["patch.yaml"], &dir).0, 1);
}

#[test]
fn all_rules_are_listed_and_documented() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, _) = validate(&["--rules"], &dir);
    assert_eq!(code, 0);
    let docs = std::fs::read_to_string(folder("").join("../../docs/gitops.md")).unwrap();
    for rule in refit::gitops::Rule::ALL {
        assert!(
            out.lines()
                .any(|line| line.starts_with(rule.name()) && line.ends_with(rule.about())),
            "{rule}"
        );
        let row = format!(
            "| `{}` | {} | {} |",
            rule.name(),
            rule.severity().word(),
            rule.about()
        );
        assert!(docs.contains(&row), "docs/gitops.md lacks\n{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_are_asked_only_online_and_one_that_gives_no_version_is_told() {
    let server = ChannelServer::start().await;
    server.redirects("/good", "/v1.2.3").is_a_page("/page");
    let text = format!(
        "{}---\n{}",
        GOOD.replace("version: v1", &format!("channel: {}", server.url("/good"))),
        GOOD.replace("version: v1", &format!("channel: {}", server.url("/page")))
            .replace("name: good", "name: page"),
    );
    let dir = write("plan.yaml", &text);
    assert_eq!(validate(&["plan.yaml"], &dir).0, 0);
    assert!(
        server.asked("/good").is_empty(),
        "nobody is asked without --online"
    );
    let (code, out, _) = validate(&["--online", "plan.yaml"], &dir);
    assert_eq!(code, 1, "{out}");
    assert!(
        out.starts_with(
            "plan.yaml:16:12: warning: spec.channel gives no version: the answer is an HTML page"
        ),
        "{out}"
    );
    assert_eq!(out.matches("warning").count(), 1, "{out}");
    assert_eq!(server.asked("/good").len(), 1);
}
