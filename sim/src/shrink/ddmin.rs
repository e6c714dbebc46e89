//! The least part of a list with which something still happens, by leaving out ever smaller pieces.

/// Leaves out of `items` what `fails` does not need: first halves, then the rest without a quarter, an eighth, and so
/// on, at last single items again and again until none can be left out. With `pieces_max` it ends before: when so many
/// pieces have been left out one by one, all in vain.
///
/// `items` itself must fail. The order is kept. If `fails` is monotone (what fails still fails with more items) the
/// result is as small as can be; else no single item of it can be left out. Calls `fails` about `2 n log n` times at the
/// worst for a monotone predicate of few items.
///
/// # Errors
/// The first error of `fails`.
pub(super) fn ddmin<T: Clone, E>(
    mut items: Vec<T>,
    pieces_max: usize,
    mut fails: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let mut piece = items.len().div_ceil(2);
    while !items.is_empty() {
        let mut found = false;
        let mut start = 0;
        while start < items.len() {
            let end = (start + piece).min(items.len());
            let rest = [&items[..start], &items[end..]].concat();
            if fails(&rest)? {
                items = rest;
                found = true;
            } else {
                start = end;
            }
        }
        if !found && (piece == 1 || items.len().div_ceil(piece) >= pieces_max) {
            break;
        }
        piece = piece.min(items.len()).div_ceil(2).max(1);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The result, and how many calls it took.
    fn least(count: u32, fails: impl Fn(&[u32]) -> bool) -> (Vec<u32>, usize) {
        let mut calls = 0;
        let least = ddmin((0..count).collect(), usize::MAX, |items| {
            calls += 1;
            Ok::<_, ()>(fails(items))
        });
        (least.unwrap(), calls)
    }

    #[test]
    fn what_is_needed_is_what_is_left() {
        let needs = |wanted: &'static [u32]| move |items: &[u32]| wanted.iter().all(|want| items.contains(want));
        assert_eq!(least(41, needs(&[3, 17])).0, [3, 17]);
        assert_eq!(least(8, needs(&[0, 1, 2, 3, 4, 5, 6, 7])).0, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(least(1, needs(&[0])).0, [0]);
        assert_eq!(least(100, |_| true).0, [0; 0]);
        assert_eq!(least(0, |_| true).0, [0; 0]);
    }

    #[test]
    fn one_of_many_is_found_in_few_steps() {
        let (found, calls) = least(2_000, |items| items.contains(&1_234));
        assert_eq!(found, [1_234]);
        assert!(calls < 40, "{calls}");
    }

    #[test]
    fn pieces_that_are_all_needed_are_not_taken_apart_for_ever() {
        let whole: Vec<u32> = (0..1_000).collect();
        let mut calls = 0;
        let left = ddmin(whole.clone(), 16, |items| {
            calls += 1;
            Ok::<_, ()>(items.len() == 1_000)
        });
        assert_eq!((left, calls), (Ok(whole), 2 + 4 + 8 + 16));
    }

    #[test]
    fn an_error_ends_it() {
        let mut calls = 0;
        let ended = ddmin(vec![1, 2, 3], usize::MAX, |_| {
            calls += 1;
            if calls == 2 { Err("spent") } else { Ok(true) }
        });
        assert_eq!((ended, calls), (Err("spent"), 2));
    }

    proptest! {
        #[test]
        fn a_monotone_need_is_met_exactly(count in 1_u32..60, needed in prop::collection::btree_set(0_u32..60, 0..6)) {
            let needed: Vec<u32> = needed.into_iter().filter(|item| *item < count).collect();
            let (found, _) = least(count, |items| needed.iter().all(|item| items.contains(item)));
            prop_assert_eq!(found, needed);
        }

        #[test]
        fn of_any_other_no_single_item_can_be_left_out(salt in any::<u64>(), count in 1_u32..24) {
            let whole: Vec<u32> = (0..count).collect();
            let fails = |items: &[u32]| {
                let bytes: Vec<u8> = items.iter().flat_map(|item| item.to_le_bytes()).chain(salt.to_le_bytes()).collect();
                items == whole || crate::history::digest(&bytes).is_multiple_of(3)
            };
            let (found, _) = least(count, fails);
            prop_assert!(fails(&found));
            for left_out in 0..found.len() {
                let mut rest = found.clone();
                rest.remove(left_out);
                prop_assert!(!fails(&rest), "{found:?} without number {left_out}");
            }
        }
    }
}
