//! The paths that match a pattern.
//!
//! The crate `glob` follows links to folders below `**`, also in a circle, so what is below `**` is walked here.

use std::fs::FileType;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};

use super::{InputError, entries};

/// As in a shell, `*` does not match hidden files.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The files and folders that match, sorted.
pub(super) fn paths(pattern: &str, errors: &mut Vec<InputError>) -> Result<Vec<PathBuf>, PatternError> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let Some(place) = parts.iter().position(|part| *part == "**") else {
        return outside(pattern, errors);
    };
    let below = Pattern::new(parts[place..].join("/").trim_end_matches('/'))?;
    let roots = match parts[..place].join("/").as_str() {
        "" if place > 0 => vec![PathBuf::from("/")],
        "" => vec![PathBuf::new()],
        root => outside(root, errors)?,
    };
    // A pattern that ends with `**` matches folders only.
    let wants_folders = below.as_str().ends_with("**") || pattern.ends_with('/');
    let mut found = Vec::new();
    for root in roots.iter().filter(|root| here(root).is_dir()) {
        let mut all = Vec::new();
        walk(root, below.as_str().contains("/."), &mut all, errors);
        all.retain(|path| {
            let relative = path.strip_prefix(root).unwrap_or(path);
            below.matches_path_with(relative, OPTIONS) && (!wants_folders || path.is_dir())
        });
        all.sort_unstable();
        found.extend(all);
    }
    Ok(found)
}

/// The paths that match a pattern without `**`.
fn outside(pattern: &str, errors: &mut Vec<InputError>) -> Result<Vec<PathBuf>, PatternError> {
    let mut found = Vec::new();
    for path in glob::glob_with(pattern, OPTIONS)? {
        match path {
            Ok(path) => found.push(path),
            Err(error) => {
                let path = error.path().to_owned();
                errors.push(InputError::of(&path, error.into()));
            }
        }
    }
    Ok(found)
}

fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

/// Adds what is below a folder, without links to folders, which may lead in a circle.
fn walk(folder: &Path, with_hidden: bool, found: &mut Vec<PathBuf>, errors: &mut Vec<InputError>) {
    for entry in entries(here(folder), errors) {
        let name = entry.file_name();
        if !with_hidden && name.to_string_lossy().starts_with('.') {
            continue;
        }
        let path = folder.join(name);
        let kind = entry.file_type();
        if kind.as_ref().is_ok_and(FileType::is_dir) {
            walk(&path, with_hidden, found, errors);
        }
        let is_link = kind.is_ok_and(|kind| kind.is_symlink());
        if !(is_link && path.is_dir()) {
            found.push(path);
        }
    }
}
