//! Input taken apart from the front; what is missing at its end counts as zeros.

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> u8 {
        match self.0 {
            [byte, rest @ ..] => {
                self.0 = rest;
                *byte
            }
            [] => 0,
        }
    }

    /// The next two bytes, the lower first.
    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Up to so many bytes: fewer at the end.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// What is left.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// One value of a type, as it travels; nothing is taken if there is none.
    pub(crate) fn value<T: serde::Deserialize<'a>>(&mut self) -> Option<T> {
        let (value, rest) = postcard::take_from_bytes(self.0).ok()?;
        self.0 = rest;
        Some(value)
    }
}
