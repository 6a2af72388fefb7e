//! Globs over names: `*` stands for any run of characters, also none.

/// Whether `name` matches `pattern`, in time proportional to their product at worst.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and up to where it has swallowed the name so far.
    let mut star = None;
    while n < name.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                star = Some((p, n));
                p += 1;
            }
            (Some(byte), _) if *byte == name[n] => {
                p += 1;
                n += 1;
            }
            (_, Some((at, swallowed))) => {
                star = Some((at, swallowed + 1));
                p = at + 1;
                n = swallowed + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_match_any_run() {
        for (pattern, name) in [
            ("*", "A"),
            ("eu-*", "eu-west"),
            ("*-west", "eu-west"),
            ("e*w*t", "eu-west"),
            ("A", "A"),
            ("A*", "A"),
            ("**", ""),
            ("*ab", "aab"),
            ("*a*b*c", "xaxbxbxc"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "A"),
            ("A", "AA"),
            ("A*B", "A"),
            ("eu-*", "us-eu-"),
            ("*ab", "aba"),
            ("a", "A"),
            ("?", "A"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_stay_cheap() {
        assert!(!matches(&"*a".repeat(120), &"a".repeat(119)));
    }
}
