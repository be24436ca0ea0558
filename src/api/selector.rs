//! Label selectors: parsed from a Plan's `LabelSelector` or from kubectl's text, for matching thousands of objects.
//!
//! Syntax, semantics, text form and errors are those of `k8s.io/apimachinery/pkg/labels`, so that a selector survives
//! the arguments of a container unchanged.

mod constraint;
pub mod explain;
mod parse;
mod syntax;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

pub use constraint::{LabelConstraint, constraints};
pub use syntax::{SUBDOMAIN_PROBLEM, is_dns_label, is_subdomain, label_key_problems, label_value_problems};

/// Maximum number of requirements: each is compared with every node, or pod, in one go.
const MAX_REQUIREMENTS: usize = 256;

/// Why a selector is invalid, with apimachinery's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// A selector: either nothing, or a conjunction of requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Sorted by key; `None` selects nothing.
    requirements: Option<Vec<Requirement>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, because there may be thousands.
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Selector {
    /// A selector that matches nothing.
    pub const fn nothing() -> Self {
        Self { requirements: None }
    }

    /// A selector that matches everything.
    pub const fn everything() -> Self {
        Self {
            requirements: Some(Vec::new()),
        }
    }

    /// The selector of a spec: absent matches nothing, `{}` everything (S13).
    ///
    /// # Errors
    /// Fails if a requirement is invalid.
    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else {
            return Ok(Self::nothing());
        };
        let labels = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, value)| Requirement::new(key, Operator::Equals, vec![value.clone()]));
        let expressions = selector
            .match_expressions
            .iter()
            .flatten()
            .map(Requirement::from_expression);
        Self::limited(labels.chain(expressions).collect::<Result<_, _>>()?)
    }

    /// The selector as in a spec.
    ///
    /// # Errors
    /// Fails for a selector that selects nothing, and for one that compares numbers (`>`, `<`): a `LabelSelector` cannot
    /// express either.
    pub fn to_spec(&self) -> Result<LabelSelector, SelectorError> {
        let mut spec = LabelSelector::default();
        let all = self.requirements.as_ref();
        for requirement in all.ok_or_else(|| SelectorError("it selects nothing".to_owned()))? {
            let operator = match requirement.operator {
                Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
                Operator::NotIn | Operator::NotEquals => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::GreaterThan | Operator::LessThan => {
                    let why = format!(
                        "the comparison of {} cannot be written in an object",
                        requirement.key
                    );
                    return Err(SelectorError(why));
                }
            };
            let labels = spec.match_labels.get_or_insert_default();
            match (operator, requirement.values.as_slice()) {
                ("In", [value]) if !labels.contains_key(&requirement.key) => {
                    labels.insert(requirement.key.clone(), value.clone());
                }
                (operator, values) => {
                    let expressions = spec.match_expressions.get_or_insert_default();
                    expressions.push(LabelSelectorRequirement {
                        key: requirement.key.clone(),
                        operator: operator.to_owned(),
                        values: Some(values.to_vec()).filter(|values| !values.is_empty()),
                    });
                }
            }
        }
        spec.match_labels = spec.match_labels.filter(|labels| !labels.is_empty());
        Ok(spec)
    }

    /// Requires a label with this key.
    ///
    /// # Errors
    /// Fails if `key` is not a label key.
    pub fn exists(key: &str) -> Result<Self, SelectorError> {
        Requirement::new(key, Operator::Exists, Vec::new()).map(|one| Self::all(vec![one]))
    }

    /// Requires that no label has this key.
    ///
    /// # Errors
    /// Fails if `key` is not a label key.
    pub fn does_not_exist(key: &str) -> Result<Self, SelectorError> {
        Requirement::new(key, Operator::DoesNotExist, Vec::new()).map(|one| Self::all(vec![one]))
    }

    /// The conjunction of two selectors.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.requirements, other.requirements) {
            (Some(mut all), Some(more)) => {
                all.extend(more);
                Self::all(all)
            }
            _ => Self::nothing(),
        }
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_by(|key| labels.get(key).map(String::as_str))
    }

    /// Whether it matches an object whose labels are looked up by `label`.
    pub fn matches_by<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements
            .as_ref()
            .is_some_and(|all| all.iter().all(|one| one.matches(label(&one.key))))
    }

    fn limited(requirements: Vec<Requirement>) -> Result<Self, SelectorError> {
        match requirements.len() {
            count if count > MAX_REQUIREMENTS => Err(SelectorError(format!(
                "the selector has {count} requirements, and at most {MAX_REQUIREMENTS} are supported"
            ))),
            _ => Ok(Self::all(requirements)),
        }
    }

    fn all(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            requirements: Some(requirements),
        }
    }
}

impl Requirement {
    /// A requirement, or all its errors.
    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, SelectorError> {
        let mut problems = Vec::new();
        syntax::check_key("key", key, &mut problems);
        operator.check(&values, &mut problems);
        for (index, value) in values.iter().enumerate() {
            syntax::check_value(&format!("values[{index}][{key}]"), value, &mut problems);
        }
        if let Some(problem) = syntax::aggregate(problems) {
            return Err(SelectorError(problem));
        }
        values.sort_unstable();
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    fn from_expression(expression: &LabelSelectorRequirement) -> Result<Self, SelectorError> {
        let operator = match expression.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                let other = syntax::quote(other);
                return Err(SelectorError(format!(
                    "{other} is not a valid label selector operator"
                )));
            }
        };
        Self::new(
            &expression.key,
            operator,
            expression.values.clone().unwrap_or_default(),
        )
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| {
            self.values
                .binary_search_by(|one| one.as_str().cmp(value))
                .is_ok()
        };
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(listed),
            // An object without the label meets these (`Requirement.Matches` in apimachinery's labels/selector.go).
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compares(value, |value, bound| value > bound),
            Operator::LessThan => self.compares(value, |value, bound| value < bound),
        }
    }

    /// Whether value and bound are integers for which `holds` is true.
    fn compares(&self, value: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let number = |text: Option<&str>| text?.parse().ok();
        number(value)
            .zip(number(self.values.first().map(String::as_str)))
            .is_some_and(|(value, bound)| holds(value, bound))
    }
}

impl Operator {
    /// Adds errors about the number of values, and about values that must be integers.
    fn check(self, values: &[String], problems: &mut Vec<String>) {
        let problem = match self {
            Self::In | Self::NotIn if values.is_empty() => {
                "for 'in', 'notin' operators, values set can't be empty"
            }
            Self::Equals | Self::DoubleEquals | Self::NotEquals if values.len() != 1 => {
                "exact-match compatibility requires one single value"
            }
            Self::Exists | Self::DoesNotExist if !values.is_empty() => {
                "values set must be empty for exists and does not exist"
            }
            Self::GreaterThan | Self::LessThan if values.len() != 1 => {
                "for 'Gt', 'Lt' operators, exactly one value is required"
            }
            _ => "",
        };
        if !problem.is_empty() {
            problems.push(format!(
                "values: Invalid value: {}: {problem}",
                syntax::json_list(values)
            ));
        }
        if matches!(self, Self::GreaterThan | Self::LessThan) {
            for (index, value) in values
                .iter()
                .enumerate()
                .filter(|(_, value)| value.parse::<i64>().is_err())
            {
                problems.push(format!(
                    "values[{index}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    syntax::quote(value)
                ));
            }
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    /// Parses kubectl's syntax: `a=b,c!=d,e in (f,g),!h,i`. The empty text matches everything.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::requirements(text).and_then(Self::limited)
    }
}

impl fmt::Display for Selector {
    /// Prints kubectl's syntax, sorted by key (S37). Both nothing and everything print as empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().flatten().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests;
