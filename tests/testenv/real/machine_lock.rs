//! A lock of the machine: tests run concurrently, except for those that measure.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::const_new(());

/// A shared lock until it is dropped. A test must take it only once: a waiting exclusive lock would block a second one.
pub async fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// An exclusive lock until it is dropped.
pub(super) async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}
