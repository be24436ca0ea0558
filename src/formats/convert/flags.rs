//! Command lines of Go programs: `--name=value`, `--name value`, and one dash as well as two.

/// The flags of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// Names without dashes, and values, in the order of the command line.
    all: Vec<(String, String)>,
    /// Words that are not flags, or flags without their value.
    pub(super) unread: Vec<String>,
}

impl Flags {
    /// Reads `words`. The flags named in `switches` take a value only after `=`.
    pub(super) fn read(words: &[String], switches: &[&str]) -> Self {
        let mut flags = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                flags.unread.push(word.clone());
                continue;
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None if switches.contains(&name) => (name, "true".to_owned()),
                None => {
                    let Some(value) = words.next() else {
                        flags.unread.push(word.clone());
                        continue;
                    };
                    (name, value.clone())
                }
            };
            flags.all.push((name.to_owned(), value));
        }
        flags
    }

    pub(super) fn push(&mut self, name: String, value: String) {
        self.all.push((name, value));
    }

    /// The last value of a flag, unless it is empty.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        let value = self.all.iter().rev().find(|(flag, _)| flag == name);
        value
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// All values of a flag that may be repeated.
    pub(super) fn each(&self, name: &str) -> impl Iterator<Item = &str> {
        let of = self.all.iter().filter(move |(flag, _)| flag == name);
        of.map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// All values of a flag that may be repeated or have commas.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let parts = self.each(name).flat_map(|value| value.split(','));
        parts.map(str::trim).filter(|part| !part.is_empty()).collect()
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        let value = self.last(name).map(refit_base::go::parse_bool);
        value.is_some_and(|value| value == Ok(true))
    }

    /// The names of all flags, each once.
    pub(super) fn names(&self) -> std::collections::BTreeSet<&str> {
        self.all.iter().map(|(name, _)| name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Flags {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Flags::read(&words, &["on"])
    }

    #[test]
    fn values_follow_an_equals_sign_or_are_the_next_word() {
        let flags = read(&["--a=1", "-b", "2", "--c=x=y", "--on", "--a", "3"]);
        assert_eq!(flags.last("a"), Some("3"));
        assert_eq!(flags.each("a").collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(flags.last("b"), Some("2"));
        assert_eq!(flags.last("c"), Some("x=y"));
        assert!(flags.is_on("on"));
        assert_eq!(flags.unread, Vec::<String>::new());
    }

    #[test]
    fn a_switch_can_be_off_and_an_empty_value_is_none() {
        let flags = read(&["--on=false", "--a="]);
        assert!(!flags.is_on("on"));
        assert_eq!(flags.last("a"), None);
    }

    #[test]
    fn words_that_are_no_flags_and_flags_without_value_are_left() {
        let flags = read(&["word", "-", "--a"]);
        assert_eq!(flags.unread, ["word", "-", "--a"]);
    }

    #[test]
    fn lists_are_split_at_commas() {
        assert_eq!(read(&["--a=x, y", "--a=z,"]).list("a"), ["x", "y", "z"]);
    }
}
