//! Help, completions, the manual, and what is typed wrongly.

use crate::support::{call, call_with, snapshot};

const COMMANDS: [&[&str]; 11] = [
    &[],
    &["bench"],
    &["bench", "grid"],
    &["bench", "gossip"],
    &["bench", "replicate"],
    &["bench", "shuffle"],
    &["bench", "push"],
    &["sim"],
    &["sim", "gossip"],
    &["jobs"],
    &["agent"],
];

#[test]
fn every_command_has_help_on_standard_output() {
    for command in COMMANDS {
        let ran = call(command.iter().copied().chain(["--help"])).expect(0);
        assert_eq!(ran.err, "");
        let name = [&["outpour-lab"], command].concat().join("-");
        snapshot(&format!("{name}.txt"), &ran.out);
        let lines = ran.out.lines();
        let long: Vec<_> = lines.filter(|line| line.chars().count() > 100).collect();
        assert!(long.is_empty(), "{name}: {long:?}");
    }
}

#[test]
fn completions_and_the_manual_are_of_this_program() {
    let bash = call(["completions", "bash"]).expect(0).out;
    assert!(bash.contains("_outpour__lab()"), "{bash}");
    assert!(
        call(["man"])
            .expect(0)
            .out
            .contains(".TH outpour-lab-bench")
    );
}

#[test]
fn a_lie_that_cannot_be_told_is_refused_in_one_line() {
    let inside = [
        ("OUTPOUR_EMULATION", "/run/x"),
        ("OUTPOUR_NODE", "n4"),
        ("OUTPOUR_WRONG_PACKETS", "n4=2"),
    ];
    let ran = call_with(["agent", "--stdio"], &inside).expect(2);
    assert_eq!(
        ran.err,
        "outpour-lab: OUTPOUR_WRONG_PACKETS is `n4=2`: expected a node and a share up to 1, as in \
         n4=0.05\n"
    );
}
