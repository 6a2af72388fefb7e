//! Taking part in a cast: the other end of what [`crate::launch`] starts.
//!
//! A program that casts may be its own agent. It asks first whether it was called as one:
//!
//! ```no_run
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! if let Some(invocation) = outpour::agent::invoked(std::env::args_os().skip(1)) {
//!     return Ok(outpour::agent::serve_stdio(invocation.options()).await?);
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
pub struct Invocation {
    data_listen: Option<IpAddr>,
}

/// How the agent's program was called, if these arguments, the program's name left out, are those of
/// an agent: `agent --stdio`, and perhaps `--data-listen ADDRESS`.
pub fn invoked(arguments: impl IntoIterator<Item = OsString>) -> Option<Invocation> {
    let arguments: Vec<OsString> = arguments.into_iter().take(ARGUMENTS_MAX + 1).collect();
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    match words?[..] {
        ["agent", "--stdio"] => Some(Invocation { data_listen: None }),
        ["agent", "--stdio", "--data-listen", address] => Some(Invocation {
            data_listen: Some(address.parse().ok()?),
        }),
        _ => None,
    }
}

/// How many arguments an agent has at most.
const ARGUMENTS_MAX: usize = 4;

impl Invocation {
    /// The options that it asks for; file permissions alone confine what is written.
    pub fn options(self) -> SessionOptions {
        SessionOptions {
            roots: None,
            listen: self.data_listen.unwrap_or_else(everywhere),
            wrap: None,
        }
    }
}

/// Takes part in the one cast that is spoken of on standard input and output.
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
        let loopback = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let local = called(&["agent", "--stdio", "--data-listen", "127.0.0.1"]);
        assert_eq!(local.and_then(|it| it.data_listen), loopback);
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
