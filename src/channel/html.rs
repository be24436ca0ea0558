//! HTML pages: where a version is expected, a proxy, a captive portal or a login page has answered. Pure.

/// How much of a body to read to detect an HTML page.
pub(super) const SNIFFED: usize = 1024;
/// How an HTML page starts, without regard to case and leading blanks.
const HTML: [&str; 7] = [
    "<!doctype",
    "<html",
    "<head",
    "<body",
    "<title",
    "<script",
    "<!--",
];

/// Whether a content type is that of an HTML page.
pub(super) fn is_html_type(content_type: Option<&str>) -> bool {
    let media_type = content_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim();
    media_type.eq_ignore_ascii_case("text/html") || media_type.eq_ignore_ascii_case("application/xhtml+xml")
}

/// Whether a body begins like an HTML page.
pub(super) fn is_html_text(body: &[u8]) -> bool {
    let start = &body[..body.len().min(SNIFFED)];
    let text = String::from_utf8_lossy(start).to_ascii_lowercase();
    let text = text.trim_start_matches('\u{feff}').trim_start();
    HTML.iter().any(|tag| text.starts_with(tag))
}
