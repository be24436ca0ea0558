//! The network of real nodes: a network namespace in which nodes and pods have addresses, and the API server has that of
//! the service `kubernetes`. It has no connection to other networks.
//!
//! The API server itself listens on the machine's loopback address. This process listens in the namespace, because a
//! socket belongs to the namespace in which it was created, and forwards connections.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::testenv::controlplane::SERVICE_IP;
use crate::testenv::process::{Process, Program};
use crate::testenv::wait;

const SCRIPT: &str = include_str!("../scripts/lan.sh");

/// Address of the switch, and the nodes' default route. Servers of tests may listen there, too.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Dropping it removes the network.
#[derive(Debug)]
pub struct Lan {
    switch: Process,
    machine: String,
    nodes: AtomicU8,
    /// Dropped with this; then the thread that hands on ends.
    _forwarder: oneshot::Sender<()>,
}

/// The addresses of a node.
#[derive(Clone, Debug)]
pub struct NodeAddresses {
    pub number: u8,
    pub address: Ipv4Addr,
    /// Addresses of its pods.
    pub pods: String,
    pub gateway: Ipv4Addr,
}

impl Lan {
    /// `api` is the address of the API server.
    pub async fn start(dir: &Path, api: SocketAddr) -> Result<Self> {
        let machine = std::fs::read_link("/proc/self/ns/net")?.display().to_string();
        let script = dir.join("lan.sh");
        std::fs::write(&script, SCRIPT)?;
        let switch = Program::new("lan", "/usr/bin/env", dir)
            .args(["unshare", "--net", "/bin/sh"])
            .arg(script)
            .args([machine.clone(), GATEWAY.to_string(), SERVICE_IP.to_owned()])
            .start()?;
        wait::try_eventually("there is a network for nodes", wait::SOON, async || {
            if switch.log().ends_with("up\n") {
                Ok(())
            } else {
                Err(format!("{:?} {}", switch.ended(), switch.log_tail(5)))
            }
        })
        .await
        .map_err(anyhow::Error::msg)?;
        let listener = listen(switch.pid(), &machine)?;
        Ok(Self {
            _forwarder: forward(listener, api),
            switch,
            machine,
            nodes: AtomicU8::new(1),
        })
    }

    /// Addresses for another node.
    pub fn addresses(&self) -> Result<NodeAddresses> {
        let number = self.nodes.fetch_add(1, Ordering::Relaxed);
        ensure!(number < 200, "one network has room for 200 nodes");
        Ok(NodeAddresses {
            number,
            address: Ipv4Addr::new(10, 77, 1, number),
            pods: format!("10.78.{number}.0/24"),
            gateway: GATEWAY,
        })
    }

    /// The file of the namespace, for `nsenter`.
    pub fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.switch.pid())
    }

    /// The identity of the machine's own network, which no node may be in.
    pub fn machine(&self) -> &str {
        &self.machine
    }
}

/// A socket at the API server's address for pods. A thread enters the namespace to create it.
#[cfg(target_os = "linux")]
fn listen(switch: u32, machine: &str) -> Result<TcpListener> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    let path = format!("/proc/{switch}/ns/net");
    ensure!(
        std::fs::read_link(&path)?.display().to_string() != machine,
        "the network for nodes is that of the machine"
    );
    let namespace = std::fs::File::open(&path)?;
    std::thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        let listener = TcpListener::bind((SERVICE_IP, 443))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    })
    .join()
    .map_err(|_| anyhow::anyhow!("the thread panicked"))?
    .map_err(|error: std::io::Error| anyhow::anyhow!(error))
    .context("cannot listen on the network for nodes")
}

#[cfg(not(target_os = "linux"))]
fn listen(_: u32, _: &str) -> Result<TcpListener> {
    anyhow::bail!("real nodes need Linux")
}

/// Forwards connections until the sender is dropped, on a thread of its own, because runtimes belong to tests.
fn forward(listener: TcpListener, api: SocketAddr) -> oneshot::Sender<()> {
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            tokio::select! {
                () = accept(listener, api) => (),
                _ = stopped => (),
            }
        });
    });
    stop
}

async fn accept(listener: tokio::net::TcpListener, api: SocketAddr) {
    loop {
        let Ok((mut outer, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        tokio::spawn(async move {
            // Like a stopped API server, this refuses connections.
            if let Ok(mut inner) = TcpStream::connect(api).await {
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            }
        });
    }
}
