//! The registry of these tests.

use crate::channels::registry::State;

pub(super) const TAGS: [&str; 8] = [
    "latest",
    "v1.33.3-k3s1",
    "v1.33.4-k3s1",
    "v1.33.4-k3s1-amd64",
    "v1.33.5-rc1-k3s1",
    "v1.33",
    "v1.34.0-k3s1",
    "v1.9.0-k3s1",
];

pub(super) fn registry_state() -> State {
    State {
        tags: TAGS.map(str::to_owned).into(),
        page: 3,
        ..State::default()
    }
}
