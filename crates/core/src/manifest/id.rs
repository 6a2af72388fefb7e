//! The identity of an object.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The identity of an object: the BLAKE3 hash of its encoded manifest.
///
/// Text (and JSON) has it as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 32]);

impl ObjectId {
    /// The identity of the object whose encoded manifest is `encoded`.
    pub fn of(encoded: &[u8]) -> Self {
        Self(*blake3::hash(encoded).as_bytes())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

/// A text that is not an object id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an object id is 64 hexadecimal digits")]
pub struct ParseObjectIdError;

impl FromStr for ObjectId {
    type Err = ParseObjectIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 64 {
            return Err(ParseObjectIdError);
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let mut value = 0;
            for digit in pair {
                let digit = char::from(*digit).to_digit(16).ok_or(ParseObjectIdError)?;
                value = value << 4 | digit as u8;
            }
            *byte = value;
        }
        Ok(Self(id))
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            text.parse().map_err(de::Error::custom)
        } else {
            <[u8; 32]>::deserialize(deserializer).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn text_round_trips_and_other_text_is_refused() {
        let id = ObjectId::of(b"object");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        let text = id.to_string();
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('a', "g")] {
            assert_eq!(
                wrong.parse::<ObjectId>(),
                Err(ParseObjectIdError),
                "{wrong}"
            );
        }
        // 64 bytes, but not 64 digits.
        assert!("é".repeat(32).parse::<ObjectId>().is_err());
    }

    #[test]
    fn compact_form_is_the_bytes() {
        let id = ObjectId::of(b"object");
        let wire = postcard::to_stdvec(&id).unwrap();
        assert_eq!(wire, id.0);
        assert_eq!(postcard::from_bytes::<ObjectId>(&wire).unwrap(), id);
    }
}
