//! The name that somebody meant.

/// The one of `names` that is nearest to `name`, if it is near enough to be meant.
pub fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_lowercase();
    let letters: String = lower.chars().filter(|c| c.is_alphanumeric()).collect();
    // A third of the letters may be wrong, but not more than three.
    let allowed = (letters.chars().count() / 3).clamp(1, 3);
    names
        .into_iter()
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
    fn a_slip_a_case_and_a_part_find_the_name() {
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
    fn what_is_far_from_all_finds_nothing() {
        for name in ["resources", "x", "", "replicas"] {
            assert_eq!(nearest(name, NAMES), None, "{name}");
        }
    }
}
