//! One line about what went wrong with `ssh`, out of what it printed.

use outpour_core::text::escape;

/// What `ssh` prints, what to say instead, and what the user can do. The first that fits counts.
const KNOWN: [(&str, &str); 13] = [
    (
        "Could not resolve hostname",
        "unknown host; check its name, or add it to ~/.ssh/config",
    ),
    (
        "Connection refused",
        "connection refused{port}; is sshd running there?",
    ),
    (
        "timed out",
        "no answer{port}; is the host up, and reachable from here?",
    ),
    (
        "No route to host",
        "no route to host{port}; is the host up, and reachable from here?",
    ),
    (
        "Network is unreachable",
        "the network is unreachable from here{port}",
    ),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key has changed; if that is right, remove the old one with `ssh-keygen -R`",
    ),
    (
        "Host key verification failed",
        "host key verification failed; log in once with `ssh` to accept its key",
    ),
    (
        "Permission denied",
        "permission denied; outpour cannot type a password: load a key with `ssh-add`, or set \
         IdentityFile in ~/.ssh/config",
    ),
    (
        "Too many authentication failures",
        "too many authentication failures; set IdentityFile and IdentitiesOnly in ~/.ssh/config",
    ),
    (
        "Bad configuration option",
        "{line}; check the options for ssh and ~/.ssh/config",
    ),
    ("command-line line 0", "{line}; check the options for ssh"),
    (
        "kex_exchange_identification",
        "the server closed the connection at once{port}",
    ),
    (
        "Connection closed by",
        "the server closed the connection{port}",
    ),
];

/// Says in one line why `ssh` ended without an agent at its other end.
///
/// `said` is what it printed on standard error, `noise` the host's output instead of an
/// answer, `status` how it ended if it did.
pub(super) fn explain(said: &str, noise: &str, status: Option<i32>) -> String {
    for (sign, line) in KNOWN {
        if let Some(found) = said.lines().rev().find(|line| line.contains(sign)) {
            let line = line.replace("{port}", &port(found));
            return format!("ssh: {}", line.replace("{line}", &shown(found)));
        }
    }
    let last = |text: &str| {
        text.lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty())
            .map(shown)
    };
    match (last(said), last(noise), status) {
        (Some(said), _, _) => format!("ssh: {said}"),
        (None, Some(noise), _) => {
            format!("ssh: the login shell did not start outpour; it said: {noise}")
        }
        (None, None, Some(status)) => {
            format!("ssh: ended with status {status} before outpour was started")
        }
        (None, None, None) => "ssh: no answer from the login shell".to_owned(),
    }
}

/// The port out of `connect to host NAME port 22: ...`, as a message has it.
fn port(line: &str) -> String {
    let digits = line.split_once(" port ").map(|(_, rest)| {
        rest.chars()
            .take_while(char::is_ascii_digit)
            .take(5)
            .collect::<String>()
    });
    match digits {
        Some(digits) if !digits.is_empty() => format!(" (port {digits})"),
        _ => String::new(),
    }
}

/// A line from elsewhere, escaped and short.
fn shown(line: &str) -> String {
    const SHOWN_MAX: usize = 200;
    let line: String = line.trim().chars().take(SHOWN_MAX).collect();
    escape(line.strip_prefix("ssh: ").unwrap_or(&line)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_prints_becomes_one_line_with_a_way_out() {
        let said = [
            (
                "ssh: Could not resolve hostname node07: Name or service not known\r\n",
                "ssh: unknown host; check its name, or add it to ~/.ssh/config",
            ),
            (
                "ssh: connect to host 127.0.0.1 port 2201: Connection refused\r\n",
                "ssh: connection refused (port 2201); is sshd running there?",
            ),
            (
                "ssh: connect to host 10.0.0.1 port 22: Connection timed out\r\n",
                "ssh: no answer (port 22); is the host up, and reachable from here?",
            ),
            (
                "No ED25519 host key is known for a and you have requested strict checking.\r\n\
                 Host key verification failed.\r\n",
                "ssh: host key verification failed; log in once with `ssh` to accept its key",
            ),
            (
                "root@127.0.0.1: Permission denied (publickey).\r\n",
                "ssh: permission denied; outpour cannot type a password: load a key with \
                 `ssh-add`, or set IdentityFile in ~/.ssh/config",
            ),
            (
                "command-line: line 0: Bad configuration option: nonsense\r\n",
                "ssh: command-line: line 0: Bad configuration option: nonsense; check \
                 the options for ssh and ~/.ssh/config",
            ),
            ("\n  something new\n\n", "ssh: something new"),
        ];
        for (said, line) in said {
            assert_eq!(explain(said, "", Some(255)), line);
        }
    }

    #[test]
    fn silence_is_explained_too_and_nothing_reaches_the_terminal_raw() {
        assert_eq!(
            explain(
                "",
                "hello\nThis account is currently not available.\n",
                Some(1)
            ),
            "ssh: the login shell did not start outpour; it said: This account is currently not \
             available."
        );
        assert_eq!(
            explain("", "", Some(127)),
            "ssh: ended with status 127 before outpour was started"
        );
        assert_eq!(
            explain(" \n", "\n", None),
            "ssh: no answer from the login shell"
        );
        assert!(!explain("\u{1b}]0;title\u{7}", "", None).contains('\u{1b}'));
        assert!(explain(&"x".repeat(5000), "", None).len() < 250);
    }
}
