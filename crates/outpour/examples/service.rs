//! Runs an agent as a service, until it is interrupted, and writes every event as a line of JSON.
//!
//! cargo run -p outpour --example service -- IDENTITY DIRECTORY
//!
//! `outpour trust issue` makes the identity. Casts read and write beneath the directory only.

use std::error::Error;
use std::io::{self, Write};
use std::pin::pin;

use outpour::agent::{Agent, Service};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let identity = arguments.next().ok_or("which identity?")?;
    let directory = arguments.next().ok_or("which directory?")?;
    let agent = Agent::new().root(directory);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let service = agent.start(identity).await?;
        writeln!(io::stderr(), "listening on {}", service.local_addr())?;
        let interrupt = async {
            // Without a handler the signal ends the program by itself.
            let _ = tokio::signal::ctrl_c().await;
        };
        Ok(follow(service, interrupt, &mut io::stdout()).await?)
    })
}

/// Writes what happens in a service until `end` comes, and stops the service then.
pub(crate) async fn follow(
    mut service: Service,
    end: impl Future<Output = ()>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut end = pin!(end);
    loop {
        tokio::select! {
            event = service.next() => writeln!(out, "{}", serde_json::to_string(&event)?)?,
            () = &mut end => break,
        }
    }
    service.stop().await;
    Ok(())
}
