//! `refit agent --update-engine` on a real bus, on which a service of the test plays the update engine of Flatcar.

use std::path::Path;
use std::sync::{Arc, Mutex};

use kube::ResourceExt;
use refit_api::RebootRequest;
use refit_api::names::ANNOTATION_REBOOT_NEEDED;
use zbus::connection::Builder;

use crate::testenv::context::TestContext;
use crate::testenv::controller::binary;
use crate::testenv::process::{Process, Program};
use crate::testenv::wait;

const ENGINE: &str = "com.coreos.update1";

/// Operation and new version of the engine.
type State = Arc<Mutex<(&'static str, &'static str)>>;

struct Engine(State);

#[zbus::interface(name = "com.coreos.update1.Manager")]
impl Engine {
    fn get_status(&self) -> (i64, f64, String, String, i64) {
        let (operation, version) = *self.0.lock().unwrap();
        (1_772_000_000, 0.0, operation.to_owned(), version.to_owned(), 0)
    }
}

/// Starts a bus with this socket, and waits until it listens.
async fn bus(ctx: &TestContext, socket: &Path) -> Process {
    let _ = std::fs::remove_file(socket);
    let config = ctx.dir().join("bus.xml");
    let rules =
        r#"<allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>"#;
    let text = format!(
        r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context="default">{rules}</policy></busconfig>"#,
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let program = Program::new("bus", Path::new("dbus-daemon"), ctx.dir()).args(["--nofork", "--nopidfile"]);
    let process = program
        .arg(format!("--config-file={}", config.display()))
        .start()
        .unwrap();
    let listens = async || tokio::net::UnixStream::connect(socket).await.is_ok();
    wait::holds("the bus listens", listens).await;
    process
}

async fn engine(socket: &Path, state: &State) -> zbus::Connection {
    let address = format!("unix:path={}", socket.display());
    let bus = Builder::address(address.as_str()).name(ENGINE);
    let bus = bus.serve_at("/com/coreos/update1", Engine(state.clone()));
    bus.build().await.unwrap()
}

#[tokio::test]
#[ignore = "needs dbus-daemon (apt-get install dbus-daemon); .ci/run runs it where that is installed"]
async fn an_agent_follows_the_update_engine_of_its_host_whatever_happens_to_the_bus() {
    let ctx = TestContext::new().await;
    let _kubelet = ctx.run_nodes(1).await;
    let node = ctx.my_nodes().await[0].name_any();
    let host = ctx.dir().join("host");
    let socket = host.join("run/dbus/system_bus_socket");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let request = async || {
        let node = ctx.node(&node).await;
        let text = node.annotations().get(ANNOTATION_REBOOT_NEEDED)?;
        Some(RebootRequest::parse(text).unwrap_or_else(|| panic!("{text}")))
    };
    let agent = Program::new("agent", binary(), ctx.dir())
        .args([
            "agent",
            "--period",
            "1s",
            "--no-files",
            "--update-engine",
            "--node",
            &node,
        ])
        .args(["--host".into(), host.clone().into_os_string()])
        .args(["--kubeconfig".into(), ctx.test_env.kubeconfig().into_os_string()])
        .start()
        .unwrap();
    let says = async |text: &str| {
        let log = async || agent.log();
        wait::until(&format!("the agent says {text:?}"), log, |log| log.contains(text)).await;
    };

    says(&format!("cannot connect to {}", socket.display())).await;
    let process = bus(&ctx, &socket).await;
    says("com.coreos.update1 says nothing: org.freedesktop.DBus.Error.ServiceUnknown").await;
    let state = State::new(Mutex::new(("UPDATE_STATUS_UPDATED_NEED_REBOOT", "4081.2.0")));
    let service = engine(&socket, &state).await;
    let found = wait::until("the node needs a reboot", request, Option::is_some)
        .await
        .unwrap();
    assert_eq!(
        (&found.reasons[..], &found.packages[..]),
        (&[ENGINE.to_owned()][..], &["4081.2.0".to_owned()][..])
    );
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(found.boot_id.as_deref(), Some(boot.trim()));

    // What cannot be found out withdraws nothing.
    let failures = || agent.log().matches("cannot connect to").count();
    let before = failures();
    drop(service);
    process.kill();
    wait::holds("the agent finds no bus", async || failures() > before).await;
    assert_eq!(request().await, Some(found));

    // The bus is back, and the engine has nothing left to do.
    let _process = bus(&ctx, &socket).await;
    *state.lock().unwrap() = ("UPDATE_STATUS_IDLE", "0.0.0");
    let _service = engine(&socket, &state).await;
    wait::until("the node needs no reboot", request, Option::is_none).await;
}
