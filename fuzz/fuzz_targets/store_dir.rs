//! See `src/store_dir.rs` for what is checked.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| staticfire_fuzz::store_dir::check(data));
