//! Who is on this machine: tests run side by side, and one that takes times has it for itself.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::const_new(());

/// Beside others, until it is dropped. To be taken once by a test: whoever waits to be alone would come between a first and
/// a second.
pub async fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// When all others are gone, and until it is dropped.
pub(super) async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}
