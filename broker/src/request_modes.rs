//! Which groups pull and which pop, as tools set it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use remoting::body::MessageRequestModes;

use crate::table_file::TableFile;

/// The table of another broker, kept for the brokers that copy it from this one; groups here pull. The file
/// `messageRequestMode.json` follows every change.
#[derive(Debug)]
pub(crate) struct RequestModes {
    /// With the number of changes. Leaf lock: nothing else is locked while it is held.
    inner: Mutex<(u64, MessageRequestModes)>,
    file: TableFile,
}

impl RequestModes {
    /// The table that was stored.
    pub(crate) fn new(stored: MessageRequestModes) -> RequestModes {
        RequestModes { inner: Mutex::new((0, stored)), file: TableFile::new() }
    }

    /// The file that follows the table.
    pub(crate) fn file(&self) -> &TableFile {
        &self.file
    }

    /// Whether the file has every change.
    pub(crate) fn is_saved(&self) -> bool {
        let revision = self.lock().0;
        self.file.is_saved(revision)
    }

    /// Takes the table of the master.
    pub(crate) fn replace(&self, copied: MessageRequestModes) {
        let mut inner = self.lock();
        if inner.1 != copied {
            *inner = (inner.0 + 1, copied);
            self.file.changed(inner.0);
        }
    }

    /// The whole table, and the change it stands for.
    pub(crate) fn snapshot(&self) -> (u64, MessageRequestModes) {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, MessageRequestModes)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
