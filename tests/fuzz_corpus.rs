//! The fuzz targets on their corpus, so that whoever runs the tests runs them: every file as it is, cut off at every
//! place, and with every byte changed.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

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

targets!(batch, frame, properties, record, scenario, settings);

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = entries(&folder);
    assert!(!files.is_empty(), "{} holds no input", folder.display());
    for path in files {
        eprintln!("{}", path.display());
        let input = std::fs::read(&path).unwrap();
        check(&input);
        let step = input.len() / EVERY_BYTE_UP_TO + 1;
        for at in (0..input.len()).step_by(step) {
            check(&input[..at]);
            let mut changed = input.clone();
            for flip in [0x01, 0x80, 0xff] {
                changed[at] = input[at] ^ flip;
                check(&changed);
            }
        }
    }
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let listing = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listing.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
