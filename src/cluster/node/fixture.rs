//! A host in a folder, for tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use super::Host;
use refit_api::SentinelName;

pub(super) const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
pub(super) const NEXT_BOOT: &str = "6f2c1e5f-1bab-4b63-88b4-1e3f4b5c6d7e";

/// Its folder is the host's root directory.
pub(super) struct Folder(TempDir);

impl Folder {
    /// A host as Debian lays it out, in the boot [`BOOT`].
    pub(super) fn new() -> Self {
        let folder = Self(TempDir::new().unwrap());
        for dir in [
            "proc/sys/kernel/random",
            "run",
            "usr/sbin",
            "usr/bin",
            "var",
            "etc",
        ] {
            fs::create_dir_all(folder.path(dir)).unwrap();
        }
        folder.link("/run", "var/run");
        folder.link("usr/sbin", "sbin");
        folder.link("usr/bin", "bin");
        folder.boot(BOOT);
        folder
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    pub(super) fn host(&self) -> Host {
        Host::open(self.0.path()).unwrap()
    }

    pub(super) fn boot(&self, id: &str) {
        self.write("proc/sys/kernel/random/boot_id", &format!("{id}\n"));
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
    }

    pub(super) fn link(&self, target: &str, path: &str) {
        symlink(target, self.path(path)).unwrap();
    }

    /// A program that does this.
    pub(super) fn program(&self, path: &str, script: &str) {
        self.write(path, &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }
}

pub(super) fn name() -> SentinelName {
    "plan-uid.node-uid.hash".parse().unwrap()
}
