//! Fake kubelets on a real control plane.

mod bench;
