//! What is done with arbitrary bytes as what a person writes, to find out whether it is borne; for tests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::hosts::{HOSTS_MAX, file};
use crate::{Destination, Destinations, HostRange};

/// A hosts file.
pub fn hosts_file(bytes: &[u8]) {
    match file::parse(bytes, Path::new("/data/{host}")) {
        Ok(all) => harmless(&all),
        Err((line, fault)) => {
            assert!((1..=bytes.len() + 1).contains(&line));
            assert!(!fault.to_string().contains(char::is_control), "{fault}");
        }
    }
}

/// Destinations as arguments, one a line.
pub fn hosts(bytes: &[u8]) {
    let mut all = Destinations::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let text = OsStr::from_bytes(line);
        for added in [all.add(text), all.add_hosts(text)] {
            if let Err(error) = added {
                assert!(!error.to_string().contains(char::is_control), "{error}");
            }
        }
    }
    if let Ok(all) = all.finish() {
        harmless(&all);
        let mut names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        assert!(
            names.windows(2).all(|two| two[0] != two[1]),
            "one name for two places"
        );
    }
}

/// Nothing of a host can be taken for an option or a command, and it is written as it was read.
fn harmless(all: &[Destination]) {
    assert!(all.len() <= HOSTS_MAX);
    for one in all {
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-:%".contains(c);
        assert!(
            !one.host.is_empty() && !one.host.starts_with('-'),
            "{}",
            one.host
        );
        assert!(one.host.chars().all(fine), "{}", one.host);
        assert!(one.path.is_absolute());
        if let Some(user) = &one.user {
            assert!(!user.is_empty() && !user.starts_with('-'), "{user}");
        }
        assert!(!one.name.contains(char::is_control), "{}", one.name);
    }
    // Ranges are over once they are expanded.
    if let Some(one) = all.first()
        && let Ok(range) = one.name.parse::<HostRange>()
    {
        assert_eq!(range.names(), std::slice::from_ref(&one.host));
    }
}

/// A plan as the planner prints it.
pub fn plan(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        crate::place::fuzz(text);
    }
}
