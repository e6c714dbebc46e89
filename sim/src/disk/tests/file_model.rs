//! One file against a model of two byte vectors: what it holds, and what is durable.

use proptest::prelude::*;

use super::*;

const FILE_MAX: u64 = 5 * PAGE as u64;

#[derive(Debug, Clone)]
enum Step {
    Write { at: u64, len: usize, fill: u8 },
    MappedWrite { at: u64, len: usize, fill: u8 },
    SetLen(u64),
    Allocate(u64),
    Sync,
    Kill,
    Crash(Survival),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..FILE_MAX;
    prop_oneof![
        4 => (at.clone(), 1..2 * PAGE, 1..=255_u8).prop_map(|(at, len, fill)| Step::Write { at, len, fill }),
        4 => (at.clone(), 1..2 * PAGE, 1..=255_u8).prop_map(|(at, len, fill)| Step::MappedWrite { at, len, fill }),
        2 => at.clone().prop_map(Step::SetLen),
        1 => at.prop_map(Step::Allocate),
        2 => Just(Step::Sync),
        1 => Just(Step::Kill),
        1 => prop_oneof![Just(Survival::AllOld), Just(Survival::AllNew)].prop_map(Step::Crash),
    ]
}

fn written(content: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (at, end) = (at as usize, at as usize + bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

proptest! {
    #[test]
    fn a_file_holds_what_was_written_and_keeps_what_was_flushed(steps in prop::collection::vec(step(), 1..40)) {
        let mut bench = bench();
        let mut file = bench.durable("/f", b"");
        let (mut now, mut durable) = (Vec::new(), Vec::new());
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write { at, len, fill } => {
                    file.write_at(&vec![fill; len], at).unwrap();
                    written(&mut now, at, &vec![fill; len]);
                }
                Step::MappedWrite { at, len, fill } => {
                    let end = (at + len as u64).min(now.len() as u64);
                    if at < end {
                        let mapping = run(file.map(end)).unwrap();
                        let bytes = vec![fill; (end - at) as usize];
                        mapping.write(at, &bytes);
                        written(&mut now, at, &bytes);
                    }
                }
                Step::SetLen(len) => {
                    run(file.set_len(len)).unwrap();
                    now.resize(len as usize, 0);
                }
                Step::Allocate(len) => {
                    run(file.allocate(len)).unwrap();
                    now.resize(now.len().max(len as usize), 0);
                }
                Step::Sync => {
                    run(file.sync(true)).unwrap();
                    durable.clone_from(&now);
                }
                Step::Kill => bench.handle = bench.disk.attach(bench.clock.clone()),
                Step::Crash(survival) => {
                    bench.crash(index as u64, Some(survival));
                    match survival {
                        Survival::AllNew => durable.clone_from(&now),
                        _ => now.clone_from(&durable),
                    }
                }
            }
            file = bench.open("/f", OpenOptions::WRITE).unwrap();
            prop_assert_eq!(&bench.read("/f").unwrap(), &now);
            let image = bench.disk.durable_image(0);
            prop_assert_eq!(image.read("/f").unwrap(), &durable[..]);
        }
    }

    #[test]
    fn any_crash_leaves_each_sector_old_or_new_and_the_rest_alone(
        writes in prop::collection::vec((0..FILE_MAX, 1..2 * PAGE), 1..5),
        crash: u64,
    ) {
        let mut bench = bench();
        let file = bench.durable("/f", &[1; 4 * PAGE]);
        let old = vec![1; 4 * PAGE];
        let mut new = old.clone();
        for (at, len) in writes {
            file.write_at(&vec![2; len], at).unwrap();
            written(&mut new, at, &vec![2; len]);
        }
        bench.crash(crash, None);
        let left = bench.read("/f").unwrap();
        prop_assert!((old.len()..=new.len()).contains(&left.len()), "length {}", left.len());
        for (at, sector) in left.chunks(512).enumerate() {
            let of = |content: &[u8]| {
                let mut sector_bytes = [0; 512];
                let from = content.len().min(at * 512);
                let to = content.len().min(at * 512 + 512);
                sector_bytes[..to - from].copy_from_slice(&content[from..to]);
                sector_bytes
            };
            let is = |content: &[u8]| sector == &of(content)[..sector.len()];
            prop_assert!(is(&old) || is(&new), "sector {at} is neither old nor new");
        }
    }
}
