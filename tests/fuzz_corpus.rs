//! The fuzz targets, so that whoever runs the tests runs them: on every file of their corpus as it is, cut off at every
//! place, and with every byte changed. Targets that work on files are dear: they get a part of that, and a few random
//! inputs; `PROPTEST_CASES=5000` gives them more.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

use proptest::{collection::vec, prelude::*};

/// Longest input whose every cut and every change is tried; longer ones are sampled.
const EVERY_BYTE_UP_TO: usize = 2048;

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name), targets::$name::check);
            }
        )*

        #[test]
        fn every_folder_of_the_corpus_belongs_to_a_target() {
            let folders = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus"));
            let names: Vec<_> = folders.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
            let mut known = [$(stringify!($name)),*];
            known.sort();
            assert_eq!(names, known);
        }
    };
}

targets!(batch, config_json, frame, properties, record, scenario, settings, store_dir);

/// Targets that take milliseconds for one input.
const DEAR: [&str; 2] = ["config_json", "store_dir"];

/// Inputs of one file of the corpus that a dear target is tried with.
const DEAR_INPUTS: usize = 8;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_damage_of_a_store(input in vec(any::<u8>(), 0..40)) {
        targets::store_dir::check(&input);
    }

    #[test]
    fn random_damage_of_settings(file in any::<u8>(), damage in vec((any::<u16>(), any::<u8>()), 0..4), cut in 0..400_usize) {
        let inputs = entries(&folder("config_json"));
        let mut input = std::fs::read(&inputs[usize::from(file) % inputs.len()]).unwrap();
        for (at, byte) in damage {
            let at = usize::from(at) % input.len();
            input[at] = byte;
        }
        input.truncate(cut + input.len() / 2);
        targets::config_json::check(&input);
    }
}

/// As many as fit into a few seconds, unless more are asked for.
#[expect(clippy::disallowed_methods, reason = "the number of cases is asked for in the environment")]
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
}

fn replay(target: &str, check: fn(&[u8])) {
    let folder = folder(target);
    let files = entries(&folder);
    assert!(!files.is_empty(), "{} holds no input", folder.display());
    for path in files {
        eprintln!("{}", path.display());
        let input = std::fs::read(&path).unwrap();
        check(&input);
        let (most, flips) = match DEAR.contains(&target) {
            true => (DEAR_INPUTS / 2, &[0xff][..]),
            false => (EVERY_BYTE_UP_TO, &[0x01, 0x80, 0xff][..]),
        };
        let step = input.len() / most + 1;
        for at in (0..input.len()).step_by(step) {
            check(&input[..at]);
            let mut changed = input.clone();
            for flip in flips {
                changed[at] = input[at] ^ flip;
                check(&changed);
            }
        }
    }
}

fn folder(target: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let listing = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listing.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
