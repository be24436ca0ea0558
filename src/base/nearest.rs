//! "Did you mean": finds the known name closest to a mistyped one.

/// Maximum length of a mistyped name, in bytes. No name of a field, a flag or a channel is as long, and the distance of
/// two names takes the product of their lengths.
const MAX_LEN: usize = 128;

/// The closest of `names` to `name`, if it is close enough.
pub fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > MAX_LEN {
        return None;
    }
    let lower = name.to_lowercase();
    let letters: String = lower.chars().filter(|c| c.is_alphanumeric()).collect();
    // Up to a third of the letters may differ, but at most three.
    let allowed = (letters.chars().count() / 3).clamp(1, 3);
    names
        .into_iter()
        .filter(|known| known.len() <= MAX_LEN)
        .filter_map(|known| {
            let candidate = known.to_lowercase();
            let plain: String = candidate.chars().filter(|c| c.is_alphanumeric()).collect();
            let distance = strsim::osa_distance(&letters, &plain);
            // `env` for `envs`, `serviceAccount` for `serviceAccountName`, `selector` for `nodeSelector`.
            let is_part = letters.len() >= 3
                && (plain.starts_with(&letters) || letters.starts_with(&plain) || plain.ends_with(&letters));
            match distance {
                _ if distance <= allowed => Some((distance, known)),
                _ if is_part && plain.len() >= 3 => Some((allowed + distance, known)),
                _ => None,
            }
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 9] = [
        "concurrency",
        "maxConcurrent",
        "nodeSelector",
        "serviceAccountName",
        "version",
        "drain",
        "envs",
        "image",
        "jobActiveDeadlineSecs",
    ];

    #[test]
    fn a_typo_another_case_and_a_part_find_the_name() {
        for (name, meant) in [
            ("concurency", "concurrency"),
            ("nodeselector", "nodeSelector"),
            ("node_selector", "nodeSelector"),
            ("selector", "nodeSelector"),
            ("serviceAccount", "serviceAccountName"),
            ("env", "envs"),
            ("images", "image"),
            ("verison", "version"),
            ("jobActiveDeadlineSeconds", "jobActiveDeadlineSecs"),
        ] {
            assert_eq!(nearest(name, NAMES), Some(meant), "{name}");
        }
    }

    #[test]
    fn a_name_longer_than_any_name_is_compared_with_nothing() {
        let long = format!("version{}", "x".repeat(MAX_LEN));
        assert_eq!(nearest(&long, NAMES), None);
        assert_eq!(nearest("version", [long.as_str()]), None);
        assert_eq!(nearest(&long[..20], NAMES), Some("version"));
        // The distance of these two takes days.
        let megabytes = "a".repeat(4 << 20);
        assert_eq!(nearest(&megabytes, [megabytes.as_str()]), None);
    }

    #[test]
    fn a_name_far_from_all_others_finds_nothing() {
        for name in ["resources", "x", "", "replicas"] {
            assert_eq!(nearest(name, NAMES), None, "{name}");
        }
    }
}
