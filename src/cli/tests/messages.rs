//! The words of all messages, which are read from the sources.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::super::*;

/// Words that hide who does what, or that readers have to look up.
const BANNED: &str = "another one is as likely;asks for;ask for;at work;be through;everybody;for ever;gets no further;\
    goes astray;goes back;in place of;in turn;is let;is looked at;is said;is there for the second time;\
    is there, and;is through;made up;never lets;nobody;not asked;not looked at;of which;passed over;\
    says another;some time;somebody;stands;taken to be;takes others;told;under way;whoever;fills in;filled in;belong into;\
    answer is no;be had;cannot be asked;going away;is given back;it is no;of before;which is no";

/// The banned words in a text, as whole words.
fn banned(text: &str) -> Vec<&'static str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let has = |phrase: &&str| {
        text.match_indices(*phrase).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + phrase.len()..]);
            !before.ends_with(is_word) && !after.starts_with(is_word)
        })
    };
    BANNED.split(';').filter(has).collect()
}

/// The string literals of a source file, without tests and comments.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let before = rest[..at].chars().next_back();
        rest = &rest[at..];
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(after) = rest.strip_prefix('\'') {
            // A character literal; otherwise it is a lifetime.
            let skipped = if after.starts_with('\\') { 2 } else { 0 };
            let length = after[skipped..].find('\'').map(|at| at + skipped + 1);
            let is_char =
                length.filter(|length| after.starts_with('\\') || after[..*length].chars().count() == 2);
            rest = &after[is_char.unwrap_or(0)..];
        } else if let Some(after) = rest.strip_prefix('"') {
            let is_raw = matches!(before, Some('r' | '#'));
            let mut end = 0;
            while !after[end..].starts_with('"') {
                let is_escape = !is_raw && after[end..].starts_with('\\');
                let characters = after[end..].chars().take(if is_escape { 2 } else { 1 });
                end += characters.map(char::len_utf8).sum::<usize>();
            }
            found.push(one_line(&after[..end]));
            rest = &after[end + 1..];
        } else {
            rest = &rest[1..];
        }
    }
    found
}

/// Joins a literal that continues on the next line.
fn one_line(literal: &str) -> String {
    let mut lines = literal.split("\\\n");
    let mut text = lines.next().unwrap_or_default().to_owned();
    lines.for_each(|line| text.push_str(line.trim_start()));
    text.replace('\n', "\\n")
}

fn is_message(literal: &str) -> bool {
    let letters = literal.replace(|c: char| !c.is_ascii_alphabetic(), " ");
    literal.trim().contains(' ') && letters.split_whitespace().filter(|word| word.len() > 1).count() > 1
}

/// The source files below a folder, sorted, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if !is_test && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The messages of all crates, by source.
fn messages() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let mut text = String::new();
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        let mut messages = literals(&source);
        messages.retain(|literal| is_message(literal));
        if !messages.is_empty() {
            let _ = write!(text, "\n{}\n", path.strip_prefix(root).unwrap().display());
            for message in messages {
                let _ = writeln!(text, "  {message}");
            }
        }
    }
    text
}

#[test]
fn messages_name_who_does_what() {
    let all = messages();
    assert!(all.lines().count() > 1_000, "{}", all.lines().count());
    let bad: Vec<_> = all.lines().filter(|line| !banned(line).is_empty()).collect();
    assert_eq!(bad, [] as [&str; 0]);
}

#[test]
fn the_help_of_each_command_names_who_does_what() {
    let mut root = command();
    root.build();
    let node = root.find_subcommand("node").unwrap().clone();
    let mut bad = Vec::new();
    for command in root
        .clone()
        .get_subcommands()
        .chain(node.get_subcommands())
        .chain([&root])
    {
        let help = command.clone().render_long_help().to_string();
        // A phrase may continue on the next line.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let name = command.get_name();
        bad.extend(banned(&help).into_iter().map(|word| format!("{name}: {word}")));
    }
    assert_eq!(bad, [""; 0]);
}

#[test]
fn a_source_is_read_as_rust_reads_it() {
    let source = "/// \"no comment\"\nlet a = \"one \\\"two\\\"\"; let b: &'static str = r\"three \\\"; let c = '\"'; // 'x\nlet d = '\\''; e(\"four \\\n      five\");\n#[cfg(test)]\nlet f = \"of a test\";";
    assert_eq!(literals(source), [r#"one \"two\""#, r"three \", "four five"]);
}
