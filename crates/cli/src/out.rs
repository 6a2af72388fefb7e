//! What the program prints: results on standard output, the rest on standard error.
//!
//! Neither may bring it down. The reader of the output may stop reading (`outpour hash . | head`), and
//! an agent's standard error ends when the connection does; only unread output is lost. A result that
//! cannot be written for another reason, such as a full disk, makes the command fail once it has ended.

use outpour_core::text::chain;
use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

use serde::Serialize;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// It failed, for this reason: exit code 1.
    Failed(String),
    /// It failed, and has said how: exit code 1.
    Reported,
    /// It ran another program, which ended with this exit code and has said why.
    Code(u8),
}

impl Failure {
    /// A failure for the reason an error and its causes give.
    pub fn from_error(error: &dyn std::error::Error) -> Self {
        Self::Failed(chain(error))
    }
}

impl From<outpour::PlaceError> for Failure {
    fn from(error: outpour::PlaceError) -> Self {
        match error {
            outpour::PlaceError::Root { .. } => Self::Usage(format!("--root {error}")),
            outpour::PlaceError::Own { .. } => Self::Usage(format!("{error} with --root")),
            outpour::PlaceError::Plan { .. } => Self::Failed(error.to_string()),
            error => Self::Usage(error.to_string()),
        }
    }
}

impl From<outpour::Error> for Failure {
    fn from(error: outpour::Error) -> Self {
        match error {
            outpour::Error::Hosts(error) => crate::hosts::misuse(error),
            outpour::Error::Place(error) => error.into(),
            outpour::Error::Reach(error) => error.into(),
            outpour::Error::Plan(_) | outpour::Error::Protocol(_) => Self::Usage(error.to_string()),
            error => Self::from_error(&error),
        }
    }
}

/// The name under which the program complains.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Notes what the program is called.
pub(crate) fn name_program(name: &str) {
    // The first name stays: there is one program in a process.
    PROGRAM.get_or_init(|| name.to_owned());
}

/// What the program is called.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("outpour", String::as_str)
}

/// Why a result is not where it should be, the first time.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Prints a result for people.
pub fn result(text: impl fmt::Display) {
    if let Err(error) = write(&mut io::stdout().lock(), format_args!("{text}")) {
        note_unwritten(&error);
    }
}

/// Notes that a result was not written, unless its reader has gone: that one has read what it wanted.
pub(crate) fn note_unwritten(error: &io::Error) {
    if error.kind() != io::ErrorKind::BrokenPipe {
        UNWRITTEN.get_or_init(|| format!("cannot write the result: {error}"));
    }
}

/// Why a result was not written, if one was not.
pub(crate) fn unwritten() -> Option<&'static str> {
    UNWRITTEN.get().map(String::as_str)
}

/// Prints the one JSON document of a command.
pub fn json(document: &impl Serialize) {
    // Plain data with text keys always serialises.
    if let Ok(text) = serde_json::to_string_pretty(document) {
        result(text);
    }
}

/// Prints a line about what went wrong, or is worth knowing.
pub fn complain(text: impl fmt::Display) {
    let line = format_args!("{}: {text}", program());
    // There is nowhere left to say that it cannot be said.
    let _ = write(&mut io::stderr().lock(), line);
}

fn write(to: &mut impl Write, text: fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(to, "{text}").and_then(|()| to.flush())
}
