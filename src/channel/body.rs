//! The body of a response, parsed while it arrives, so that its size does not matter to the memory of the process.
//!
//! The parser runs on a thread of its own, because it may take longer than the runtime's threads may be busy, and reads
//! what the connection delivers. It stops at its limit, and with it the connection.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf as _, Bytes};
use reqwest::Response;
use serde::de::DeserializeSeed;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::error::ChannelError;
use super::html::{SNIFFED, is_html_text, is_html_type};

/// Number of parts of a body that wait for its parser.
const QUEUED: usize = 2;
/// Longest string that a parser gets whole. Versions and tokens are shorter; a parser does not need release notes.
const MAX_STRING: usize = 64 << 10;
/// Maximum depth of lists and objects. Responses of registries and of GitHub have five levels.
const MAX_DEPTH: usize = 64;
/// Number of releases that a poll may always read.
const OWN: usize = 1000;
/// Number of releases beyond these that all polls together may read at a time.
const SHARED: usize = 100_000;

/// A body that arrives while it is read.
pub(super) struct Body {
    parts: mpsc::Receiver<Bytes>,
    part: Bytes,
    is_html: bool,
    /// The beginning of the body, to detect an HTML page.
    start: Vec<u8>,
    json: JsonFilter,
    digest: Sha256,
}

/// Removes the ends of long strings from JSON, and ends it where it is nested too deeply. The parser keeps a string and
/// the stack of open lists in memory, even if nothing uses them.
#[derive(Default)]
struct JsonFilter {
    depth: usize,
    /// Length of the string so far.
    string: Option<usize>,
    /// Number of bytes that still belong to an escape.
    escape: u8,
}

impl JsonFilter {
    /// Whether the parser gets the byte.
    fn filter_byte(&mut self, byte: u8) -> io::Result<bool> {
        let Some(length) = &mut self.string else {
            match byte {
                b'"' => self.string = Some(0),
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth > MAX_DEPTH {
                return Err(io::Error::other("nested too deeply"));
            }
            return Ok(true);
        };
        *length += 1;
        // Only plain characters are removed, so that no escape and no character is cut.
        let is_removed = *length > MAX_STRING && self.escape == 0 && byte.is_ascii_alphanumeric();
        match byte {
            b'u' if self.escape == 1 => self.escape = 4,
            _ if self.escape > 0 => self.escape -= 1,
            b'\\' => self.escape = 1,
            b'"' => self.string = None,
            _ => {}
        }
        // Escapes are never removed, so a string that consists of them needs a limit of its own.
        if self.string.is_some_and(|length| length > 16 * MAX_STRING) {
            return Err(io::Error::other("a string is too long"));
        }
        Ok(!is_removed)
    }
}

impl Body {
    /// The next byte; `None` at the end.
    fn next(&mut self) -> io::Result<Option<u8>> {
        loop {
            while !self.part.has_remaining() {
                match self.parts.blocking_recv() {
                    Some(part) => self.part = part,
                    None => return Ok(None),
                }
                self.digest.update(&self.part);
                let missing = SNIFFED.saturating_sub(self.start.len());
                self.start.extend(self.part.iter().take(missing));
            }
            let byte = self.part.get_u8();
            if self.json.filter_byte(byte)? {
                return Ok(Some(byte));
            }
        }
    }

    /// The SHA-256 of what was read.
    pub(super) fn sha256(&mut self) -> String {
        hex::encode(self.digest.finalize_reset())
    }

    /// Parses the body as JSON with a visitor that keeps what it needs. An HTML page gives its own error.
    pub(super) fn json<'de, T, S>(&mut self, seed: S, what: &'static str) -> Result<T, ChannelError>
    where
        S: DeserializeSeed<'de, Value = T>,
    {
        let mut json = serde_json::Deserializer::from_reader(&mut *self);
        let parsed = seed
            .deserialize(&mut json)
            .and_then(|parsed| json.end().map(|()| parsed));
        parsed.map_err(|_| {
            if self.is_html || is_html_text(&self.start) {
                ChannelError::Html
            } else {
                ChannelError::NotJson(what)
            }
        })
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for (at, place) in buffer.iter_mut().enumerate() {
            match self.next()? {
                Some(byte) => *place = byte,
                None => return Ok(at),
            }
        }
        Ok(buffer.len())
    }
}

/// Reads a body of at most `limit` bytes with a parser, and returns its length, too.
pub(super) async fn parse<T: Send + 'static>(
    response: &mut Response,
    content_type: Option<&str>,
    limit: usize,
    parser: impl FnOnce(&mut Body) -> Result<T, ChannelError> + Send + 'static,
) -> Result<(T, usize), ChannelError> {
    let announced = response.content_length();
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limit)) {
        return Err(ChannelError::TooLarge(limit));
    }
    let (sender, parts) = mpsc::channel(QUEUED);
    let mut body = Body {
        parts,
        part: Bytes::new(),
        is_html: is_html_type(content_type),
        start: Vec::new(),
        json: JsonFilter::default(),
        digest: Sha256::new(),
    };
    let parsing = tokio::task::spawn_blocking(move || parser(&mut body));
    let mut length = 0;
    while let Some(part) = response
        .chunk()
        .await
        .map_err(|error| ChannelError::failed(&error))?
    {
        length += part.len();
        if length > limit {
            return Err(ChannelError::TooLarge(limit));
        }
        if sender.send(part).await.is_err() {
            break; // the parser has its result, or an error
        }
    }
    drop(sender);
    // It fails only if the parser panics.
    let parsed = parsing
        .await
        .map_err(|_| ChannelError::NotJson("JSON object with the expected fields"))?;
    Ok((parsed?, length))
}

/// Bounds the releases that all polls read at the same time, and lets each read a few in any case.
#[derive(Clone)]
pub(super) struct ReadingLimit(Arc<Semaphore>);

impl Default for ReadingLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED)))
    }
}

impl ReadingLimit {
    pub(super) fn share(&self) -> Share {
        Share {
            limit: Arc::clone(&self.0),
            taken: Arc::default(),
        }
    }
}

/// The part of a poll in what all polls read at the same time. Returned when its last clone is dropped.
#[derive(Clone)]
pub(super) struct Share {
    limit: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    releases: usize,
    permits: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Takes the place of one more release.
    pub(super) fn take(&self) -> Result<(), ChannelError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.releases += 1;
        if !taken.releases.is_multiple_of(OWN) {
            return Ok(());
        }
        let permits = u32::try_from(OWN).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.limit).try_acquire_many_owned(permits);
        let more = more.map_err(|_| ChannelError::Busy)?;
        match &mut taken.permits {
            Some(known) => known.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(json: &str) -> io::Result<Vec<u8>> {
        let mut filter = JsonFilter::default();
        let mut passed = Vec::new();
        for byte in json.bytes() {
            if filter.filter_byte(byte)? {
                passed.push(byte);
            }
        }
        Ok(passed)
    }

    #[test]
    fn the_end_of_a_long_string_is_removed_and_no_character_or_escape_is_cut() {
        let short = r#"{"a": ["\"\\", "ä", 1]}"#;
        assert_eq!(filtered(short).unwrap(), short.as_bytes());
        let long = format!(r#"["{}\n\u00e4ä\"", "b"]"#, "a".repeat(10 * MAX_STRING));
        let passed = filtered(&long).unwrap();
        assert!(passed.len() < MAX_STRING + 100, "{}", passed.len());
        let read: Vec<String> = serde_json::from_slice(&passed).unwrap();
        assert!(read[0].ends_with("a\n\u{e4}ä\"") && read[1] == "b");
    }

    #[test]
    fn json_that_would_fill_the_memory_of_its_parser_ends_with_an_error() {
        assert!(filtered(&"[".repeat(MAX_DEPTH)).is_ok());
        assert!(filtered(&"[".repeat(MAX_DEPTH + 1)).is_err());
        assert!(filtered(&format!("[\"{}", r"\n".repeat(10 * MAX_STRING))).is_err());
    }

    #[test]
    fn polls_share_what_they_may_read_and_each_may_read_a_few_releases() {
        let limit = ReadingLimit::default();
        let read = |share: &Share, count: usize| (0..count).try_for_each(|_| share.take());
        let (large, other, small) = (limit.share(), limit.share(), limit.share());
        read(&large, SHARED).unwrap();
        read(&small, OWN - 1).unwrap();
        assert_eq!(read(&other, OWN), Err(ChannelError::Busy));
        drop(large);
        read(&other, OWN).unwrap();
    }
}
