//! Container images as archives of `docker save` with one layer, without a builder, a daemon or a registry.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

pub struct Image {
    names: Vec<String>,
    config: Value,
    layer: Builder<Vec<u8>>,
    there: BTreeSet<PathBuf>,
}

impl Image {
    /// `names` are complete, with tags: `docker.io/library/busybox:1`.
    pub fn new(names: &[&str]) -> Self {
        Self {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            config: json!({ "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] }),
            layer: Builder::new(Vec::new()),
            there: BTreeSet::new(),
        }
    }

    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.config["Entrypoint"] = json!(words);
        self
    }

    pub fn user(mut self, user: &str) -> Self {
        self.config["User"] = json!(user);
        self
    }

    /// Adds a file of this machine.
    pub fn file(mut self, source: &Path, path: &str) -> Result<Self> {
        let bytes = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        let mode = fs::metadata(source)?.permissions().mode();
        self.folders(path)?;
        self.add(path, EntryType::Regular, mode & 0o777, &bytes)?;
        Ok(self)
    }

    /// Adds a file with this text.
    pub fn text(mut self, text: &str, path: &str) -> Result<Self> {
        self.folders(path)?;
        self.add(path, EntryType::Regular, 0o644, text.as_bytes())?;
        Ok(self)
    }

    /// Adds an empty folder. `/tmp` is writable for all.
    pub fn folder(mut self, path: &str) -> Result<Self> {
        self.folders(&format!("{path}/any"))?;
        Ok(self)
    }

    pub fn link(mut self, target: &str, path: &str) -> Result<Self> {
        self.folders(path)?;
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.layer.append_link(&mut header, relative(path), target)?;
        Ok(self)
    }

    /// Adds a program of this machine, and the libraries that it loads at their paths.
    pub fn program(self, source: &Path, path: &str) -> Result<Self> {
        let mut image = self.file(source, path)?;
        let out = Command::new("ldd")
            .arg(source)
            .output()
            .context("cannot run ldd")?;
        for word in String::from_utf8_lossy(&out.stdout).split_whitespace() {
            if word.starts_with('/') && !word.ends_with(':') {
                image = image.file(Path::new(word), word)?;
            }
        }
        Ok(image)
    }

    /// Writes the archive.
    pub fn write(mut self, path: &Path) -> Result<()> {
        let layer = std::mem::replace(&mut self.layer, Builder::new(Vec::new())).into_inner()?;
        let digest = hex::encode(Sha256::digest(&layer));
        let config = json!({
            "architecture": architecture()?,
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        });
        let config = config.to_string();
        let (config_file, layer_file) = (
            format!("{}.json", hex::encode(Sha256::digest(&config))),
            format!("{digest}/layer.tar"),
        );
        let manifest = json!([{ "Config": config_file, "RepoTags": self.names, "Layers": [layer_file] }]);
        let mut archive = Builder::new(fs::File::create(path)?);
        for (name, bytes) in [
            (config_file.as_str(), config.as_bytes()),
            (&layer_file, &layer),
            ("manifest.json", manifest.to_string().as_bytes()),
        ] {
            let mut header = header(EntryType::Regular, 0o644, bytes.len());
            archive.append_data(&mut header, name, bytes)?;
        }
        archive.finish()?;
        Ok(())
    }

    /// The parent folders of a path.
    fn folders(&mut self, path: &str) -> Result<()> {
        let folders: Vec<_> = Path::new(path).ancestors().skip(1).collect();
        for folder in folders.into_iter().rev() {
            if folder != Path::new("/") && self.there.insert(folder.to_owned()) {
                let mode = if folder == Path::new("/tmp") {
                    0o1777
                } else {
                    0o755
                };
                let path = folder.to_str().context("a folder of UTF-8")?;
                self.add(path, EntryType::Directory, mode, &[])?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut header = header(kind, mode, bytes.len());
        self.layer.append_data(&mut header, relative(path), bytes)?;
        Ok(())
    }
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// Owned by root, with a constant time, so that the same files give the same image.
fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// The architecture in the notation of images.
fn architecture() -> Result<&'static str> {
    let known = [("x86_64", "amd64"), ("aarch64", "arm64")];
    let here = std::env::consts::ARCH;
    let found = known.iter().find(|(rust, _)| *rust == here);
    ensure!(found.is_some(), "no name for the architecture {here} in images");
    Ok(found.map_or("", |(_, image)| *image))
}
