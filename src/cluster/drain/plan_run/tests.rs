use super::*;

#[test]
fn the_plan_of_a_drain_is_read_from_the_environment() {
    let read = |missing: &str| {
        PlanRun::read(|name| {
            let value = match name {
                names::ENV_CONTROLLER_NAME => "refit",
                names::ENV_PLAN_NAMESPACE => "system-upgrade",
                names::ENV_PLAN_UID => "plan-uid",
                names::ENV_NODE_UID => "node-uid",
                names::ENV_PLAN_NAME => "k3s",
                names::ENV_POD_UID => "pod-uid",
                _ => return None,
            };
            (name != missing).then(|| value.to_owned())
        })
    };
    let run = read("").unwrap();
    assert_eq!(&*run.node_uid, "node-uid");
    assert_eq!(run.holder.plan, "k3s");
    assert_eq!(run.pod.as_deref(), Some("pod-uid"));
    assert_eq!(read(names::ENV_PLAN_UID), None, "it runs for a person");
    assert_eq!(read(names::ENV_POD_UID).unwrap().pod, None);
}
