//! Casts through services and writes every event as a line of JSON.
//!
//! cargo run -p outpour --example events -- SOURCE DESTINATION...
//!
//! A destination is `host[:port]:/path`, with ranges. The services trust the operator whose identity
//! is where `outpour trust init` put it.

use std::error::Error;
use std::io::{self, Write};

use outpour::{Cast, CastReport, Reach};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let source = arguments.next().ok_or("which source?")?;
    let reach = Reach::Services { trust: None };
    let cast = arguments.fold(Cast::new(source).reach(reach), Cast::to);
    let runtime = tokio::runtime::Runtime::new()?;
    let report = runtime.block_on(follow(cast, &mut io::stdout()))?;
    if !report.verified() {
        return Err("not every host has a verified copy".into());
    }
    Ok(())
}

/// Casts, and writes what happens, the end of it last.
pub(crate) async fn follow(cast: Cast, out: &mut impl Write) -> Result<CastReport, Box<dyn Error>> {
    let running = cast.start()?;
    let mut events = running.events();
    while let Some(event) = events.next().await {
        writeln!(out, "{}", serde_json::to_string(&event)?)?;
    }
    Ok(running.finish().await?)
}
