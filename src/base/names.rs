//! Lists of names in messages.

use std::borrow::Borrow;

/// The first of the names, and how many more there are: a list of 5,000 nodes cannot be read.
pub fn shortened<'a, S: Borrow<str> + 'a>(names: impl IntoIterator<Item = &'a S>, shown: usize) -> String {
    let mut names = names.into_iter();
    let first: Vec<&str> = names.by_ref().take(shown).map(Borrow::borrow).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
