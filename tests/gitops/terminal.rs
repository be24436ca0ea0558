//! Control characters and invisible characters in files and channel responses: they are printed escaped, and stay in
//! files.

use super::pin::{plan, stable};
use crate::workdir::Workdir;

/// Fails on characters that no output may have: control characters, and those that hide or reverse text.
#[track_caller]
fn is_printable(text: &str) {
    let hidden = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{200b}');
    assert!(!text.contains(hidden), "{text:?}");
}

#[test]
fn pin_shows_control_characters_of_a_name_and_writes_the_file_byte_for_byte() {
    let name = "\"a\\e[2Jb\\x9bc\\u202ed\"";
    let dir = Workdir::new([("a.yaml", &plan(name, "x", "v1.33.3+k3s1"))]);
    let ran = dir.run("pin --to v1.33.4+k3s1 a.yaml").ends(0).reports("");
    ran.prints("a.yaml:7: Plan system-upgrade/a\\x1b[2Jb\\x9bc\\u{202e}d: v1.33.3+k3s1 -> v1.33.4+k3s1\n");
    assert_eq!(dir.read("a.yaml"), plan(name, "x", "v1.33.4+k3s1"));
    let ran = dir.run("pin -o json --to v1.33.5+k3s1 a.yaml").ends(0);
    is_printable(&ran.out);
    assert_eq!(
        ran.json()["plans"][0]["plan"],
        "system-upgrade/a\u{1b}[2Jb\u{9b}c\u{202e}d"
    );
}

#[test]
fn a_line_of_pin_is_one_line_whatever_the_names_of_file_and_plan_contain() {
    let dir = Workdir::new([("a\nb.yaml", &plan("\"c\\nd\"", "x", "v1.33.3+k3s1"))]);
    let ran = dir.run("pin --to v1.33.4+k3s1 .").ends(0);
    ran.prints("./a\\nb.yaml:7: Plan system-upgrade/c\\nd: v1.33.3+k3s1 -> v1.33.4+k3s1\n");
    let failed = dir.run("pin --to latest .").ends(2);
    assert_eq!(failed.err.lines().count(), 1, "{failed:#?}");
}

#[test]
fn a_diff_with_hidden_text_is_escaped_and_says_so_and_the_file_keeps_it() {
    let hidden = plan("a", "x", "v1.33.3+k3s1").replace("# by refit", "# \u{202e}tifer yb");
    let dir = Workdir::new([("a.yaml", &hidden)]);
    let ran = dir.run("pin --check --to v1.33.4+k3s1 a.yaml").ends(1);
    is_printable(&ran.out);
    let ran = ran.out_has("+  version: v1.33.4+k3s1 # \\u{202e}tifer yb\n");
    ran.err_has("so patch cannot apply it");
    assert_eq!(dir.read("a.yaml"), hidden);
    dir.run("pin --to v1.33.4+k3s1 a.yaml").ends(0);
    assert_eq!(dir.read("a.yaml"), hidden.replace("v1.33.3", "v1.33.4"));
    // Line ends and a byte order mark stay, because a patch needs them.
    let usual = format!("\u{feff}{}", plan("b", "x", "v1.33.3+k3s1").replace('\n', "\r\n"));
    dir.write("a.yaml", &usual);
    let ran = dir
        .run("pin --check --to v1.33.4+k3s1 a.yaml")
        .err_lacks("escaped");
    ran.out_has("+  version: v1.33.4+k3s1 # by refit\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn resolve_shows_control_characters_of_names_and_versions() {
    let (_server, url) = stable("v1.34.1%1b%5b2J").await;
    let dir = Workdir::new([("a.yaml", &plan("\"a\\e[2J\"", "x", "v1.33.3+k3s1"))]);
    let ran = dir.run("resolve a.yaml");
    ran.out_has("Plan system-upgrade/a\\x1b[2J: v1.33.3+k3s1");
    for format in ["text", "name", "json"] {
        let ran = dir.run(&format!("resolve -o {format} a.yaml {url}"));
        is_printable(&ran.out);
        is_printable(&ran.err);
    }
}

#[test]
fn validate_marks_the_place_in_a_line_with_hidden_text_and_needs_no_colors_for_it() {
    let text = plan("a", "x", "v1.33.3+k3s1").replace("  upgrade:", "  note: \u{202e}x\n  upgrade:");
    let dir = Workdir::new([("a.yaml", &text)]);
    let ran = dir.run("validate a.yaml").ends(1);
    is_printable(&ran.out);
    ran.out_has("|   note: \\u{202e}x\n")
        .out_has("|   ^^^^\n")
        .out_has("= hint: ");
}
