//! Reads environment variables through a function, so that tests need not set any, and collects the messages to log.

use std::cell::RefCell;
use std::str::FromStr;

use super::{Notice, SettingsError};

pub(super) struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    pub(super) notices: RefCell<Vec<Notice>>,
}

impl<'a> Environment<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            lookup,
            notices: RefCell::default(),
        }
    }

    /// The variable, even if it is empty.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    /// The variable, unless it is empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// The value of a flag, or of its variable, which must be valid.
    pub(super) fn flag<T>(
        &self,
        flag: Option<T>,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SettingsError> {
        if flag.is_some() {
            return Ok(flag);
        }
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        parse(&value)
            .map(Some)
            .map_err(|allowed| SettingsError::Variable { name, value, allowed })
    }

    /// As [`Self::flag`], except that a variable that is empty counts as absent.
    pub(super) fn flag_or_text<T>(
        &self,
        flag: Option<T>,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SettingsError> {
        if self.text(name).is_none() {
            return Ok(flag);
        }
        self.flag(flag, name, parse)
    }

    /// The value of a variable about Jobs and Plans. If it is invalid, a message is collected and `default` is used.
    pub(super) fn or_default<T>(
        &self,
        name: &'static str,
        default: T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let Some(value) = self.get(name) else {
            return default;
        };
        parse(&value).unwrap_or_else(|error| {
            self.add_notice(Notice::Error(format!("failed to parse ${name}: {error}")));
            default
        })
    }

    pub(super) fn add_notice(&self, notice: Notice) {
        self.notices.borrow_mut().push(notice);
    }
}

/// An integer within the bounds of `T`.
pub(super) fn integer<T: FromStr>(value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{value:?} is not a whole number, or too large"))
}
