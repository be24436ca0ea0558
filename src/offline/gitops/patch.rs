//! The change of a file in the format of `diff -u`, which `git apply` reads.

use std::fmt::Write as _;

use similar::{ChangeTag, TextDiff};

/// Number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// The change as a unified diff; empty if nothing changed.
pub fn unified(name: &str, old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (lines(old), lines(new));
    let diff = TextDiff::configure().diff_slices(&old, &new);
    let name = name.trim_start_matches("./").trim_start_matches('/');
    let mut text = format!("--- {}\n+++ {}\n", header("a", name), header("b", name));
    for hunk in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
            continue;
        };
        let range = |start: usize, end: usize| match end - start {
            // For an empty range, the format names the line before it.
            0 => format!("{start},0"),
            1 => format!("{}", start + 1),
            length => format!("{},{length}", start + 1),
        };
        let before = range(first.old_range().start, last.old_range().end);
        let after = range(first.new_range().start, last.new_range().end);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "@@ -{before} +{after} @@");
        for change in hunk.iter().flat_map(|op| diff.iter_changes(op)) {
            text.push(match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            });
            text.push_str(change.value());
            if !change.value().ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    text
}

/// Lines with their line breaks. For `patch` and Git a line ends with a line feed only; a carriage return belongs to
/// the line.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The file name as Git writes it: quoted if it has special characters, and with a tab after a name with a space,
/// because `patch` would take the rest for a timestamp.
fn header(side: &str, name: &str) -> String {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if name.bytes().all(is_plain) {
        let tab = if name.contains(' ') { "\t" } else { "" };
        return format!("{side}/{name}{tab}");
    }
    let mut quoted = format!("\"{side}/");
    for byte in name.bytes() {
        match byte {
            b'"' => quoted.push_str("\\\""),
            b'\\' => quoted.push_str("\\\\"),
            b'\t' => quoted.push_str("\\t"),
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            byte if is_plain(byte) => quoted.push(char::from(byte)),
            byte => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// The file after `git apply` with its diff.
    fn applied(name: &str, old: &str, new: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), old).unwrap();
        let mut git = Command::new("git");
        // Keeps Git from finding a repository around the temporary folder.
        git.env("GIT_CEILING_DIRECTORIES", folder.path().parent().unwrap());
        let git = git
            .current_dir(folder.path())
            .args(["apply", "-"])
            .stdin(Stdio::piped());
        let mut git = git.spawn().unwrap();
        let patch = unified(name, old, new);
        git.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
        assert!(git.wait().unwrap().success(), "{patch}");
        std::fs::read_to_string(folder.path().join(name)).unwrap()
    }

    #[test]
    fn git_applies_the_diff_whatever_the_name_and_the_line_ends() {
        let text = "a: 1\nb: 2\nc: 3\nd: 4\nversion: v1\ne: 5\nf: 6\ng: 7\nh: 8\n";
        for name in ["plan.yaml", "my plan.yaml", "plän \"x\".yaml", "a\tb\\c.yaml"] {
            for old in [
                text.to_owned(),
                text.replace('\n', "\r\n"),
                text.replace('\n', "\r"),
                text.replace("b: 2", "b: 2\rx"),
                text.trim_end().to_owned(),
                text.trim_end().replace('\n', "\r\n"),
                "version: v1\r".to_owned(),
            ] {
                let new = old.replace("v1", "v2");
                assert_eq!(applied(name, &old, &new), new, "{name:?} {old:?}");
                let longer = old.replace("v1", "v2\nmore: 1");
                assert_eq!(applied(name, &old, &longer), longer, "{name:?} {old:?}");
            }
        }
        assert_eq!(unified("a", "x", "x"), "");
    }

    #[test]
    fn a_diff_has_the_form_that_diff_gives_it() {
        assert_eq!(
            unified("./clusters/plan.yaml", "a\nversion: v1\n", "a\nversion: v2\n"),
            "--- a/clusters/plan.yaml\n+++ b/clusters/plan.yaml\n@@ -1,2 +1,2 @@\n a\n-version: v1\n+version: v2\n"
        );
    }
}
