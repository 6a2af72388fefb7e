//! More casts than an agent takes part in: it says so, and those that it has are not disturbed.

use outpour::agent::OPERATOR_CASTS_MAX;
use outpour_agent::control::{AgentSays, CommandSays, Greeting, read_frame, write_frame};
use outpour_net::trust::Operator;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::harness::{Cast, Cluster, Report, wait_until};

const BUSY: usize = 1;

/// Calls of an operator that has looked at what is to be cast: each has a place.
struct Crowd {
    runtime: Runtime,
    calls: Vec<Box<dyn AsyncRead + Send + Unpin>>,
}

impl Crowd {
    fn of(cluster: &Cluster, host: usize, count: usize) -> Self {
        let operator = Operator::load(cluster.trust()).unwrap();
        let runtime = Runtime::new().unwrap();
        let mut crowd = Self {
            runtime,
            calls: Vec::new(),
        };
        let name = cluster.name(host);
        crowd.runtime.block_on(async {
            for _ in 0..count {
                let stream = TcpStream::connect(&name).await.unwrap();
                let (mut call, _) = operator.connect("127.0.0.1", stream).await.unwrap();
                read_frame::<Greeting>(&mut call).await.unwrap();
                let path = cluster.root(host).to_str().unwrap().as_bytes().to_vec();
                write_frame(
                    &mut call,
                    &CommandSays::Survey {
                        path,
                        archive: false,
                    },
                )
                .await
                .unwrap();
                loop {
                    match read_frame(&mut call).await.unwrap() {
                        AgentSays::Hashing { .. } => {}
                        AgentSays::Surveyed { .. } => break,
                        said => panic!("{said:?}"),
                    }
                }
                crowd.calls.push(Box::new(call));
            }
        });
        crowd
    }

    /// One of them goes.
    fn lose_one(&mut self) {
        let _inside = self.runtime.enter();
        self.calls.pop();
    }
}

fn cast(cluster: &Cluster, code: i32) -> Report {
    Report::of(Cast::start(&mut cluster.command(&[])).end(), code)
}

#[test]
fn one_too_many_is_turned_away_and_the_other_hosts_are_served() {
    let cluster = Cluster::new(2);
    let mut crowd = Crowd::of(&cluster, BUSY, OPERATOR_CASTS_MAX);
    let report = cast(&cluster, 1);
    report.assert_verified(&cluster, cluster.others(BUSY));
    let expected = format!(
        "operator operator has {OPERATOR_CASTS_MAX} casts here already, which is the most; try again later"
    );
    assert_eq!(report.error(BUSY), expected);
    assert!(!cluster.copy(BUSY).exists());
    // With one less there is room, and no other was disturbed.
    crowd.lose_one();
    wait_until("room for one", || {
        Cast::start(&mut cluster.command(&[])).end().code == Some(0)
    });
    cluster.assert_copy(BUSY);
    assert_eq!(crowd.calls.len(), OPERATOR_CASTS_MAX - 1);
    drop(crowd);
    cluster.wait_for_peace();
    let said = cluster.stop();
    let line = format!("outpour: 127.0.0.1: turned away: {expected}");
    assert!(
        said[BUSY].lines().any(|said| said == line),
        "{}",
        said[BUSY]
    );
}
