//! Extracts the version from a response (S46), and rejects responses that system-upgrade-controller wrongly accepts.

use http::header::CONTENT_TYPE;
use percent_encoding::percent_decode_str;
use reqwest::Response;
use url::Url;

use super::error::ChannelError;
use super::html::{SNIFFED, is_html_text, is_html_type};
use super::transport::{is_redirect, location, start, status_line};
use refit_base::version::tag::{check, is_semver, munge};

/// The version in the response of the channel at `url`, as released.
pub(super) async fn version(url: &Url, response: Response) -> Result<String, ChannelError> {
    let status = response.status();
    let version = match status {
        status if is_redirect(status) => {
            let location = location(url, &response)?;
            if location.query().is_some() {
                return Err(ChannelError::LocationWithQuery);
            }
            let version = base(&location);
            // A redirect to itself, to HTTPS, or to the channel's new host.
            if version == base(url) && !is_semver(&munge(&version)) {
                return Err(ChannelError::Back);
            }
            version
        }
        status if status.is_success() => {
            refuse_pages(response).await?;
            base(url)
        }
        _ => return Err(ChannelError::Unexpected(status_line(response.version(), status))),
    };
    check(&munge(&version))?;
    Ok(version)
}

/// The last element of a URL's decoded path, as Go's `filepath.Base`, but empty where that returns `.` or `/`.
fn base(url: &Url) -> String {
    let path = percent_decode_str(url.path()).decode_utf8_lossy();
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').map_or(path, |(_, last)| last).to_owned()
}

/// Rejects HTML pages and lists of channels.
async fn refuse_pages(mut response: Response) -> Result<(), ChannelError> {
    let content_type = response.headers().get(CONTENT_TYPE);
    if is_html_type(content_type.and_then(|value| value.to_str().ok())) {
        return Err(ChannelError::Html);
    }
    let (start, _) = start(&mut response, SNIFFED).await?;
    if is_html_text(&start) {
        return Err(ChannelError::Html);
    }
    if is_list_text(&start) {
        return Err(ChannelError::List);
    }
    Ok(())
}

/// Whether a body is the list of Rancher's channel server, which means that the URL lacks the name of a channel.
fn is_list_text(body: &[u8]) -> bool {
    let text: String = String::from_utf8_lossy(body)
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    text.starts_with('{')
        && (text.contains(r#""type":"collection""#) || text.contains(r#""resourceType":"channels""#))
}
