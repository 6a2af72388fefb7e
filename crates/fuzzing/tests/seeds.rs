//! What is really said is understood, and borne however it is changed. `OUTPOUR_BLESS=1` writes it down where fuzzers
//! begin.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Described, Greeting, ManifestOffer, ProbeAdmission,
};
use outpour_core::blocks::{Want, WireBlocks};
use outpour_core::plan::Tree;
use outpour_core::{NodeId, Plan, Priority, Rate};
use outpour_fuzzing::run;
use outpour_probe::message::{Outcome, ProbeOrder, ProbeReport, Task};
use outpour_protocols::coordinator::{Contact, Disk, Given, Order, Report, Stamp};
use outpour_protocols::registry::ENTRIES;
use outpour_protocols::{Member, Role};
use outpour_terms::{Coding, Terms};
use serde::Serialize;

/// Hands a target what begins with `head` and goes on with a value, as it is and with each byte changed.
fn say(target: &str, name: &str, head: &[u8], value: &impl Serialize) {
    let mut bytes = head.to_vec();
    bytes.extend(postcard::to_stdvec(value).expect("plain data encodes"));
    if option_env!("OUTPOUR_BLESS").is_some() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        fs::write(corpus.join(target).join(name), &bytes).expect("the corpus");
    }
    run(target, &bytes);
    for at in 0..bytes.len() {
        run(target, &bytes[..at]);
        for mask in [1, 0x80, 0xff] {
            let mut turned = bytes.clone();
            turned[at] ^= mask;
            run(target, &turned);
        }
    }
}

fn members(count: u32) -> Vec<Member> {
    let member = |node| Member {
        cluster: node % 2,
        role: Role::source_if(node == 0),
    };
    (0..count).map(member).collect()
}

fn plan() -> Plan {
    let edges = [(0, 1), (1, 2)].map(|(from, to)| (NodeId(from), NodeId(to)));
    let rate = Rate::from_bytes_per_s(1e6).expect("a rate");
    Plan {
        roots: vec![NodeId(0)],
        trees: vec![Tree {
            rate,
            edges: edges.to_vec(),
        }],
    }
}

fn terms() -> impl Iterator<Item = (&'static str, Terms)> {
    ENTRIES.iter().map(|entry| {
        let mut terms = Terms::new(entry.by_default(), members(3), 7);
        terms.block_bytes = 1024;
        terms.plan = entry.plan.is_made_before().then(|| Arc::new(plan()));
        terms.coding = entry.coding.map(|_| Coding {
            batch_blocks: 8,
            encoders: 1,
        });
        assert_eq!(terms.check(NodeId(1)), Ok(()), "{}", entry.name);
        (entry.name, terms)
    })
}

#[test]
fn terms_of_every_protocol_are_understood() {
    for (name, terms) in terms() {
        say("cast_terms", name, &[1, 40], &terms);
    }
}

#[test]
fn what_a_command_says_is_understood() {
    let offer = ManifestOffer {
        len: 5,
        block_bytes: 4,
        hashes: vec![[1; 32], [2; 32]],
        id: [3; 32],
        inline: Some(vec![1, 2, 3, 4, 5]),
    };
    for (name, want) in [
        ("admit_all", Want::All),
        ("admit_some", Want::Blocks(WireBlocks::Runs(vec![(1, 5)]))),
    ] {
        let (_, terms) = terms().next().expect("a protocol");
        let admission = Admission {
            cast: [1; 16],
            transfer: [2; 16],
            epoch: 1,
            node: NodeId(1),
            priority: Priority::Normal,
            path: b"/data".to_vec(),
            file_name: None,
            label: "x".into(),
            verify_after: false,
            want,
            terms,
            manifest: offer.clone(),
            signature: None,
        };
        let said = CommandSays::Admit(Box::new(admission));
        say("agent_control", name, &[2], &said);
    }
    let order = |order| CommandSays::Order {
        transfer: [2; 16],
        given: Given {
            stamp: Stamp { epoch: 1, seq: 1 },
            order,
        },
    };
    let contact = Contact {
        addrs: vec![([127, 0, 0, 1], 7).into()],
        key: [5; 32],
    };
    let begin = Order::Begin {
        contacts: [(NodeId(0), contact)].into_iter().collect(),
    };
    say("agent_control", "begin", &[2], &order(begin));
    say("agent_control", "census", &[2], &order(Order::Census));
    let look = CommandSays::Look {
        path: b"/x".to_vec(),
        manifest_bytes: 9,
        keeps: true,
        signature: None,
    };
    say("agent_control", "look", &[2], &look);
    let probe = CommandSays::Probe(Box::new(ProbeAdmission {
        cast: [1; 16],
        node: NodeId(0),
        members: 2,
        connections: None,
    }));
    say("agent_control", "probe", &[2], &probe);
    let task = Task::RoundTrip { to: NodeId(1) };
    let measure = CommandSays::Measure(ProbeOrder::Run { id: 1, task });
    say("agent_control", "measure", &[2], &measure);
    let described = Described {
        manifest: offer,
        content: [1; 32],
        size: 5,
        blocks: 1,
        entries: 1,
        file_name: Some(b"f".to_vec()),
    };
    let hashed = AgentSays::Hashed(Box::new(described));
    say("agent_control", "hashed", &[1], &hashed);
}

#[test]
fn what_an_agent_says_is_understood() {
    say("agent_control", "greeting", &[0], &Greeting::new([7; 32]));
    let joined = AgentSays::Joined {
        addrs: vec![([127, 0, 0, 1], 7).into()],
    };
    say("agent_control", "joined", &[1], &joined);
    let outcome = Ok(Outcome::Rate {
        peers: vec![(NodeId(1), Ok(1e6)), (NodeId(2), Err("lost".into()))],
    });
    let measured = AgentSays::Measured(ProbeReport { id: 1, outcome });
    say("agent_control", "measured", &[1], &measured);
    let reports = [
        (
            "progress",
            Report::Progress {
                have_bytes: 500,
                received_bytes: 400,
                disk: Disk::default(),
            },
        ),
        (
            "held",
            Report::Held {
                blocks: 9,
                held: WireBlocks::Runs(vec![(0, 5)]),
                lacks: WireBlocks::Runs(vec![(5, 4)]),
            },
        ),
        (
            "paused",
            Report::Paused {
                why: "full".into(),
                rereads: true,
            },
        ),
        ("complete", Report::Complete { received_bytes: 9 }),
        (
            "accuse",
            Report::Accuse {
                peer: NodeId(1),
                offence: "it lies".into(),
            },
        ),
    ];
    for (name, report) in reports {
        say(
            "agent_control",
            name,
            &[1],
            &AgentSays::Report(report.clone()),
        );
        // Of host 3, once all have joined.
        let joined = [0x00, 0x10, 0x20, 0x30, 0x40, 0x37, 0x38, 0x39];
        say("cast_reports", name, &joined, &report);
    }
}
