//! What a path in a manifest may be. Everything that reaches a file system passes here first.

use std::fmt::Write as _;

/// The directory that holds the state of transfers; no object may have an entry of this name.
pub const STATE_DIR: &str = ".outpour";

/// The longest name of an entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The longest path of an entry and the longest symlink target, in bytes.
pub const PATH_BYTES_MAX: usize = 4095;

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadName {
    /// Nothing between two slashes, or at the start of an absolute path.
    #[error("an empty name")]
    Empty,
    /// `.` or `..`.
    #[error("names \".\" and \"..\" are not allowed")]
    Dots,
    /// A slash inside a name.
    #[error("a slash in a name")]
    Slash,
    /// A NUL or another control byte.
    #[error("control bytes are not allowed in names")]
    Control,
    /// More than [`NAME_BYTES_MAX`].
    #[error("a name longer than {NAME_BYTES_MAX} bytes")]
    NameTooLong,
    /// More than [`PATH_BYTES_MAX`].
    #[error("a path longer than {PATH_BYTES_MAX} bytes")]
    PathTooLong,
    /// [`STATE_DIR`].
    #[error("the name \"{STATE_DIR}\" is reserved for the state of transfers")]
    Reserved,
}

/// What is wrong with the target of a symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadTarget {
    /// No target at all.
    #[error("an empty target")]
    Empty,
    /// It begins with a slash.
    #[error("an absolute target; only relative ones inside the tree are carried over")]
    Absolute,
    /// It climbs out of the tree.
    #[error("the target is outside the tree")]
    Outside,
    /// `..` after a name: where that leads depends on what the name is.
    #[error("\"..\" after a name in the target; write it without")]
    DotsInside,
    /// A NUL or another control byte.
    #[error("control bytes are not allowed in targets")]
    Control,
    /// More than [`PATH_BYTES_MAX`].
    #[error("a target longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// It leads into [`STATE_DIR`].
    #[error("the name \"{STATE_DIR}\" is reserved for the state of transfers")]
    Reserved,
    /// A file object cannot consist of a link.
    #[error("a link has no bytes of its own")]
    Alone,
}

/// Checks one component of a path.
pub(super) fn check_name(name: &[u8]) -> Result<(), BadName> {
    if name.is_empty() {
        Err(BadName::Empty)
    } else if name == b"." || name == b".." {
        Err(BadName::Dots)
    } else if name.len() > NAME_BYTES_MAX {
        Err(BadName::NameTooLong)
    } else if name.contains(&b'/') {
        Err(BadName::Slash)
    } else if name.iter().any(u8::is_ascii_control) {
        Err(BadName::Control)
    } else if name == STATE_DIR.as_bytes() {
        Err(BadName::Reserved)
    } else {
        Ok(())
    }
}

/// Checks the target of a symlink whose directory lies `depth` levels below the root of the tree.
///
/// The rule: some `..` first, no more than `depth`, and only names after them. It is sound against
/// links that lead through other links: every `..` is resolved in the link's own directory, which
/// is a real directory of the tree, so it cannot leave the tree; and every name after that is an
/// entry of a directory inside the tree, where the same holds again if it is a link.
pub(super) fn check_target(target: &[u8], depth: usize) -> Result<(), BadTarget> {
    if target.is_empty() {
        return Err(BadTarget::Empty);
    }
    if target.len() > PATH_BYTES_MAX {
        return Err(BadTarget::TooLong);
    }
    if target.first() == Some(&b'/') {
        return Err(BadTarget::Absolute);
    }
    if target.iter().any(u8::is_ascii_control) {
        return Err(BadTarget::Control);
    }
    let mut climbed = 0;
    let mut named = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if named => return Err(BadTarget::DotsInside),
            b".." if climbed == depth => return Err(BadTarget::Outside),
            b".." => climbed += 1,
            _ if part == STATE_DIR.as_bytes() => return Err(BadTarget::Reserved),
            _ => named = true,
        }
    }
    Ok(())
}

/// A path as people may see it: what is not printable text is escaped (`\xff`, `\u{9b}`).
pub fn escape(path: &[u8]) -> String {
    let mut shown = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Besides control characters, those that turn the direction of text around.
            if c.is_control()
                || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            {
                shown.extend(c.escape_unicode());
            } else {
                shown.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_file_system_may_see_are_refused() {
        let long = [b'a'; NAME_BYTES_MAX + 1];
        for (name, problem) in [
            (&b""[..], BadName::Empty),
            (b".", BadName::Dots),
            (b"..", BadName::Dots),
            (b"a/b", BadName::Slash),
            (b"/", BadName::Slash),
            (b"a\0", BadName::Control),
            (b"a\n", BadName::Control),
            (b"\x1b[2J", BadName::Control),
            (b"\x7f", BadName::Control),
            (b".outpour", BadName::Reserved),
            (&long, BadName::NameTooLong),
        ] {
            assert_eq!(check_name(name), Err(problem), "{}", escape(name));
        }
        for name in [
            &b"..."[..],
            b" ",
            b"\xff\xfe",
            b".outpour2",
            "ä".as_bytes(),
            &long[1..],
        ] {
            assert_eq!(check_name(name), Ok(()), "{}", escape(name));
        }
    }

    #[test]
    fn targets_stay_inside_the_tree() {
        for (target, depth, expected) in [
            (&b"x"[..], 0, Ok(())),
            (b"./x//y/", 0, Ok(())),
            (b"..", 1, Ok(())),
            (b"../../a/b", 2, Ok(())),
            (b".././../a", 2, Ok(())),
            (b"..", 0, Err(BadTarget::Outside)),
            (b"../../a", 1, Err(BadTarget::Outside)),
            (b"a/../b", 3, Err(BadTarget::DotsInside)),
            (b"a/..", 0, Err(BadTarget::DotsInside)),
            (b"", 3, Err(BadTarget::Empty)),
            (b"/etc/passwd", 9, Err(BadTarget::Absolute)),
            (b"a\0b", 0, Err(BadTarget::Control)),
            (b"../.outpour/x", 1, Err(BadTarget::Reserved)),
        ] {
            assert_eq!(check_target(target, depth), expected, "{}", escape(target));
        }
        assert_eq!(check_target(&[b'a'; PATH_BYTES_MAX], 0), Ok(()));
        assert_eq!(
            check_target(&[b'a'; PATH_BYTES_MAX + 1], 0),
            Err(BadTarget::TooLong)
        );
    }

    #[test]
    fn shown_paths_cannot_drive_a_terminal() {
        assert_eq!(escape("grün/ß".as_bytes()), "grün/ß");
        assert_eq!(escape(b"a\x1b[2J\xff"), "a\\u{1b}[2J\\xff");
        assert_eq!(escape("\u{9b}\u{202e}".as_bytes()), "\\u{9b}\\u{202e}");
    }
}
