//! A configuration file: garbage is an error that names a line of the file, and what is read has a key.

use remoting::settings::read_properties;

/// Checks one input.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read_properties(text, "broker.conf") {
        Ok(settings) => {
            for setting in settings {
                assert!(!setting.key.is_empty(), "a setting without a key: {setting:?}");
                assert!(setting.at.starts_with("broker.conf:"), "{setting:?}");
            }
        }
        Err(error) => assert!(error.to_string().contains("broker.conf:"), "{error}"),
    }
}
