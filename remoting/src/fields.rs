//! The fields of a header as they travel: names and texts.

use std::{fmt, ops::Range};

/// The extension fields of one frame, in the order they were written.
///
/// Only the codecs and the typed headers read it; whoever handles a request sees typed fields. All texts lie in one
/// buffer, so that a frame costs two allocations however many fields it has.
#[derive(Clone, Default)]
pub struct Fields {
    text: String,
    entries: Vec<Entry>,
}

/// One field: where its name and its value lie in the text.
#[derive(Clone, Copy)]
struct Entry {
    name: Span,
    value: Span,
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(range: Range<usize>) -> Span {
        let index = |at: usize| u32::try_from(at).expect("frames end at 16 MiB");
        Span { start: index(range.start), end: index(range.end) }
    }

    #[inline]
    fn of(self, text: &str) -> &str {
        &text[self.start as usize..self.end as usize]
    }
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
        let start = self.text.len();
        self.text.push_str(name);
        let name_end = self.text.len();
        self.text.push_str(value);
        self.add(start..name_end, name_end..self.text.len());
    }

    // A codec copies a whole header to `text_mut` first and then tells where in it the fields are: one copy for all.

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn text_mut(&mut self) -> &mut String {
        &mut self.text
    }

    /// Adds a field whose name and value lie in the text.
    #[inline]
    pub(crate) fn add(&mut self, name: Range<usize>, value: Range<usize>) {
        self.entries.push(Entry { name: Span::new(name), value: Span::new(value) });
    }

    #[inline]
    fn pair(&self, entry: Entry) -> (&str, &str) {
        (entry.name.of(&self.text), entry.value.of(&self.text))
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
