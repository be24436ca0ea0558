//! Generates the page for contributors that says which test shows which claim.

use std::fmt::Write as _;

use refit_fixtures::generated::{assert_committed, committed};

const INTRODUCTION: &str = "# Which test shows what

The claims of the documents, and the tests that fail if one of them is wrong. F: a feature of system-upgrade-controller that stays; D: a
[deviation](../docs/compatibility.md#deviations) from it. This page is made of [evidence.txt](evidence.txt) by `just generate`. How the tests are run: [Contributing](../CONTRIBUTING.md#the-tests).
";

#[test]
fn the_committed_page_lists_the_evidence() {
    let mut page = INTRODUCTION.to_owned();
    for line in committed("tests/evidence.txt").lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            write!(page, "\n## {heading}\n\n| claim | tests |\n|---|---|\n").unwrap();
        } else if let Some((claim, tests)) = line.split_once(" | ") {
            let tests: Vec<_> = tests.split_whitespace().map(|test| format!("`{test}`")).collect();
            writeln!(page, "| {claim} | {} |", tests.join(" ")).unwrap();
        }
    }
    assert_committed("tests/README.md", &page);
}
