//! The files of these tests.

use std::path::{Path, PathBuf};

use refit_offline::gitops::Source;

/// The folder with the files of these tests.
pub(super) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/gitops")
        .join(name)
}

/// The files of a folder, sorted, with their texts.
pub(super) fn files(name: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

pub(super) fn source(name: &str, text: &str) -> Source {
    Source::new(name, Some(Path::new(name)), text.to_owned())
}
