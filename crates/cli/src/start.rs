//! From the arguments of a process to its exit code.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::Output;
use crate::out::{self, Failure};
use crate::signals;

const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// The command line of a program.
pub trait CommandLine: Parser {
    /// How often `--verbose` was given.
    fn verbose(&self) -> u8;

    /// How it was asked to print, if its command can be asked for JSON.
    fn output(&self) -> Option<Output>;

    /// Does what it says.
    ///
    /// # Errors
    /// If the command line turns out to be wrong, or the command fails.
    fn run(self) -> Result<(), Failure>;
}

/// Runs a program: what is wrong with its command line, and why it failed, is said in one line.
pub fn start<C: CommandLine>() -> ExitCode {
    out::name_program(C::command().get_name());
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misuse(&error),
    };
    start_log(cli.verbose());
    if let Err(error) = signals::survive_large_files() {
        tracing::debug!(%error, "a write beyond the limit on file size will end this program");
    }
    let output = cli.output();
    let done = cli.run();
    if let Some(why) = out::unwritten() {
        out::complain(why);
    }
    match done {
        Ok(()) if out::unwritten().is_some() => ExitCode::from(FAILED),
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Reported) => ExitCode::from(FAILED),
        Err(Failure::Code(code)) => ExitCode::from(code),
        Err(Failure::Failed(line)) => {
            out::complain(&line);
            if output.is_some_and(|output| output.json) {
                out::json(&serde_json::json!({ "error": line }));
            }
            ExitCode::from(FAILED)
        }
        Err(Failure::Usage(line)) => {
            out::complain(line);
            ExitCode::from(USAGE)
        }
    }
}

/// Says what is wrong with the command line in one line, or prints the help that was asked for.
fn misuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            if let Err(error) = error.print() {
                out::note_unwritten(&error);
            }
            match out::unwritten() {
                None => ExitCode::SUCCESS,
                Some(why) => {
                    out::complain(why);
                    ExitCode::from(FAILED)
                }
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(USAGE)
        }
        _ => {
            out::complain(in_words(one_line(&error.render().to_string())));
            ExitCode::from(USAGE)
        }
    }
}

/// What the standard library says of numbers, for people who never heard of strings and types.
fn in_words(mut line: String) -> String {
    let words = [
        ("invalid digit found in string", "it is not a whole number"),
        ("cannot parse integer from empty string", "it is empty"),
        ("number too large to fit in target type", "it is too large"),
        ("number too small to fit in target type", "it is too small"),
        ("invalid float literal", "it is not a number"),
        ("cannot parse float from empty string", "it is empty"),
    ];
    for (said, meant) in words {
        if line.contains(&format!("': {said}")) {
            line = line.replace(said, meant);
        }
    }
    line
}

/// The paragraphs of an error of the parser as one line, without the usage that follows.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut line = String::new();
    for part in text.lines().map(str::trim) {
        if part.starts_with("Usage:") || part.starts_with("For more information") {
            break;
        }
        let joint = match line.as_str() {
            "" => "",
            line if line.ends_with(':') || part.starts_with('[') => " ",
            _ => "; ",
        };
        if !part.is_empty() {
            line.push_str(joint);
            line.push_str(part);
        }
    }
    let help = text
        .rsplit_once("try '")
        .and_then(|(_, rest)| rest.split_once('\''));
    if let Some(("--help", _)) = help {
        line.push_str("; try --help");
    }
    line
}

/// Sends the program's log to standard error; silent unless asked for.
fn start_log(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let level = match verbose {
        0 => "off",
        1 => {
            "outpour_cli=debug,outpour::agent=debug,outpour::launch=debug,outpour_agent=debug,\
             outpour_net=debug,outpour_store=debug"
        }
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("OUTPOUR_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false);
    // Only a second subscriber could fail to start, and there is none.
    let _ = log.try_init();
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn an_error_of_the_parser_becomes_one_line() {
        let text = "error: invalid value 'x' for '--protocol <NAME>'\n  [possible values: a, b]\n\n\
                    For more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "invalid value 'x' for '--protocol <NAME>' [possible values: a, b]; try --help"
        );
        let text = "error: the following required arguments were not provided:\n  <SOURCE>\n\n\
                    Usage: outpour cast <SOURCE>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "the following required arguments were not provided: <SOURCE>; try --help"
        );
        let text = "error: unexpected argument '--limt' found\n\n  tip: a similar argument exists: \
                    '--limit'\n\nUsage: x\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--limt' found; tip: a similar argument exists: '--limit'; try \
             --help"
        );
    }
}
