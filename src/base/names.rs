//! Lists of names in messages.

/// The first of the names, and how many more there are: a list of 5,000 nodes cannot be read.
pub fn shortened<S: AsRef<str>>(names: &[S], shown: usize) -> String {
    let first: Vec<&str> = names.iter().take(shown).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(shown) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
