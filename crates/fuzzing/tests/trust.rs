//! What trust directories really hold, and what operators and agents really send each other, is understood, and borne
//! however it is changed. `OUTPOUR_BLESS=1` writes it down where fuzzers begin.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use outpour_fuzzing::run;
use outpour_net::trust::{Agent, Directory, Grant, Lifetime, Signer};

/// Hands a target what is of this kind, as it is, cut off, and with bytes changed.
fn say(target: &str, name: &str, kind: u8, body: &[u8]) {
    let bytes = [&[kind], body].concat();
    if option_env!("OUTPOUR_BLESS").is_some() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        fs::write(corpus.join(target).join(name), &bytes).unwrap();
    }
    run(target, &bytes);
    // Files with keys are long, and a key takes long to read.
    let step = bytes.len().div_ceil(300);
    for at in (0..bytes.len()).step_by(step) {
        run(target, &bytes[..at]);
        for mask in [1, 0x80, 0xff] {
            let mut turned = bytes.clone();
            turned[at] ^= mask;
            run(target, &turned);
        }
    }
}

fn der(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap();
    pem::parse_many(text).unwrap()[0].contents().to_vec()
}

#[test]
fn files_and_messages_of_trust_are_borne_however_they_are_changed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let trust = Directory::at(at("trust"));
    trust.init().unwrap();
    let file = at("agent.pem");
    let life = Lifetime::default();
    trust.issue("node7.example.org", life, &file).unwrap();
    trust.issue("fe80::1", life, &at("numbered.pem")).unwrap();
    let grant = Grant::new(
        vec!["/srv/a b".into()],
        vec!["gpu*".into(), "10.0.0.7".into()],
    );
    let ana = at("ana");
    trust
        .issue_operator("ana@build-1", &grant.unwrap(), life, &ana)
        .unwrap();
    Signer::create(&at("signer")).unwrap();

    let texts = [
        ("agent", 0, file.clone()),
        ("operator", 1, ana.join("operator.pem")),
        ("authority-key", 2, at("trust/agent-ca.key")),
        ("signer", 2, at("signer")),
        ("signer-public", 3, at("signer.pub")),
        ("issued", 4, at("trust/issued.jsonl")),
    ];
    for (name, kind, path) in texts {
        say("trust_files", name, kind, &fs::read(path).unwrap());
    }

    for (name, path) in [
        ("agent", file.clone()),
        ("numbered", at("numbered.pem")),
        ("operator", ana.join("operator.pem")),
        ("authority", at("trust/agent-ca.pem")),
    ] {
        say("trust_certificates", name, 0, &der(&path));
    }
    let renewal = Agent::load(&file).unwrap().request().unwrap();
    say("trust_certificates", "request", 1, renewal.request());
    trust.revoke("ana@build-1").unwrap();
    let list = fs::read(at("trust/operator-ca.crl")).unwrap();
    say("trust_certificates", "list", 2, &list);
    let grants = b"outpour:operator:ana\noutpour:root:/srv/a%20b\noutpour:host:gpu*";
    say("trust_certificates", "grants", 3, grants);
}
