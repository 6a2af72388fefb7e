//! Taking part in a cast: the other end of what [`crate::launch`] starts.
//!
//! A program that casts may be its own agent. It asks first whether it was called as one:
//!
//! ```no_run
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! if let Some(invocation) = outpour::agent::invoked(std::env::args_os().skip(1)) {
//!     return Ok(invocation.serve().await?);
//! }
//! let agent = std::env::current_exe()?;
//! let cast = outpour::Cast::new("./model").reach(outpour::Reach::Local { agent });
//! # Ok(())
//! # }
//! ```

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

pub use outpour_agent::session::{SessionError, SessionOptions};

/// How a program was called as an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation(Asked);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Whether it runs at all.
    Version,
    /// To take part in a cast.
    Stdio { data_listen: Option<IpAddr> },
}

/// How the agent's program was called, if these arguments, the program's name left out, are those of
/// an agent: `agent --stdio`, perhaps with `--data-listen ADDRESS`, or `agent --version`.
pub fn invoked(arguments: impl IntoIterator<Item = OsString>) -> Option<Invocation> {
    let arguments: Vec<OsString> = arguments.into_iter().take(ARGUMENTS_MAX + 1).collect();
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    Some(Invocation(match words?[..] {
        ["agent", "--version"] => Asked::Version,
        ["agent", "--stdio"] => Asked::Stdio { data_listen: None },
        ["agent", "--stdio", "--data-listen", address] => Asked::Stdio {
            data_listen: Some(address.parse().ok()?),
        },
        _ => return None,
    }))
}

/// How many arguments an agent has at most.
const ARGUMENTS_MAX: usize = 4;

impl Invocation {
    /// Does what was asked for; file permissions alone confine what is written and read. See
    /// [`serve_stdio`].
    ///
    /// # Errors
    /// If the channel or the data plane fails, or the command goes away before the end.
    pub async fn serve(self) -> Result<(), SessionError> {
        match self.0 {
            // That it ends well is the answer.
            Asked::Version => Ok(()),
            Asked::Stdio { data_listen } => {
                let options = SessionOptions {
                    roots: None,
                    endpoint: None,
                    listen: data_listen.unwrap_or_else(everywhere),
                    wrap: None,
                };
                serve_stdio(options).await
            }
        }
    }
}

/// Takes part in the one cast that is spoken of on standard input and output.
///
/// When it is over, a thread of the runtime may still wait for more input;
/// [`tokio::runtime::Runtime::shutdown_background`] does not wait for that.
///
/// # Errors
/// If the channel or the data plane fails, or the command goes away before the end.
pub async fn serve_stdio(options: SessionOptions) -> Result<(), SessionError> {
    outpour_agent::session::serve(tokio::io::stdin(), tokio::io::stdout(), options).await
}

/// The address that means every address of this host, both families where there are two.
pub fn everywhere() -> IpAddr {
    let six = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match TcpListener::bind(SocketAddr::new(six, 0)) {
        Ok(_) => six,
        Err(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_called_as_launchers_call_it() {
        let called = |words: &[&str]| invoked(words.iter().map(OsString::from));
        assert!(called(&["agent", "--stdio"]).is_some());
        assert!(called(&["agent", "--version"]).is_some());
        let data_listen = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let local = called(&["agent", "--stdio", "--data-listen", "127.0.0.1"]);
        assert_eq!(local, Some(Invocation(Asked::Stdio { data_listen })));
        for other in [
            &[][..],
            &["agent"],
            &["--stdio", "agent"],
            &["agent", "--stdio", "more"],
            &["agent", "--stdio", "--data-listen", "nowhere"],
            &["agent", "--stdio", "--data-listen", "127.0.0.1", "more"],
        ] {
            assert_eq!(called(other), None, "{other:?}");
        }
    }
}
