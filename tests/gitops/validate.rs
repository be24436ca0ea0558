//! `refit validate` as a command: arguments, output formats, exit codes, standard input and channels.

use refit_api::crd;
use serde_json::json;

use super::folder;
use crate::channels::registry::{Registry, RegistryAuth, State};
use crate::testenv::channel::ChannelServer;
use crate::workdir::Workdir;

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

/// A folder with the good Plan, of which one text is replaced.
fn edited(from: &str, to: &str) -> Workdir {
    assert!(GOOD.contains(from));
    Workdir::new([("plan.yaml", &GOOD.replace(from, to))])
}

#[test]
fn a_clean_file_ends_with_0_and_a_mistake_with_1_and_its_line() {
    let clean = edited("good", "good")
        .run("validate plan.yaml")
        .ends(0)
        .prints("");
    clean.reports("1 Plan in 1 file: 0 errors, 0 warnings, 0 notes\n");
    let ran = edited("serviceAccountName", "serviceAccount")
        .run("validate plan.yaml")
        .ends(1);
    let ran = ran.reports("1 Plan in 1 file: 1 error, 0 warnings, 0 notes\n");
    ran.prints(
        "plan.yaml:8:3: error: a Plan has no field spec.serviceAccount [unknown-field]
  |
8 |   serviceAccount: system-upgrade
  |   ^^^^^^^^^^^^^^
  |
  = hint: did you mean `serviceAccountName`?
",
    );
}

#[test]
fn a_label_of_a_node_that_is_no_text_is_an_error_at_the_label() {
    let dir = edited("good", "good");
    dir.write(
        "nodes.yaml",
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  labels:\n    a: b\n    control-plane: true\n",
    );
    let ran = dir.run("validate plan.yaml nodes.yaml").ends(1);
    ran.out_has(
        "nodes.yaml:7:20: error: metadata.labels.control-plane must be text, but is true [wrong-type]",
    )
    .out_has("hint: write `\"true\"`");
}

#[test]
fn an_unreadable_file_ends_with_2_and_the_other_findings_are_still_printed() {
    let dir = edited("concurrency: 1", "concurrency: 0");
    let ran = dir.run("validate none.yaml plan.yaml").ends(2);
    let ran = ran
        .out_has("plan.yaml:5:16: warning:")
        .out_has("[no-concurrency]");
    ran.err_starts("error: none.yaml: no such file or folder\n");
    dir.run("validate").ends(2);
    let typo = dir.run("validate --allow=no-concurency plan.yaml").ends(2);
    typo.err_has("did you mean no-concurrency?");
}

#[test]
fn rules_are_switched_off_and_change_their_severity_by_name() {
    let text = GOOD.replace("{matchLabels: {a: b}}", "{}");
    let dir = Workdir::new([("plan.yaml", &text.replace("concurrency: 1", "concurrency: 0"))]);
    dir.run("validate plan.yaml").ends(1);
    dir.run("validate --allow no-concurrency,selects-every-node plan.yaml")
        .ends(0)
        .prints("");
    // A note is no failure.
    dir.run("validate --allow no-concurrency plan.yaml")
        .ends(0)
        .out_has("note: ");
    let ran = dir.run("validate --allow no-concurrency --deny selects-every-node plan.yaml");
    ran.ends(1).out_has("error: ").out_has("[selects-every-node]");
}

#[test]
fn json_has_all_that_is_found_and_github_gets_annotations() {
    let dir = edited("image: i", "image: i, imgae: x");
    let report = dir.run("validate -o json plan.yaml").ends(1).json();
    let finding = json!({
        "file": "plan.yaml", "line": 9, "column": 23, "rule": "unknown-field", "severity": "error",
        "plan": "system-upgrade/good", "field": "spec.upgrade.imgae", "hint": "remove it; image is there already",
    });
    let counts = json!({ "plans": 1, "files": 1, "errors": 1 });
    for (found, expected) in [(&report["findings"][0], finding), (&report, counts)] {
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&found[key], value, "{key}");
        }
    }
    dir.run("validate -o github plan.yaml").ends(1).prints(
        "::error file=plan.yaml,line=9,col=23,title=refit%3A unknown-field::a Plan has no field \
         spec.upgrade.imgae%0Ahint: remove it; image is there already\n",
    );
}

#[test]
fn standard_input_is_read_as_kustomize_writes_it() {
    let text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: a}}\n---\n{}",
        GOOD.replace("version: v1\n", "\n")
    );
    let ran = Workdir::new([]).run_with("validate -", &[], &text).ends(1);
    ran.out_starts("<stdin>:8:1: error: cannot resolve plan: missing channel and version [no-version]");
}

#[test]
fn a_plan_in_two_files_is_reported_in_the_second_file() {
    let dir = Workdir::new([("a.yaml", GOOD), ("b.yaml", &format!("# later\n{GOOD}"))]);
    let ran = dir.run("validate .").ends(1);
    ran.out_starts("./b.yaml:4:18: warning: Plan \"system-upgrade/good\" is defined in ./a.yaml:3");
    let ran = dir.run("validate --namespace=cattle-system a.yaml").ends(1);
    ran.out_starts("a.yaml:3:35: warning:")
        .out_has("[other-namespace]");
}

#[test]
fn patches_of_kustomize_are_skipped_in_a_folder_and_validated_when_named() {
    let dir = Workdir::new([
        ("plan.yaml", GOOD),
        (
            "patch.yaml",
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: good}\nspec: {version: v2}\n",
        ),
        (
            "kustomization.yaml",
            "resources: [plan.yaml]\npatches: [{path: patch.yaml}]\n",
        ),
    ]);
    let skipped = "./patch.yaml: skipped, a patch of Kustomize\n";
    let ran = dir.run("validate .").ends(0);
    let ran = ran.out_has("a patch of Kustomize sets spec.version: \"v2\" (./patch.yaml:4)");
    ran.err_starts(&format!("{skipped}1 Plan in 2 files"));
    dir.run("validate patch.yaml").ends(1);
    for line in ["resolve .", "render --node n ."] {
        dir.run(line).ends(0).err_starts(skipped).out_has("v2");
    }
}

#[test]
fn all_rules_are_listed_and_documented() {
    let out = Workdir::new([]).run("validate --rules").ends(0).out;
    let docs = std::fs::read_to_string(folder("").join("../../docs/gitops.md")).unwrap();
    for rule in refit_offline::gitops::Rule::ALL {
        assert!(
            out.lines()
                .any(|line| line.starts_with(rule.name()) && line.ends_with(rule.about())),
            "{rule}"
        );
        let row = format!("\n| {} | ", rule.severity().word());
        let (_, names) = docs.split_once(&row).unwrap();
        let name = format!("`{rule}`");
        let mut names = names.lines().next().unwrap().split([' ', ',']);
        assert!(names.any(|it| it == name), "docs/gitops.md lacks {rule}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_are_queried_only_with_online_and_one_without_a_version_is_reported() {
    let server = ChannelServer::start().await;
    server.redirects("/good", "/v1.2.3").is_a_page("/page");
    let good = format!("channel: {}", server.url("/good"));
    // A channel beside a version only tells whether there is a newer one.
    let page = format!("channel: {}", server.url("/page"));
    let text = [
        GOOD.replace("version: v1", &good),
        GOOD.replace("version: v1", &page)
            .replace("name: good", "name: page"),
        GOOD.replace("version: v1", &format!("version: v1\n  {page}"))
            .replace("name: good", "name: both"),
    ];
    let dir = Workdir::new([("plan.yaml", &text.join("---\n"))]);
    dir.run("validate plan.yaml").ends(0);
    assert!(
        server.asked("/good").is_empty(),
        "no channel is queried without --online"
    );
    let ran = dir.run("validate --online plan.yaml").ends(1);
    let why = "warning: spec.channel gives no version: the answer is an HTML page";
    let ran = ran.out_starts(&format!("plan.yaml:16:12: {why}"));
    let ran = ran.out_has(&format!("plan.yaml:27:12: {why}"));
    assert_eq!(ran.out.matches("warning").count(), 2, "{ran:#?}");
    ran.out_has("refit pin cannot tell whether there is a newer one");
    assert_eq!((server.asked("/good").len(), server.asked("/page").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_does_not_exist_is_reported_online_at_its_line() {
    let registry = Registry::start(State::default()).await;
    let image = format!("{}/team/k3s", registry.host());
    let (_server, url) = super::pin::stable("v1.34.9+k3s1").await;
    let with = |version: &str, image: &str| {
        GOOD.replace("version: v1", version)
            .replace("image: i", &format!("image: '{image}'"))
    };
    let dir = Workdir::new([]);
    let run = |line: &str, text: &str| {
        dir.write("plan.yaml", text);
        dir.run(line)
    };
    let line = |text: &str| 1 + text.lines().position(|line| line.contains("image:")).unwrap();
    let wrong = with("version: v1.34.9+k3s1", &image);
    run("validate plan.yaml", &wrong).ends(0);
    assert!(registry.log.take().is_empty(), "only with --online");
    let why = format!(
        "error: the registry has no image {image}:v1.34.9-k3s1 (HTTP/1.1 404 Not Found) [image-missing]"
    );
    for (version, channel) in [("version: v1.34.9+k3s1", ""), ("", "channel: CHANNEL")] {
        let text = with(&format!("{version}{}", channel.replace("CHANNEL", &url)), &image);
        let ran = run("validate --online plan.yaml", &text).ends(1);
        let ran = ran.out_starts(&format!("plan.yaml:{}:", line(&text)));
        ran.out_has(&why).out_has("wait until it is published");
    }
    // A channel beside the version does not choose what runs.
    let beside = with(&format!("version: v1.33.4+k3s1\n  channel: {url}"), &image);
    run("validate --online plan.yaml", &beside)
        .ends(0)
        .out_lacks("image-missing");
    let own_tag = with("version: v1.34.9+k3s1", &format!("{image}:v9"));
    run("validate --online plan.yaml", &own_tag).out_lacks("image-missing");
    run("validate --online --warn image-missing plan.yaml", &wrong)
        .ends(1)
        .out_has("warning: the registry");
    run("validate --online --allow image-missing plan.yaml", &wrong).ends(0);
    // Whoever has no login learns that nobody was asked, and that is no finding.
    registry.set(|state| state.auth = RegistryAuth::Token);
    dir.write("logins.json", r#"{"auths": {}}"#);
    run(
        "validate --online --registry-config logins.json plan.yaml",
        &wrong,
    )
    .ends(0)
    .err_has("refit cannot ask the registry whether image");
}

#[test]
fn a_template_without_a_plan_is_skipped_and_one_with_a_plan_is_not() {
    let template = "metadata:\n  name: {{ .Release.Name }}\n";
    let dir = Workdir::new([
        ("plan.yaml", GOOD),
        ("service.yaml", &format!("kind: Service\n{template}")),
        (
            "loop.yaml",
            "{% for node in nodes %}\n- {{ node }}\n{% endfor %}\n",
        ),
    ]);
    dir.run("validate .").ends(0).prints("").err_starts(
        "./loop.yaml: skipped, a template without a Plan\n./service.yaml: skipped, a template without a Plan\n1 Plan in 1 file",
    );
    let plan = format!("apiVersion: upgrade.cattle.io/v1\nkind: Plan\n{template}");
    dir.write("upgrade.yaml", plan);
    let ran = dir.run("validate .").ends(1).out_starts("./upgrade.yaml:4:");
    ran.out_has("helm template");
    for line in [
        "resolve upgrade.yaml",
        "render --node n upgrade.yaml",
        "rehearse upgrade.yaml",
    ] {
        dir.run(line)
            .err_has("this looks like a template, so render it first, as with `helm template`");
    }
}

#[test]
fn a_file_of_utf_16_is_named_as_such() {
    let dir = Workdir::new([]);
    let units = format!("\u{feff}{GOOD}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect::<Vec<u8>>();
    dir.write("plan.yaml", units);
    let ran = dir.run("validate plan.yaml").ends(2);
    ran.err_starts("error: plan.yaml: the file is UTF-16; save it as UTF-8\n");
}

#[test]
fn placeholders_are_notes_in_every_field() {
    for (field, placeholder) in [
        ("version: v1", "version: \"{{ .Values.version }}\""),
        ("version: v1", "version: $(VERSION)"),
        ("version: v1", "version: <version>"),
        ("version: v1", "version: #@ data.values.version"),
        (
            "version: v1",
            "channel: https://update.k3s.io/channels/${CHANNEL}",
        ),
        ("concurrency: 1", "concurrency: ${nodes}"),
        ("concurrency: 1", "concurrency: #@ data.values.nodes"),
        ("image: i", "image: \"<registry>/k3s-upgrade\""),
        (
            "version: v1",
            "version: v1\n  postCompleteLabels: {a: '${REGION}', b: $(LATEST_VERSION)}",
        ),
        (
            "{matchLabels: {a: b}}",
            "{matchLabels: {pool: '{{ .Values.pool }}'}}",
        ),
        (
            "{matchLabels: {a: b}}",
            "{matchExpressions: [{key: pool, operator: In, values: [a, '${POOL}']}]}",
        ),
        (
            "version: v1",
            "version: v1\n  drain: {podSelector: {matchLabels: {app: <app>}}}",
        ),
    ] {
        let ran = edited(field, placeholder).run("validate plan.yaml").ends(0);
        let ran = ran.out_has("is the placeholder");
        assert_eq!(ran.out.matches("note:").count(), 1, "{placeholder}: {ran:#?}");
    }
    let sops = format!("{GOOD}sops: {{mac: \"ENC[x]\", version: 3.9.0}}\n");
    let dir = Workdir::new([("plan.yaml", &sops)]);
    dir.run("validate plan.yaml").ends(0).out_has("sops decrypt");
}

#[test]
fn a_range_has_a_hint_what_to_do() {
    let range = edited("version: v1", "version: \">=1.33 <1.34\"").run("validate plan.yaml");
    range.out_has("hint: move the range to spec.versionPolicy.range, and replace the version by a channel");
}

#[test]
fn a_number_is_shown_as_it_is_written() {
    let ran = edited("version: v1", "version: 1.30").run("validate plan.yaml");
    ran.ends(1).out_has("but is the number 1.30 ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_of_another_distribution_than_the_image_is_reported_online() {
    let server = ChannelServer::start().await;
    server
        .redirects("/rke2", "/v1.34.1+rke2r1")
        .redirects("/k3s", "/v1.34.1+k3s1");
    let run = |path: &str| {
        let channel = format!("channel: {}", server.url(path));
        let text = GOOD.replace("version: v1", &channel);
        let dir = Workdir::new([(
            "plan.yaml",
            &text.replace("image: i", "image: rancher/k3s-upgrade"),
        )]);
        dir.run("validate --online plan.yaml")
    };
    let other = run("/rke2").ends(1);
    other.out_has("v1.34.1+rke2r1 is a version of rke2, and the image installs k3s");
    run("/k3s").ends(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_the_channel_never_offers_is_reported_online_for_a_plan_without_a_version() {
    let (_server, url) = super::pin::stable("v1.35.0+k3s1").await;
    let run = |lines: &str| {
        let lines = format!("{lines}\n  channel: {url}\n  versionPolicy: {{range: 1.34.x}}");
        let dir = Workdir::new([("plan.yaml", &GOOD.replace("version: v1", lines.trim_start()))]);
        dir.run("validate --online plan.yaml")
    };
    let alone = run("").ends(1);
    alone.out_has("spec.channel gives no version: v1.35.0+k3s1 is not in the range 1.34.x");
    // A Plan with a version keeps it, as `refit pin` says.
    run("version: v1.34.1+k3s1").ends(0).out_lacks("gives no version");
}

#[test]
fn a_field_whose_name_has_dots_is_explained_by_the_object_that_has_it() {
    let lines = "version: v1\n  tolerations: [{operator: Exists, a.example/b: c}]";
    let ran = edited("version: v1", lines).run("validate plan.yaml").ends(1);
    ran.out_has("hint: `kubectl explain plan.spec.tolerations` lists the fields that exist");
}

/// Derived from the definition, so that a new field is included.
#[test]
fn a_mistake_in_each_of_refits_own_fields_is_found_at_its_line_with_what_to_write_instead() {
    let own = crd::OWN_FIELDS
        .iter()
        .filter(|[part, _]| part.starts_with("spec"));
    let mut fields = 0;
    for [part, field] in own {
        fields += 1;
        // `spec` is at line 4, and the objects below it come first in it.
        let below = part.split('.').skip(1);
        let (mut lead, mut indent) = (String::new(), "  ".to_owned());
        for name in below {
            lead.extend([&*indent, name, ":\n"]);
            indent.push_str("  ");
        }
        let line = 5 + lead.lines().count();
        let found = |text: &str| {
            let dir = edited("spec:\n", &format!("spec:\n{lead}{indent}{text}\n"));
            let report = dir.run("validate -o json plan.yaml").ends(1).json();
            let findings = report["findings"].as_array().unwrap().clone();
            let here = findings
                .into_iter()
                .find(|one| one["line"] == line && one["severity"] == "error");
            here.unwrap_or_else(|| panic!("{part}: {text}: {report:#}"))
        };
        let misspelt = found(&format!("{field}x: 1"));
        let hint = misspelt["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(&format!("`{field}")), "{misspelt:#}");
        let wrong = found(&format!("{field}: [1, [2]]"));
        let message = wrong["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("{part}.{field}")), "{wrong:#}");
        assert!(message.contains(" must be "), "{wrong:#}");
    }
    assert!(fields > 20, "{fields}");
}
