//! Errors of a spec, each with the path of its field, as in apimachinery's `field.ErrorList`.
//!
//! What parses a part of a spec returns the part, or all that is wrong with it. The combinators of [`FieldPath`] give
//! errors of one kind the same text.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::names::is_secret_name;
use super::node_limit::NodeLimit;
use super::selector::Selector;
use refit_base::go::{DurationError, GoDuration};

/// Further errors of a Plan are not kept, so that a list with a hundred thousand mistakes costs little.
const MAX_ERRORS: usize = 100;

/// The path of a field, such as `spec.waves[1].soak`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct FieldPath(String);

/// The path of a field of the spec.
pub fn at(field: &str) -> FieldPath {
    FieldPath(format!("spec.{field}"))
}

impl FieldPath {
    /// A path that begins here: at the object, or at a part of it that [`ErrorList::below`] completes.
    pub fn root(field: &str) -> Self {
        Self(field.to_owned())
    }

    pub fn field(&self, name: &str) -> Self {
        Self(format!("{self}.{name}"))
    }

    pub fn index(&self, index: usize) -> Self {
        Self(format!("{self}[{index}]"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The error `<path> <problem>`.
    pub fn invalid(&self, problem: impl Display) -> Invalid {
        self.says(format!("{self} {problem}"))
    }

    /// An error whose message does not begin with the path.
    pub fn says(&self, message: impl Into<String>) -> Invalid {
        Invalid {
            path: self.clone(),
            message: message.into(),
            hint: None,
        }
    }

    /// Parses the text of the field.
    pub(super) fn parse<T: FromStr<Err: Display>>(&self, text: &str) -> Result<T, Invalid> {
        text.parse()
            .map_err(|error| self.invalid(format_args!("is invalid, {error}")))
    }

    /// A duration of more than nothing.
    pub(super) fn positive(&self, value: Result<GoDuration, DurationError>) -> Result<GoDuration, Invalid> {
        match value {
            Err(error) => Err(self.invalid(format_args!("is invalid, {error}"))),
            Ok(value) if value <= GoDuration::ZERO => {
                Err(self.invalid(format_args!("is {value}: it must be more than 0s")))
            }
            Ok(value) => Ok(value),
        }
    }

    /// Whether a list is short enough. It may have grown under another schema.
    pub(super) fn at_most<T>(&self, list: &[T], max: usize, items: &str) -> Result<(), Invalid> {
        match list.len() {
            len if len > max => {
                Err(self.invalid(format_args!("has {len} {items}: it must have at most {max}")))
            }
            _ => Ok(()),
        }
    }

    /// The items of a list, each parsed with its path, or all that is invalid of them.
    pub(super) fn each<S, T, E: Into<ErrorList>>(
        &self,
        list: &[S],
        max: usize,
        items: &str,
        parse: impl Fn(&S, &Self) -> Result<T, E>,
    ) -> Result<Vec<T>, ErrorList> {
        self.at_most(list, max, items)?;
        let mut errors = ErrorList::default();
        let each = list.iter().enumerate();
        let parsed: Vec<_> = each
            .filter_map(|(index, item)| errors.take(parse(item, &self.index(index))))
            .collect();
        errors.finish(Some(parsed))
    }

    pub(super) fn node_limit(&self, limit: &IntOrString) -> Result<NodeLimit, Invalid> {
        NodeLimit::parse(limit).ok_or_else(|| {
            self.invalid(format_args!(
                "is {}: it must be a number from 1 on, or a share of the nodes from \"1%\" to \"100%\"",
                written(limit)
            ))
        })
    }

    pub(super) fn selector(&self, selector: &LabelSelector) -> Result<Selector, Invalid> {
        Selector::new(Some(selector)).map_err(|error| self.invalid(format_args!("is invalid, {error}")))
    }

    pub(super) fn secret(&self, name: &str) -> Result<String, Invalid> {
        if is_secret_name(name) {
            return Ok(name.to_owned());
        }
        Err(self.invalid(format_args!(
            "is {name:?}: it must be the name of a secret in the Plan's namespace"
        )))
    }
}

impl Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number or a text as in JSON.
pub(super) fn written(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{text:?}"),
    }
}

/// An error of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    pub path: FieldPath,
    /// What is wrong, of which field.
    pub message: String,
    /// What to write instead, where the error decides it.
    pub hint: Option<Cow<'static, str>>,
}

impl Invalid {
    #[must_use]
    pub fn hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// All errors of a spec, or of a part of it, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorList(Vec<Invalid>);

impl ErrorList {
    pub fn push(&mut self, error: Invalid) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(error);
        }
    }

    /// The value, if there is one; otherwise keeps the errors.
    pub fn take<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(errors) => {
                errors.into().0.into_iter().for_each(|error| self.push(error));
                None
            }
        }
    }

    /// The value, if nothing was wrong.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// The errors of an object whose path is `parent`.
    pub(super) fn below(self, parent: &FieldPath) -> Self {
        let errors = self.0.into_iter().map(|error| Invalid {
            path: parent.field(error.path.as_str()),
            message: format!("{parent} is invalid, {}", error.message),
            hint: error.hint,
        });
        Self(errors.collect())
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Invalid> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Invalid> for ErrorList {
    fn from(error: Invalid) -> Self {
        Self(vec![error])
    }
}

impl IntoIterator for ErrorList {
    type Item = Invalid;
    type IntoIter = std::vec::IntoIter<Invalid>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ErrorList {
    type Item = &'a Invalid;
    type IntoIter = std::slice::Iter<'a, Invalid>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Display for ErrorList {
    /// The messages with `; ` between them. One with which an earlier one begins is left out: of an absent time,
    /// system-upgrade-controller says only `spec.window is invalid, Invalid time format: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let mut before = self.0[..index].iter();
            if before.any(|other| other.message.starts_with(&error.message)) {
                continue;
            }
            write!(f, "{}{error}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for ErrorList {}
