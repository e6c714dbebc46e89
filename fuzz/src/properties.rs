//! A property string: any text can be read, every pair that is listed is found by its name, and what is set can be
//! read back.

use message::Properties;

/// Checks one input.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut properties = Properties::from_encoded(text);
    let names: Vec<String> = properties.iter().map(|(name, _)| name.to_owned()).collect();
    for name in &names {
        assert!(properties.get(name).is_some(), "{name:?} is listed but not found");
    }
    properties.set("fuzz", "value").expect("these characters are allowed");
    assert_eq!(properties.get("fuzz"), Some("value"));
    for name in names.iter().filter(|name| *name != "fuzz") {
        assert!(properties.get(name).is_some(), "{name:?} is gone after another was set");
    }
}
