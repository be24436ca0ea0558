//! `refit pin`: the version that a Plan in a file gets, and the text with that version.
//!
//! An edit is accepted only if the new text, parsed again, differs from the old one in nothing but the version of the
//! Plan. Otherwise nothing is written, and the error says why.

mod change;
mod error;
mod images;
mod plan;
mod rewrite;
mod shared;
mod verdict;
mod written;

pub use error::{PinError, PinErrorKind};
pub use images::{KeptTag, fixed_images, images_to_run, kept_tags, patched_image_to_run, versioned_images};
pub use plan::{PatchedImage, PinRequest, PlanInFile, plans, wrong_version};
pub use rewrite::{repeated, rewrite};
pub use verdict::{Refusal, Verdict, decide_version, remark};
pub use written::Other;

#[cfg(test)]
mod tests;
