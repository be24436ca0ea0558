//! The header `Link` (RFC 8288), as far as paging needs it. Pure.

use http::HeaderValue;
use url::Url;

use super::ChannelError;

/// Maximum length of the URL of a page. Those of registries and of GitHub have some hundred bytes.
const MAX_LEN: usize = 4 << 10;

/// URL of the next page after `url`.
///
/// Servers behind proxies may name another scheme or port, so only path and query are used. A page on another host is
/// not read.
pub(super) fn next_page<'a>(
    url: &Url,
    links: impl IntoIterator<Item = &'a HeaderValue>,
) -> Result<Option<Url>, ChannelError> {
    let next = links
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .find_map(target);
    let Some(next) = next else { return Ok(None) };
    if next.len() > MAX_LEN {
        return Err(ChannelError::Paging);
    }
    let next = url.join(next).map_err(|_| ChannelError::Paging)?;
    if next.host() != url.host() {
        return Err(ChannelError::Paging);
    }
    let mut page = url.clone();
    page.set_path(next.path());
    page.set_query(next.query());
    Ok(Some(page))
}

/// The target of the link with the relation `next`.
fn target(links: &str) -> Option<&str> {
    let mut rest = links;
    loop {
        let (target, after) = rest.split_once('<')?.1.split_once('>')?;
        let end = unquoted(after, ',');
        if is_next(&after[..end]) {
            return Some(target);
        }
        rest = &after[end..];
    }
}

fn is_next(mut parameters: &str) -> bool {
    while let Some(rest) = parameters.trim_start().strip_prefix(';') {
        let end = unquoted(rest, ';');
        let (name, value) = rest[..end].split_once('=').unwrap_or((&rest[..end], ""));
        if name.trim().eq_ignore_ascii_case("rel") {
            let value = value.trim().trim_matches('"');
            // The first one applies.
            return value
                .split_ascii_whitespace()
                .any(|relation| relation.eq_ignore_ascii_case("next"));
        }
        parameters = &rest[end..];
    }
    false
}

/// Position of a character outside of quotes, or the end.
fn unquoted(text: &str, wanted: char) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if c == wanted && !quoted => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(links: &[&str]) -> Result<Option<String>, ChannelError> {
        let url = Url::parse("https://r.example:8443/v2/a/tags/list?n=2").unwrap();
        let values: Vec<_> = links
            .iter()
            .map(|link| HeaderValue::from_str(link).unwrap())
            .collect();
        next_page(&url, &values).map(|next| next.map(String::from))
    }

    #[test]
    fn the_next_page_is_found_among_all_links() {
        let page = |rest: &str| Ok(Some(format!("https://r.example:8443{rest}")));
        for (links, expected) in [
            (
                vec![r#"</v2/a/tags/list?last=b&n=2>; rel="next""#],
                page("/v2/a/tags/list?last=b&n=2"),
            ),
            (vec!["</x?p=2>;rel=next"], page("/x?p=2")),
            (
                vec![
                    r#"<https://r.example/x?p=9>; rel="last", <http://r.example/x?p=2>; title="a, \"b;c"; rel="up next""#,
                ],
                page("/x?p=2"),
            ),
            (
                vec![r#"</first>; rel="first""#, r#"</second>; REL="Next""#],
                page("/second"),
            ),
            (vec!["<?p=2>; rel=next"], page("/v2/a/tags/list?p=2")),
            (vec![r#"</x>; rel="prev"; rel="next""#], Ok(None)),
            (vec![r#"</x>; title="rel=next""#], Ok(None)),
            (vec!["/x; rel=next", "<", "<>", ""], Ok(None)),
            (vec![], Ok(None)),
        ] {
            assert_eq!(next(&links), expected, "{links:?}");
        }
    }

    #[test]
    fn a_page_on_another_host_is_not_read() {
        for link in [
            "<https://evil.example/x>; rel=next",
            "<//evil.example/x>; rel=next",
            "<https://[>; rel=next",
        ] {
            assert_eq!(next(&[link]), Err(ChannelError::Paging), "{link}");
        }
    }
}
