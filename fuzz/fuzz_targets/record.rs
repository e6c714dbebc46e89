//! See `src/record.rs` for what is checked.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| staticfire_fuzz::record::check(data));
