//! Walks over a value by the schema of a CustomResourceDefinition, as the API server validates and prunes it.
//!
//! `refit validate` and the simulated API server share it, each with its own kind of values and its own words for a problem. Only the
//! keywords that the definition of Plans uses are implemented.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::Number;

/// A JSON value in the form that the caller has.
pub trait Tree<'v>: Copy {
    fn shape(self) -> Shape<'v>;
    /// The items of a list.
    fn items(self) -> impl Iterator<Item = Self>;
    /// The fields of an object.
    fn fields(self) -> impl Iterator<Item = (&'v str, Self)>;
    /// Whether an object has a field. A null counts if the API server would not drop it.
    fn has(self, name: &str) -> bool;
}

#[derive(Clone, Copy, Debug)]
pub enum Shape<'v> {
    Null,
    Bool,
    Number(&'v Number),
    Text(&'v str),
    List,
    Object,
}

impl Shape<'_> {
    /// The name of the type in a schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "boolean",
            Self::Number(number) if whole(number).is_some() => "integer",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::List => "array",
            Self::Object => "object",
        }
    }
}

/// The number if it is an integer, which may be written as a fraction: `2.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "a number without fraction, less than 2^53"
)]
pub fn whole(number: &Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let value = number.as_f64().filter(|_| number.is_f64())?;
        (value.trunc() == value && value.abs() < EXACT).then_some(value as i64)
    })
}

/// The path of a value, which is only rendered for a problem, because most values are valid.
#[derive(Clone, Copy, Debug)]
pub enum Path<'p> {
    Root,
    Field(&'p Self, &'p str),
    Item(&'p Self, usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Field(String),
    Item(usize),
}

impl Path<'_> {
    pub fn steps(&self) -> Vec<Step> {
        let (mut steps, last) = match self {
            Self::Root => return Vec::new(),
            Self::Field(of, name) => (of.steps(), Step::Field((*name).to_owned())),
            Self::Item(of, at) => (of.steps(), Step::Item(*at)),
        };
        steps.push(last);
        steps
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, at) => write!(f, "{of}[{at}]"),
        }
    }
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug)]
pub enum Problem<'s> {
    /// An object has a field that the schema lacks: the API server drops it, or refuses it.
    Unknown(&'s str),
    /// An object lacks a required field.
    Missing(&'s str),
    /// An object meets none of the alternatives. What the first one lacks follows.
    NoAlternative,
    /// The types that the schema allows.
    Type(&'s str),
    NotIn(&'s [JSON]),
    /// A number is outside of these bounds.
    Outside(i64, i64),
    /// A text does not match this pattern.
    Pattern(&'s str),
    /// A text has more characters than this.
    TooLong(i64),
    /// A list has fewer items than this.
    TooFew(i64),
    /// A list has more items than this.
    TooMany(i64),
}

/// What a caller does with the problems of a value.
pub trait Visitor<'s, V> {
    /// Whether to look at the value.
    fn enters(&mut self, path: &Path<'_>, schema: &'s JSONSchemaProps, value: V) -> bool;
    /// A problem with the value at this path.
    fn found(&mut self, path: &Path<'_>, schema: &'s JSONSchemaProps, value: V, problem: Problem<'_>);
}

/// The schema of a field, or of the values of a map; `None` for an unknown field.
pub fn property<'s>(schema: &'s JSONSchemaProps, name: &str) -> Option<&'s JSONSchemaProps> {
    let properties = schema.properties.as_ref();
    let own = properties.and_then(|properties| properties.get(name));
    own.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&**values),
        _ => None,
    })
}

/// The first sentence of the description of a field.
pub fn about(schema: &JSONSchemaProps) -> Option<String> {
    let text = schema.description.as_deref()?;
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    // A single word repeats the name of the field.
    Some(sentence.trim_end_matches('.').to_owned()).filter(|text| text.contains(' '))
}

/// Tells the visitor all problems of a value.
pub fn walk<'s, 'v, V: Tree<'v>>(
    schema: &'s JSONSchemaProps,
    value: V,
    path: &Path<'_>,
    visitor: &mut impl Visitor<'s, V>,
) {
    if !visitor.enters(path, schema, value) {
        return;
    }
    let shape = value.shape();
    let is_int_or_text = schema.x_kubernetes_int_or_string == Some(true);
    let wanted = match schema.type_.as_deref() {
        None if is_int_or_text => Some("integer,string"),
        wanted => wanted,
    };
    if let Some(wanted) = wanted
        && !wanted.split(',').any(|wanted| is_of(wanted, shape))
    {
        return visitor.found(path, schema, value, Problem::Type(wanted));
    }
    if let Some(problem) = problem_of(schema, shape, || value.items().count()) {
        visitor.found(path, schema, value, problem);
    }
    match shape {
        Shape::Object => walk_object(schema, value, path, visitor),
        Shape::List => {
            if let Some(JSONSchemaPropsOrArray::Schema(of_item)) = &schema.items {
                for (at, item) in value.items().enumerate() {
                    walk(of_item, item, &Path::Item(path, at), visitor);
                }
            }
        }
        _ => {}
    }
}

fn is_of(wanted: &str, shape: Shape<'_>) -> bool {
    let found = shape.name();
    found == wanted || wanted == "number" && found == "integer"
}

/// What is wrong with the value itself, which has the right type.
fn problem_of<'s>(
    schema: &'s JSONSchemaProps,
    shape: Shape<'_>,
    count: impl Fn() -> usize,
) -> Option<Problem<'s>> {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    match shape {
        Shape::Text(text) => {
            if let Some(allowed) = &schema.enum_
                && !allowed.iter().any(|one| one.0 == text)
            {
                return Some(Problem::NotIn(allowed));
            }
            let pattern = schema.pattern.as_deref().filter(|pattern| {
                let pattern = Regex::new(pattern);
                pattern.is_ok_and(|pattern| !pattern.is_match(text))
            });
            let most = schema.max_length;
            let too_long = || most.filter(|most| number(text.chars().count()) > *most);
            pattern
                .map(Problem::Pattern)
                .or_else(|| too_long().map(Problem::TooLong))
        }
        Shape::Number(number) => {
            let (least, most) = bounds(schema);
            let number = whole(number)?;
            (number < least || number > most).then_some(Problem::Outside(least, most))
        }
        Shape::List if schema.min_items.is_some() || schema.max_items.is_some() => {
            let count = number(count());
            let too_few = schema.min_items.filter(|least| count < *least);
            let too_many = schema.max_items.filter(|most| count > *most);
            too_few.map(Problem::TooFew).or(too_many.map(Problem::TooMany))
        }
        _ => None,
    }
}

/// Minimum and maximum.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bounds in the definition are whole numbers"
)]
fn bounds(schema: &JSONSchemaProps) -> (i64, i64) {
    let (least, most) = match schema.format.as_deref() {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    (
        schema.minimum.map_or(least, |bound| bound as i64),
        schema.maximum.map_or(most, |bound| bound as i64),
    )
}

fn walk_object<'s, 'v, V: Tree<'v>>(
    schema: &'s JSONSchemaProps,
    value: V,
    path: &Path<'_>,
    visitor: &mut impl Visitor<'s, V>,
) {
    let lacks = |schema: &'s JSONSchemaProps| {
        let required = schema.required.iter().flatten();
        required.filter(move |name| !value.has(name))
    };
    for name in lacks(schema) {
        visitor.found(path, schema, value, Problem::Missing(name));
    }
    let alternatives = schema.any_of.as_deref().unwrap_or_default();
    if let Some(first) = alternatives.first()
        && alternatives.iter().all(|one| lacks(one).next().is_some())
    {
        visitor.found(path, schema, value, Problem::NoAlternative);
        for name in lacks(first) {
            visitor.found(path, schema, value, Problem::Missing(name));
        }
    }
    let keeps_unknown = schema.x_kubernetes_preserve_unknown_fields == Some(true)
        || matches!(
            schema.additional_properties,
            Some(JSONSchemaPropsOrBool::Bool(true))
        );
    for (name, field) in value.fields() {
        match property(schema, name) {
            Some(schema) => walk(schema, field, &Path::Field(path, name), visitor),
            None if keeps_unknown => {}
            None => visitor.found(path, schema, value, Problem::Unknown(name)),
        }
    }
}
