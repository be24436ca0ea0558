//! The page of a rehearsal, and comparisons.

use serde_json::Value;

use super::plan;
use crate::recording;
use crate::workdir::Workdir;

/// What the script of the page reads.
pub(super) fn data(page: &str) -> Value {
    let (_, rest) = page
        .split_once("<script type=\"application/json\" id=\"data\">")
        .unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn the_page_has_the_timeline_of_every_node_and_the_verdict() {
    let folder = Workdir::new([("plan.yaml", &plan("agents", "  drain: {force: true}"))]);
    let ran = folder
        .run("rehearse plan.yaml --nodes 6 --fail node-2 -q --html page.html")
        .ends(1);
    let data = data(&folder.read("page.html"));
    assert_eq!(data["verdict"]["line"], ran.last_line());
    let rows = data["rows"].as_array().unwrap();
    let row = |node: &str| rows.iter().find(|row| row["node"] == node).unwrap();
    let failed = row("node-2");
    assert_eq!(failed["state"], "failed");
    assert!(
        failed["message"].as_str().unwrap().contains("made to fail"),
        "{failed}"
    );
    let done = rows.iter().find(|row| row["state"] == "done").unwrap();
    let phases: Vec<_> = done["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| span["phase"].as_str().unwrap())
        .collect();
    assert!(
        phases.contains(&"Draining") && phases.contains(&"Upgrading"),
        "{phases:?}"
    );
    let held = &data["plans"][0]["held"];
    assert!(
        held["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()),
        "{held}"
    );
}

#[test]
fn the_page_says_what_the_text_says_which_waves_there_were_and_what_took_long() {
    let waves = "  waves: [{name: canary, nodes: 1, soak: 30m}, {name: rest}]";
    let folder = Workdir::new([("plan.yaml", &plan("agents", waves))]);
    let mut ran = folder
        .run("rehearse plan.yaml --nodes 6 --kubelet v1.31.4+k3s1 -q --html page.html")
        .ends(0);
    let data = data(&folder.read("page.html"));
    let remarks: Vec<_> = data["remarks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    assert!(
        remarks
            .iter()
            .any(|remark| remark.contains("skips a minor version")),
        "{remarks:?}"
    );
    for remark in remarks {
        ran = ran.out_has(remark);
    }
    let bands: Vec<_> = data["bands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|band| band["label"].as_str().unwrap())
        .collect();
    assert_eq!(bands, ["canary", "canary · soak 30m", "rest"]);
    let chain = data["chain"].to_string();
    assert!(chain.contains("the soak of wave canary takes 30m"), "{chain}");
    let figures = &data["figures"];
    assert_eq!(
        (&figures["mostDown"], &figures["allowed"]),
        (&2.into(), &2.into()),
        "{figures}"
    );
    assert_eq!(data["zone"], "UTC");
    assert!(
        data["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["wave"].is_string())
    );
}

#[test]
fn a_roll_out_that_stalls_has_a_timeline_up_to_the_next_opening_of_its_window() {
    let window = "  windows: [{cron: '0 22 * * 6', duration: 10m}]\n  drain: {force: true}";
    let folder = Workdir::new([("plan.yaml", &plan("agents", window))]);
    folder
        .run("rehearse plan.yaml --nodes 6 -q --html page.html")
        .ends(1);
    let data = data(&folder.read("page.html"));
    assert_eq!(data["verdict"]["mood"], "held");
    assert_eq!(
        data["verdict"]["headline"],
        "would stall: Plan agents starts no node: WindowTooShort"
    );
    let closed: Vec<_> = data["bands"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|band| band["kind"] == "closed")
        .collect();
    assert_eq!(closed.len(), 2, "before and after the opening: {closed:?}");
    assert!(
        closed
            .iter()
            .all(|band| band["from"].as_i64() < band["to"].as_i64()),
        "{closed:?}"
    );
    let rows = data["rows"].as_array().unwrap();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row["reason"] == "WindowTooShort"),
        "{rows:?}"
    );
}

#[test]
fn a_page_that_cannot_be_written_is_an_error_that_names_the_file() {
    let folder = Workdir::new([("plan.yaml", &plan("agents", ""))]);
    for (file, says) in [
        ("nowhere/page.html", "no folder nowhere"),
        (".", "is a folder"),
        ("-", "name of a file"),
    ] {
        // 1 would say that the roll-out does not complete.
        let ran = folder.run(&format!("rehearse plan.yaml -q --html {file}"));
        let ran = ran.ends(2).err_has(says);
        assert!(!ran.err.contains("assumed"), "before the work: {ran:#?}");
    }
}

#[test]
fn a_comparison_names_what_a_change_does() {
    let window = "  window: {days: [mon, tue], startTime: '09:00', endTime: '09:10', timeZone: UTC}";
    let files = [
        ("old.yaml", plan("agents", "")),
        ("new.yaml", plan("agents", window)),
        (
            "faster.yaml",
            plan("agents", "").replace("concurrency: 2", "concurrency: 4"),
        ),
    ];
    let folder = Workdir::new(files.each_ref().map(|(name, text)| (*name, text.as_str())));
    let ran = folder
        .run("rehearse --compare old.yaml new.yaml --nodes 12 --html page.html")
        .ends(0);
    ran.out_has("duration")
        .out_has(" longer)")
        .out_has("Plan agents: WindowClosed")
        .out_has("no wait");
    let page = data(&folder.read("page.html"));
    let changes = page["changes"].as_array().unwrap();
    assert_eq!(changes[0]["what"], "duration", "{changes:?}");
    let new = changes[0]["new"].as_str().unwrap();
    assert!(new.ends_with(" longer)"), "{new}");
    let rows = |of: &Value| of["rows"].as_array().unwrap().len();
    assert_eq!(rows(&page["before"]), rows(&page), "both timelines are there");
    folder
        .run("rehearse --compare old.yaml faster.yaml --nodes 12")
        .ends(0)
        .out_has(" shorter)");
    let json = folder
        .run("rehearse --compare old.yaml new.yaml --nodes 12 -o json")
        .ends(0)
        .json();
    assert!(json["old"]["seconds"].as_i64() < json["new"]["seconds"].as_i64());
}

/// `REFIT_UPDATE=1` writes it again.
#[test]
fn the_recorded_comparison_is_what_the_command_prints() {
    let window = "  window: {days: [mon, tue], startTime: '09:00', endTime: '09:10', timeZone: UTC}";
    let folder = Workdir::new([
        ("old.yaml", plan("agents", "").as_str()),
        ("new.yaml", &plan("agents", window)),
    ]);
    recording::check("docs/dashboard.md", "refit rehearse --compare", |arguments| {
        folder.run(&format!("rehearse --compare {arguments}")).ends(0).out
    });
}

#[test]
fn a_comparison_of_the_same_plans_finds_nothing_and_the_exit_code_is_that_of_the_new_ones() {
    let files = [
        ("a.yaml", plan("agents", "")),
        ("b.yaml", plan("agents", "  suspend: true")),
    ];
    let folder = Workdir::new(files.each_ref().map(|(name, text)| (*name, text.as_str())));
    folder
        .run("rehearse --compare a.yaml a.yaml")
        .ends(0)
        .out_has("Nothing differs");
    let ran = folder.run("rehearse --compare a.yaml b.yaml").ends(1);
    ran.out_has("result").out_has("not complete");
    folder.run("rehearse --compare a.yaml").ends(2);
    folder.run("rehearse plan.yaml --compare a.yaml b.yaml").ends(2);
    folder
        .run("rehearse --compare - -")
        .ends(2)
        .err_has("standard input can be read once");
}
