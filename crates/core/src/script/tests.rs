//! Scripts as people write them, what they do, and the errors they get.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::network::{ClusterId, Link, Resource};
use crate::{NodeId, Time};

/// The script of [Burger §4.6.1, figure 4.15], line by line.
const FAST_TO_SLOW: &str = "\
# define which nodes reside in which clusters (ca, cb, cc, and cd)
defineCluster 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ca
defineCluster 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 cb
defineCluster 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 cc
defineCluster 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 cd

# set local capacity of the nodes
setAllCapacityIn 100 MB/s
setAllCapacityOut 100 MB/s

# set local capacity of the clusters
# (regular expressions are used to specify multiple clusters)
setCapacityIn c.* 100 MB/s
setCapacityOut c.* 100 MB/s

# set delay and bandwidth between clusters
setDelay c.* c.* 10 ms
setBandwidth ca cb 10 MB/s
setBandwidth cb ca 10 MB/s
setBandwidth ca cc 3 MB/s
setBandwidth cc ca 3 MB/s
setBandwidth cb cd 2 MB/s
setBandwidth cd cb 2 MB/s
setBandwidth cc cd 6 MB/s
setBandwidth cd cc 6 MB/s

# continuously repeat everything that follows
forever

setBandwidth ca cd 8 MB/s
setBandwidth cd ca 8 MB/s
setBandwidth cb cc 8 MB/s
setBandwidth cc cb 8 MB/s

# wait until the application says 'start' before a multicast operation
hear start

sleep 30 sec

setBandwidth ca cd 0.8 MB/s
setBandwidth cd ca 0.8 MB/s

setBandwidth cb cc 0.8 MB/s
setBandwidth cc cb 0.8 MB/s

# wait until the application says 'reset' after a multicast operation
hear reset
";

const TWO: &str = "defineCluster a0 a1 A\ndefineCluster b B\n";

const A: ClusterId = ClusterId(0);
const B: ClusterId = ClusterId(1);

fn script(text: &str) -> Script {
    Script::parse(text, "s.txt").unwrap()
}

fn error(text: &str) -> String {
    let error = match Script::parse(text, "s.txt") {
        Ok(script) => script.network(None).unwrap_err(),
        Err(error) => error,
    };
    error.to_string()
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn at_start(text: &str) -> Network {
    script(text).network(None).unwrap()
}

#[test]
fn the_example_of_the_thesis_plays_as_described() {
    let script = script(FAST_TO_SLOW);
    let network = script.network(None).unwrap();
    assert_eq!(network.node_count(), 64);
    assert_eq!(network.name(NodeId(63)), "63");
    let cluster = |name: &str| network.cluster_of(network.node(name).unwrap());
    let (ca, cb, cc, cd) = (cluster("0"), cluster("16"), cluster("32"), cluster("48"));
    for node in network.nodes() {
        assert_eq!(network.capacity(Resource::NodeIn(node)), rate("100 MB/s"));
        assert_eq!(network.capacity(Resource::NodeOut(node)), rate("100 MB/s"));
    }
    assert_eq!(network.capacity(Resource::ClusterIn(cd)), rate("100 MB/s"));
    assert_eq!(network.capacity(Resource::ClusterOut(ca)), rate("100 MB/s"));
    let link = network.link(ca, cb);
    assert_eq!(
        (link.rate, link.delay),
        (rate("10 MB/s"), Duration::from_millis(10))
    );
    assert_eq!(network.link(cc, ca).rate, rate("3 MB/s"));
    assert_eq!(network.link(cb, cc).rate, rate("8 MB/s"));
    assert_eq!(
        network.link(ca, ca).delay,
        Duration::ZERO,
        "pairs are of different clusters"
    );

    let timeline: Vec<_> = script.timeline(&network).unwrap().collect();
    assert_eq!(timeline.len(), 2);
    assert_eq!(timeline[0].0, Time::ZERO);
    assert_eq!(timeline[1].0, Time::from_secs_f64(30.0));
    let mut then = network.clone();
    timeline[0].1.iter().for_each(|change| then.apply(change));
    assert_eq!(
        (then.link(ca, cd), then.link(ca, cb)),
        (network.link(ca, cd), network.link(ca, cb)),
        "what comes before the start is the network at the start"
    );
    timeline[1].1.iter().for_each(|change| then.apply(change));
    assert_eq!(timeline[1].1.len(), 4);
    assert_eq!(then.link(ca, cd).rate, rate("0.8 MB/s"));
    assert_eq!(then.link(cc, cb).rate, rate("0.8 MB/s"));
    assert_eq!(then.link(cc, cd).rate, rate("6 MB/s"));
}

#[test]
fn a_player_repeats_what_follows_forever() {
    let script = script(FAST_TO_SLOW);
    let network = script.network(None).unwrap();
    let mut player = script.player(&network).unwrap();
    let mut waits = Vec::new();
    while waits.len() < 6 {
        match player.next() {
            Step::Change(_) => {}
            step => waits.push(step),
        }
    }
    let round = [
        Step::Hear("start".to_owned()),
        Step::Sleep(Duration::from_secs(30)),
        Step::Hear("reset".to_owned()),
    ];
    assert_eq!(waits[..3], round);
    assert_eq!(waits[3..], round);
}

#[test]
fn a_script_changes_a_network_it_is_given() {
    let base = Network::from_toml(
        "[[cluster]]\nname='A'\nmembers=['a1','a0']\nnode_out='5 MB/s'\n\
         [[cluster]]\nname='B'\nmembers=['b']\n[[link]]\nfrom='A'\nto='B'\nrate='1 MB/s'",
        "net.toml",
    )
    .unwrap();
    let text = "setDelay A B 5 ms\nsetCapacityOut a1 2 MB/s\nsetCapacityIn B 7 MB/s\n\
                setDelay A A 1 ms\nsetBandwidth A A 9 MB/s\nsleep 1 s\nsetBandwidth A B 0 B/s";
    for text in [text.to_owned(), format!("{TWO}{text}")] {
        let network = script(&text).network(Some(&base)).unwrap();
        let (a1, a0) = (network.node("a1").unwrap(), network.node("a0").unwrap());
        assert_eq!(network.capacity(Resource::NodeOut(a1)), rate("2 MB/s"));
        assert_eq!(network.capacity(Resource::NodeOut(a0)), rate("5 MB/s"));
        assert_eq!(network.capacity(Resource::ClusterIn(B)), rate("7 MB/s"));
        assert_eq!(network.link(A, B).rate, rate("1 MB/s"), "later is later");
        assert_eq!(network.link(A, B).delay, Duration::from_millis(5));
        assert_eq!(
            network.link(B, A),
            Link::DEAD,
            "what is not named stays dead"
        );
        assert_eq!(network.link(A, A).rate, rate("9 MB/s"));
        assert_eq!(network.link(A, A).delay, Duration::from_millis(1));
        let back = Network::from_toml(&network.to_toml(), "net.toml").unwrap();
        assert_eq!(back, network);
        for (a, b) in [(A, A), (A, B), (B, A)] {
            assert_eq!(back.link(a, b), network.link(a, b));
        }
        assert_eq!(back.capacity(Resource::NodeOut(a1)), rate("2 MB/s"));
    }
    for (clusters, said) in [
        (
            "defineCluster a0 A\ndefineCluster b B",
            "s.txt:1: cluster `A` has other nodes",
        ),
        (
            "defineCluster a0 a1 A",
            "s.txt:1: the network has a cluster `B`",
        ),
        (
            "defineCluster a0 a1 X",
            "s.txt:1: the network has no cluster `X`",
        ),
    ] {
        let found = script(clusters)
            .network(Some(&base))
            .unwrap_err()
            .to_string();
        assert!(found.starts_with(said), "{found}");
    }
}

#[test]
fn queues_marks_and_losses_are_set_for_pairs() {
    let network = at_start(&format!(
        "{TWO}setQueue A B 64 KiB\nsetEcn A B 10 packets\nsetLoss .* .* 1 % 4\nsetQueue B A 9 packets\n\
         setEcn B A 20 packets\nsetLoss B A 0.5%\n"
    ));
    let there = network.link(A, B);
    assert_eq!(there.queue, Some(Backlog::Bytes(crate::Bytes(65_536))));
    assert_eq!(there.ecn, Some(Backlog::Packets(10)));
    assert_eq!((there.loss, there.burst), (0.01, 4.0));
    let back = network.link(B, A);
    assert_eq!(
        back.ecn,
        Some(Backlog::Packets(9)),
        "a mark sinks to the limit"
    );
    assert_eq!((back.loss, back.burst), (0.005, 1.0));
    let read = Network::from_toml(&network.to_toml(), "net.toml").unwrap();
    assert_eq!((read.link(A, B), read.link(B, A)), (there, back));
}

#[test]
fn changes_for_ever_are_listed_as_far_as_one_reads() {
    let text = format!(
        "{TWO}setBandwidth A B 9 MB/s\nforever\nsleep 2 s\nsetBandwidth A B 1 MB/s\n\
         sleep 500 ms\nsetBandwidth A B 2 MB/s\nsleep 0 s\nsetDelay A B 3 ms"
    );
    let script = script(&text);
    let network = script.network(None).unwrap();
    let times: Vec<_> = (script.timeline(&network).unwrap().skip(1).take(4))
        .map(|(time, changes)| (time.as_secs_f64(), changes.len()))
        .collect();
    assert_eq!(times, [(2.0, 1), (2.5, 2), (4.5, 1), (5.0, 2)]);
}

#[test]
fn a_word_nobody_says_is_where_a_timeline_rests() {
    for (tail, seconds) in [
        // Without a start the transfer begins at the beginning.
        (
            "sleep 1 s\nsetDelay A B 1 ms\nhear x\nsetDelay A B 2 ms",
            vec![1.0],
        ),
        // Before the start all is played at once, other words too.
        (
            "sleep 1 s\nsetDelay A B 1 ms\nhear x\nhear start\nsetDelay A B 2 ms",
            vec![0.0],
        ),
        // A second start is a word like any other.
        (
            "forever\nhear start\nsleep 1 s\nsetDelay A B 1 ms",
            vec![1.0],
        ),
        ("forever\nsleep 1 s\ntell again", vec![]),
        ("", vec![]),
    ] {
        let script = script(&format!("{TWO}{tail}"));
        let network = script.network(None).unwrap();
        let timeline = script.timeline(&network).unwrap();
        let times: Vec<_> = timeline.map(|(time, _)| time.as_secs_f64()).collect();
        assert_eq!(times, seconds, "{tail}");
    }
    let script = script(&format!("{TWO}hear x\nhear start\nhear x"));
    assert_eq!(script.words().collect::<Vec<_>>(), ["x", "start", "x"]);
    assert!(script.hears("x") && !script.hears("reset"));
}

#[test]
fn a_word_that_nobody_says_is_known_once_the_script_waits_for_it() {
    let unheard = |tail: &str, at: u64| {
        let script = script(&format!("{TWO}{tail}"));
        let network = script.network(None).unwrap();
        let timeline = script.timeline(&network).unwrap();
        timeline.unheard(Time::ZERO + Duration::from_secs(at))
    };
    let waits = "hear start\nsleep 2 s\nsetDelay A B 1 ms\nsleep 1 s\nhear x\nsleep 1 s";
    assert_eq!(unheard(waits, 2), None);
    assert_eq!(unheard(waits, 3).as_deref(), Some("x"));
    assert_eq!(
        unheard("hear x\nsetDelay A B 1 ms", 0).as_deref(),
        Some("x")
    );
    // A transfer says these.
    assert_eq!(unheard("hear start\nsleep 1 s\nhear reset", 9), None);
    assert_eq!(unheard("forever\nhear start\nsleep 1 s", 9), None);
    // It ends although the script does not.
    assert_eq!(unheard("forever\nsleep 1 s\nsetDelay A B 1 ms", 9), None);
    assert_eq!(unheard("forever\nsleep 1 s", 9), None);
}

#[test]
fn what_the_documentation_shows_can_be_played() {
    let page = include_str!("../../../../docs/networks.md");
    let shown = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    let network = Network::from_toml(shown("toml"), "networks.md").unwrap();
    assert_eq!(network.node_count(), 8);
    let script = Script::parse(shown("text"), "networks.md").unwrap();
    let changes = script.timeline(&network).unwrap();
    assert!(
        changes
            .take(2)
            .map(|(_, changes)| changes.len())
            .sum::<usize>()
            > 8
    );
    assert_eq!(script.timeline(&network).unwrap().unheard(Time::MAX), None);
}

#[test]
fn messages_name_the_line() {
    for (text, message) in [
        (
            "",
            "s.txt:1: the script defines no cluster (`defineCluster`), so it needs a network \
              description",
        ),
        ("\n# x\n sleep", "s.txt:3: expected `sleep TIME`"),
        (
            "sleep 5",
            "s.txt:1: duration `5` has no unit: write e.g. `5 ms` or `5 s`",
        ),
        ("hear a b", "s.txt:1: expected `hear WORD`"),
        ("hear", "s.txt:1: expected `hear WORD`"),
        (
            "defineCluster A",
            "s.txt:1: expected `defineCluster NODE... CLUSTER`",
        ),
        (
            "setAllCapacityIn",
            "s.txt:1: expected `setAllCapacityIn RATE`",
        ),
        (
            "setAllCapacityOut 10",
            "s.txt:1: rate `10` has no unit: write e.g. `10 Mbit/s` or \
                                  `10 MB/s`",
        ),
        ("setBandwidth A 10 MB/s", "s.txt:1: rate `MB/s`"),
        (
            "setDelay A B",
            "s.txt:1: expected `setDelay CLUSTERS CLUSTERS TIME`",
        ),
        (
            "setQueue A B 0 packets",
            "s.txt:1: expected at least one packet or byte",
        ),
        (
            "setQueue A B 7",
            "s.txt:1: `7` is not a queue length: write e.g. `100 packets` \
                            or `64 KiB`",
        ),
        (
            "setLoss A B 1",
            "s.txt:1: `1` is not a loss: expected a share from 0 to below 1, such as \
                           `0.01` or `1 %`",
        ),
        ("setLoss A B nan", "s.txt:1: `nan` is not a loss"),
        (
            "setLoss A B 0.9 2",
            "s.txt:1: `2` is not a number of packets lost in a row",
        ),
        (
            "setLoss A B 0.1 0.5",
            "s.txt:1: `0.5` is not a number of packets lost in a row",
        ),
        (
            "setDelay a( B 1 ms",
            "s.txt:1: `a(` is not a regular expression: ",
        ),
        (
            "setDelay a)|(b B 1 ms",
            "s.txt:1: `a)|(b` is not a regular expression: ",
        ),
        ("setDelay X B 1 ms", "s.txt:1: no cluster matches `X`"),
        (
            "setCapacityIn X.* 1 MB/s",
            "s.txt:1: no cluster or node matches `X.*`",
        ),
        (
            "setDelay A.? A 1 ms",
            "s.txt:1: `A.?` and `A` match one cluster, and no pair of \
                                 different ones",
        ),
        (
            "setLoss A A 1 %",
            "s.txt:1: the links inside a cluster have a bandwidth and a delay, \
                             but no queue, mark or loss",
        ),
        (
            "forever",
            "s.txt:1: `forever` repeats without a pause: what follows has to `hear` a \
                     word or `sleep` 1ms",
        ),
        (
            "sleep 1 s\nforever\nsetDelay A B 1 ms\nsleep 0.9 ms",
            "s.txt:2: `forever` repeats",
        ),
        (
            "forever\nsleep 1 s\nforever",
            "s.txt:3: everything from line 1 on is repeated by `forever` \
                                         already",
        ),
        ("forever 3", "s.txt:1: expected `forever`"),
        (
            "forever\ndefineCluster x X\nsleep 1 s",
            "s.txt:2: `defineCluster` after `forever`",
        ),
        (
            "setbandwidth A B 1 MB/s",
            "s.txt:1: unknown command `setbandwidth`, expected one of \
                                     `defineCluster`, ",
        ),
        ("\u{1b}[2J", "s.txt:1: unknown command `\\u{1b}[2J`"),
        ("hear \u{202e}x", "s.txt:1: `\\u{202e}x` is not a word"),
        ("defineCluster x A", "s.txt:2: a cluster `A` exists already"),
    ] {
        // Clusters come last, so that lines are those of the text; after `forever` none may come.
        let clusters = if text.is_empty() || text.contains("forever") {
            ""
        } else {
            TWO
        };
        let found = error(&format!("{text}\n{clusters}"));
        assert!(found.starts_with(message), "{found}\nnot\n{message}");
    }
}

#[test]
fn comments_begin_words_and_units_may_be_written_out() {
    let text = "defineCluster a#1 A # the first\ndefineCluster b B\n#sleep\nsleep 1sec # x\n\
                sleep 1 min 30 sec";
    let script = script(text);
    let network = script.network(None).unwrap();
    assert!(network.node("a#1").is_some());
    let mut player = script.player(&network).unwrap();
    assert_eq!(player.next(), Step::Sleep(Duration::from_secs(1)));
    assert_eq!(player.next(), Step::Sleep(Duration::from_secs(90)));
    assert_eq!((player.next(), player.next()), (Step::End, Step::End));
}

#[test]
fn sizes_are_bounded_from_both_sides() {
    let most = "sleep 1 s\n".repeat(COMMANDS_MAX);
    assert!(Script::parse(&most, "s.txt").is_ok());
    assert!(error(&format!("{most}sleep 1 s")).contains("more than 100000 commands"));
    assert!(error(&"#".repeat(TEXT_BYTES_MAX + 1)).contains("bytes, more than"));
    let word = "x".repeat(WORD_BYTES_MAX);
    assert!(Script::parse(&format!("hear {word}"), "s.txt").is_ok());
    assert!(error(&format!("hear {word}y")).contains("is not a word"));
    let huge = format!("{TWO}setDelay (((A{{99}}){{99}}){{99}}){{99}} B 1 ms");
    assert!(
        error(&huge).contains("is not a regular expression"),
        "{}",
        error(&huge)
    );

    let nodes = 1000;
    let network = Network::uniform(nodes, Rate::ZERO, Rate::ZERO, Duration::ZERO).unwrap();
    let all = "setAllCapacityIn 1 MB/s\n";
    let most = CHANGES_MAX / nodes as usize;
    let played = |count| script(&all.repeat(count)).player(&network).map(drop);
    assert_eq!(played(most), Ok(()));
    let said = played(most + 1).unwrap_err().to_string();
    assert!(said.starts_with(&format!("s.txt:{}: ", most + 1)), "{said}");
    let different = |count: usize| -> String {
        (0..count)
            .map(|i| format!("setCapacityIn n{{1}}{i} 1 MB/s\n"))
            .collect()
    };
    let network = Network::uniform(100_000, Rate::ZERO, Rate::ZERO, Duration::ZERO).unwrap();
    let said = script(&different(300))
        .player(&network)
        .unwrap_err()
        .to_string();
    assert!(said.contains("compared with more than"), "{said}");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_or_the_player_panic(
        lines in proptest::collection::vec(
            (
                proptest::sample::select(vec![
                    "defineCluster", "setAllCapacityIn", "setCapacityOut", "setDelay", "setLoss",
                    "setBandwidth", "setQueue", "setEcn", "forever", "sleep", "hear", "tell", "#",
                ]),
                "[ab.*()|0-9 %A-B]{0,8}|A B [0-9]{1,3} (MB/s|ms|packets)|.* .* 1 ms|start|1 s",
            ),
            0..12,
        ),
        noise in ".{0,12}",
    ) {
        let mut text = TWO.to_owned();
        for (command, rest) in lines {
            text.push_str(&format!("{command} {rest}\n"));
        }
        for text in [format!("{text}{noise}"), text] {
            match Script::parse(&text, "s.txt") {
                Err(error) => prop_assert!(error.to_string().starts_with("s.txt:")),
                Ok(script) => if let Ok(network) = script.network(None) {
                    let timeline = script.timeline(&network).unwrap();
                    let mut network = network;
                    for (_, changes) in timeline.take(50) {
                        changes.iter().for_each(|change| network.apply(change));
                    }
                    let back = Network::from_toml(&network.to_toml(), "net.toml");
                    prop_assert_eq!(back, Ok(network));
                }
            }
        }
    }

    #[test]
    fn cuts_and_insertions_never_panic(cut in 0..FAST_TO_SLOW.len(), insert in ".{0,6}") {
        if !FAST_TO_SLOW.is_char_boundary(cut) {
            return Ok(());
        }
        let text = format!("{}{insert}{}", &FAST_TO_SLOW[..cut], &FAST_TO_SLOW[cut..]);
        if let Ok(script) = Script::parse(&text, "s.txt") {
            let _ = script.network(None);
        }
    }
}

#[test]
fn sites_have_traffic_and_faults() {
    use crate::network::Change;
    let text = "defineCluster a0 a1 A\ndefineCluster b0 B\nsetForeground A B 3 MB/s\nsleep 1 s\n\
                lose a.\nloseController\nsleep 1 s\nrestore a1\nrestoreController";
    let script = script(text);
    let network = script.network(None).unwrap();
    let all: Vec<_> = script.timeline_of_sites(&network).unwrap().collect();
    let server = |node, there| Change::Server {
        node: NodeId(node),
        there,
    };
    let rate = Rate::from_bytes_per_s(3e6).unwrap();
    let (from, to) = (ClusterId(0), ClusterId(1));
    let at = |seconds: f64| Time::from_secs_f64(seconds);
    let expected = [
        (at(0.0), vec![Change::Foreground { from, to, rate }]),
        (
            at(1.0),
            vec![
                server(0, false),
                server(1, false),
                Change::Controller { there: false },
            ],
        ),
        (
            at(2.0),
            vec![server(1, true), Change::Controller { there: true }],
        ),
    ];
    assert_eq!(all, expected);
    assert_eq!(script.loses(), Some(5));
    // Other worlds know nothing of it, and say so.
    let refused = script.timeline(&network).unwrap_err().to_string();
    let says = "s.txt:5: `lose` is for `outpour sim replicate` alone";
    assert!(refused.starts_with(says), "{refused}");
    let refused = script.player(&network).unwrap_err().to_string();
    let says = "s.txt:3: `setForeground` is for simulations";
    assert!(refused.starts_with(says), "{refused}");
    // It leaves the network as it is.
    let mut same = network.clone();
    for (_, changes) in all {
        changes.iter().for_each(|change| same.apply(change));
    }
    assert_eq!(format!("{same:?}"), format!("{network:?}"));
}

#[test]
fn traffic_and_faults_are_refused_where_they_say_nothing() {
    for (text, message) in [
        (
            "setForeground A B",
            "s.txt:1: expected `setForeground CLUSTERS CLUSTERS RATE`",
        ),
        ("setForeground A B many", "s.txt:1: "),
        ("lose", "s.txt:1: expected `lose NODES`"),
        ("restore x y", "s.txt:1: expected `restore NODES`"),
        ("loseController now", "s.txt:1: expected `loseController`"),
    ] {
        let found = error(&format!("{text}\n{TWO}"));
        assert!(found.starts_with(message), "{found}\nnot\n{message}");
    }
    let found = |text: &str| {
        let script = script(&format!("{TWO}\n{text}"));
        let network = script.network(None);
        network.unwrap_err().problem.to_string()
    };
    assert_eq!(found("lose nobody"), "no node matches `nobody`");
    assert!(found("setForeground A A 1 MB/s").starts_with("the links inside a cluster"));
}
