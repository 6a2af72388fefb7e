//! `outpour trust`: the identities of operators and of agents that run as a service.

use std::ffi::OsString;
use std::path::Path;

use outpour::launch::{Keep, keep, trust_dir, unusable};
use outpour::{Destination, NetError, Signer};
use outpour_core::text::escape;
use outpour_net::trust::{Directory, Grant, Issued, Kind, Lifetime, shown};
use serde::Serialize;

use super::block_on;
use crate::args::trust::{
    Days, IssueArgs, ListArgs, OperatorArgs, RenewArgs, RevokeArgs, SignerArgs, TrustCommand,
};
use crate::hosts;
use crate::out::{self, Failure};

/// Runs the command.
///
/// # Errors
/// If the files cannot be made, are there already, or a host could not be called.
pub fn run(command: TrustCommand) -> Result<(), Failure> {
    match command {
        TrustCommand::Init { trust } => {
            let dir = trust_dir(trust.dir.as_deref())?;
            let made = Directory::at(&dir).init();
            made.map_err(|error| Failure::from_error(&error))?;
            let dir = dir.display().to_string();
            out::result(format!("{}: an authority and an operator", escape(&dir)));
            Ok(())
        }
        TrustCommand::Issue(args) => issue(&args),
        TrustCommand::Operator(args) => operator(args),
        TrustCommand::Renew(args) => renew(&args),
        TrustCommand::List(args) => list(&args),
        TrustCommand::Revoke(args) => revoke(&args),
        TrustCommand::Signer(args) => signer(&args),
    }
}

fn issue(args: &IssueArgs) -> Result<(), Failure> {
    let dir = trust_dir(args.trust.dir.as_deref())?;
    let issued = Directory::at(&dir).issue(&args.host, lifetime(args.days)?, &args.output);
    issued.map_err(|error| unusable(&dir, error))?;
    let (file, host) = (args.output.display().to_string(), &args.host);
    out::result(format!("{}: the agent on {}", escape(&file), escape(host)));
    Ok(())
}

fn operator(args: OperatorArgs) -> Result<(), Failure> {
    let dir = trust_dir(args.trust.dir.as_deref())?;
    let lifetime = lifetime(args.days)?;
    let directory = Directory::at(&dir);
    let before = directory.granted(&args.name);
    let before = before.map_err(|error| unusable(&dir, error))?;
    if before.is_none() && !args.unrestricted && args.output.join("operator.pem").exists() {
        return Err(Failure::Failed(format!(
            "{}: what was granted to operator {} is not on record any more; say it with --root and --host, and \
             --unrestricted",
            escape(&args.output.display().to_string()),
            escape(&args.name)
        )));
    }
    let before = before.filter(|_| !args.unrestricted).unwrap_or_default();
    let roots = match (args.roots, before.roots()) {
        (roots, Some(before)) if roots.is_empty() => before.to_vec(),
        (roots, _) => roots,
    };
    let hosts = match args.hosts {
        hosts if hosts.is_empty() => before.hosts().to_vec(),
        hosts => hosts,
    };
    let grant = Grant::new(roots, hosts);
    let grant = grant.map_err(|error| Failure::Usage(error.to_string()))?;
    let issued = directory.issue_operator(&args.name, &grant, lifetime, &args.output);
    issued.map_err(|error| unusable(&dir, error))?;
    let (to, name) = (args.output.display().to_string(), &args.name);
    out::result(format!("{}: operator {}", escape(&to), escape(name)));
    Ok(())
}

fn lifetime(days: Days) -> Result<Lifetime, Failure> {
    Lifetime::days(days.days).map_err(|error| Failure::Usage(error.to_string()))
}

fn renew(args: &RenewArgs) -> Result<(), Failure> {
    let dir = trust_dir(args.trust.dir.as_deref())?;
    let directory = Directory::at(&dir);
    let failed = |error: NetError| Failure::from(unusable(&dir, error));
    if directory.renew_operator(|_| true).map_err(failed)? {
        out::result("the operator: renewed");
    }
    let what = Keep {
        renew: true,
        revoked: directory.revoked_operators().map_err(failed)?,
    };
    let hosts = match args.hosts.is_empty() {
        true => recorded(&directory).map_err(failed)?,
        false => hosts_of(&args.hosts)?,
    };
    call(&dir, hosts, what, "renewed")
}

fn revoke(args: &RevokeArgs) -> Result<(), Failure> {
    let dir = trust_dir(args.trust.dir.as_deref())?;
    let directory = Directory::at(&dir);
    let failed = |error: NetError| Failure::from(unusable(&dir, error));
    // What is wrong with them is said before anything is revoked.
    let asked_for = hosts_of(&args.tell)?;
    let revocation = directory.revoke(&args.name).map_err(failed)?;
    for issued in &revocation.certificates {
        out::result(format!("{}: revoked", named(issued)));
    }
    let Some(list) = revocation.for_agents.filter(|_| !args.no_tell) else {
        return Ok(());
    };
    let hosts = match asked_for.is_empty() {
        true => recorded(&directory).map_err(failed)?,
        false => asked_for,
    };
    let what = Keep {
        renew: false,
        revoked: Some(list),
    };
    call(&dir, hosts, what, "told")
}

fn hosts_of(words: &[OsString]) -> Result<Vec<Destination>, Failure> {
    match words {
        [] => Ok(Vec::new()),
        words => hosts::collect_hosts(words, &[]),
    }
}

fn recorded(directory: &Directory) -> Result<Vec<Destination>, NetError> {
    let hosts = directory.hosts()?.into_iter();
    Ok(hosts.map(Destination::service_on).collect())
}

/// Calls the agents on hosts and says what came of it.
fn call(trust: &Path, hosts: Vec<Destination>, what: Keep, done: &str) -> Result<(), Failure> {
    let kept = block_on(async { Ok(keep(trust, hosts, what).await?) })?;
    let mut failed = false;
    for (host, result) in kept {
        match result {
            Ok(()) => out::result(format!("{}: {done}", escape(&host))),
            Err(error) => {
                failed = true;
                out::complain(format!("{}: {error}", escape(&host)));
            }
        }
    }
    match failed {
        true => Err(Failure::Reported),
        false => Ok(()),
    }
}

fn signer(args: &SignerArgs) -> Result<(), Failure> {
    let key = Signer::create(&args.output).map_err(|error| Failure::from_error(&error))?;
    out::result(key);
    Ok(())
}

/// An identity, as `trust list` prints it.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    issued: Issued,
    valid_until: String,
    revoked: bool,
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let dir = trust_dir(args.trust.dir.as_deref())?;
    let issued = Directory::at(&dir).issued();
    let issued = issued.map_err(|error| unusable(&dir, error))?.into_iter();
    let listed: Vec<Listed> = issued
        .map(|(issued, revoked)| Listed {
            valid_until: shown(issued.until()),
            issued,
            revoked,
        })
        .collect();
    if args.output.json {
        out::json(&listed);
    } else if !args.output.quiet {
        listed.iter().for_each(|listed| out::result(line(listed)));
    }
    Ok(())
}

fn line(listed: &Listed) -> String {
    let issued = &listed.issued;
    let roots = issued.grant.roots().unwrap_or_default().iter();
    let roots = roots.map(|root| format!(" root {}", escape(&root.display().to_string())));
    let hosts = issued.grant.hosts().iter();
    let hosts = hosts.map(|host| format!(" host {}", escape(host)));
    let grant: String = roots.chain(hosts).collect();
    let revoked = if listed.revoked { " revoked" } else { "" };
    let until = &listed.valid_until;
    format!("{} until {until}{grant}{revoked}", named(issued))
}

fn named(issued: &Issued) -> String {
    let kind = match issued.kind {
        Kind::Operator => "operator",
        Kind::Agent => "agent",
    };
    format!("{kind} {} {}", escape(&issued.name), issued.serial)
}
