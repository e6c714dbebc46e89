//! A set of page numbers.

use super::pages::PAGE_BYTES;

/// Pages that hold the first `len` bytes of a file.
pub(super) fn pages_of(len: u64) -> u64 {
    len.div_ceil(PAGE_BYTES)
}

/// One bit per page, up to the highest page that was ever in it.
#[derive(Debug, Clone, Default)]
pub(super) struct PageSet {
    words: Vec<u64>,
}

impl PageSet {
    pub(super) fn contains(&self, page: u64) -> bool {
        self.words.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    pub(super) fn insert(&mut self, page: u64) {
        let index = (page / 64) as usize;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (page % 64);
    }

    pub(super) fn remove(&mut self, page: u64) {
        if let Some(word) = self.words.get_mut((page / 64) as usize) {
            *word &= !(1 << (page % 64));
        }
    }

    /// How many pages of `from..to` are in it.
    pub(super) fn count(&self, from: u64, to: u64) -> u64 {
        let to = to.min(self.words.len() as u64 * 64);
        if from >= to {
            return 0;
        }
        let (first, last) = ((from / 64) as usize, ((to - 1) / 64) as usize);
        let mut count = 0;
        for index in first..=last {
            let mut word = self.words[index];
            if index == first {
                word &= u64::MAX << (from % 64);
            }
            if index == last {
                word &= u64::MAX >> (63 - (to - 1) % 64);
            }
            count += u64::from(word.count_ones());
        }
        count
    }

    /// Its pages from `from` on, in order.
    pub(super) fn iter_from(&self, from: u64) -> impl Iterator<Item = u64> {
        let start = (from / 64) as usize;
        self.words.iter().enumerate().skip(start).flat_map(move |(index, &word)| {
            let word = if index == start { word & (u64::MAX << (from % 64)) } else { word };
            Bits(word).map(move |bit| index as u64 * 64 + bit)
        })
    }
}

/// The positions of the ones of a word, from the lowest.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.0 == 0 {
            return None;
        }
        let bit = u64::from(self.0.trailing_zeros());
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::PageSet;

    #[test]
    fn counts_and_lists_agree_with_membership() {
        let mut set = PageSet::default();
        let pages = [0, 1, 63, 64, 65, 127, 128, 1000];
        for page in pages {
            set.insert(page);
        }
        set.remove(65);
        let listed: Vec<u64> = set.iter_from(0).collect();
        assert_eq!(listed, [0, 1, 63, 64, 127, 128, 1000]);
        for from in 0..130 {
            for to in from..1100 {
                let expected = listed.iter().filter(|&&page| (from..to).contains(&page)).count() as u64;
                assert_eq!(set.count(from, to), expected, "{from}..{to}");
            }
            let rest: Vec<u64> = listed.iter().copied().filter(|&page| page >= from).collect();
            assert_eq!(set.iter_from(from).collect::<Vec<_>>(), rest);
        }
    }
}
