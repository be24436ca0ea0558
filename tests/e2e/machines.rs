//! The real nodes of the test environment: they boot, reboot and lose power as machines do, without effect on this machine.

use k8s_openapi::api::core::v1::Node;

use crate::testenv::real::{self, PATIENCE, Service};

/// Kernel settings of this machine, which a node must not change.
const KERNEL: [&str; 6] = [
    "kernel/random/boot_id",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "vm/overcommit_memory",
    "net/ipv4/ip_forward",
];

fn kernel() -> Vec<String> {
    let read = |name| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    KERNEL.iter().map(read).collect()
}

fn boot_id(node: &Node) -> &str {
    &node.status.as_ref().unwrap().node_info.as_ref().unwrap().boot_id
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|it| it.type_ == "Ready" && it.status == "True")
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_node_reboots_in_each_way_and_keeps_its_disk() {
    let before = kernel();
    let ctx = real::context().await;
    let [one, two] = real::nodes(&ctx, ["one", "two"]).await;
    one.write("/var/lib/kept", "on disk\n");
    one.write("/run/lost", "in memory\n");

    one.reboot();
    one.wait_boots(2).await;
    let node = one.wait_ready().await;
    assert_eq!(boot_id(&node), one.boot_ids()[1]);
    assert_eq!(
        one.read("/proc/sys/kernel/random/boot_id").unwrap().trim(),
        one.boot_ids()[1]
    );
    assert_eq!(one.read("/var/lib/kept").as_deref(), Some("on disk\n"));
    assert_eq!(one.read("/run/lost"), None);

    // The request runs in the background, because the reboot ends all processes of the host.
    one.run(&["sh", "-c", "(sleep 0.3; busybox reboot -f) >/dev/null 2>&1 &"])
        .await;
    one.wait_boots(3).await;
    one.wait_ready().await;
    one.power_cycle().await;
    one.wait_ready().await;
    assert_eq!(one.boots(), 4);

    one.run(&["sh", "-c", "poweroff >/dev/null 2>&1 &"]).await;
    ctx.node_until(one.name(), "is NotReady", PATIENCE, |node| !is_ready(node))
        .await;
    assert!(!one.is_on());
    assert_eq!(one.boots(), 4, "it stays off");
    assert_eq!(one.read("/var/lib/kept").as_deref(), Some("on disk\n"));
    one.power_on();
    one.wait_boots(5).await;
    one.wait_ready().await;

    assert_eq!(two.boots(), 1);
    assert_eq!(kernel(), before);
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_node_without_one_of_its_services_is_not_ready_until_it_is_back() {
    let ctx = real::context().await;
    let [one] = real::nodes(&ctx, ["one"]).await;
    for service in [Service::Kubelet, Service::Containerd, Service::Network] {
        one.stop(service);
        ctx.node_until(one.name(), "is NotReady", PATIENCE, |node| !is_ready(node))
            .await;
        one.resume(service);
        one.wait_ready().await;
    }
    // Up again with a new boot ID, but not Ready.
    one.keep_from(Service::Network);
    one.power_cycle().await;
    let is_registered = |node: &Node| boot_id(node) == one.boot_ids()[1] && !is_ready(node);
    ctx.node_until(one.name(), "is registered, NotReady", PATIENCE, is_registered)
        .await;
    one.resume(Service::Network);
    one.wait_ready().await;
    assert_eq!(one.boots(), 2);
}
