//! Container images, made without a builder, a daemon or a registry: archives as `docker save` writes them, of one layer.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// An image to be.
pub struct Image {
    names: Vec<String>,
    config: Value,
    layer: Builder<Vec<u8>>,
    there: BTreeSet<PathBuf>,
}

impl Image {
    /// `names` with their tags, in full: `docker.io/library/busybox:1`.
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

    /// A file of this machine, under another path.
    pub fn file(mut self, source: &Path, path: &str) -> Result<Self> {
        let bytes = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        let mode = fs::metadata(source)?.permissions().mode();
        self.folders(path)?;
        self.add(path, EntryType::Regular, mode & 0o777, &bytes)?;
        Ok(self)
    }

    /// A file with that text.
    pub fn text(mut self, text: &str, path: &str) -> Result<Self> {
        self.folders(path)?;
        self.add(path, EntryType::Regular, 0o644, text.as_bytes())?;
        Ok(self)
    }

    /// An empty folder. Everybody may write to `/tmp`.
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

    /// A program of this machine and, unless it is static, the libraries that it loads, where it looks for them.
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

    /// The folders that lead to a path.
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

/// Of root, and as old as can be: the same files give the same image.
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

/// As images call it.
fn architecture() -> Result<&'static str> {
    let known = [("x86_64", "amd64"), ("aarch64", "arm64")];
    let here = std::env::consts::ARCH;
    let found = known.iter().find(|(rust, _)| *rust == here);
    ensure!(found.is_some(), "no name for the architecture {here} in images");
    Ok(found.map_or("", |(_, image)| *image))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn entries(archive: impl std::io::Read) -> BTreeMap<String, (Header, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let read = |mut entry: tar::Entry<'_, _>| {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let path = entry.path().unwrap().display().to_string();
            (path, (entry.header().clone(), bytes))
        };
        archive
            .entries()
            .unwrap()
            .map(|entry| read(entry.unwrap()))
            .collect()
    }

    #[test]
    fn an_image_is_an_archive_with_a_config_and_a_layer() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("image.tar");
        Image::new(&["docker.io/library/one:1"])
            .text("hello", "/etc/deep/greeting")
            .unwrap()
            .link("greeting", "/etc/deep/link")
            .unwrap()
            .folder("/tmp")
            .unwrap()
            .user("65534:65534")
            .entrypoint(&["/bin/one"])
            .write(&path)
            .unwrap();
        let archive = entries(fs::File::open(path).unwrap());
        let manifest: Value = serde_json::from_slice(&archive["manifest.json"].1).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["docker.io/library/one:1"]));
        let config = &archive[manifest[0]["Config"].as_str().unwrap()].1;
        let config: Value = serde_json::from_slice(config).unwrap();
        assert_eq!(config["config"]["User"], "65534:65534");
        assert_eq!(config["config"]["Entrypoint"], json!(["/bin/one"]));
        let layer = &archive[manifest[0]["Layers"][0].as_str().unwrap()].1;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(layer)));
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest]));

        let layer = entries(layer.as_slice());
        let names: Vec<_> = layer.keys().map(|path| path.trim_end_matches('/')).collect();
        assert_eq!(
            names,
            ["etc", "etc/deep", "etc/deep/greeting", "etc/deep/link", "tmp"]
        );
        assert_eq!(layer["etc/deep/greeting"].1, b"hello");
        let link = layer["etc/deep/link"].0.link_name().unwrap().unwrap();
        assert_eq!(link, Path::new("greeting"));
        assert_eq!(layer["tmp"].0.mode().unwrap(), 0o1777);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_program_brings_the_libraries_that_it_loads() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("image.tar");
        let here = std::env::current_exe().unwrap();
        Image::new(&["a:1"])
            .program(&here, "/bin/it")
            .unwrap()
            .write(&path)
            .unwrap();
        let archive = entries(fs::File::open(path).unwrap());
        let (_, layer) = archive
            .iter()
            .find(|(name, _)| name.ends_with("layer.tar"))
            .unwrap();
        let layer = entries(layer.1.as_slice());
        assert_eq!(layer["bin/it"].0.mode().unwrap() & 0o111, 0o111);
        // One that is linked statically brings none.
        let loader = Command::new("ldd").arg(&here).output().unwrap();
        let asks = String::from_utf8_lossy(&loader.stdout).contains("libc.so");
        assert_eq!(layer.keys().any(|name| name.ends_with("libc.so.6")), asks);
    }
}
