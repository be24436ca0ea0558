//! The host's files that say whether it runs Kairos, and which.

use crate::agent::kairos::Distribution;
use crate::node::{Host, HostError};

const FOLDER: &str = "/etc";
const KAIROS_RELEASE: &str = "/etc/kairos-release";
const OS_RELEASE: &str = "/etc/os-release";
const COMMAND_LINE: &str = "/proc/cmdline";

/// Maximum size of each file. They have less than 2 KiB; a longer one is refused.
const MAX_FILE: u64 = 64 * 1024;

/// Where the host's `/etc` is, below its root directory.
#[derive(Debug)]
pub struct KairosFiles {
    pub host: Host,
}

/// Why it is not known what the host runs.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum Unknown {
    #[error("the labels of Kairos stay as they are: {0}")]
    Unread(#[from] HostError),
    #[error(
        "the labels of Kairos stay as they are: {dir}{FOLDER} is missing; the host's {FOLDER} must be mounted there"
    )]
    NotMounted { dir: String },
}

impl KairosFiles {
    /// `own` is the container's root, where Linux shows the host's command line.
    pub(in crate::agent) fn look(&self, own: &Host) -> Result<Distribution, Unknown> {
        // Without the mount each host would seem to run something else, and lose its labels.
        if !self.host.exists(FOLDER)? {
            let dir = self.host.dir().display().to_string();
            let dir = dir.trim_end_matches('/').to_owned();
            return Err(Unknown::NotMounted { dir });
        }
        let kairos_release = self.host.read_whole(KAIROS_RELEASE, MAX_FILE)?;
        let os_release = match kairos_release {
            Some(_) => None,
            None => self.host.read_whole(OS_RELEASE, MAX_FILE)?,
        };
        let command_line = own.read_whole(COMMAND_LINE, MAX_FILE)?.unwrap_or_default();
        Ok(Distribution::of(
            kairos_release.as_deref(),
            os_release.as_deref(),
            &command_line,
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn files(folder: &Path) -> KairosFiles {
        let host = Host::open(folder).unwrap();
        KairosFiles { host }
    }

    fn look(folder: &Path) -> Result<Distribution, String> {
        let own = Host::open(folder).unwrap();
        files(folder).look(&own).map_err(|error| error.to_string())
    }

    /// A host with these files.
    fn host(with: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for dir in ["etc", "proc", "usr/lib"] {
            fs::create_dir_all(folder.path().join(dir)).unwrap();
        }
        for (path, content) in with {
            fs::write(folder.path().join(path), content).unwrap();
        }
        folder
    }

    fn flavor(folder: &Path) -> Option<String> {
        match look(folder).unwrap() {
            Distribution::Kairos(metadata) => metadata.labels.get("kairos.io/flavor").cloned(),
            Distribution::Other => panic!("it is none of Kairos"),
        }
    }

    #[test]
    fn a_file_is_read_through_a_link_that_stays_on_the_host() {
        let host = host(&[
            ("etc/release", b"KAIROS_FLAVOR=alpine"),
            ("usr/lib/os-release", b"ID=kairos"),
        ]);
        symlink("/etc/release", host.path().join("etc/kairos-release")).unwrap();
        assert_eq!(flavor(host.path()).as_deref(), Some("alpine"));
        fs::remove_file(host.path().join("etc/kairos-release")).unwrap();
        symlink(
            "../../../../usr/lib/os-release",
            host.path().join("etc/os-release"),
        )
        .unwrap();
        assert_eq!(flavor(host.path()), None);
        // It leads to what is not mounted.
        fs::remove_file(host.path().join("usr/lib/os-release")).unwrap();
        assert_eq!(look(host.path()).unwrap(), Distribution::Other);
    }

    #[test]
    fn whatever_is_in_the_files_of_kairos_the_labels_are_valid_or_stay_as_they_are() {
        let refused = |content: &[u8]| look(host(&[("etc/kairos-release", content)]).path()).unwrap_err();
        let long = [b"KAIROS_FLAVOR=".to_vec(), vec![b'x'; 64 * 1024]].concat();
        assert_eq!(
            refused(&long),
            "the labels of Kairos stay as they are: cannot read /etc/kairos-release on the host: it has more than 65536 bytes"
        );
        let line = [b"KAIROS_FLAVOR=".to_vec(), vec![b'x'; 60_000]].concat();
        for (content, expected) in [
            (&line[..], "x".repeat(63)),
            (
                b"\0\0\xff\xfe\nKAIROS_FLAVOR=a\xff\x1b[31mb\0\n",
                "a---31mb".to_owned(),
            ),
            (b"KAIROS_FLAVOR=\xf0\x9f\x92\xa9c", "c".to_owned()),
        ] {
            let host = host(&[("etc/kairos-release", content)]);
            assert_eq!(flavor(host.path()), Some(expected));
        }
    }

    #[test]
    fn a_path_that_is_not_a_file_is_refused_at_once() {
        let host = host(&[]);
        let path = host.path().join("etc/kairos-release");
        fs::create_dir(&path).unwrap();
        let error = look(host.path()).unwrap_err();
        assert!(
            error.contains("cannot read /etc/kairos-release on the host: "),
            "{error}"
        );
        fs::remove_dir(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let error = look(host.path()).unwrap_err();
        assert!(
            error.contains("cannot read /etc/kairos-release on the host: "),
            "{error}"
        );
        fs::remove_file(&path).unwrap();
        symlink("kairos-release", &path).unwrap();
        let error = look(host.path()).unwrap_err();
        assert!(
            error.contains("cannot look at /etc/kairos-release on the host: "),
            "{error}"
        );
    }

    #[test]
    fn a_host_whose_etc_is_not_mounted_is_not_taken_for_one_without_kairos() {
        let folder = tempfile::tempdir().unwrap();
        let error = look(folder.path()).unwrap_err();
        assert_eq!(
            error,
            format!(
                "the labels of Kairos stay as they are: {}/etc is missing; the host's /etc must be mounted there",
                folder.path().display()
            )
        );
    }
}
