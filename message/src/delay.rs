//! The table of delay levels.

use std::time::Duration;

/// The levels of a broker that does not say otherwise (`messageDelayLevel`).
pub const DEFAULT_DELAY_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// What is wrong with a list of delay levels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("delay level {level} is `{text}`: expected a whole number with the unit s, m, h or d")]
pub struct DelayLevelError {
    /// Its place in the list, from 1.
    pub level: usize,
    /// What stands there.
    pub text: String,
}

/// Delays by level, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayLevels {
    delays: Vec<Duration>,
}

impl DelayLevels {
    /// Reads a list such as `1s 5s 10m`, separated by blanks.
    ///
    /// # Errors
    /// If an entry is not a number with a unit, or if there is none.
    pub fn parse(list: &str) -> Result<DelayLevels, DelayLevelError> {
        let delays = list
            .split_whitespace()
            .enumerate()
            .map(|(index, text)| {
                parse_one(text).ok_or_else(|| DelayLevelError { level: index + 1, text: text.to_owned() })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if delays.is_empty() {
            return Err(DelayLevelError { level: 1, text: String::new() });
        }
        Ok(DelayLevels { delays })
    }

    /// The highest level.
    #[must_use]
    pub fn max_level(&self) -> usize {
        self.delays.len()
    }

    /// The delay of a level; levels above the highest count as the highest. `None` for level 0.
    #[must_use]
    pub fn delay(&self, level: usize) -> Option<Duration> {
        level.checked_sub(1).map(|index| self.delays[index.min(self.delays.len() - 1)])
    }
}

impl Default for DelayLevels {
    fn default() -> DelayLevels {
        DelayLevels::parse(DEFAULT_DELAY_LEVELS).expect("the default levels are well-formed")
    }
}

fn parse_one(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        _ => return None,
    };
    let count: u32 = text.strip_suffix(unit)?.parse().ok()?;
    Some(Duration::from_secs(u64::from(count) * seconds))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::DelayLevels;

    #[test]
    fn the_default_has_eighteen_levels() {
        let levels = DelayLevels::default();
        assert_eq!(levels.max_level(), 18);
        assert_eq!(levels.delay(0), None);
        assert_eq!(levels.delay(3), Some(Duration::from_secs(10)));
        assert_eq!(levels.delay(18), Some(Duration::from_secs(7200)));
        assert_eq!(levels.delay(99), levels.delay(18));
    }

    #[test]
    fn a_bad_level_is_named() {
        let error = DelayLevels::parse("1s 5x").unwrap_err();
        assert_eq!(error.to_string(), "delay level 2 is `5x`: expected a whole number with the unit s, m, h or d");
        assert!(DelayLevels::parse("").is_err());
        assert!(DelayLevels::parse("-1s").is_err());
    }
}
