//! Whether a reboot helps.

use super::limit::{Limit, Turn, Verdict};
use crate::blocker::Blocker;

/// A node that has rebooted and needs a reboot for the same reason as before would reboot for ever.
pub(super) struct Effective;

impl<'a> Limit<'a> for Effective {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let request = turn.plan.selection.reboot_needed.and(turn.node.needed_reboot());
        let survived = request.filter(|request| request.survived > 0);
        Verdict::skip_if(survived.map(|request| Blocker::RebootIneffective {
            why: request.to_string(),
        }))
    }
}
