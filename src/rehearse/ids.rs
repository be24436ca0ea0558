//! Everything that is random in a real cluster: UIDs, boot IDs and name suffixes. A seed determines all of them.

/// Characters of generated name suffixes (`k8s.io/apimachinery/pkg/util/rand`).
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Ids(u64);

impl Ids {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A UUID, version 4.
    pub fn uuid(&mut self) -> String {
        let (a, b) = (self.number(), self.number());
        let (variant, last) = (0x8000 | (b >> 48 & 0x3fff), b & 0xffff_ffff_ffff);
        format!(
            "{:08x}-{:04x}-4{:03x}-{variant:04x}-{last:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff
        )
    }

    /// A suffix as `generateName` adds it.
    pub fn suffix(&mut self) -> String {
        let mut bits = self.number();
        let count = LETTERS.len() as u64;
        (0..5)
            .filter_map(|_| {
                let letter = LETTERS.get(usize::try_from(bits % count).unwrap_or_default());
                bits /= count;
                letter.map(|letter| char::from(*letter))
            })
            .collect()
    }
}

/// FNV-1a, 64 bits, with a zero byte after each part. Stable across machines, which std's `Hasher` does not guarantee.
pub(crate) fn fnv1a(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let mut ids = Ids::new(7);
        let all = [ids.uuid(), ids.suffix(), ids.uuid()];
        let mut again = Ids::new(7);
        assert_eq!(all, [again.uuid(), again.suffix(), again.uuid()]);
        assert_ne!(all[0], all[2]);
        assert_eq!(all[0].len(), 36);
        assert_eq!(all[0].as_bytes()[14], b'4');
        assert_eq!(all[1].len(), 5);
        assert_ne!(Ids::new(8).uuid(), all[0]);
    }
}
