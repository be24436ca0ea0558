//! The images of real nodes. There is no registry.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::testenv::binaries::Binaries;
use crate::testenv::controller;
use crate::testenv::image::Image;
use crate::testenv::process::Run;

/// refit's own image, under the name in `deploy/`.
pub const REFIT: &str = concat!("ghcr.io/refit-rs/refit:v", env!("CARGO_PKG_VERSION"));

/// A shell with its tools, for Plans.
pub const BUSYBOX: &str = "docker.io/library/busybox:1";

/// The same under the name in the e2e suite of system-upgrade-controller.
const ALPINE: &str = "docker.io/library/alpine:3.18";

pub const PAUSE: &str = "refit.test/pause:1";

/// Creates the images in a folder of this run.
pub fn make(binaries: &Binaries) -> Result<PathBuf> {
    let dir = Run::current().data_folder("images");
    let busybox = busybox(binaries);
    shell(&[BUSYBOX, ALPINE], &busybox)?.write(&dir.join("busybox.tar"))?;
    Image::new(&[PAUSE])
        .file(&busybox, "/bin/busybox")?
        .entrypoint(&["/bin/busybox", "sleep", "infinity"])
        .write(&dir.join("pause.tar"))?;
    refit()?.write(&dir.join("refit.tar"))?;
    Ok(dir)
}

pub fn busybox(binaries: &Binaries) -> PathBuf {
    binaries.path("debian").join("bin/busybox")
}

/// Like the Containerfile, with the program that cargo built and its libraries instead of a static one.
fn refit() -> Result<Image> {
    Ok(Image::new(&[REFIT])
        .program(&controller::binary(), "/bin/refit")?
        .link("refit", "/bin/system-upgrade-controller")?
        .user("65534:65534")
        .entrypoint(&["/bin/refit"]))
}

/// A shell and its tools.
pub fn shell(names: &[&str], busybox: &Path) -> Result<Image> {
    let out = Command::new(busybox)
        .arg("--list")
        .output()
        .with_context(|| format!("cannot run {}", busybox.display()))?;
    ensure!(out.status.success(), "`busybox --list`: {}", out.status);
    let mut image = Image::new(names)
        .file(busybox, "/bin/busybox")?
        .text(
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
            "/etc/passwd",
        )?
        .text("root:x:0:\nnobody:x:65534:\n", "/etc/group")?
        .folder("/tmp")?;
    for name in String::from_utf8_lossy(&out.stdout).lines() {
        if name != "busybox" {
            image = image.link("busybox", &format!("/bin/{name}"))?;
        }
    }
    Ok(image)
}
