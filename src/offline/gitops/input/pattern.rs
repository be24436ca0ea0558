//! The paths that match a pattern.
//!
//! The crate `glob` follows links to folders below `**`, also in a circle, so what is below `**` is walked here.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
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
    for root in roots {
        let mut tree = Tree {
            names_hidden: below.as_str().contains("/."),
            ..Tree::default()
        };
        tree.walk(&root, errors);
        // Folders that are there themselves keep their own names.
        while let Some(link) = tree.links.pop_first() {
            if tree.walk(&link, errors) {
                tree.found.insert(link);
            }
        }
        let matching = tree.found.into_iter().filter(|path| {
            let relative = path.strip_prefix(&root).unwrap_or(path);
            below.matches_path_with(relative, OPTIONS) && (!wants_folders || path.is_dir())
        });
        found.extend(matching);
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

/// What is below a folder.
#[derive(Default)]
struct Tree {
    names_hidden: bool,
    found: BTreeSet<PathBuf>,
    /// Links to folders, which may have been visited.
    links: BTreeSet<PathBuf>,
    /// Device and inode of each folder.
    visited: BTreeSet<(u64, u64)>,
}

impl Tree {
    /// Whether this is a folder that has not been visited.
    fn walk(&mut self, folder: &Path, errors: &mut Vec<InputError>) -> bool {
        let here = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let metadata = std::fs::metadata(here).ok().filter(std::fs::Metadata::is_dir);
        let is_new = metadata.is_some_and(|it| self.visited.insert((it.dev(), it.ino())));
        if !is_new {
            return false;
        }
        for entry in entries(here, errors) {
            let name = entry.file_name();
            if !self.names_hidden && name.to_string_lossy().starts_with('.') {
                continue;
            }
            let path = folder.join(name);
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link && path.is_dir() {
                self.links.insert(path);
                continue;
            }
            if path.is_dir() {
                self.walk(&path, errors);
            }
            self.found.insert(path);
        }
        true
    }
}
