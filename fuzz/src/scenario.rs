//! A scenario file: garbage is an error that names its place, and a scenario that was read is printed as a file that
//! reads as the same scenario.

use sim::scenario::Scenario;

/// Checks one input.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Scenario::parse("fuzz.toml", text) {
        Ok(scenario) => {
            let printed = scenario.print();
            let again = Scenario::parse("printed.toml", &printed);
            let again = again.unwrap_or_else(|error| panic!("{}\nprinted:\n{printed}", error.one_line()));
            assert_eq!(again.print(), printed, "printing is not stable");
        }
        Err(error) => {
            let (line, column) = error.position();
            assert!(line >= 1 && column >= 1 && line <= text.lines().count() + 1, "{}", error.one_line());
        }
    }
}
