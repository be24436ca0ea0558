//! What channels offered when they were last read, so that an unchanged one is not read to its end. Bounded, and losing it
//! costs only requests.
//!
//! No credentials are kept: the key of an offer is a digest of them.

use std::sync::{Arc, Mutex, PoisonError};

use http::header::ETAG;

use super::transport::{Answer, Key};
use refit_base::version::{Offer, Release};

/// Maximum number of offers, and of releases of each: about 4 MiB in all.
const MAX_OFFERS: usize = 32;
const MAX_RELEASES: usize = 1_000;
/// Maximum length of an entity tag.
const MAX_ETAG: usize = 256;

pub(super) struct KeptOffer {
    /// Of the first page.
    pub(super) etag: Option<String>,
    /// The releases of the first page: a server may give an unchanged page another entity tag.
    pub(super) first: Vec<Release>,
    pub(super) offer: Offer,
}

/// Ordered by their last use.
#[derive(Default)]
pub(super) struct KeptOffers(Mutex<Vec<(Key, Arc<KeptOffer>)>>);

impl KeptOffers {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<KeptOffer>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(other, _)| other == key)?;
        let used = kept.remove(at);
        let offer = Arc::clone(&used.1);
        kept.push(used);
        Some(offer)
    }

    pub(super) fn keep(&self, key: Key, offer: KeptOffer) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(other, _)| *other != key);
        if offer.first.len().max(offer.offer.releases.len()) > MAX_RELEASES {
            return;
        }
        kept.push((key, Arc::new(offer)));
        if kept.len() > MAX_OFFERS {
            kept.remove(0);
        }
    }
}

/// The entity tag of a response, if it can be kept.
pub(super) fn etag(answer: &Answer) -> Option<String> {
    let etag = answer.header(ETAG).filter(|etag| etag.len() <= MAX_ETAG);
    etag.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(releases: usize) -> KeptOffer {
        let release = |number: usize| Release {
            version: format!("v{number}"),
            published: None,
        };
        KeptOffer {
            etag: None,
            first: Vec::new(),
            offer: Offer {
                releases: (0..releases).map(release).collect(),
                partial: None,
            },
        }
    }

    #[test]
    fn the_kept_offers_are_bounded_and_the_least_recently_used_one_goes_first() {
        let kept = KeptOffers::default();
        for number in 0..=u8::try_from(MAX_OFFERS).unwrap() {
            kept.keep([number; 32], offer(1));
            assert!(kept.get(&[0; 32]).is_some(), "it is used again and again");
        }
        assert_eq!(kept.0.lock().unwrap().len(), MAX_OFFERS);
        assert!(kept.get(&[1; 32]).is_none() && kept.get(&[2; 32]).is_some());
        kept.keep([2; 32], offer(MAX_RELEASES + 1));
        assert!(
            kept.get(&[2; 32]).is_none(),
            "what it was before is not true any more"
        );
    }
}
