//! Addresses of host names.
//!
//! A statically linked C library cannot load the host's name services (LDAP, mDNS, systemd), so
//! `getent`, which can, is asked first.

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// How long a name service may take.
const LOOKUP_WAIT: Duration = Duration::from_secs(15);

/// How many addresses of one host are tried.
const ADDRESSES_MAX: usize = 8;

/// Finds the addresses of `host`, a name or an address.
///
/// # Errors
/// One line, if the name is unknown or the lookup fails.
pub(super) async fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let found = match getent(host).await {
        Some(found) => found,
        None => system(host).await?,
    };
    if found.is_empty() {
        return Err("unknown host; check its name".to_owned());
    }
    Ok(found)
}

/// Asks `getent`; `None` if it cannot be asked.
async fn getent(host: &str) -> Option<Vec<IpAddr>> {
    let asked = Command::new("getent")
        .args(["ahosts", "--", host])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LOOKUP_WAIT, asked).await.ok()?.ok()?;
    // 2: the name is not known; others: `getent` is of another make.
    match output.status.code() {
        Some(0) => Some(addresses(&String::from_utf8_lossy(&output.stdout))),
        Some(2) => Some(Vec::new()),
        _ => None,
    }
}

/// The addresses in what `getent ahosts` prints, each once and in its order.
fn addresses(text: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let address = line
            .split_ascii_whitespace()
            .next()
            .and_then(|word| word.parse().ok());
        if let Some(address) = address
            && !found.contains(&address)
            && found.len() < ADDRESSES_MAX
        {
            found.push(address);
        }
    }
    found
}

/// Asks the C library this program carries.
async fn system(host: &str) -> Result<Vec<IpAddr>, String> {
    match timeout(LOOKUP_WAIT, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => {
            let mut found: Vec<_> = found.map(|address| address.ip()).collect();
            found.dedup();
            found.truncate(ADDRESSES_MAX);
            Ok(found)
        }
        Ok(Err(error)) => Err(format!("cannot look up its address: {error}")),
        Err(_) => Err("cannot look up its address: no answer in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn names_and_addresses_are_found_and_unknown_ones_said() {
        assert_eq!(
            resolve("192.0.2.1").await.unwrap(),
            ["192.0.2.1".parse::<IpAddr>().unwrap()]
        );
        assert_eq!(resolve("::1").await.unwrap().len(), 1);
        assert!(
            resolve("localhost")
                .await
                .unwrap()
                .iter()
                .all(IpAddr::is_loopback)
        );
        let line = resolve("no-such-host.invalid").await.unwrap_err();
        assert!(!line.contains('\n') && !line.is_empty());
    }

    #[test]
    fn each_address_counts_once() {
        let text = "127.0.0.1 STREAM localhost\n127.0.0.1 DGRAM\nnonsense\n::1 STREAM\n";
        assert_eq!(addresses(text).len(), 2);
        let many: String = (0..100).map(|n| format!("10.0.0.{n} STREAM x\n")).collect();
        assert_eq!(addresses(&many).len(), ADDRESSES_MAX);
    }
}
