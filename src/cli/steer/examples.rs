//! Examples of the steering commands, for `--help` and the man pages.

pub(in crate::cli) const SUSPEND: &str = "Examples:
  refit suspend k3s-agent --reason 'storage is rebalanced'
      one Plan; refit resume k3s-agent continues
  refit suspend --all -A --wait
      all Plans, until no node is in progress";

pub(in crate::cli) const RESUME: &str = "Examples:
  refit resume k3s-agent
      continue a suspended or aborted Plan
  refit resume k3s-server k3s-agent --wait --timeout 2h
      two Plans, until both are complete";

pub(in crate::cli) const APPROVE: &str = "Examples:
  refit approve k3s-agent
      the wave or the version that waits
  refit approve k3s-agent --dry-run=client
      print what would be approved";

pub(in crate::cli) const RETRY: &str = "Examples:
  refit retry k3s-agent node-7 --wait
      one node, until it is done or fails again
  refit retry k3s-agent
      all nodes that have failed, and before or after of the Plan";

pub(in crate::cli) const SKIP: &str = "Examples:
  refit skip k3s-agent node-7
      leave a node out at the present version; --always at every version
  refit skip --undo k3s-agent node-7
      upgrade it after all";

pub(in crate::cli) const ABORT: &str = "Examples:
  refit abort k3s-agent --reason 'wrong version'
      stop drains, and start no node; refit resume k3s-agent continues
  refit abort k3s-agent --wait
      until no node is in progress";

pub(in crate::cli) const RERUN: &str = "Examples:
  refit rerun k3s-agent node-7 --wait
      run the Plan again on one node that is done
  refit rerun k3s-agent
      on all of them";

pub(in crate::cli) const START: &str = "Examples:
  refit start k3s-agent node-7 --despite window --reason 'its disk fails'
      one node, although the window is closed
  refit start k3s-agent --despite window,soak --reason 'CVE-2026-1234'
      all nodes of this roll-out; approvals, quorum and budgets still count";

pub(in crate::cli) const FREEZE: &str = "Examples:
  refit freeze --reason 'change freeze until January'
      no node of any Plan starts; refit unfreeze ends it";

pub(in crate::cli) const UNFREEZE: &str = "Examples:
  refit unfreeze
      nodes may start again";
