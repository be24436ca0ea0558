//! Templates: a text with `{{ name }}` for values. There is nothing else in it, such as loops or conditions, so that
//! the result is no longer than the template and its values.

use std::collections::BTreeMap;

use refit_base::nearest::nearest;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(&'static str),
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    None,
    /// As the inside of a JSON string.
    Json,
    /// As in a form (`application/x-www-form-urlencoded`).
    Form,
    /// So that a regular expression of Go or Rust matches them as they are.
    Regex,
}

impl Escape {
    /// That of a body of this media type.
    pub(super) fn of(media_type: &str) -> Self {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let essence = essence.to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            "application/json" => Self::Json,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::None,
        }
    }

    fn push(self, text: &mut String, value: &str) {
        match self {
            Self::None => text.push_str(value),
            Self::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                text.push_str(&quoted[1..quoted.len() - 1]);
            }
            Self::Form => text.extend(url::form_urlencoded::byte_serialize(value.as_bytes())),
            // A hyphen means something only in a class.
            Self::Regex => text.push_str(&regex::escape(value).replace(r"\-", "-")),
        }
    }
}

impl Template {
    /// Parses a template whose values have these names.
    ///
    /// # Errors
    /// Fails if `{{` has no `}}`, or a value has none of these names; the message lists the names.
    pub fn parse(text: &str, names: &[&'static str]) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            let (before, value) = (&rest[..at], &rest[at + 2..]);
            let Some(end) = value.find("}}") else {
                return Err("it has {{ without }}".to_owned());
            };
            let name = value[..end].trim();
            let Some(known) = names.iter().find(|known| **known == name) else {
                let name = refit_api::text::shorten(name, 40);
                let hint = nearest(&name, names.iter().copied())
                    .map_or_else(String::new, |name| format!("; did you mean {{{{ {name} }}}}?"));
                return Err(format!(
                    "it has {{{{ {name} }}}}; the values are {}{hint}",
                    names.join(", ")
                ));
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Value(known));
            rest = &value[end + 2..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Whether it contains the value of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|part| matches!(part, Part::Value(known) if *known == name))
    }

    /// The text with these values; a value that is missing is empty.
    pub fn render(&self, values: &BTreeMap<&'static str, String>, escape: Escape) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Value(name) => {
                    if let Some(value) = values.get(name) {
                        escape.push(&mut text, value);
                    }
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["plan", "message"];

    fn render(text: &str, message: &str, escape: Escape) -> String {
        let values = BTreeMap::from([("plan", "k3s".to_owned()), ("message", message.to_owned())]);
        Template::parse(text, &NAMES).unwrap().render(&values, escape)
    }

    #[test]
    fn values_are_inserted_once_and_what_they_contain_is_no_template() {
        assert_eq!(
            render("{{plan}}: {{ message }}!", "{{ plan }}", Escape::None),
            "k3s: {{ plan }}!"
        );
        assert_eq!(render("}} { {plan} }", "", Escape::None), "}} { {plan} }");
        assert_eq!(render("", "", Escape::None), "");
    }

    #[test]
    fn values_cannot_leave_their_place() {
        let message = "\"}, \\ \n<&> a=b é";
        let json = render(
            r#"{"text": "{{ message }}"}"#,
            message,
            Escape::of("Application/Vnd.X+JSON; charset=utf-8"),
        );
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["text"], message);
        let form = render(
            "text={{ message }}&x=1",
            "a=b&x=2 c",
            Escape::of("application/x-www-form-urlencoded"),
        );
        assert_eq!(form, "text=a%3Db%26x%3D2+c&x=1");
        assert_eq!(render("{{ message }}", "a.b|.*", Escape::Regex), r"a\.b\|\.\*");
        assert_eq!(
            render("{{ message }}", message, Escape::of("text/plain")),
            message
        );
    }

    #[test]
    fn a_template_that_is_wrong_says_what_is_allowed() {
        for (text, why) in [
            ("{{ plan", "it has {{ without }}"),
            (
                "{{ plam }}",
                "it has {{ plam }}; the values are plan, message; did you mean {{ plan }}?",
            ),
            (
                "{{ range .Nodes }}{{ end }}",
                "it has {{ range .Nodes }}; the values are",
            ),
            ("{{}}", "it has {{  }}"),
        ] {
            let error = Template::parse(text, &NAMES).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        let long = format!("{{{{ {} }}}}", "x".repeat(100_000));
        assert!(Template::parse(&long, &NAMES).unwrap_err().len() < 200);
    }
}
