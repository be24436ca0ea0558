//! The page in a headless Chromium: `just browser`.

use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use refit_api::{NodePhase, PlanState};
use refit_formats::page::{Document, PlanCard, Row, RowState, Source, Span};
use serde_json::{Value, json};

use super::Dashboard;
use crate::harness::Harness;
use crate::testenv::wait;
use crate::workdir::Workdir;

/// A headless Chromium, and axe-core.
struct Browser {
    profile: tempfile::TempDir,
}

impl Browser {
    fn new() -> Self {
        Self {
            profile: tempfile::tempdir().unwrap(),
        }
    }

    /// The document after its scripts ran for some seconds.
    fn dump(&self, url: &str) -> String {
        self.run(url, &["--virtual-time-budget=8000"])
    }

    /// The document after its scripts ran, with more flags.
    fn run(&self, url: &str, flags: &[&str]) -> String {
        let output = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--window-size=1300,1000",
            ])
            .args(flags)
            .arg(format!("--user-data-dir={}", self.profile.path().display()))
            .args(["--dump-dom", url])
            .output()
            .expect("chromium runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// axe-core's script, which `just browser` fetches.
fn axe() -> String {
    let path = std::env::var("REFIT_AXE").expect("REFIT_AXE: just browser sets it");
    std::fs::read_to_string(path).unwrap()
}

/// The page's policy allows its own script alone, so others run in a copy without one.
fn without_policy(page: &str) -> String {
    let (before, rest) = page
        .split_once("<meta http-equiv=\"Content-Security-Policy\"")
        .unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    format!("{before}{after}")
}

/// What a script wrote into the document.
fn found(dom: &str) -> Value {
    let found = dom
        .split_once("<pre id=\"found\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.unwrap_or_else(|| {
        panic!(
            "the script did not end: {}",
            &dom[dom.len().saturating_sub(500)..]
        )
    });
    let found = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&found).unwrap()
}

/// The page with a script before its own.
fn with_script(page: &str, before: &str, after: &str) -> String {
    let page = without_policy(page);
    let (head, own) = page.rsplit_once("<script>").unwrap();
    let own = own.replace("</body>", &format!("<script>{after}</script></body>"));
    format!("{head}<script>{before}</script><script>{own}")
}

/// A rehearsal's page with a failed node, waits and a comparison.
fn rehearsed() -> (Workdir, PathBuf) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/k3s-upgrade.yaml");
    let example = std::fs::read_to_string(example).unwrap();
    let folder = Workdir::new([
        ("old.yaml", &example),
        ("new.yaml", &example.replace("concurrency: 1", "concurrency: 2")),
    ]);
    folder
        .run("rehearse --compare old.yaml new.yaml --nodes 12 --fail node-5 --html page.html")
        .ends(1);
    let path = folder.path().join("page.html");
    (folder, path)
}

#[test]
#[ignore = "Chromium: just browser"]
fn the_page_of_a_rehearsal_shows_every_node_in_a_browser() {
    let (_folder, path) = rehearsed();
    let dom = Browser::new().dump(&format!("file://{}", path.display()));
    assert_eq!(dom.matches("<svg class=\"track\"").count(), 12, "{dom}");
    for text in [
        "Would fail: Plan k3s-agent",
        "node-row failed",
        "made to fail by --fail",
        "class=\"upgrading\"",
        "class=\"draining\"",
        "class=\"area done\"",
        "What the change does",
        "What decides the length",
        "Control plane: 1 of 3 nodes down at a time",
    ] {
        assert!(dom.contains(text), "{text}");
    }
}

#[test]
#[ignore = "Chromium and axe-core: just browser"]
fn axe_finds_no_violation_in_either_theme() {
    let (folder, path) = rehearsed();
    let page = std::fs::read_to_string(path).unwrap();
    let page = without_policy(&page);
    let run = "axe.run().then((found) => { const said = document.createElement('pre'); said.id = 'found'; \
               said.textContent = JSON.stringify({ passes: found.passes.length, violations: found.violations.map((one) => \
               [one.id, one.nodes.map((node) => node.html)]) }); document.body.append(said); });";
    for theme in ["light", "dark"] {
        let script = format!(
            "<script>{}</script><script>document.documentElement.dataset.theme = '{theme}'; {run}</script></body>",
            axe()
        );
        let copy = page.replace("</body>", &script);
        folder.write("axe.html", copy);
        let url = format!("file://{}", folder.path().join("axe.html").display());
        let dom = Browser::new().dump(&url);
        let found = found(&dom);
        assert!(found["passes"].as_u64() > Some(20), "{found:#}");
        assert_eq!(found["violations"], json!([]), "{theme}: {found:#}");
    }
}

#[tokio::test]
#[ignore = "Chromium: just browser"]
async fn the_page_of_a_cluster_shows_a_roll_out_in_a_browser() {
    let harness = Harness::held(["a", "b", "c"]).await;
    let _controller = harness.ctx.start_and_warm_up().await;
    let dashboard = Dashboard::start(&harness, &harness.ctx.test_env.kubeconfig()).await;
    let address = dashboard.address;
    // The page is made anew once a second.
    let shows = async |text: &str| {
        let shown = async || {
            let dump = move || Browser::new().dump(&format!("http://{address}/"));
            tokio::task::spawn_blocking(dump).await.unwrap()
        };
        wait::until("the page says so", shown, |dom| dom.contains(text)).await
    };
    harness.plan("p", json!({ "concurrency": 3 })).await;
    shows("class=\"upgrading\"").await;
    for node in ["a", "b", "c"] {
        harness.release(node).await;
    }
    harness.complete("p").await;
    let dom = shows("3 of 3 done").await;
    for text in [
        "<span class=\"state Complete\">Complete</span>",
        "Live, ",
        "class=\"upgrading\"",
    ] {
        assert!(dom.contains(text), "{text}: {dom}");
    }
    assert_eq!(dom.matches("<svg class=\"track\"").count(), 3, "{dom}");
}

/// Five Plans over a thousand nodes, as a rehearsal or a cluster gives them.
fn five_plans() -> Document {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut document = Document::new(Source::Rehearsal, "Five Plans", now, now);
    let phases = [
        NodePhase::Pending,
        NodePhase::Draining,
        NodePhase::Upgrading,
        NodePhase::Rebooting,
    ];
    for plan in 0..5 {
        document.plans.push(PlanCard {
            name: format!("plan-{plan}"),
            version: None,
            state: PlanState::Waiting,
            selected: 1_000,
            allowed: 1,
            done: 0,
            applying: 0,
            waiting: 0,
            failed: 0,
            held: None,
            expected_end: None,
            history: Vec::new(),
            waits: Vec::new(),
        });
        for node in 0..1_000 {
            let from = |index: i64| 1_800_000_000 + plan * 10_000 + node * 10 + index;
            let spans = phases.iter().zip(0..).map(|(phase, index)| Span {
                phase: (*phase).into(),
                from: from(index),
                to: Some(from(index + 1)),
                reason: None,
                message: None,
            });
            document.rows.push(Row {
                state: RowState::Done,
                spans: spans.collect(),
                ..Row::new(&format!("plan-{plan}"), &format!("node-{node}"))
            });
        }
    }
    document
}

#[test]
#[ignore = "Chromium: just browser"]
fn five_plans_over_a_thousand_nodes_load_in_a_second() {
    let page = refit_formats::page::file(&five_plans()).unwrap();
    let began = "const began = performance.now();";
    let ended = "document.body.offsetHeight; const said = document.createElement('pre'); said.id = 'found'; \
                 said.textContent = JSON.stringify({ took: performance.now() - began, shown: document.getElementById('shown').textContent }); \
                 document.body.append(said);";
    let folder = Workdir::new([("five.html", with_script(&page, began, ended).as_str())]);
    let url = format!("file://{}", folder.path().join("five.html").display());
    // A machine that is busy is late, so the best of some counts.
    let took = (0..5).map(|_| {
        let found = found(&Browser::new().run(&url, &[]));
        assert_eq!(
            found["shown"],
            "0 of 5000 rows shown; the others are in the groups."
        );
        found["took"].as_f64().unwrap()
    });
    let took = took.fold(f64::INFINITY, f64::min);
    eprintln!("the page of 5 Plans over 1,000 nodes is drawn in {took:.0} ms");
    assert!(took < 1_000.0, "{took}");
}

/// In virtual time; the changes are those of a busy roll-out.
#[test]
#[ignore = "Chromium: just browser"]
fn five_plans_over_a_thousand_nodes_update_for_an_hour_without_a_leak() {
    let page = with_script(refit_formats::page::live(), include_str!("hour.js"), "");
    let folder = Workdir::new([("hour.html", page.as_str())]);
    let url = format!("file://{}", folder.path().join("hour.html").display());
    let flags = [
        "--virtual-time-budget=3700000",
        "--enable-precise-memory-info",
        "--js-flags=--expose-gc",
    ];
    let found = found(&Browser::new().run(&url, &flags));
    eprintln!("after ten minutes and after an hour: {found}");
    let [before, after] = ["before", "after"]
        .map(|at| [&found[at]["heap"], &found[at]["elements"]].map(|it| it.as_u64().unwrap()));
    assert_eq!(before[1], after[1], "elements: {found}");
    // The labels of the axis depend on the time that it shows; there are two axes.
    assert!(found["after"]["ticks"].as_u64().unwrap() < 50, "{found}");
    assert!(after[0] < before[0] + before[0] / 10, "bytes: {found}");
    assert_eq!(
        found["shown"],
        "0 of 5000 rows shown; the others are in the groups."
    );
    assert!(
        found["waits"].as_str().unwrap().contains("second 3600"),
        "{found}"
    );
}
