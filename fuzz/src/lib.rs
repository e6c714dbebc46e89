//! What must hold for any bytes from outside, one function for each parser of them.
//!
//! libFuzzer calls them through `fuzz_targets/`, and `tests/fuzz_corpus.rs` calls them with the corpus, so that
//! everyone who runs the tests runs them.

pub mod batch;
pub mod config_json;
pub mod frame;
pub mod properties;
pub mod record;
pub mod scenario;
pub mod settings;
pub mod store_dir;
