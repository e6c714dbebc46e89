//! The fields of a header as they travel: names and texts.

use std::fmt;

/// The extension fields of one frame, in the order they were written.
///
/// Only the codecs and the typed headers read it; whoever handles a request sees typed fields. All texts lie in one
/// buffer, so that a frame costs two allocations however many fields it has.
#[derive(Clone, Default)]
pub struct Fields {
    text: String,
    entries: Vec<Entry>,
}

/// One field: the name at `start`, the value right behind it.
#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    name_len: u32,
    value_len: u32,
}

impl Fields {
    /// No fields.
    #[must_use]
    pub const fn new() -> Fields {
        Fields { text: String::new(), entries: Vec::new() }
    }

    /// No fields yet, with room for `count` of them and `bytes` of names and values.
    #[must_use]
    pub fn with_capacity(count: usize, bytes: usize) -> Fields {
        Fields { text: String::with_capacity(bytes), entries: Vec::with_capacity(count) }
    }

    /// How many fields there are. A repeated name counts each time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a name; of a repeated name the last.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().rev().map(|entry| self.pair(*entry)).find(|pair| pair.0 == name).map(|pair| pair.1)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|entry| self.pair(*entry))
    }

    /// Adds a field behind the others.
    pub fn push(&mut self, name: &str, value: &str) {
        self.push_with(name, |text| text.push_str(value));
    }

    /// Adds a field whose value `write` appends to the text.
    pub(crate) fn push_with(&mut self, name: &str, write: impl FnOnce(&mut String)) {
        let start = self.begin();
        self.text.push_str(name);
        let value_start = self.begin();
        write(&mut self.text);
        self.end(start, value_start);
    }

    // A codec that may fail half-way writes name and value to `text_mut` itself, between `begin` and `end`.

    pub(crate) fn begin(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn text_mut(&mut self) -> &mut String {
        &mut self.text
    }

    pub(crate) fn end(&mut self, start: usize, value_start: usize) {
        let index = |at: usize| u32::try_from(at).expect("frames end at 16 MiB");
        self.entries.push(Entry {
            start: index(start),
            name_len: index(value_start - start),
            value_len: index(self.text.len() - value_start),
        });
    }

    /// Takes back what was written since `start`.
    pub(crate) fn rewind(&mut self, start: usize) {
        self.text.truncate(start);
    }

    fn pair(&self, entry: Entry) -> (&str, &str) {
        let name_end = (entry.start + entry.name_len) as usize;
        (&self.text[entry.start as usize..name_end], &self.text[name_end..name_end + entry.value_len as usize])
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Equal if the same names have the same values in the same order.
impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Fields {}

impl<'a> FromIterator<(&'a str, &'a str)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in pairs {
            fields.push(name, value);
        }
        fields
    }
}
