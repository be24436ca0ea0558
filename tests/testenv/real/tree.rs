//! The tree of processes. It includes processes in other namespaces.

use std::fs;
use std::path::Path;

/// The children of a process.
pub fn children(parent: u32) -> Vec<u32> {
    let mut found: Vec<_> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect();
    found.sort_unstable();
    found
}

/// All descendants of a process.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let mut found = children(ancestor);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// The name of its program, cut to 15 characters.
pub fn name(pid: u32) -> String {
    let name = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
    name.unwrap_or_default().trim_end().to_owned()
}

fn parent_of(pid: u32) -> Option<u32> {
    // pid (name) state parent …, and the name may contain anything
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_child_is_among_the_children_of_its_parent_only() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        assert!(children(std::process::id()).contains(&pid));
        assert!(descendants(std::process::id()).contains(&pid));
        assert!(!children(pid).contains(&pid));
        assert!(["sleep", name(std::process::id()).as_str()].contains(&name(pid).as_str()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
