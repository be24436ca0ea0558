//! Entry point of the program; everything else is in the library.

use std::process::ExitCode;

/// The allocator of musl, which a static program would use, takes one lock for all threads. A rehearsal allocates and
/// frees objects by the million.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // kube's client uses the process' default provider. Fails only if one is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    refit::cli::run(std::env::args_os())
}
