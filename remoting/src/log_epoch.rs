//! Which log of a broker an offset belongs to.

use crate::{fields::Fields, header::FieldType};

/// Names the log of a broker as it was since its last unclean start.
///
/// After a power loss a log may end earlier than before, and other messages get the offsets that were lost. So an
/// offset means the same only as long as the epoch does. Two epochs are equal or not; that one is greater says nothing.
///
/// Brokers and clients of this project exchange it as the field `sfLogEpoch`, see `docs/wire.md`. Apache's ignore the
/// field and never send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEpoch(pub i64);

impl FieldType for LogEpoch {
    const KIND: &'static str = i64::KIND;

    fn read(text: &str) -> Option<LogEpoch> {
        i64::read(text).map(LogEpoch)
    }

    fn write(&self, name: &'static str, fields: &mut Fields) {
        self.0.write(name, fields);
    }
}
