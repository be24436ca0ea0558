//! Kustomizations: their patches are parts of objects, which must not be validated as whole objects, and set fields of
//! Plans in other files.

mod outer;
mod overlay;
mod patch;
mod paths;
mod target;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use overlay::attach;
use paths::{NAMES, is_kustomization, plain};

use super::input::{self, Input};
use super::source::Source;
use super::yaml::Node;

/// The patch files that the kustomizations among the sources name.
pub fn patches(sources: &[Source]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for source in sources {
        let Some(path) = source.path.as_deref() else {
            continue;
        };
        let folder = path.parent().filter(|_| is_kustomization(path));
        for (folder, document) in folder.into_iter().flat_map(|folder| {
            let documents = source.stream.documents.iter();
            documents.map(move |document| (folder, document))
        }) {
            found.extend(files(document).map(|file| plain(&folder.join(file))));
        }
    }
    found
}

/// Notes in each source what kustomizations do to its Plans: those among the sources, and those in the same folders, since
/// people also name single files. Returns the patch files that they name.
pub fn attach_with_neighbours(sources: &mut Vec<Source>) -> BTreeSet<PathBuf> {
    let paths: BTreeSet<PathBuf> = sources.iter().filter_map(|source| source.path.clone()).collect();
    let known: BTreeSet<PathBuf> = paths.iter().map(|path| plain(path)).collect();
    let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    let beside = folders
        .iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let beside = beside.filter(|path| !known.contains(&plain(path)) && path.is_file());
    // What cannot be read is no file that the user named.
    let beside: Vec<Source> = beside
        .filter_map(|path| input::read(&Input::File(path)).ok())
        .collect();
    let named = sources.len();
    sources.extend(beside);
    attach(sources);
    let patches = patches(sources);
    sources.truncate(named);
    patches
}

pub fn is_patch(patches: &BTreeSet<PathBuf>, source: &Source) -> bool {
    source
        .path
        .as_deref()
        .is_some_and(|path| patches.contains(&plain(path)))
}

fn files(document: &Node) -> impl Iterator<Item = &str> {
    let items = |field: &str| document.get(field).map(Node::items).unwrap_or_default().iter();
    let by_path = items("patches").chain(items("patchesJson6902"));
    by_path
        .filter_map(|patch| patch.get("path")?.text())
        // An entry is either a file name or the patch itself, which has several lines or a key.
        .chain(items("patchesStrategicMerge").filter_map(Node::text))
        .filter(|file| !file.contains(['\n', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patches_of_a_kustomization_are_known() {
        let source = |name: &str, text: &str| Source::new(name, Some(Path::new(name)), text.to_owned());
        let text = "patches:\n- path: ../patches/./one.yaml\n- patch: |-\n    spec: {}\npatchesStrategicMerge: [two.yaml, \"a: \
                    b\"]\npatchesJson6902: [{path: three.json}]\nresources: [four.yaml]\n";
        let sources = [
            source("./prod/kustomization.yaml", text),
            source("other.yaml", text),
        ];
        let found = patches(&sources);
        let expected = ["patches/one.yaml", "prod/three.json", "prod/two.yaml"];
        assert_eq!(found, expected.map(PathBuf::from).into());
        assert!(is_patch(&found, &source("./patches/one.yaml", "")));
        assert!(!is_patch(&found, &source("prod/four.yaml", "")));
    }
}
