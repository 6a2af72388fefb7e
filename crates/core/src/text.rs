//! Printing text that others chose: names from peers, file systems and configuration.
//!
//! A file name may hold line feeds, terminal escape codes or marks that reverse the reading
//! direction. Printed raw they forge log lines and repaint terminals, so everything that is shown
//! to people goes through [`escape`] first.

use std::borrow::Cow;

/// How many characters [`excerpt`] shows before it cuts.
const EXCERPT_CHARS_MAX: usize = 64;

/// `text` with everything that is not plainly visible turned into an escape such as `\n` or
/// `\u{1b}`: control characters, line and paragraph separators, marks of reading direction,
/// characters of no width. A backslash becomes `\\`, so that no name can imitate an escape.
///
/// ```
/// use outpour_core::text::escape;
/// assert_eq!(escape("naïve name.txt"), "naïve name.txt");
/// assert_eq!(escape("a\n\u{1b}[2Jb"), r"a\n\u{1b}[2Jb");
/// ```
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c == '\\' || is_hidden(c)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\\' || is_hidden(c) {
            // `escape_debug` spells the common ones short, but leaves some marks as they are.
            match c {
                '\\' | '\n' | '\r' | '\t' | '\0' => safe.extend(c.escape_debug()),
                _ => safe.extend(c.escape_unicode()),
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Text inside an element of XML: markup is escaped, and control characters go.
///
/// ```
/// use outpour_core::text::escape_xml;
/// assert_eq!(escape_xml("a<b> & \u{7}c"), "a&lt;b&gt; &amp; c");
/// ```
pub fn escape_xml(text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    text.chars().filter(|c| !c.is_control()).collect()
}

/// [`escape`] for error messages that quote what was given: cut to a readable length.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((cut, _)) => Cow::Owned(format!("{}...", escape(&text[..cut]))),
        None => escape(text),
    }
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'                        // soft hyphen
            | '\u{61c}'                     // Arabic letter mark
            | '\u{180e}'                    // Mongolian vowel separator
            | '\u{200b}'..='\u{200f}'       // no width; reading direction
            | '\u{2028}'..='\u{202e}'       // line, paragraph; embedding and override
            | '\u{2060}'..='\u{206f}'       // joiners; isolates
            | '\u{fe00}'..='\u{fe0f}'       // variation selectors
            | '\u{feff}'                    // byte order mark
            | '\u{fff9}'..='\u{fffb}'       // interlinear annotation
            | '\u{e0000}'..='\u{e0fff}'     // tags
        )
}

/// An error and its causes in one line; a cause that is part of the line already is left out.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_codes_and_direction_marks_become_visible() {
        assert_eq!(escape("\u{1b}]0;x\u{7}"), r"\u{1b}]0;x\u{7}");
        assert_eq!(escape("\u{9b}31m"), r"\u{9b}31m");
        assert_eq!(escape("gpj.\u{202e}exe"), r"gpj.\u{202e}exe");
        assert_eq!(escape("a\u{2066}b\u{200f}"), r"a\u{2066}b\u{200f}");
        assert_eq!(escape("one\r\ntwo\tthree\0"), r"one\r\ntwo\tthree\0");
        assert_eq!(escape("\u{2028}"), r"\u{2028}");
    }

    #[test]
    fn a_literal_backslash_cannot_imitate_an_escape() {
        assert_eq!(escape(r"a\n"), r"a\\n");
        assert_ne!(escape(r"a\n"), escape("a\n"));
    }

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(escape("Käse 奶酪 🧀"), Cow::Borrowed(_)));
    }

    #[test]
    fn excerpts_end_and_stay_safe() {
        assert_eq!(excerpt("short"), "short");
        let long = excerpt(&"\n".repeat(10_000)).into_owned();
        assert_eq!(long, format!("{}...", r"\n".repeat(64)));
    }

    proptest! {
        #[test]
        fn what_is_printed_hides_nothing_and_tells_all_names_apart(a in ".*", b in ".*") {
            prop_assert!(!escape(&a).chars().any(is_hidden));
            prop_assert_eq!(escape(&a) == escape(&b), a == b);
        }
    }
}
