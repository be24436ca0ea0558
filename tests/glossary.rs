//! The house words of `docs/design.md`: few, and in use.

use std::fs;
use std::path::Path;

use crate::layering::sources;

/// A reader has to learn each of them before the code.
const MOST: usize = 12;

#[test]
fn the_glossary_has_at_most_twelve_words_and_each_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let design = fs::read_to_string(root.join("docs/design.md")).unwrap();
    let (_, terms) = design.split_once("## Terms").unwrap();
    let (terms, _) = terms.split_once("## ").unwrap();
    let rows = terms.lines().filter(|line| line.starts_with("| ")).skip(1);
    let words: Vec<&str> = rows.map(|row| row.split('|').nth(1).unwrap().trim()).collect();
    assert!((1..=MOST).contains(&words.len()), "{words:?}");
    let code: String = sources("rollout")
        .into_iter()
        .map(|(_, text)| text.to_lowercase())
        .collect();
    for word in words {
        assert!(
            code.contains(&word.to_lowercase()),
            "{word} is not used in src/rollout"
        );
    }
}
