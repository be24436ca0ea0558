//! Entry of the program; everything is in the library.

use std::process::ExitCode;

/// A static program would have musl's, which takes one lock for all threads; and what objects are made of comes and goes by the
/// million in a rehearsal.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // kube's client takes the process' default provider. It can only be set already if somebody did so before main.
    let _ = rustls::crypto::ring::default_provider().install_default();
    refit::cli::run(std::env::args_os())
}
