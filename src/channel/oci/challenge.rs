//! The header `WWW-Authenticate` (RFC 9110, 11.6.1). Pure.

use http::HeaderValue;

/// One authentication scheme with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// `Basic`, `Bearer` or another scheme.
    pub(crate) scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self
            .parameters
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// All challenges of a response, in their order. A syntax error ends its header.
pub(crate) fn challenges<'a>(headers: impl IntoIterator<Item = &'a HeaderValue>) -> Vec<Challenge> {
    let mut all = Vec::new();
    for header in headers {
        let Ok(text) = header.to_str() else { continue };
        let mut rest = Rest(text);
        while let Some(challenge) = rest.challenge() {
            all.push(challenge);
        }
    }
    all
}

/// The rest of a header.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn challenge(&mut self) -> Option<Challenge> {
        self.0 = self.0.trim_start_matches([',', ' ', '\t']);
        let scheme = self.token()?.to_owned();
        let mut parameters = Vec::new();
        loop {
            // Commas separate parameters as well as challenges: what follows is a parameter if it has a `=`.
            let before = self.0;
            self.0 = self.0.trim_start_matches([',', ' ', '\t']);
            let Some(parameter) = self.parameter() else {
                self.0 = before;
                break;
            };
            parameters.push(parameter);
        }
        // Some schemes have one value instead of parameters.
        if parameters.is_empty() && self.0.starts_with(' ') {
            let end = self.0.find(',').unwrap_or(self.0.len());
            self.0 = &self.0[end..];
        }
        Some(Challenge { scheme, parameters })
    }

    fn token(&mut self) -> Option<&'a str> {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let end = self.0.find(|c| !is_token(c)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(token).filter(|token| !token.is_empty())
    }

    fn parameter(&mut self) -> Option<(String, String)> {
        let name = self.token()?.to_owned();
        self.0 = self.0.trim_start().strip_prefix('=')?.trim_start();
        let Some(quoted) = self.0.strip_prefix('"') else {
            return Some((name, self.token()?.to_owned()));
        };
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Some((name, value));
                }
                '\\' => value.push(characters.next()?.1),
                c => value.push(c),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[&str]) -> Vec<(String, Vec<(String, String)>)> {
        let values: Vec<_> = headers
            .iter()
            .map(|text| HeaderValue::from_str(text).unwrap())
            .collect();
        let all = challenges(&values).into_iter();
        all.map(|challenge| (challenge.scheme, challenge.parameters))
            .collect()
    }

    fn challenge(scheme: &str, parameters: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        (scheme.to_owned(), parameters.iter().map(own).collect())
    }

    #[test]
    fn a_challenge_has_a_scheme_and_parameters() {
        assert_eq!(
            read(&[
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#
            ]),
            [challenge(
                "Bearer",
                &[
                    ("realm", "https://auth.docker.io/token"),
                    ("service", "registry.docker.io"),
                    ("scope", "repository:a/b:pull,push"),
                ]
            )]
        );
        assert_eq!(
            read(&[r#"BASIC realm = "a \"b\", c" , charset=UTF-8"#]),
            [challenge(
                "BASIC",
                &[("realm", r#"a "b", c"#), ("charset", "UTF-8")]
            )]
        );
    }

    #[test]
    fn several_challenges_stand_in_one_header_or_in_several() {
        let both = [
            challenge("Basic", &[("realm", "x")]),
            challenge("Bearer", &[("realm", "y"), ("service", "z")]),
        ];
        assert_eq!(read(&[r#"Basic realm="x", Bearer realm="y",service="z""#]), both);
        assert_eq!(
            read(&[r#"Basic realm="x""#, r#"Bearer realm="y", service="z""#]),
            both
        );
        assert_eq!(
            read(&[r"Negotiate, Basic realm=x"]),
            [challenge("Negotiate", &[]), challenge("Basic", &[("realm", "x")])]
        );
        assert_eq!(
            read(&[r"NTLM abc==, Basic realm=x"]),
            [challenge("NTLM", &[]), challenge("Basic", &[("realm", "x")])]
        );
    }

    #[test]
    fn an_unreadable_challenge_is_skipped() {
        assert_eq!(read(&["", " , ", "=", "\"x\""]), []);
        assert_eq!(read(&[r#"Bearer realm="open"#]), [challenge("Bearer", &[])]);
    }
}
