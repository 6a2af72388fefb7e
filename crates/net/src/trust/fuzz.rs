//! What is done with arbitrary bytes as files and messages of trust, to find out whether they are borne; for tests.

use std::path::Path;
use std::time::SystemTime;

use rcgen::{CertificateSigningRequestParams, KeyPair};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::CertificateSigningRequestDer;

use super::certified::{Certified, Subject};
use super::grant::Grant;
use super::revoked::Revoked;
use super::signing::PublicKey;
use super::{agent, files, record, shown};

/// Files: the identity of an agent, that of an operator, keys, the public key of a signer, the record of what was
/// issued. The first byte says which.
pub fn trust_files(bytes: &[u8]) {
    let [kind, rest @ ..] = bytes else {
        return;
    };
    let path = Path::new("input");
    if kind % 5 == 4 {
        if let Ok(all) = record::parse(rest, path) {
            assert!(all.len() <= rest.len());
            let text = record::print(&all, path).unwrap_or_default();
            assert_eq!(record::parse(&text, path).ok().as_ref(), Some(&all));
            for issued in all {
                let _ = (issued.is_valid(), shown(issued.until()));
                assert!(issued.serial.bytes().len() <= rest.len());
            }
        }
        return;
    }
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    match kind % 5 {
        0 => agent::fuzz(text, path),
        1 => {
            if let Ok((certificates, _)) = files::parse(text, path) {
                certificates.iter().for_each(|der| certificate(der));
            }
        }
        2 => {
            if let Ok(key) = files::key(text, path)
                && let Ok(pair) = Ed25519KeyPair::from_pkcs8(&key)
            {
                let public = PublicKey::of(pair.public_key());
                assert!(public.map(|key| key.to_string().len()) == Some(64));
            }
            let _ = KeyPair::from_pem(text);
        }
        _ => {
            if let Ok(key) = text.parse::<PublicKey>() {
                assert_eq!(key.to_string().parse().ok(), Some(key));
                assert!(!key.has_signed(&[0; 32], rest));
            }
        }
    }
}

/// What operators and agents send each other, as if its signature was right: certificates, requests for them, lists
/// of revoked ones, and the names that say what is granted. The first byte says which.
pub fn trust_certificates(bytes: &[u8]) {
    let [kind, rest @ ..] = bytes else {
        return;
    };
    match kind % 4 {
        0 => certificate(rest),
        1 => {
            let request = CertificateSigningRequestDer::from(rest);
            let _ = CertificateSigningRequestParams::from_der(&request);
        }
        2 => {
            if let Ok(list) = Revoked::parse(rest) {
                assert!(list.len() <= rest.len() && list.der() == rest);
                assert!(list.continues(&list));
                let empty = Revoked::default();
                assert!(list.number() == 0 || list.continues(&empty));
                assert!(!empty.continues(&list));
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(rest) {
                granted(Grant::read(text.split('\n')));
            }
        }
    }
}

/// What is let through says whose it is, and can be asked how long it lasts.
fn certificate(der: &[u8]) {
    let Ok(certified) = Certified::read(der) else {
        return;
    };
    let _ = (certified.lifetime(), shown(certified.until()));
    let _ = certified.is_due(SystemTime::UNIX_EPOCH);
    assert!(certified.serial.bytes().len() <= der.len());
    match certified.subject {
        Subject::Agent(host) => assert!(host.len() <= der.len()),
        Subject::Operator(name, grant) => granted(Ok((name, grant))),
    }
}

/// What is granted can be written down, and is read as the same.
fn granted(read: Result<(String, Grant), &'static str>) {
    if let Ok((name, grant)) = read {
        let names = grant.names(&name);
        let again = Grant::read(names.iter().map(String::as_str));
        assert_eq!(again, Ok((name, grant)));
    }
}
