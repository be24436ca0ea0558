//! The header `Link` (RFC 8288), as far as paging needs it. Pure.

use http::HeaderValue;
use url::Url;

use super::error::ChannelError;

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
    let mut links = links.split('<').filter_map(|link| link.split_once('>'));
    links
        .find(|(_, parameters)| parameters.split([';', ',']).any(is_next))
        .map(|(target, _)| target)
}

/// Whether a parameter is `rel="next"`, perhaps with other relations.
fn is_next(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or_default();
    let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
    name.trim().eq_ignore_ascii_case("rel") && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
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
