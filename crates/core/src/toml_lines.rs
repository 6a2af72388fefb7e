//! Where a TOML document says something, for messages about values that were read without their places.

use toml_edit::{Document, Item};

/// A step from a TOML table or array to one of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The value of a key.
    Key(&'a str),
    /// A value of an array, or a table of several with the same header; counted from 0.
    Index(usize),
}

/// The line, counted from 1, of the value these steps lead to, or of the last before it that is there. `None`
/// if `text` is no TOML or the first leads nowhere. Parses all of `text`: for errors, not for every value.
///
/// ```
/// use outpour_core::toml_lines::{Step, line_of};
/// let text = "[[mapper]]\nhost = \"a\"\n[[mapper]]\nhost = \"b\"\n";
/// let mapper = [Step::Key("mapper"), Step::Index(1)];
/// assert_eq!(line_of(text, &mapper), Some(3));
/// assert_eq!(line_of(text, &[mapper[0], mapper[1], Step::Key("host")]), Some(4));
/// ```
pub fn line_of(text: &str, steps: &[Step<'_>]) -> Option<usize> {
    let document = Document::parse(text).ok()?;
    let mut item: &Item = document.as_item();
    let mut start = None;
    for step in steps {
        let next = match step {
            Step::Key(key) => item.get(key),
            Step::Index(index) => item.get(*index),
        };
        let Some(next) = next else {
            break;
        };
        item = next;
        start = item.span().map(|span| span.start).or(start);
    }
    let before = text.get(..start?)?;
    Some(1 + before.matches('\n').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "count = 2\nsizes = [\n  \"1 GB\",\n  \"2 GB\",\n]\n[limits]\na = 1\n\"b c\" = 2\n";

    #[test]
    fn values_are_found_by_key_and_index() {
        use Step::{Index, Key};
        let cases: &[(&[Step<'_>], Option<usize>)] = &[
            (&[Key("count")], Some(1)),
            (&[Key("sizes")], Some(2)),
            (&[Key("sizes"), Index(1)], Some(4)),
            (&[Key("limits")], Some(6)),
            (&[Key("limits"), Key("b c")], Some(8)),
        ];
        for (steps, line) in cases {
            assert_eq!(line_of(TEXT, steps), *line, "{steps:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_looked_for_as_far_as_possible() {
        use Step::{Index, Key};
        assert_eq!(line_of(TEXT, &[Key("sizes"), Index(7)]), Some(2));
        assert_eq!(line_of(TEXT, &[Key("limits"), Key("z")]), Some(6));
        assert_eq!(line_of(TEXT, &[Key("none"), Index(7)]), None);
        assert_eq!(line_of(TEXT, &[]), None);
        assert_eq!(line_of("count =", &[Key("count")]), None);
    }
}
