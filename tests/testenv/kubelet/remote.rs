//! Commands of tests to the kubelets' thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, PoisonError};

use kube::Config;
use refit_rehearse::pod_lifecycle::{Boot, ComesBack, ContainerAttempt, Exit};
use tokio::sync::{mpsc, oneshot};

use super::hub::Hub;
use super::machine::{Health, Node};
use super::nodeset::NodeSet;

/// Address and CA of an API server. A later one may have the same port.
type Server = (String, Option<Vec<Vec<u8>>>);

/// The hubs of this process.
static HUBS: LazyLock<Mutex<HashMap<Server, mpsc::WeakUnboundedSender<Command>>>> =
    LazyLock::new(Mutex::default);

/// Notified when something is done.
pub(super) type Done = Option<oneshot::Sender<()>>;

pub(super) fn notify(done: Done) {
    let _ = done.map(|done| done.send(()));
}

/// A command to nodes. It is answered when its writes are done, too.
pub(super) enum Command {
    Register {
        set: NodeSet,
        done: oneshot::Sender<u64>,
    },
    /// Stops the kubelets of a set. `remove` deletes their nodes and pods.
    Leave { set: u64, remove: bool, done: Done },
    Change {
        node: String,
        change: NodeChange,
        done: oneshot::Sender<()>,
    },
    Read {
        node: String,
        read: Box<dyn FnOnce(&Node) + Send>,
    },
    Acted {
        pod: String,
        started: ContainerAttempt,
        exit: Exit,
    },
}

/// What happens to a node.
pub(super) enum NodeChange {
    PowerOff,
    Boot,
    Disconnect,
    Reconnect,
    SetHealth(Health),
    KubeletVersion(String),
    /// Deletes the Node and its machine.
    Delete,
    /// Creates the Node again, for a new machine.
    Recreate,
    Steer(BTreeMap<String, String>),
    LoseSentinels,
}

/// A handle of the hub of an API server.
#[derive(Clone)]
pub(super) struct Remote(pub(super) mpsc::UnboundedSender<Command>);

impl Remote {
    /// The hub of an API server, which is started on demand.
    pub(super) fn connect(config: Config) -> Self {
        let mut hubs = HUBS.lock().unwrap_or_else(PoisonError::into_inner);
        let server = (config.cluster_url.to_string(), config.root_cert.clone());
        if let Some(commands) = hubs.get(&server).and_then(mpsc::WeakUnboundedSender::upgrade) {
            return Self(commands);
        }
        let (commands, received) = mpsc::unbounded_channel();
        hubs.insert(server, commands.downgrade());
        let own = commands.downgrade();
        std::thread::Builder::new()
            .name("fake-kubelets".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime.expect("a runtime"), Hub::run(config, received, own));
            })
            .expect("a thread");
        Self(commands)
    }

    pub(super) fn send(&self, command: Command) {
        assert!(
            self.try_send(command),
            "the thread of the fake kubelets has ended"
        );
    }

    pub(super) fn try_send(&self, command: Command) -> bool {
        self.0.send(command).is_ok()
    }

    /// Changes a node, and waits until that is done.
    pub(super) async fn change(&self, node: &str, change: NodeChange) {
        let (done, answer) = oneshot::channel();
        self.send(Command::Change {
            node: node.to_owned(),
            change,
            done,
        });
        answer
            .await
            .unwrap_or_else(|_| panic!("the fake kubelets know no node {node}, or could not do it"));
    }

    /// Reads the state of a node.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        node: &str,
        read: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> T {
        let (sender, answer) = oneshot::channel();
        let read = Box::new(move |node: &Node| drop(sender.send(read(node))));
        self.send(Command::Read {
            node: node.to_owned(),
            read,
        });
        answer
            .await
            .unwrap_or_else(|_| panic!("the fake kubelets know no node {node}"))
    }
}

/// Off for a while, then on again with a new boot ID, as far as it comes back; `NotReady` in between.
pub(super) async fn reboot(boot: Boot, change: impl AsyncFn(NodeChange)) {
    change(NodeChange::PowerOff).await;
    change(NodeChange::SetHealth(Health::NotReady)).await;
    if boot.comes_back == ComesBack::Never {
        return;
    }
    tokio::time::sleep(boot.off.unsigned_abs()).await;
    change(NodeChange::Boot).await;
    if boot.comes_back == ComesBack::NotReady {
        return;
    }
    tokio::time::sleep(boot.not_ready.unsigned_abs()).await;
    change(NodeChange::SetHealth(Health::Ready)).await;
}
