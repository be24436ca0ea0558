//! Paths of kustomizations, and of what they name.

use std::path::{Component, Path, PathBuf};

pub(super) const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

pub(super) fn is_kustomization(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

/// A path without `.` and, as far as possible without reading the file system, `..`.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}
