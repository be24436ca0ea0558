//! Recordings of terminal sessions in the documents: each is compared with what its command prints.

use std::path::Path;

/// Compares the recording of a command in a document with what `run` prints for the rest of its line. `REFIT_UPDATE=1`
/// writes it again.
#[track_caller]
pub(crate) fn check(document: &str, command: &str, run: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let committed = std::fs::read_to_string(&path).unwrap();
    let head = format!("<!-- recorded: {command}");
    let (before, rest) = committed
        .split_once(&head)
        .unwrap_or_else(|| panic!("{document} has no recording of {command}"));
    let (arguments, rest) = rest.split_once(" -->\n```\n").unwrap();
    let (recorded, after) = rest.split_once("```\n").unwrap();
    let printed = run(arguments.trim());
    if std::env::var_os("REFIT_UPDATE").is_some() {
        let written = format!("{before}{head}{arguments} -->\n```\n{printed}```\n{after}");
        std::fs::write(&path, written).unwrap();
    } else {
        assert_eq!(
            recorded, printed,
            "{document} is stale: run this test with REFIT_UPDATE=1"
        );
    }
}
