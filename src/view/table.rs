//! `refit status` as text.

pub use super::detail::Look;
use super::detail::details;
use super::overview::overview;
use super::plan::PlanOverview;
use super::read::Snapshot;
use super::text::{relative, wrapped};

/// All Plans, and the nodes in maintenance of `snapshot`, if it is given.
pub fn status(
    views: &[PlanOverview<'_>],
    snapshot: Option<&Snapshot>,
    gaps: &[String],
    look: &Look,
) -> String {
    let mut out = if look.detailed {
        details(views, snapshot, gaps, look)
    } else {
        overview(views, snapshot, gaps, look)
    };
    let now = views.first().map(|view| view.snapshot.now);
    if let Some(now) = now.filter(|_| !look.times) {
        out = relative(&out, now);
    }
    match look.columns {
        Some(columns) => wrapped(&out, columns),
        None => out,
    }
}
