//! The values of `-o`: each command allows some of them.

use anyhow::Context as _;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::output;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Text,
    Wide,
    Json,
    Yaml,
    Name,
    Github,
    Sarif,
    Junit,
    Markdown,
    Html,
}

use OutputFormat::{Github, Html, Json, Junit, Markdown, Name, Sarif, Text, Wide, Yaml};

impl OutputFormat {
    fn value(self) -> PossibleValue {
        match self {
            Text => PossibleValue::new("text").help("For people"),
            Wide => PossibleValue::new("wide").help("For people, with everything that is known"),
            Json => PossibleValue::new("json").help("JSON"),
            Yaml => PossibleValue::new("yaml").help("YAML"),
            Name => PossibleValue::new("name").help("Names alone, a line each"),
            Github => PossibleValue::new("github").help("Annotations of GitHub Actions"),
            Sarif => PossibleValue::new("sarif").help("SARIF 2.1.0, for code scanning"),
            Junit => PossibleValue::new("junit").help("JUnit's XML, for Jenkins and GitLab"),
            Markdown => PossibleValue::new("markdown").help("A document with tables"),
            Html => PossibleValue::new("html").help("A page without scripts or references"),
        }
    }

    /// Whether it is for programs, and an object.
    pub(super) fn is_data(self) -> bool {
        matches!(self, Json | Yaml)
    }

    /// An object as JSON or YAML.
    pub(super) fn render(self, value: &serde_json::Value) -> anyhow::Result<String> {
        match self {
            Yaml => Ok(serde_saphyr::to_string(value)?),
            _ => Ok(format!("{value:#}\n")),
        }
    }

    /// Prints what [`Self::render`] returned.
    pub(super) fn write(self, text: &str) -> std::io::Result<()> {
        match self {
            Yaml => output::text(text),
            _ => output::json(text),
        }
    }

    /// Prints an object as JSON or YAML.
    pub(super) fn print(self, value: &serde_json::Value) -> anyhow::Result<()> {
        self.write(&self.render(value)?)
            .context("the result cannot be printed")
    }
}

/// Reads one of these formats. The error for another value lists them.
pub(super) fn any_of(allowed: &'static [OutputFormat]) -> impl TypedValueParser<Value = OutputFormat> {
    let values = allowed.iter().map(|format| format.value());
    PossibleValuesParser::new(values).try_map(|text| {
        let mut found = allowed.iter().copied();
        found
            .find(|format| format.value().matches(&text, false))
            .ok_or("no such format")
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_error_for_an_unknown_format_lists_those_of_the_command() {
        for (line, allowed) in [
            ("status -o cvs", "[possible values: text, wide, json, yaml, name]"),
            ("suspend p -o cvs", "[possible values: text, json, yaml, name]"),
            ("report p -o text", "[possible values: markdown, json, html]"),
            ("drain a -o yaml", "[possible values: text, json]"),
            (
                "validate . -o yaml",
                "[possible values: text, json, github, sarif, junit]",
            ),
            ("render . --node a -o text", "[possible values: yaml, json]"),
            ("migrate --check -o name", "[possible values: text, json, yaml]"),
        ] {
            let args = ["refit"].into_iter().chain(line.split(' ')).map(Into::into);
            let error = crate::cli::parse(args.collect::<Vec<_>>())
                .unwrap_err()
                .to_string();
            assert!(error.contains(allowed), "{line}: {error}");
        }
    }
}
