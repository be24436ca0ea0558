//! Reads the version off a channel's answer (S46, and design rules where that is too trusting).

use http::header::{CONTENT_TYPE, LOCATION};
use percent_encoding::percent_decode_str;
use reqwest::Response;
use url::Url;

use super::ChannelError;
use super::version::{check, is_semver, munge};
use super::wire::{is_redirect, status_line};

/// How much of a body is read to see whether it is an HTML page.
const SNIFFED: usize = 1024;
/// How an HTML page starts. Case does not matter, nor do blanks before it.
const HTML: [&str; 7] = [
    "<!doctype",
    "<html",
    "<head",
    "<body",
    "<title",
    "<script",
    "<!--",
];

/// The version that the answer of the channel at `url` gives, as it was released.
pub(super) async fn version(url: &Url, response: Response) -> Result<String, ChannelError> {
    let status = response.status();
    let version = match status {
        status if is_redirect(status) => {
            let version = base(&location(url, &response)?);
            // To itself, to the same over https, to another host that has the channel now.
            if version == base(url) && !is_semver(&munge(&version)) {
                return Err(ChannelError::Back);
            }
            version
        }
        status if status.is_success() => {
            if is_html(response).await? {
                return Err(ChannelError::Html);
            }
            base(url)
        }
        _ => return Err(ChannelError::Unexpected(status_line(response.version(), status))),
    };
    check(&munge(&version))?;
    Ok(version)
}

/// The Location of a redirect, resolved against the URL that was asked.
fn location(url: &Url, response: &Response) -> Result<Url, ChannelError> {
    let location = response
        .headers()
        .get(LOCATION)
        .ok_or(ChannelError::NoLocation(response.status().as_u16()))?;
    let location = location.to_str().ok().filter(|location| !location.is_empty());
    let location = location
        .and_then(|location| url.join(location).ok())
        .ok_or(ChannelError::BadLocation)?;
    if !matches!(location.scheme(), "http" | "https") {
        return Err(ChannelError::BadLocation);
    }
    if location.query().is_some() {
        return Err(ChannelError::LocationWithQuery);
    }
    Ok(location)
}

/// The last element of a URL's path, decoded first, as Go's `filepath.Base` gives it: empty where that gives `.` or `/`.
fn base(url: &Url) -> String {
    let path = percent_decode_str(url.path()).decode_utf8_lossy();
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').map_or(path, |(_, last)| last).to_owned()
}

async fn is_html(mut response: Response) -> Result<bool, ChannelError> {
    let content_type = response.headers().get(CONTENT_TYPE);
    if is_html_type(content_type.and_then(|value| value.to_str().ok())) {
        return Ok(true);
    }
    let mut start = Vec::new();
    while start.len() < SNIFFED {
        match response
            .chunk()
            .await
            .map_err(|error| ChannelError::failed(&error))?
        {
            Some(chunk) => start.extend(chunk.iter().take(SNIFFED - start.len())),
            None => break,
        }
    }
    Ok(is_html_text(&start))
}

/// Whether a content type is that of a page for people.
pub(super) fn is_html_type(content_type: Option<&str>) -> bool {
    let media_type = content_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim();
    media_type.eq_ignore_ascii_case("text/html") || media_type.eq_ignore_ascii_case("application/xhtml+xml")
}

/// Whether a body begins as a page for people does.
pub(super) fn is_html_text(body: &[u8]) -> bool {
    let start = &body[..body.len().min(SNIFFED)];
    let text = String::from_utf8_lossy(start).to_ascii_lowercase();
    let text = text.trim_start_matches('\u{feff}').trim_start();
    HTML.iter().any(|tag| text.starts_with(tag))
}
