//! Plans in files: `refit validate`, `refit pin` and `refit render`. None of these tests needs a cluster.

mod clusters;
mod convert;
mod corpus;
mod elsewhere;
mod fixtures;
mod flux;
mod generated;
mod hints;
mod kustomize;
mod left_alone;
mod links;
mod partial;
mod pin;
mod render;
mod shapes;
mod terminal;
mod validate;

use fixtures::{files, folder, source};
