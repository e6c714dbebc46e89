//! See `src/config_json.rs` for what is checked.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| staticfire_fuzz::config_json::check(data));
