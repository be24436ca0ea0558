//! A control plane whose port somebody else took in the meantime tries again with others.

use std::net::TcpListener;

use crate::testenv::binaries::Binaries;
use crate::testenv::controlplane::{ControlPlane, Options, Ports, is_port_taken};

#[tokio::test]
async fn a_port_in_use_is_distinguished_from_other_errors() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let binaries = tokio::task::spawn_blocking(Binaries::ready)
        .await
        .unwrap()
        .unwrap();
    for spoil in [
        |ports: &mut Ports, port| ports.etcd = port,
        |ports: &mut Ports, port| ports.api = port,
    ] {
        let mut ports = Ports::free().unwrap();
        spoil(&mut ports, port);
        let outcome = ControlPlane::attempt(&binaries, Options::default(), ports).await;
        let error = outcome.err().expect("nobody can listen on a taken port");
        assert!(is_port_taken(&error), "{error:#}");
    }
    let options = Options {
        apiserver: vec!["--no-such-flag".to_owned()],
        ..Options::default()
    };
    let outcome = ControlPlane::attempt(&binaries, options, Ports::free().unwrap()).await;
    let error = outcome.err().expect("the flag is unknown");
    assert!(!is_port_taken(&error), "{error:#}");
    assert!(format!("{error:#}").contains("no-such-flag"), "{error:#}");
}
