//! Programs from Debian packages, unpacked into a folder. Nothing is installed, and apt's lists remain unchanged.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::testenv::terminal;

/// Downloads packages to `dir`, and unpacks them into `output`.
pub fn unpack(dir: &Path, packages: &[&str], output: &Path, label: &str) -> Result<()> {
    terminal::overwrite(&format!("fetching {label}: {}", packages.join(", ")));
    let fetched = dir.join("packages");
    let _ = fs::remove_dir_all(&fetched);
    fs::create_dir_all(fetched.join("lists/partial"))?;
    // A new machine may have no lists of packages.
    let lists = format!("Dir::State::Lists={}/", fetched.join("lists").display());
    let mine = [
        "-o",
        &lists,
        "-o",
        "Dir::Cache::pkgcache=",
        "-o",
        "Dir::Cache::srcpkgcache=",
    ];
    if apt(&fetched, &["download"], packages).is_err() {
        apt(&fetched, &[&mine[..], &["update"]].concat(), &[])?;
        apt(&fetched, &[&mine[..], &["download"]].concat(), packages)?;
    }
    let mut unpacked = 0;
    for entry in fs::read_dir(&fetched)?.flatten() {
        let package = entry.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&package).arg(output))?;
            unpacked += 1;
        }
    }
    ensure!(
        unpacked == packages.len(),
        "{unpacked} packages came instead of {}",
        packages.join(", ")
    );
    fs::remove_dir_all(&fetched)?;
    terminal::say(&format!("unpacked {label}: {}", packages.join(", ")));
    Ok(())
}

fn apt(folder: &Path, args: &[&str], packages: &[&str]) -> Result<()> {
    // Otherwise apt downloads as a user who may not write here, and warns.
    let mut apt = Command::new("apt-get");
    apt.args(["-q", "-o", "APT::Sandbox::User=root"])
        .args(args)
        .args(packages)
        .current_dir(folder);
    run(&mut apt)
}

fn run(command: &mut Command) -> Result<()> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        out.status.success(),
        "{command:?} failed, {}:\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr).trim_end()
    );
    Ok(())
}
