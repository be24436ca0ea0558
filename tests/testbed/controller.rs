//! Starting, freezing and ending a controller. What runs here is a shell: it can be told what to say and how
//! to end.

use std::time::Duration;

use crate::support::process::lives;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

const SCRIPT: &str = r#"
trap 'echo "told to end"; exit 3' TERM
echo "name $SYSTEM_UPGRADE_CONTROLLER_NAME in $SYSTEM_UPGRADE_CONTROLLER_NAMESPACE, with $SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG"
while :; do echo tick; sleep 0.02; done
"#;

#[tokio::test]
async fn a_controller_is_started_frozen_and_ended() {
    let world = World::new().await;
    let controller = world
        .controller()
        .program("/bin/sh")
        .arg("-c")
        .arg(SCRIPT)
        .replica("a")
        .start();
    controller.logs("tick", SOON).await;
    let first = controller.log().lines().next().unwrap().to_owned();
    let expected = format!(
        "name system-upgrade-controller in {}, with {}",
        world.namespace(),
        world.kubeconfig().display()
    );
    assert_eq!(first, expected);
    assert!(controller.memory_now() <= controller.peak_memory());
    assert!(controller.cpu_time().is_some());

    controller.freeze();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", controller.pid())).unwrap();
    assert!(state.contains(" T "), "{state}");
    controller.freeze(); // once more changes nothing
    let said = controller.log();
    wait::always("it says nothing", Duration::from_millis(200), async || {
        if controller.log() == said {
            Ok(())
        } else {
            Err(controller.log())
        }
    })
    .await;
    controller.thaw();
    wait::eventually("it goes on", SOON, async || {
        if controller.log() == said {
            Err(said.clone())
        } else {
            Ok(())
        }
    })
    .await;

    assert_eq!(controller.terminate().await.code(), Some(3));
    assert!(controller.log().contains("told to end"));
    assert!(!controller.is_running());

    let again = controller.start_again();
    assert!(again.is_running());
    again.kill();
    assert!(!lives(again.pid()));
}

#[tokio::test]
async fn a_controller_ends_when_its_test_lets_go_of_it() {
    let world = World::new().await;
    let controller = world.controller().program("/bin/sleep").arg("1000").start();
    let pid = controller.pid();
    assert!(lives(pid));
    drop(controller);
    assert!(!lives(pid));
}
