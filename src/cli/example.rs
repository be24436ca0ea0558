//! `refit example`: the Plans of the folder `examples`, to start from.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;

use super::output;
use super::target::unknown;
use refit_base::table::aligned;

pub(super) const EXAMPLES: &str = "Examples:
  refit example                              their names
  refit example k3s-upgrade > plan.yaml      a file to edit
  refit example careful | refit rehearse - --nodes 40";

macro_rules! examples {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../examples/", $name, ".yaml")))),*]
    };
}

const ALL: [(&str, &str); 15] = examples!(
    "careful",
    "etcd-snapshot",
    "flatcar",
    "gpu-pool",
    "k3s-upgrade",
    "kubeadm-upgrade",
    "microos",
    "opensuse-sle",
    "reboots",
    "rke2-upgrade",
    "script",
    "talos-upgrade",
    "ubuntu-packages",
    "ubuntu-reboot",
    "weekly-packages",
);

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Example to print [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let text = match &flags.name {
        None => {
            let row = |(name, text): &(&str, &str)| [(*name).to_owned(), about(text)];
            aligned(&ALL.map(|one| row(&one)), &[]).join("\n") + "\n"
        }
        Some(name) => match ALL.iter().find(|(known, _)| known == name) {
            Some((_, text)) => (*text).to_owned(),
            None => bail!("{}", unknown("example", name, ALL.iter().map(|(name, _)| *name))),
        },
    };
    output::text(&text).context("the example cannot be printed")?;
    Ok(ExitCode::SUCCESS)
}

/// The first sentence of the comment that a file begins with.
fn about(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    let words: Vec<&str> = lines
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    let all = words.join(" ");
    all.split_inclusive(". ")
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_with_a_plan_is_an_example_that_says_what_it_is_for() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        let mut names: Vec<_> = files
            .filter(|path| std::fs::read_to_string(path).unwrap().contains("kind: Plan"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, ALL.map(|(name, _)| name));
        for (name, text) in ALL {
            assert!(about(text).len() > 20, "{name}: {:?}", about(text));
        }
    }
}
