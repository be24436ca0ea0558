//! Finds the files that arguments name: files, folders, patterns and standard input.
//!
//! A folder stands for the YAML and JSON files in it and below it, without hidden ones, sorted by name. Links to
//! folders are not followed, because they may form a cycle.

mod pattern;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{DirEntry, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

use super::source::{STDIN, Source};

/// The argument for standard input.
const DASH: &str = "-";
/// Maximum size of a file in bytes. Plans are small, so a longer file is something else.
const MAX_BYTES: u64 = 64 << 20;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    Stdin,
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{0}: no such file or folder")]
    Missing(String),
    /// No file matches the pattern.
    #[error("{0}: no file matches")]
    NoMatch(String),
    /// The pattern's syntax is invalid.
    #[error("{pattern}: the pattern is invalid: {source}")]
    Pattern {
        pattern: String,
        source: glob::PatternError,
    },
    /// The folder has no manifests.
    #[error("{0}: the folder has no .yaml, .yml or .json file")]
    EmptyFolder(String),
    #[error("{name}: {source}")]
    Io {
        /// The file or folder.
        name: String,
        source: std::io::Error,
    },
    /// A named pipe, which might block for ever.
    #[error("{0}: a FIFO, and not a file; write - and give its text on standard input")]
    Pipe(String),
    /// A device may wait for ever, or never end.
    #[error("{0}: a device, and not a file")]
    Device(String),
    #[error("{0}: the file is longer than {MAX_BYTES} bytes")]
    TooLong(String),
    #[error("{0}: the file is UTF-16; save it as UTF-8")]
    Utf16(String),
    #[error("{name}: the file is not UTF-8 at byte {offset}; save it as UTF-8")]
    NotText {
        name: String,
        /// Offset of the first byte that is not UTF-8.
        offset: usize,
    },
}

impl InputError {
    fn of(path: &Path, source: io::Error) -> Self {
        let name = path.display().to_string();
        Self::Io { name, source }
    }
}

/// The files that `arguments` name, each once, in their order. An error of one argument does not affect the others.
pub fn expand(arguments: &[String]) -> (Vec<Input>, Vec<InputError>) {
    let mut inputs = Vec::new();
    let mut errors = Vec::new();
    for argument in arguments {
        match expand_one(argument, &mut errors) {
            Ok(found) => inputs.extend(found),
            Err(error) => errors.push(error),
        }
    }
    (without_repeats(inputs), errors)
}

/// Keeps each file once, whatever names, links and folders lead to it: if a file were written twice, the second text
/// would overwrite the first. Of several names, one that is not a symbolic link is kept, in the place of the first.
fn without_repeats(inputs: Vec<Input>) -> Vec<Input> {
    let mut kept: Vec<Input> = Vec::new();
    let mut places: BTreeMap<Identity, usize> = BTreeMap::new();
    for input in inputs {
        let identity = match &input {
            Input::Stdin => Identity::Stdin,
            Input::File(path) => match std::fs::metadata(path) {
                Ok(metadata) => Identity::File(metadata.dev(), metadata.ino()),
                Err(_) => Identity::Name(path.clone()),
            },
        };
        match places.entry(identity) {
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(input);
            }
            Entry::Occupied(place) => {
                let known = &mut kept[*place.get()];
                if is_link(known) && !is_link(&input) {
                    *known = input;
                }
            }
        }
    }
    kept
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Stdin,
    /// Device and inode.
    File(u64, u64),
    /// The path of a file that cannot be read.
    Name(PathBuf),
}

fn is_link(input: &Input) -> bool {
    match input {
        Input::Stdin => false,
        Input::File(path) => path.is_symlink(),
    }
}

/// Errors of single files and folders are added to `errors`.
fn expand_one(argument: &str, errors: &mut Vec<InputError>) -> Result<Vec<Input>, InputError> {
    if argument == DASH {
        return Ok(vec![Input::Stdin]);
    }
    let path = Path::new(argument);
    if path.is_dir() {
        let mut files = Vec::new();
        let known = errors.len();
        walk(path, &mut files, errors);
        // A folder that could not be read may have such files.
        if files.is_empty() && errors.len() == known {
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
    let mut files = Vec::new();
    let known = errors.len();
    let paths = pattern::paths(argument, errors).map_err(|source| InputError::Pattern {
        pattern: argument.to_owned(),
        source,
    })?;
    for path in paths {
        if path.is_dir() {
            walk(&path, &mut files, errors);
        } else {
            files.push(path);
        }
    }
    if files.is_empty() && errors.len() == known {
        return Err(InputError::NoMatch(argument.to_owned()));
    }
    Ok(files.into_iter().map(Input::File).collect())
}

/// Collects the manifests in a folder and below it. An unreadable folder does not affect the others.
fn walk(folder: &Path, files: &mut Vec<PathBuf>, errors: &mut Vec<InputError>) {
    for entry in entries(folder, errors) {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        match entry.file_type() {
            Err(source) => errors.push(InputError::of(&path, source)),
            Ok(kind) if kind.is_dir() => walk(&path, files, errors),
            // A pipe or a device in a folder was not named by anyone, so it is left out without an error.
            Ok(_) if is_manifest(&path) && path.is_file() => files.push(path),
            Ok(_) => {}
        }
    }
}

/// The entries of a folder by name; none of one that cannot be read.
fn entries(folder: &Path, errors: &mut Vec<InputError>) -> Vec<DirEntry> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = entries.unwrap_or_else(|source| {
        errors.push(InputError::of(folder, source));
        Vec::new()
    });
    entries.sort_by_key(DirEntry::file_name);
    entries
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_known = |extension: &str| {
        EXTENSIONS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    };
    // The third name that Kustomize reads.
    extension.is_some_and(is_known) || path.ends_with("Kustomization")
}

/// Opens a file. Refuses a named pipe, because a writer may never come, and a device. Pipes of a shell, such as
/// `<(kustomize build)`, have a writer.
///
/// # Errors
/// Fails if the path cannot be opened, or is a named pipe or a device.
pub fn open(path: &Path) -> Result<File, InputError> {
    let name = || path.display().to_string();
    let failed = |source| InputError::Io { name: name(), source };
    let mut of_shell = ["/dev/fd", "/dev/stdin", "/proc"].into_iter();
    if of_shell.any(|folder| path.starts_with(folder)) {
        return File::open(path).map_err(failed);
    }
    // The opened file is looked at, because the path may lead to another one by then. Opening a pipe must not wait.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if kind.is_fifo() {
        return Err(InputError::Pipe(name()));
    }
    // `/dev/null` is a device, too, but it ends at once, and stands for an empty file.
    if (kind.is_char_device() || kind.is_block_device()) && path != Path::new("/dev/null") {
        return Err(InputError::Device(name()));
    }
    Ok(file)
}

/// The text of a file that a flag names.
///
/// # Errors
/// Fails if the file cannot be read, is too long, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, InputError> {
    text(path.display().to_string(), open(path)?)
}

/// Where a link in a folder or a pattern leads, if that is outside of it. Someone who can write the folder may have chosen
/// the target, and not the user, so refit does not write to it. A link that is an argument itself was chosen.
pub fn target_outside(arguments: &[String], path: &Path) -> Option<PathBuf> {
    if arguments.iter().any(|argument| Path::new(argument) == path) {
        return None;
    }
    let real = path.canonicalize().ok()?;
    // `./` may be in one of them only.
    let plain = |path: &Path| -> PathBuf {
        let parts = path.components();
        parts.filter(|part| *part != Component::CurDir).collect()
    };
    let is_below = |argument: &String| {
        let root = root_of(argument);
        let is_in = plain(path).starts_with(plain(&root));
        is_in && root.canonicalize().is_ok_and(|root| real.starts_with(root))
    };
    (!arguments.iter().any(is_below)).then_some(real)
}

/// The folder of an argument: itself, or the part of a pattern before its first wildcard.
fn root_of(argument: &str) -> PathBuf {
    let path = Path::new(argument);
    if path.is_dir() {
        return path.to_owned();
    }
    let is_literal = |part: &Component<'_>| {
        let part = part.as_os_str().to_string_lossy();
        !part.contains(['*', '?', '['])
    };
    let root: PathBuf = path.components().take_while(is_literal).collect();
    if root.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        root
    }
}

/// Reads an input as YAML.
///
/// # Errors
/// Fails if the file cannot be read, is too long, or is not UTF-8.
pub fn read(input: &Input) -> Result<Source, InputError> {
    Ok(match input {
        Input::Stdin => Source::new(STDIN, None, text(STDIN.to_owned(), io::stdin().lock())?),
        Input::File(path) => Source::new(path.display().to_string(), Some(path), read_text(path)?),
    })
}

fn text(name: String, from: impl io::Read) -> Result<String, InputError> {
    let mut bytes = Vec::new();
    match from.take(MAX_BYTES + 1).read_to_end(&mut bytes) {
        Err(source) => return Err(InputError::Io { name, source }),
        Ok(length) if length as u64 > MAX_BYTES => return Err(InputError::TooLong(name)),
        Ok(_) => {}
    }
    as_text(name, bytes)
}

/// The text of a file.
///
/// # Errors
/// Fails if it is not UTF-8.
pub fn as_text(name: String, bytes: Vec<u8>) -> Result<String, InputError> {
    // Editors on Windows and PowerShell write UTF-16; with or without a byte order mark, one byte of each ASCII
    // character is 0.
    if let [first, second, ..] = bytes.as_slice()
        && (matches!((first, second), (0xff, 0xfe) | (0xfe, 0xff)) || (*first == 0) != (*second == 0))
    {
        return Err(InputError::Utf16(name));
    }
    String::from_utf8(bytes).map_err(|error| InputError::NotText {
        name,
        offset: error.utf8_error().valid_up_to(),
    })
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
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("z.yaml")).unwrap();
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
    fn a_pattern_with_two_stars_follows_no_link_to_a_folder() {
        use std::os::unix::fs::symlink;
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        symlink(folder.path(), at("one")).unwrap();
        symlink("../sub", at("sub/three")).unwrap();
        let names = |argument: &str| names(folder.path(), &[argument]).unwrap();
        assert_eq!(names("**/d.yaml"), ["sub/d.yaml"]);
        assert_eq!(names("s*/**/d.y*ml"), ["sub/d.yaml"]);
        assert_eq!(names("**/sub/*.yaml"), ["sub/d.yaml"]);
        assert_eq!(names("**/.git/**/*.yaml"), [".git/e.yaml"]);
        let all = ["[x].yaml", "a.yaml", "sub/d.yaml"];
        assert_eq!(names("**/*.yaml"), all);
        // Folders, of which only the manifests count.
        assert_eq!(names("**"), ["sub/d.yaml"]);
    }

    #[test]
    fn a_file_that_is_reached_twice_is_meant_once_under_its_own_name() {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("b.yml", path("0-link.yaml")).unwrap();
        fs::hard_link(path("a.yaml"), path("twin.yaml")).unwrap();
        let once = ["b.yml", "[x].yaml", "a.yaml", "c.JSON", "sub/d.yaml"];
        for arguments in [
            &["0-link.yaml", "."][..],
            &["b.yml", "."],
            &["./b.yml", "sub/../b.yml", ".", "sub"],
            &["0-link.yaml", "b.yml", "*.y*ml", "."],
        ] {
            let found = names(folder.path(), arguments).unwrap();
            let found: Vec<_> = found.iter().map(|name| name.replace("sub/../", "")).collect();
            assert_eq!(found, once, "{arguments:?}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_read_does_not_keep_the_others() {
        let folder = folder();
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        walk(&folder.path().join("gone"), &mut files, &mut errors);
        walk(&folder.path().join("sub"), &mut files, &mut errors);
        assert_eq!(files, [folder.path().join("sub/d.yaml")]);
        assert!(matches!(errors.as_slice(), [InputError::Io { .. }]), "{errors:?}");
    }

    #[test]
    fn a_missing_input_is_an_error() {
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
    fn a_pipe_with_a_name_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.yaml");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let error = read(&Input::File(path)).unwrap_err().to_string();
        assert!(
            error.ends_with("plan.yaml: a FIFO, and not a file; write - and give its text on standard input"),
            "{error}"
        );
    }

    #[test]
    fn a_device_is_refused_and_not_read_to_an_end_that_it_has_not() {
        let error = read(&Input::File("/dev/zero".into())).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: a device, and not a file");
        assert!(open(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn a_link_that_leads_out_of_its_folder_is_found_and_one_that_is_named_is_meant() {
        let folder = folder();
        let elsewhere = tempfile::tempdir().unwrap();
        let victim = elsewhere.path().canonicalize().unwrap().join("victim.yaml");
        fs::write(&victim, "").unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(&victim, at("sub/out.yaml")).unwrap();
        std::os::unix::fs::symlink("../a.yaml", at("sub/in.yaml")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), at("linked")).unwrap();
        let argument = |name: &str| at(name).display().to_string();
        let leads_out = |arguments: &[&str], path: &str| {
            let arguments: Vec<_> = arguments.iter().map(|name| argument(name)).collect();
            target_outside(&arguments, &at(path))
        };
        for arguments in [
            &[""][..],
            &["sub"],
            &["sub/*.yaml"],
            &["*/out.yaml"],
            &["a.yaml", "sub"],
        ] {
            assert_eq!(
                leads_out(arguments, "sub/out.yaml").as_ref(),
                Some(&victim),
                "{arguments:?}"
            );
        }
        assert_eq!(leads_out(&["*/victim.yaml"], "linked/victim.yaml"), Some(victim));
        assert_eq!(
            leads_out(&["sub", "sub/out.yaml"], "sub/out.yaml"),
            None,
            "it is named"
        );
        assert_eq!(
            leads_out(&[""], "sub/in.yaml"),
            None,
            "the target is in the folder"
        );
        assert!(leads_out(&["sub"], "sub/in.yaml").is_some());
        assert_eq!(leads_out(&[""], "a.yaml"), None);
    }

    #[test]
    fn an_input_that_is_not_text_is_an_error_with_its_position() {
        let folder = folder();
        let path = folder.path().join("a.yaml");
        fs::write(&path, b"a: \xff").unwrap();
        let error = read(&Input::File(path)).unwrap_err().to_string();
        assert!(
            error.ends_with("a.yaml: the file is not UTF-8 at byte 3; save it as UTF-8"),
            "{error}"
        );
        let utf_16: Vec<u8> = "kind: Plan".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big_endian: Vec<u8> = "kind: Plan".encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [
            &[&[0xff, 0xfe], &utf_16[..]].concat(),
            &utf_16,
            &[&[0xfe, 0xff], &big_endian[..]].concat(),
            &big_endian,
        ] {
            let path = folder.path().join("a.yaml");
            fs::write(&path, bytes).unwrap();
            let error = read(&Input::File(path)).unwrap_err().to_string();
            assert!(
                error.ends_with("a.yaml: the file is UTF-16; save it as UTF-8"),
                "{error}"
            );
        }
    }
}
