//! The request of a node, from what was found on the host and what the Node says already. Pure.

use jiff::Timestamp;

use refit_api::RebootRequest;

/// The current boot of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    pub id: String,
    /// When it began, by the host's clock.
    pub began: Option<Timestamp>,
}

/// What one file, command or service says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// What it is: a path, a command line or the name of a service.
    pub reason: String,
    pub answer: Answer,
    /// Packages that need the reboot.
    pub packages: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Needed {
        /// Since when, if that is known.
        since: Option<Timestamp>,
    },
    NotNeeded,
    /// It could not be found out.
    Unknown,
}

/// What the Node should say; `None` if the host needs no reboot.
pub(super) fn request(
    findings: &[Finding],
    known: Option<&RebootRequest>,
    boot: &Boot,
    now: Timestamp,
) -> Option<RebootRequest> {
    let is_of_boot = |known: &&RebootRequest| known.boot_id.as_deref() == Some(boot.id.as_str());
    let current = known.filter(is_of_boot);
    let was_said = |finding: &Finding| current.is_some_and(|known| known.reasons.contains(&finding.reason));
    // While something cannot be found out, what it last said in this boot counts.
    let needed: Vec<&Finding> = findings
        .iter()
        .filter(|finding| match finding.answer {
            Answer::Needed { .. } => true,
            Answer::NotNeeded => false,
            Answer::Unknown => was_said(finding),
        })
        .collect();
    if needed.is_empty() {
        return None;
    }
    let since = |finding: &&Finding| match finding.answer {
        Answer::Needed { since } => since,
        Answer::NotNeeded | Answer::Unknown => None,
    };
    let earliest = needed
        .iter()
        .filter_map(since)
        .min()
        // A file may have a time in the future, for example after the clock was set back.
        .filter(|since| *since <= now);
    let mut packages: Vec<String> = needed
        .iter()
        .flat_map(|finding| finding.packages.clone())
        .collect();
    // A failed look at packages must not make the annotation flap.
    if packages.is_empty()
        && let Some(known) = current
    {
        packages.clone_from(&known.packages);
    }
    let mut seen = std::collections::BTreeSet::new();
    packages.retain(|package| seen.insert(package.clone()));
    let mut request = RebootRequest {
        boot_id: Some(boot.id.clone()),
        // The time of a request stays within a boot, or each look would write the Node.
        since: current.map_or_else(|| earliest.or(Some(now)), |known| known.since),
        reasons: needed.iter().map(|finding| finding.reason.clone()).collect(),
        packages,
        survived: match (current, known) {
            (Some(current), _) => current.survived,
            (None, Some(earlier)) if is_unchanged(earlier, &needed, boot) => {
                earlier.survived.saturating_add(1)
            }
            (None, _) => 0,
        },
    };
    request.truncate();
    Some(request)
}

/// Whether a reboot has changed nothing: everything that says so now has said so in the earlier boot, and has not begun to
/// say so since.
fn is_unchanged(earlier: &RebootRequest, needed: &[&Finding], boot: &Boot) -> bool {
    needed.iter().all(|finding| {
        let is_new = match finding.answer {
            Answer::Needed { since: Some(since) } => boot.began.is_some_and(|began| since >= began),
            Answer::Needed { since: None } | Answer::NotNeeded | Answer::Unknown => false,
        };
        !is_new && earlier.reasons.contains(&finding.reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn now() -> Timestamp {
        at("2026-01-02T12:00:00Z")
    }

    fn boot(id: &str) -> Boot {
        Boot {
            id: id.to_owned(),
            began: Some(at("2026-01-02T10:00:00Z")),
        }
    }

    fn finding(reason: &str, answer: Answer) -> Finding {
        Finding {
            reason: reason.to_owned(),
            answer,
            packages: Vec::new(),
        }
    }

    fn needed(since: Option<&str>) -> Answer {
        Answer::Needed { since: since.map(at) }
    }

    #[test]
    fn a_host_that_needs_nothing_requests_nothing() {
        assert_eq!(request(&[], None, &boot("b"), now()), None);
        let findings = [finding("f", Answer::NotNeeded), finding("c", Answer::Unknown)];
        assert_eq!(request(&findings, None, &boot("b"), now()), None);
    }

    #[test]
    fn a_request_names_the_boot_the_reasons_and_each_package_once() {
        let mut file = finding("/run/reboot-required", needed(Some("2026-01-02T11:00:00Z")));
        file.packages = ["linux", "dbus", "linux"].map(str::to_owned).into();
        let command = finding("needs-restarting -r", needed(None));
        let made = request(&[file, command], None, &boot("b"), now()).unwrap();
        assert_eq!(
            made,
            RebootRequest {
                boot_id: Some("b".to_owned()),
                since: Some(at("2026-01-02T11:00:00Z")),
                reasons: vec![
                    "/run/reboot-required".to_owned(),
                    "needs-restarting -r".to_owned()
                ],
                packages: vec!["linux".to_owned(), "dbus".to_owned()],
                survived: 0,
            }
        );
    }

    #[test]
    fn a_request_is_made_once_and_then_stays_as_it_is() {
        let findings = [finding("c", needed(None))];
        let first = request(&findings, None, &boot("b"), now()).unwrap();
        assert_eq!(first.since, Some(now()));
        let later = at("2026-01-02T13:00:00Z");
        assert_eq!(
            request(&findings, Some(&first), &boot("b"), later),
            Some(first.clone())
        );
        // A command that fails says nothing new.
        let unknown = [finding("c", Answer::Unknown)];
        assert_eq!(
            request(&unknown, Some(&first), &boot("b"), later),
            Some(first.clone())
        );
        assert_eq!(request(&unknown, Some(&first), &boot("b2"), later), None);
        let gone = [finding("c", Answer::NotNeeded)];
        assert_eq!(request(&gone, Some(&first), &boot("b"), later), None);
    }

    #[test]
    fn a_reboot_that_changes_nothing_is_counted() {
        let findings = [finding("c", needed(None))];
        let first = request(&findings, None, &boot("b1"), now()).unwrap();
        let second = request(&findings, Some(&first), &boot("b2"), now()).unwrap();
        assert_eq!((second.survived, second.boot_id.as_deref()), (1, Some("b2")));
        let same = request(&findings, Some(&second), &boot("b2"), now()).unwrap();
        assert_eq!(same.survived, 1);
        let third = request(&findings, Some(&second), &boot("b3"), now()).unwrap();
        assert_eq!(third.survived, 2);
    }

    #[test]
    fn a_need_that_arose_in_the_new_boot_is_a_new_one() {
        let before = [finding("f", needed(Some("2026-01-02T09:00:00Z")))];
        let first = request(&before, None, &boot("b1"), now()).unwrap();
        assert_eq!(
            request(&before, Some(&first), &boot("b2"), now())
                .unwrap()
                .survived,
            1
        );
        let after = [finding("f", needed(Some("2026-01-02T10:30:00Z")))];
        assert_eq!(
            request(&after, Some(&first), &boot("b2"), now())
                .unwrap()
                .survived,
            0
        );
        let other = [finding("g", needed(None))];
        assert_eq!(
            request(&other, Some(&first), &boot("b2"), now())
                .unwrap()
                .survived,
            0
        );
    }

    #[test]
    fn a_file_from_the_future_has_been_there_since_now() {
        let findings = [finding("f", needed(Some("2030-01-01T00:00:00Z")))];
        assert_eq!(
            request(&findings, None, &boot("b"), now()).unwrap().since,
            Some(now())
        );
    }
}
