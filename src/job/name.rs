//! Names of Jobs and volumes, and short forms of names for labels.
//!
//! [`safe_concat`] and [`job_name`] give system-upgrade-controller's names byte for byte (S28, S29), so that refit
//! finds its Jobs. The name never decides whose Job it is, because names collide (W13).

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use refit_api::Hook;
use refit_api::names::plan_label;
use refit_api::selector::{is_dns_label, label_key_problems, label_value_problems};

/// Maximum length in bytes of a DNS label, a label value, and the name part of a label key.
pub const MAX_LEN: usize = 63;

/// Joins `parts` with `-` and shortens the result to 63 bytes (S28): the first 57 bytes, `-` and 5 hex digits of the
/// SHA-256 of the whole; 56 bytes and 6 digits if byte 56 is none of `[a-z0-9]`.
///
/// For ASCII names. In other text, a character that crosses the limit is dropped.
pub fn safe_concat(parts: &[&str]) -> String {
    let full = parts.join("-");
    if full.len() <= MAX_LEN {
        return full;
    }
    // wrangler's `SafeConcatName` does not end the first part with a separator (S28).
    let kept = match full.as_bytes()[56] {
        b'a'..=b'z' | b'0'..=b'9' => 57,
        _ => cut(&full, 56).len(),
    };
    format!("{}-{}", &full[..kept], &sha256(&full)[..MAX_LEN - 1 - kept])
}

/// Name of the Job for a Plan and hash on a node, as system-upgrade-controller forms it (S29).
///
/// Not unique: it contains the node's name only up to its first dot, and a long Plan name displaces even that (W13).
pub fn job_name(plan: &str, node: &str, hash: &str) -> String {
    safe_concat(&["apply", plan, "on", short(node), "with", hash])
}

/// What an object of a run is for, so that its name is unique to it, even if a Plan or a node is recreated under the
/// same name.
#[derive(Clone, Copy, Debug)]
pub struct RunId<'a> {
    pub plan: &'a str,
    pub plan_uid: &'a str,
    pub node: &'a str,
    pub node_uid: &'a str,
    /// The hash of the upgrade, or the UID of its Job.
    pub upgrade: &'a str,
}

impl RunId<'_> {
    /// Name of the Job if someone else's Job has [`job_name`].
    pub fn second_job_name(&self) -> String {
        self.name("apply")
    }

    /// Name of the reboot Pod. A second one cannot be created while one exists.
    pub fn reboot_pod_name(&self) -> String {
        self.name("reboot")
    }

    /// Name of the pod that reads the sentinel.
    pub fn query_pod_name(&self) -> String {
        self.name("ask")
    }

    /// Name of the Job that verifies the node after the upgrade by the Job whose UID `upgrade` is. A second one cannot be
    /// created while one exists.
    pub fn verify_job_name(&self) -> String {
        self.name("verify")
    }

    /// Name of the Job that pulls the image.
    pub fn prepull_job_name(&self) -> String {
        self.name("prepull")
    }

    /// Ends in 64 bits of a digest of the UIDs and the upgrade.
    fn name(&self, mode: &str) -> String {
        let digest = sha256(&[self.plan_uid, self.node_uid, self.upgrade].join("/"));
        with_tail(
            &format!("{mode}-{}-on-{}", self.plan, short(self.node)),
            &digest[..16],
        )
    }
}

/// Value of the label `upgrade.cattle.io/controller` of a Job that belongs to no node.
pub fn hook_controller(controller: &str) -> String {
    safe_concat(&[controller, "hooks"])
}

/// Name of the Job of `spec.before` or `spec.after`: another one for each hash, edit and attempt, so that one whose creation
/// was not confirmed is not created twice.
pub fn hook_job_name(
    hook: Hook,
    [plan, plan_uid]: [&str; 2],
    hash: &str,
    inputs: &str,
    attempt: i64,
) -> String {
    let digest = sha256(&[plan_uid, hash, inputs, &attempt.to_string()].join("/"));
    with_tail(&format!("{}-{plan}", hook.as_str()), &digest[..16])
}

/// Name of the pod volume of a Secret (S17): `secret-<name>` by [`safe_concat`]. If that is not a DNS label, because the
/// name has dots (W12), the dots become `-`, and a digest of the name distinguishes `a.b` from `a-b`.
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

/// An object's name as a label value: the name, or its short form by S28 if it has more than 63 bytes.
pub fn label_value(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_LEN {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(safe_concat(&[name]))
    }
}

/// Whether the name of a Plan fits into its label key.
pub fn is_plan_label(plan: &str) -> bool {
    label_key_problems(&plan_label(plan)).is_empty()
}

/// Whether `text` is a valid label value. The empty text is.
pub fn is_label_value(text: &str) -> bool {
    label_value_problems(text).is_empty()
}

/// The longest prefix of `head` that leaves room for `-` and `tail`, and ends in a letter or digit: after a dot, `-`
/// would begin a DNS label, which RFC 1123 does not allow.
fn with_tail(head: &str, tail: &str) -> String {
    let head = cut(head, MAX_LEN - 1 - tail.len()).trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{head}-{tail}")
}

/// The first `len` bytes of `text`, without a partial character.
fn cut(text: &str, len: usize) -> &str {
    (0..=len).rev().find_map(|len| text.get(..len)).unwrap_or(text)
}

fn short(node: &str) -> &str {
    node.split_once('.').map_or(node, |(short, _)| short)
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests;
