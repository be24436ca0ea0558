//! Names: of Jobs, of volumes, and what a label can hold of a name that is too long.
//!
//! [`safe_concat`] and [`job_name`] give system-upgrade-controller's names byte for byte (S28, S29), so that its Jobs are
//! found again. Whether a Job under such a name is ours is never decided by the name: names collide (W13).

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// The longest DNS label, label value and name part of a label key.
pub const MAX_LEN: usize = 63;

/// Joins `parts` with `-` and shortens the result to 63 bytes where it is longer (S28): the first 57 bytes, `-` and 5 hex
/// digits of the SHA-256 of the whole; 56 bytes and 6 digits where byte 56 is none of `[a-z0-9]`.
///
/// The names it is made for are ASCII. Elsewhere a character that straddles the cut is left out.
pub fn safe_concat(parts: &[&str]) -> String {
    let full = parts.join("-");
    if full.len() <= MAX_LEN {
        return full;
    }
    let digest = hex::encode(Sha256::digest(&full));
    let kept = match full.as_bytes()[56] {
        b'a'..=b'z' | b'0'..=b'9' => 57,
        _ => 56,
    };
    let kept = floor_char_boundary(&full, kept);
    format!("{}-{}", &full[..kept], &digest[..MAX_LEN - 1 - kept])
}

/// Name of the Job for a Plan and hash on a node, as system-upgrade-controller forms it (S29).
///
/// Not unique: only the node's name up to its first dot is in it, and a long Plan name pushes even that out (W13).
pub fn job_name(plan: &str, node: &str, hash: &str) -> String {
    safe_concat(&["apply", plan, "on", short(node), "with", hash])
}

/// Name of the Job where [`job_name`] is taken by a Job that is not ours: 64 bits of a digest over all that tells one Job
/// from another, so that no other Plan, node or hash has it.
pub fn second_job_name(plan: &str, plan_uid: &str, node: &str, node_uid: &str, hash: &str) -> String {
    let digest = hex::encode(Sha256::digest([plan_uid, node_uid, hash].join("/")));
    let tail = &digest[..16];
    let mut head = format!("apply-{plan}-on-{}", short(node));
    head.truncate(floor_char_boundary(&head, MAX_LEN - 1 - tail.len()));
    head.truncate(head.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
    format!("{head}-{tail}")
}

/// The node's name up to its first dot.
fn short(node: &str) -> &str {
    node.split_once('.').map_or(node, |(short, _)| short)
}

/// The largest index up to `index` at which `text` can be cut.
fn floor_char_boundary(text: &str, index: usize) -> usize {
    (0..=index.min(text.len()))
        .rev()
        .find(|&i| text.is_char_boundary(i))
        .unwrap_or(0)
}

/// Name of the pod volume for a secret (S17): `secret-<name>` by [`safe_concat`]. Where that is no DNS label, because the
/// name has dots (W12), its dots become `-` and a digest of the name keeps `a.b` and `a-b` apart.
pub fn secret_volume_name(secret: &str) -> String {
    let name = safe_concat(&["secret", secret]);
    if is_dns_label(&name) {
        return name;
    }
    let digest = hex::encode(Sha256::digest(secret));
    let tail = &digest[..8];
    let mut head: String = format!("secret-{secret}")
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            }
        })
        .take(MAX_LEN - 1 - tail.len())
        .collect();
    head.truncate(head.trim_end_matches('-').len());
    format!("{head}-{tail}")
}

/// What a label can hold of the name of an object: the name, or its short form by S28 where it is longer than 63 bytes.
pub fn label_value(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_LEN {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(safe_concat(&[name]))
    }
}

/// Whether `text` is a DNS label (RFC 1123): at most 63 of `[a-z0-9-]`, with no `-` at either end.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    is_bounded(text, inner, |b| inner(b) || b == b'-') && !text.is_empty()
}

/// Whether `text` can be the value of a label. The empty text can.
pub fn is_label_value(text: &str) -> bool {
    is_bounded(
        text,
        |b| b.is_ascii_alphanumeric(),
        |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b),
    )
}

/// Whether a Plan of this name can have its label `plan.upgrade.cattle.io/<plan>` on nodes and Jobs.
pub fn is_plan_label(plan: &str) -> bool {
    !plan.is_empty() && is_label_value(plan)
}

/// At most 63 bytes, of which the first and the last satisfy `end`, and all `inner`.
fn is_bounded(text: &str, end: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LEN
        && bytes.first().is_none_or(|&b| end(b))
        && bytes.last().is_none_or(|&b| end(b))
        && bytes.iter().all(|&b| inner(b))
}
