//! Names: of Jobs, of volumes, and what a label can hold of a name that is too long.
//!
//! [`safe_concat`] and [`job_name`] give system-upgrade-controller's names byte for byte (S28, S29), so that its Jobs are
//! found again. Whether a Job under such a name is ours is never decided by the name: names collide (W13).

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::api::names::LABEL_PLAN_PREFIX;
use crate::api::selector::{label_key_problems, label_value_problems};

/// The longest DNS label, label value and name part of a label key, in bytes.
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
    let kept = match full.as_bytes()[56] {
        b'a'..=b'z' | b'0'..=b'9' => 57,
        _ => cut(&full, 56).len(),
    };
    format!("{}-{}", &full[..kept], &sha256(&full)[..MAX_LEN - 1 - kept])
}

/// Name of the Job for a Plan and hash on a node, as system-upgrade-controller forms it (S29).
///
/// Not unique: only the node's name up to its first dot is in it, and a long Plan name pushes even that out (W13).
pub fn job_name(plan: &str, node: &str, hash: &str) -> String {
    safe_concat(&["apply", plan, "on", short(node), "with", hash])
}

/// Name of the Job where [`job_name`] is taken by a Job that is not ours. It ends in 64 bits of a digest over the UIDs of
/// Plan and node and the hash, so that no other Plan, node or hash has it, not even a Plan made again under its old name.
pub fn second_job_name(plan: &str, plan_uid: &str, node: &str, node_uid: &str, hash: &str) -> String {
    let digest = sha256(&[plan_uid, node_uid, hash].join("/"));
    with_tail(&format!("apply-{plan}-on-{}", short(node)), &digest[..16])
}

/// Name of the pod that reboots a node for a Plan and hash. As [`second_job_name`], it is that of no other Plan, node or hash:
/// made again, it is refused while there is one.
pub fn reboot_pod_name(plan: &str, plan_uid: &str, node: &str, node_uid: &str, hash: &str) -> String {
    pod_name("reboot", plan, plan_uid, node, node_uid, hash)
}

/// Name of the pod that reads the sentinel of a node for a Plan and hash. Likewise.
pub fn ask_pod_name(plan: &str, plan_uid: &str, node: &str, node_uid: &str, hash: &str) -> String {
    pod_name("ask", plan, plan_uid, node, node_uid, hash)
}

fn pod_name(errand: &str, plan: &str, plan_uid: &str, node: &str, node_uid: &str, hash: &str) -> String {
    let digest = sha256(&[plan_uid, node_uid, hash].join("/"));
    with_tail(&format!("{errand}-{plan}-on-{}", short(node)), &digest[..16])
}

/// Name of the pod volume for a secret (S17): `secret-<name>` by [`safe_concat`]. Where that is no DNS label, because the
/// name has dots (W12), its dots become `-` and a digest of the name keeps `a.b` and `a-b` apart.
pub fn secret_volume_name(secret: &str) -> String {
    let name = safe_concat(&["secret", secret]);
    if is_dns_label(&name) {
        return name;
    }
    let allowed = |c: char| {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            c
        } else {
            '-'
        }
    };
    with_tail(
        &format!("secret-{secret}")
            .chars()
            .map(allowed)
            .collect::<String>(),
        &sha256(secret)[..8],
    )
}

/// What a label can hold of the name of an object: the name, or its short form by S28 where it is longer than 63 bytes.
pub fn label_value(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_LEN {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(safe_concat(&[name]))
    }
}

/// Key of the label `plan.upgrade.cattle.io/<plan>`, which on a node says which hash of the Plan is done.
pub fn plan_label_key(plan: &str) -> String {
    format!("{LABEL_PLAN_PREFIX}{plan}")
}

/// Whether a Plan of this name can have its label, on Jobs and on nodes.
pub fn is_plan_label(plan: &str) -> bool {
    label_key_problems(&plan_label_key(plan)).is_empty()
}

/// Whether `text` can be the value of a label. The empty text can.
pub fn is_label_value(text: &str) -> bool {
    label_value_problems(text).is_empty()
}

/// Whether `text` is a DNS label (RFC 1123): at most 63 of `[a-z0-9-]`, and neither the first nor the last is `-`.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= MAX_LEN
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// As much of `head` as leaves room for `-` and `tail` in a name, without anything but a letter or digit at its end.
fn with_tail(head: &str, tail: &str) -> String {
    let head = cut(head, MAX_LEN - 1 - tail.len()).trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{head}-{tail}")
}

/// The first `len` bytes of `text`, or as many as are whole characters.
fn cut(text: &str, len: usize) -> &str {
    (0..=len).rev().find_map(|len| text.get(..len)).unwrap_or(text)
}

/// The node's name up to its first dot.
fn short(node: &str) -> &str {
    node.split_once('.').map_or(node, |(short, _)| short)
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests;
