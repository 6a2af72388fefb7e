//! Casts a file or a tree to directories of this machine, each through an agent of its own, and
//! prints how it goes.
//!
//! cargo run -p outpour --example progress -- SOURCE DIRECTORY...
//!
//! To cast to other hosts instead, name them as `host:/path` and leave `reach` away: then they are
//! reached through `ssh`, with the program `outpour` from the path.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use outpour::{Cast, CastReport, Event, Phase, Reach, agent};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    // This program is its own agent.
    if let Some(invocation) = agent::invoked(std::env::args_os().skip(1)) {
        let served = runtime.block_on(invocation.serve());
        runtime.shutdown_background();
        return Ok(served?);
    }
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let source = arguments.next().ok_or("which source?")?;
    let directories: Vec<PathBuf> = arguments
        .map(std::path::absolute)
        .collect::<Result<_, _>>()?;
    let agent = std::env::current_exe()?;
    let mut out = io::stdout();
    let report = runtime.block_on(cast(&source, &directories, agent, &mut out))?;
    if !report.verified() {
        return Err("not every directory has a verified copy".into());
    }
    Ok(())
}

/// Casts, and writes a line for each new state of affairs.
pub(crate) async fn cast(
    source: &Path,
    directories: &[PathBuf],
    agent: PathBuf,
    out: &mut impl Write,
) -> Result<CastReport, Box<dyn Error>> {
    let mut cast = Cast::new(source).reach(Reach::Local { agent });
    for (n, directory) in directories.iter().enumerate() {
        cast = cast.to(format!("copy{n}:{}", directory.display()));
    }
    let running = cast.start()?;
    let mut events = running.events();
    let mut last = None;
    while let Some(event) = events.next().await {
        let Event::Progress(now) = event else {
            break;
        };
        if last.as_ref().is_some_and(|before| !now.is_news(before)) {
            continue;
        }
        match now.phase {
            Phase::Hashing => writeln!(out, "{:.1} s: reading the source", now.elapsed_s)?,
            Phase::Starting => writeln!(out, "{:.1} s: starting agents", now.elapsed_s)?,
            _ => {
                let have: u64 = now.hosts.iter().map(|host| host.have_bytes).sum();
                let all = now.size_bytes * now.hosts.len() as u64;
                writeln!(
                    out,
                    "{:.1} s: {have} of {all} bytes are there",
                    now.elapsed_s
                )?;
            }
        }
        last = Some(now);
    }
    let report = running.finish().await?;
    for host in &report.hosts {
        match &host.error {
            None => writeln!(out, "{}: verified {} bytes", host.host, report.size_bytes)?,
            Some(error) => writeln!(out, "{}: {error}", host.host)?,
        }
    }
    Ok(report)
}
