//! Completions and manual pages, made from the definition of the command line.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::out::{self, Failure};

/// Prints the completions of a shell.
pub fn completions<C: CommandFactory>(shell: Shell) {
    let mut script = Vec::new();
    let mut command = C::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    out::result(String::from_utf8_lossy(&script).trim_end());
}

/// Prints all pages of the manual, or writes one file per page.
///
/// # Errors
/// If they cannot be written.
pub fn man<C: CommandFactory>(directory: Option<&Path>) -> Result<(), Failure> {
    let mut command = C::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)
        .map_err(|error| Failure::Failed(format!("cannot write the manual: {error}")))?;
    let Some(directory) = directory else {
        for (_, page) in pages {
            out::result(String::from_utf8_lossy(&page).trim_end());
        }
        return Ok(());
    };
    let fail = |path: &Path, error| {
        let path = path.display().to_string();
        Failure::Failed(format!(
            "{}: cannot write: {error}",
            outpour_core::text::escape(&path)
        ))
    };
    fs::create_dir_all(directory).map_err(|error| fail(directory, error))?;
    for (name, page) in pages {
        let path = directory.join(format!("{name}.1"));
        fs::write(&path, page).map_err(|error| fail(&path, error))?;
    }
    Ok(())
}

/// Renders the page of a command, then those of its subcommands.
fn collect(command: &clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    pages.push((name.to_owned(), page));
    command
        .get_subcommands()
        .try_for_each(|sub| collect(sub, pages))
}
