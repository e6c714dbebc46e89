//! Which nodes a partition keeps from each other (`spec/simulation.md` 3.4).

use crate::scenario::Shape;

/// Pairs of nodes that do not hear each other. `everyone` is who there is, `node` whom the shape is about.
pub(super) fn cut(shape: Shape, node: Option<&str>, members: &[String], everyone: &[String]) -> Vec<(String, String)> {
    let across = |one: &[String], other: &[String]| -> Vec<(String, String)> {
        one.iter().flat_map(|one| other.iter().map(move |other| (one.clone(), other.clone()))).collect()
    };
    let count = members.len();
    match shape {
        Shape::Isolate | Shape::Clog => {
            let others = everyone.iter().filter(|other| Some(other.as_str()) != node);
            node.into_iter().flat_map(|node| others.clone().map(|other| (node.to_owned(), other.clone()))).collect()
        }
        Shape::Halves | Shape::Bridge => {
            let (one, other) = members.split_at(count.div_ceil(2));
            across(one, other)
        }
        Shape::Minority => {
            let (minority, majority) = members.split_at(count.saturating_sub(1) / 2);
            across(minority, majority)
        }
        Shape::RingMajorities => {
            // Of a majority one is the member itself, and half of the rest stands on each side of it.
            let near = (count / 2).div_ceil(2);
            let far = |one: usize, other: usize| (other - one).min(count - (other - one)) > near;
            let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
            let cut = pairs.filter(|(one, other)| far(*one, *other));
            cut.map(|(one, other)| (members[one].clone(), members[other].clone())).collect()
        }
        // Its members are isolated one at a time.
        Shape::Swizzle => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("n/{number}")).collect()
    }

    /// Whom each member hears, itself included.
    fn heard(cut: &[(String, String)], members: &[String]) -> Vec<BTreeSet<String>> {
        let hears = |one: &String, other: &String| {
            !cut.iter().any(|(a, b)| (a == one && b == other) || (a == other && b == one))
        };
        members.iter().map(|one| members.iter().filter(|other| hears(one, other)).cloned().collect()).collect()
    }

    #[test]
    fn parts_are_as_large_as_their_names_say() {
        for count in 4..12 {
            let all = names(count);
            let sizes = |shape| -> BTreeSet<usize> {
                heard(&cut(shape, None, &all, &all), &all).iter().map(BTreeSet::len).collect()
            };
            assert_eq!(sizes(Shape::Halves), BTreeSet::from([count / 2, count.div_ceil(2)]));
            let minority = (count - 1) / 2;
            assert_eq!(sizes(Shape::Minority), BTreeSet::from([minority, count - minority]));
            assert!(minority < count - minority);
        }
    }

    #[test]
    fn in_a_ring_everyone_hears_a_majority_of_his_own() {
        for count in 4..12 {
            let all = names(count);
            let heard = heard(&cut(Shape::RingMajorities, None, &all, &all), &all);
            assert!(heard.iter().all(|view| 2 * view.len() > count && view.len() < count), "{count}: {heard:?}");
            assert_eq!(heard.iter().collect::<BTreeSet<_>>().len(), count, "two views of {count} are equal");
        }
    }

    #[test]
    fn who_is_isolated_hears_nobody_and_a_bridge_hears_both_sides() {
        let all = names(5);
        let alone = heard(&cut(Shape::Isolate, Some("n/2"), &[], &all), &all);
        assert_eq!(alone.iter().map(BTreeSet::len).collect::<Vec<_>>(), [4, 4, 1, 4, 4]);
        let sides: Vec<String> = all.iter().filter(|name| *name != "n/2").cloned().collect();
        let bridged = heard(&cut(Shape::Bridge, Some("n/2"), &sides, &all), &all);
        assert_eq!(bridged.iter().map(BTreeSet::len).collect::<Vec<_>>(), [3, 3, 5, 3, 3]);
    }
}
