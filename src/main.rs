//! Entry of the program; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // kube's client takes the process' default provider. It can only be set already if somebody did so before main.
    let _ = rustls::crypto::ring::default_provider().install_default();
    refit::cli::run(std::env::args_os())
}
