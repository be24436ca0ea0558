//! Which files are meant: files, folders, patterns and standard input.
//!
//! A folder means the YAML and JSON files in it and below it, hidden ones aside, in the order of their names. Links to
//! folders are not followed: they may lead round in a circle.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::source::{STDIN, Source};

/// Standard input, among files.
const DASH: &str = "-";
/// The longest file that is read, in bytes. Plans are small; what is longer is something else.
const MAX_BYTES: u64 = 64 << 20;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A file that is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Nothing has that name.
    #[error("{0}: no such file or folder")]
    Missing(String),
    /// A pattern that no file has.
    #[error("{0}: no file matches")]
    NoMatch(String),
    /// A pattern that cannot be one.
    #[error("{pattern}: not a pattern: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: glob::PatternError,
    },
    /// A folder without such files.
    #[error("{0}: the folder has no .yaml, .yml or .json file")]
    EmptyFolder(String),
    /// The file system says no.
    #[error("{name}: {source}")]
    Io {
        /// What is to be read.
        name: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is too long.
    #[error("{0}: longer than {MAX_BYTES} bytes, and so no Plan")]
    TooLong(String),
    /// It is not text.
    #[error("{name}: not UTF-8 at byte {offset}")]
    NotText {
        /// What is to be read.
        name: String,
        /// The first byte that is none.
        offset: usize,
    },
}

/// The files that `arguments` mean, each once, in their order. What is wrong with one does not keep the others.
pub fn expand(arguments: &[String]) -> (Vec<Input>, Vec<InputError>) {
    let mut inputs = Vec::new();
    let mut errors = Vec::new();
    for argument in arguments {
        match expand_one(argument) {
            Ok(found) => inputs.extend(found),
            Err(error) => errors.push(error),
        }
    }
    let mut seen = BTreeSet::new();
    inputs.retain(|input| seen.insert(input.clone()));
    (inputs, errors)
}

fn expand_one(argument: &str) -> Result<Vec<Input>, InputError> {
    if argument == DASH {
        return Ok(vec![Input::Stdin]);
    }
    let path = Path::new(argument);
    if path.is_dir() {
        let mut files = Vec::new();
        walk(path, &mut files)?;
        if files.is_empty() {
            return Err(InputError::EmptyFolder(argument.to_owned()));
        }
        return Ok(files.into_iter().map(Input::File).collect());
    }
    // A file whose name looks like a pattern is that file.
    if path.exists() {
        return Ok(vec![Input::File(path.to_owned())]);
    }
    if !argument.contains(['*', '?', '[']) {
        return Err(InputError::Missing(argument.to_owned()));
    }
    // As in a shell, a star is no hidden file.
    let options = glob::MatchOptions {
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let paths = glob::glob_with(argument, options).map_err(|source| InputError::Pattern {
        pattern: argument.to_owned(),
        source,
    })?;
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|error| InputError::Io {
            name: error.path().display().to_string(),
            source: error.into(),
        })?;
        if path.is_dir() {
            walk(&path, &mut files)?;
        } else {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(InputError::NoMatch(argument.to_owned()));
    }
    Ok(files.into_iter().map(Input::File).collect())
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let failed = |source| InputError::Io {
        name: folder.display().to_string(),
        source,
    };
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .and_then(Iterator::collect)
        .map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            walk(&path, files)?;
        } else if is_manifest(&path) && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        EXTENSIONS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    })
}

/// Reads what is meant.
pub fn read(input: &Input) -> Result<Source, InputError> {
    let (name, path) = match input {
        Input::Stdin => (STDIN.to_owned(), None),
        Input::File(path) => (path.display().to_string(), Some(path.as_path())),
    };
    let mut bytes = Vec::new();
    let read = match path {
        None => std::io::stdin()
            .lock()
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes),
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        }
    };
    match read {
        Err(source) => return Err(InputError::Io { name, source }),
        Ok(length) if length as u64 > MAX_BYTES => return Err(InputError::TooLong(name)),
        Ok(_) => {}
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, path, text)),
        Err(error) => Err(InputError::NotText {
            name,
            offset: error.utf8_error().valid_up_to(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|argument| folder.join(argument).display().to_string())
            .collect();
        let (inputs, errors) = expand(&arguments);
        if let Some(error) = errors.first() {
            return Err(error.to_string().replace(&folder.display().to_string(), "."));
        }
        let name = |input: &Input| match input {
            Input::Stdin => DASH.to_owned(),
            Input::File(path) => path.strip_prefix(folder).unwrap().display().to_string(),
        };
        Ok(inputs.iter().map(name).collect())
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "b.yml",
            "a.yaml",
            "c.JSON",
            "notes.md",
            ".hidden.yaml",
            "[x].yaml",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        for name in ["sub/d.yaml", ".git/e.yaml", "empty/README"] {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_means_its_manifests_in_order_and_nothing_hidden() {
        let folder = folder();
        let all = ["[x].yaml", "a.yaml", "b.yml", "c.JSON", "sub/d.yaml"];
        assert_eq!(names(folder.path(), &[""]).unwrap(), all);
        std::os::unix::fs::symlink(folder.path(), folder.path().join("sub/round")).unwrap();
        std::os::unix::fs::symlink("b.yml", folder.path().join("z.yaml")).unwrap();
        assert_eq!(
            names(folder.path(), &[""]).unwrap(),
            [&all[..], &["z.yaml"]].concat()
        );
    }

    #[test]
    fn patterns_are_matched_and_each_file_is_meant_once() {
        let folder = folder();
        let names = |arguments: &[&str]| names(folder.path(), arguments);
        assert_eq!(
            names(&["*.y*ml", "a.yaml"]).unwrap(),
            ["[x].yaml", "a.yaml", "b.yml"]
        );
        assert_eq!(names(&["**/d.yaml"]).unwrap(), ["sub/d.yaml"]);
        assert_eq!(
            names(&["[x].yaml"]).unwrap(),
            ["[x].yaml"],
            "the file, not the pattern"
        );
        assert_eq!(
            names(&["notes.md"]).unwrap(),
            ["notes.md"],
            "whatever it is called"
        );
    }

    #[test]
    fn what_is_not_there_is_told() {
        let folder = folder();
        let error = |argument: &str| names(folder.path(), &[argument]).unwrap_err();
        assert_eq!(error("none.yaml"), "./none.yaml: no such file or folder");
        assert_eq!(error("*.toml"), "./*.toml: no file matches");
        assert_eq!(
            error("empty"),
            "./empty: the folder has no .yaml, .yml or .json file"
        );
    }

    #[test]
    fn what_is_no_text_is_told_with_its_place() {
        let folder = folder();
        let path = folder.path().join("a.yaml");
        fs::write(&path, b"a: \xff").unwrap();
        let error = read(&Input::File(path)).unwrap_err().to_string();
        assert!(error.ends_with("a.yaml: not UTF-8 at byte 3"), "{error}");
    }
}
