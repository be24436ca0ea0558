//! Files of the repository that tests write: `just generate`, which is `REFIT_UPDATE=1 cargo test --lib committed`. The crates
//! whose tests write some include this file.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Tests run in parallel, and some read what others write.
static FILES: Mutex<()> = Mutex::new(());

/// The folder of the workspace.
fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = package.ancestors();
    folders
        .find(|folder| folder.join("Cargo.lock").is_file())
        .unwrap_or(package)
}

/// A file of the repository.
#[track_caller]
pub(crate) fn committed(file: &str) -> String {
    let _guard = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = repository().join(file);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Fails if a file of the repository is not what a test made, or writes it if asked to.
#[track_caller]
pub(crate) fn assert_committed(file: &str, text: &str) {
    let _guard = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = repository().join(file);
    if std::env::var_os("REFIT_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "{file} is stale: just generate");
}
