//! Checks each release on its own, and takes the newest that passes.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::{Entry, Offered, Policy, PolicyInputs, Refusal};
use crate::version::distribution::has_builds;
use crate::version::parts::{Version, quoted};
use crate::version::tag::{Refused, accept, munge};

/// Maximum number of versions in `status.channel.seen`, the newest ones: a registry may have thousands of tags, and the
/// status of a Plan is limited.
const REMEMBERED: usize = 10;

/// The result of a choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The version that passes, as a tag. If absent, the Plan keeps its own.
    pub take: Option<String>,
    /// The next version, and what holds it back.
    pub held: Option<Held>,
    /// The version that the channel offers, if it is older than the Plan's. No node starts.
    pub withdrawn: Option<String>,
    /// An error of the offer.
    pub fault: Option<String>,
    /// When versions that the channel does not date were first seen, as far as that matters.
    pub seen: Vec<(String, Timestamp)>,
    /// When to choose again without a new offer.
    pub due: Option<Timestamp>,
}

/// A version that is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The version as released.
    pub version: String,
    /// When it was published, or first seen.
    pub since: Timestamp,
    pub refusal: Refusal,
    /// The reason as a sentence, with what would let it through.
    pub message: String,
}

/// The result of checking one release.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict<'a> {
    /// The version as released.
    pub version: &'a str,
    /// When it was published, if the channel says so.
    pub published: Option<Timestamp>,
    /// When it was published, or first seen.
    pub since: Timestamp,
    /// All reasons to refuse it.
    pub refusals: Vec<Refusal>,
    entry: &'a Entry,
}

impl Verdict<'_> {
    pub fn passes(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Whether only time or approval is missing.
    fn is_eligible(&self) -> bool {
        self.refusals.iter().all(Refusal::is_delay)
    }

    fn number(&self) -> Option<&Version> {
        self.entry.version.as_ref().ok()
    }
}

/// Checks each release of an offer.
pub fn consider<'a>(policy: &Policy, offered: &'a Offered, inputs: &PolicyInputs<'_>) -> Vec<Verdict<'a>> {
    let filter = VersionFilter::new(policy, offered, inputs);
    offered
        .entries
        .iter()
        .map(|entry| filter.verdict(entry))
        .collect()
}

pub fn choose(policy: &Policy, offered: &Offered, inputs: &PolicyInputs<'_>) -> Choice {
    let filter = VersionFilter::new(policy, offered, inputs);
    let verdicts = consider(policy, offered, inputs);
    let mut choice = Choice::default();
    if verdicts.is_empty() {
        choice.fault = Some("the channel has no release".to_owned());
        return choice;
    }
    let passing: Vec<_> = verdicts.iter().filter(|verdict| verdict.passes()).collect();
    let best = filter.best(&passing);
    match best {
        Some(Ok(best)) => choice.take = Some(best.entry.munged.clone()),
        Some(Err((one, other))) => {
            let why = format!(
                "its order relative to {}, which the channel also offers, is unknown",
                other.version
            );
            choice.held = Some(filter.held(one, Refusal::Incomparable(why)));
        }
        None => {}
    }
    choice.withdrawn = filter.withdrawn(&verdicts, choice.take.as_deref());
    if choice.held.is_none() {
        choice.held = filter.next(&verdicts, choice.take.as_deref());
    }
    choice.fault = filter.fault(&verdicts, &choice);
    choice.seen = filter.seen(&verdicts);
    choice.due = verdicts
        .iter()
        .filter(|verdict| verdict.is_eligible())
        .flat_map(|verdict| &verdict.refusals)
        .filter_map(|refusal| match refusal {
            Refusal::TooYoung { due, .. } => Some(*due),
            _ => None,
        })
        .min();
    choice
}

struct VersionFilter<'a> {
    policy: &'a Policy,
    inputs: &'a PolicyInputs<'a>,
    current: Option<Version>,
    /// From which version `maxMinorSkip` counts, and the node that has it.
    oldest: Option<(Version, &'a str)>,
    oldest_follower: Option<(Version, &'a str)>,
    /// Whether the channel offers only one version.
    is_alone: bool,
    is_partial: bool,
}

impl<'a> VersionFilter<'a> {
    fn new(policy: &'a Policy, offered: &Offered, inputs: &'a PolicyInputs<'a>) -> Self {
        let parsed = |(version, node): (&str, &'a str)| Some((version.parse().ok()?, node));
        let current = inputs.current.map(|current| (current, ""));
        Self {
            policy,
            inputs,
            current: inputs.current.and_then(|current| current.parse().ok()),
            oldest: inputs.oldest.or(current).and_then(parsed),
            oldest_follower: inputs.oldest_follower.and_then(parsed),
            // A list of which only one release is known is not a channel with one version.
            is_alone: offered.entries.len() == 1 && !offered.is_partial,
            is_partial: offered.is_partial,
        }
    }

    fn verdict<'e>(&self, entry: &'e Entry) -> Verdict<'e> {
        // A date in the future would hold the version back for as long as the channel likes. The time when the version
        // was first seen counts instead.
        let published = entry.release.published.filter(|at| *at <= self.inputs.now);
        let since = published.unwrap_or_else(|| self.first_seen(entry));
        let mut refusals = Vec::new();
        if let Err(refused) = &entry.checked {
            refusals.push(Refusal::Accident(refused.clone()));
        } else if self.inputs.current == Some(entry.munged.as_str()) {
            // The Plan has it already. But if there is a choice, a version outside of the range is not an option.
            let range = self.policy.range.as_ref().filter(|_| !self.is_alone);
            if let (Some(range), Ok(version)) = (range, &entry.version)
                && !range.may_have(version)
            {
                refusals.push(Refusal::OutOfRange);
            }
        } else {
            self.by_kind(entry, &mut refusals);
            self.by_time(entry, since, published.is_some(), &mut refusals);
        }
        Verdict {
            version: &entry.release.version,
            published: entry.release.published,
            since,
            refusals,
            entry,
        }
    }

    /// In whole seconds, as in status.
    fn first_seen(&self, entry: &Entry) -> Timestamp {
        let known = self.inputs.seen.get(&entry.munged).copied();
        // If the clock was set back, a stored time ahead of it would delay the version.
        let seen = known.unwrap_or(self.inputs.polled).min(self.inputs.now);
        Timestamp::from_second(seen.as_second()).unwrap_or(seen)
    }

    fn by_kind(&self, entry: &Entry, refusals: &mut Vec<Refusal>) {
        let policy = self.policy;
        // In a list such a version is one of many and no error of the channel: the checks below leave it out.
        if self.is_alone
            && let Err(refused) = accept(self.inputs.current, &entry.munged)
        {
            refusals.push(Refusal::Accident(refused));
        }
        let version = match &entry.version {
            Ok(version) => version,
            Err(why) => {
                // The first version may be any word, unless a range is set.
                let is_bound = !self.is_alone || policy.range.is_some();
                let moves = policy.is_given && self.inputs.current.is_some() && !policy.allow_downgrade;
                if is_bound || moves {
                    refusals.push(Refusal::Incomparable(why.to_string()));
                }
                return;
            }
        };
        if let (Some(one), Some(other)) = (version.builder(), self.inputs.installed)
            && one != other
            && refusals.is_empty()
            // Kubeadm may read the channel of K3s, and drop the build. But a Plan that has no build gets none.
            && (has_builds(other) || self.is_alone && self.has_no_build())
        {
            let offered = quoted(&entry.release.version);
            let why = format!("{offered} is a version of {one}, and the Plan's image installs {other}");
            refusals.push(Refusal::Accident(Refused::OtherDistribution { why }));
        }
        match &policy.range {
            Some(range) if !range.has(version) => refusals.push(if range.has_release_of(version) {
                Refusal::Prerelease
            } else {
                Refusal::OutOfRange
            }),
            // A channel with one version has chosen that prerelease. From a list refit chooses, and takes none without
            // a range that names it.
            None if !self.is_alone && version.is_prerelease() && !version.is_variant() => {
                refusals.push(Refusal::Prerelease);
            }
            _ => {}
        }
        // A channel with one version has chosen it, and each node decides for itself.
        if let (Some(limit), Some(oldest), false) = (policy.max_minor_skip, &self.oldest, self.is_alone) {
            // Nodes that follow hold back the next minor version, not another release of the one that is there.
            let base = self.current.as_ref().unwrap_or(&oldest.0);
            let is_next = version > base && version.minors_from(base).is_some_and(|skip| skip > 0);
            let follower = self.oldest_follower.as_ref().filter(|_| is_next);
            refusals.extend(
                [Some(oldest), follower]
                    .into_iter()
                    .flatten()
                    .find_map(|(from, node)| {
                        let skip = version.minors_from(from)?;
                        (skip > limit && version > from).then(|| Refusal::MinorSkip {
                            from: from.text().to_owned(),
                            node: (*node).to_owned(),
                            skip,
                        })
                    }),
            );
        }
        let Some(current) = &self.current else {
            // Nothing says which variant the nodes need.
            if !self.is_alone && version.is_variant() {
                refusals.push(Refusal::Variant);
            }
            return;
        };
        if !self.is_alone && !version.is_alike(current) {
            refusals.push(Refusal::Variant);
        }
        if self.policy.allow_downgrade {
            return;
        }
        match version.compare(current) {
            Ok(Ordering::Less) => refusals.push(Refusal::Older),
            Ok(_) => {}
            Err(error) => refusals.push(Refusal::Incomparable(error.to_string())),
        }
    }

    fn has_no_build(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.builder().is_none())
    }

    fn by_time(&self, entry: &Entry, since: Timestamp, published: bool, refusals: &mut Vec<Refusal>) {
        let due = since
            .checked_add(self.policy.minimum_age)
            .unwrap_or(Timestamp::MAX);
        if due > self.inputs.now && self.policy.minimum_age.is_positive() {
            refusals.push(Refusal::TooYoung {
                since,
                published,
                due,
            });
        }
        // What follows the first word of an item says who approved it.
        let approved = self.inputs.approved.unwrap_or_default().split(',');
        let mut approved = approved.filter_map(|item| item.split_whitespace().next());
        if self.policy.propose && !approved.any(|item| munge(item) == entry.munged) {
            refusals.push(Refusal::NotApproved);
        }
    }

    /// The newest of these; an error if two cannot be compared.
    fn best<'v, 'e>(
        &self,
        of: &[&'v Verdict<'e>],
    ) -> Option<Result<&'v Verdict<'e>, (&'v Verdict<'e>, &'v Verdict<'e>)>> {
        let best = of
            .iter()
            .copied()
            .reduce(|best, next| if self.is_better(next, best) { next } else { best })?;
        let order = |verdict: &Verdict<'_>| match (best.number(), verdict.number()) {
            (Some(best), Some(other)) => best.partial_cmp(other),
            _ => None,
        };
        let beside = of.iter().copied().find(|verdict| {
            verdict.version != best.version
                && !matches!(order(verdict), Some(Ordering::Greater | Ordering::Equal))
        });
        Some(beside.map_or(Ok(best), |other| Err((best, other))))
    }

    /// Whether it is newer, or the same release with a better spelling: that of the current version, then the most
    /// complete one. A version is better than what is none.
    fn is_better(&self, next: &Verdict<'_>, best: &Verdict<'_>) -> bool {
        let (Some(new), Some(old)) = (next.number(), best.number()) else {
            return next.number().is_some();
        };
        match new.partial_cmp(old) {
            Some(Ordering::Equal) => {
                let rank = |verdict: &Verdict<'_>, version: &Version| {
                    let is_current = self.inputs.current == Some(verdict.entry.munged.as_str());
                    let as_current = self.current.as_ref().map(Version::spelling) == Some(version.spelling());
                    (is_current, as_current, version.spelling())
                };
                (rank(next, new), best.version)
                    .cmp(&(rank(best, old), next.version))
                    .is_gt()
            }
            order => order == Some(Ordering::Greater),
        }
    }

    fn is_current(&self, verdict: &Verdict<'_>) -> bool {
        self.inputs.current == Some(verdict.entry.munged.as_str())
    }

    fn is_older(&self, verdict: &Verdict<'_>) -> bool {
        match (verdict.number(), &self.current) {
            (Some(version), Some(current)) => version < current,
            _ => false,
        }
    }

    /// The older version that the channel now offers.
    fn withdrawn(&self, verdicts: &[Verdict<'_>], take: Option<&str>) -> Option<String> {
        let current = self.current.as_ref()?;
        if self.is_alone {
            let only = verdicts.first()?;
            if matches!(only.refusals.first(), Some(Refusal::Accident(_))) {
                // An invalid version shows nothing about the channel: the last valid offer counts.
                let last = self.inputs.withdrawn?;
                let is_older = last.parse::<Version>().is_ok_and(|last| last < *current);
                return is_older.then(|| last.to_owned());
            }
            let is_taken = take == Some(only.entry.munged.as_str());
            return (!is_taken && self.is_older(only)).then(|| only.entry.munged.clone());
        }
        // That a partial list lacks the current version proves nothing.
        if self.is_partial
            || take.is_some_and(|take| Some(take) != self.inputs.current)
            || verdicts.iter().any(|verdict| self.is_current(verdict))
        {
            return None;
        }
        let alike =
            |verdict: &&Verdict<'_>| verdict.number().is_some_and(|version| version.is_alike(current));
        let (older, others): (Vec<_>, Vec<_>) = verdicts
            .iter()
            .filter(alike)
            .partition(|verdict| self.is_older(verdict));
        if !others.is_empty() {
            return None;
        }
        let newest = older
            .into_iter()
            .reduce(|best, next| if self.is_better(next, best) { next } else { best })?;
        Some(newest.entry.munged.clone())
    }

    fn held(&self, verdict: &Verdict<'_>, refusal: Refusal) -> Held {
        Held {
            version: verdict.version.to_owned(),
            since: verdict.since,
            message: refusal.sentence(verdict.version, self.policy, self.inputs.current),
            refusal,
        }
    }

    /// The next version, and what holds it back.
    fn next(&self, verdicts: &[Verdict<'_>], take: Option<&str>) -> Option<Held> {
        let refused = |verdict: &Verdict<'_>| {
            let refusal = verdict.refusals.first()?;
            Some(self.held(verdict, refusal.clone()))
        };
        if self.is_alone {
            return verdicts.first().and_then(refused);
        }
        let at = take
            .or(self.inputs.current)
            .and_then(|at| at.parse::<Version>().ok());
        let is_newer = |verdict: &&Verdict<'_>| match (verdict.number(), &at) {
            (Some(version), Some(at)) => version > at,
            (_, at) => at.is_none(),
        };
        let newest = |of: &mut dyn Iterator<Item = &Verdict<'_>>| {
            let best = of.reduce(|best, next| if self.is_better(next, best) { next } else { best })?;
            refused(best)
        };
        let waiting = verdicts
            .iter()
            .filter(|verdict| !verdict.passes() && verdict.is_eligible());
        if let Some(held) = newest(&mut waiting.filter(is_newer)) {
            return Some(held);
        }
        // Those that come after the next one.
        let is_later = |verdict: &&Verdict<'_>| {
            let is_skip = |refusal: &Refusal| matches!(refusal, Refusal::MinorSkip { .. });
            let mut refusals = verdict.refusals.iter();
            verdict.refusals.iter().any(is_skip) && refusals.all(|it| is_skip(it) || it.is_delay())
        };
        if let Some(held) = newest(&mut verdicts.iter().filter(is_later).filter(is_newer)) {
            return Some(held);
        }
        // Of a list, report only versions that could be taken, if there are any.
        if take.is_some() || verdicts.iter().any(Verdict::is_eligible) {
            return None;
        }
        let only = |verdict: &Verdict<'_>, why: &dyn Fn(&Refusal) -> bool| {
            let mut others = verdict.refusals.iter().filter(|refusal| !refusal.is_delay());
            !self.is_current(verdict) && others.all(why)
        };
        let older = |refusal: &Refusal| matches!(refusal, Refusal::Older);
        let outside = |refusal: &Refusal| matches!(refusal, Refusal::Older | Refusal::OutOfRange);
        newest(&mut verdicts.iter().filter(|verdict| only(verdict, &older)))
            .or_else(|| newest(&mut verdicts.iter().filter(|verdict| only(verdict, &outside))))
            .or_else(|| newest(&mut verdicts.iter().filter(|verdict| !self.is_current(verdict))))
    }

    /// The error of the offer, for status and events.
    fn fault(&self, verdicts: &[Verdict<'_>], choice: &Choice) -> Option<String> {
        let accident = verdicts
            .first()
            .and_then(|verdict| match verdict.refusals.first() {
                Some(Refusal::Accident(refused)) if self.is_alone => Some(refused.to_string()),
                _ => None,
            });
        if accident.is_some() {
            return accident;
        }
        if let (Some(offered), Some(current)) = (&choice.withdrawn, self.inputs.current) {
            return Some(format!(
                "spec.channel gives {offered}, which is older than {current}"
            ));
        }
        if self.is_alone {
            let refusal = verdicts
                .first()?
                .refusals
                .iter()
                .find(|refusal| refusal.is_fault())?;
            return Some(match refusal {
                Refusal::Incomparable(why) => why.clone(),
                _ => choice.held.as_ref()?.message.clone(),
            });
        }
        let held = choice.held.as_ref().filter(|_| choice.take.is_none())?;
        held.refusal.is_fault().then(|| held.message.clone())
    }

    /// First-seen times of versions that may be taken later.
    fn seen(&self, verdicts: &[Verdict<'_>]) -> Vec<(String, Timestamp)> {
        let mut waiting: Vec<_> = verdicts
            .iter()
            .filter(|verdict| !verdict.passes() && verdict.is_eligible())
            .filter(|verdict| verdict.published.is_none_or(|at| at > self.inputs.now))
            .collect();
        let mut seen = Vec::new();
        while seen.len() < REMEMBERED && !waiting.is_empty() {
            let mut best = 0;
            for at in 1..waiting.len() {
                if self.is_better(waiting[at], waiting[best]) {
                    best = at;
                }
            }
            let verdict = waiting.swap_remove(best);
            seen.push((verdict.entry.munged.clone(), verdict.since));
        }
        seen
    }
}
