//! What a virtual machine of `KubeVirt` does instead of being evicted: it moves to another node, and its pod ends then.

use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::kube::read::list;
use refit_facts::read::read;

/// A `VirtualMachineInstanceMigration` (`kubevirt.io/v1`).
#[derive(Deserialize)]
struct Migration {
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    vmi_name: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

/// What the machine does, in words, if its migrations may be listed. Its namespace is that of its pod.
pub(super) async fn migration(client: &Client, namespace: &str, machine: &str) -> Option<String> {
    let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstancemigrations");
    let request = Request::new(path);
    let all = list::<Box<RawValue>>(client, &request, ListParams::default(), false);
    let phases = all.await.ok()?.into_iter().filter_map(|object| {
        let migration: Migration = read(&object).ok()?;
        (migration.spec.vmi_name == machine).then_some(migration.status.phase)
    });
    says(machine, phases)
}

fn says(machine: &str, phases: impl Iterator<Item = String>) -> Option<String> {
    let mut failed = 0_usize;
    for phase in phases {
        match phase.as_str() {
            "Succeeded" => {}
            "Failed" => failed += 1,
            "" => return Some(format!("VM {machine} migrates")),
            phase => return Some(format!("VM {machine} migrates: {phase}")),
        }
    }
    let times = if failed == 1 { "a migration" } else { "migrations" };
    (failed > 0).then(|| format!("{times} of VM {machine} failed, and none is running"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_machine_migrates_has_failed_to_or_says_nothing() {
        let of = |phases: &[&str]| says("web-0", phases.iter().map(ToString::to_string));
        assert_eq!(
            of(&["Failed", "Running"]).as_deref(),
            Some("VM web-0 migrates: Running")
        );
        assert_eq!(of(&[""]).as_deref(), Some("VM web-0 migrates"));
        let failed = "a migration of VM web-0 failed, and none is running";
        assert_eq!(of(&["Succeeded", "Failed"]).as_deref(), Some(failed));
        assert_eq!((of(&[]), of(&["Succeeded"])), (None, None));
    }
}
