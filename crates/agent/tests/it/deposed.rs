//! Coordinators that were deposed, and orders that come twice.

use std::path::Path;
use std::sync::Arc;

use outpour_agent::Epochs;
use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, ManifestOffer, read_frame, write_frame,
};
use outpour_agent::session::{SessionError, SessionOptions, serve};
use outpour_core::blocks::Want;
use outpour_core::{NodeId, Priority};
use outpour_protocols::coordinator::{Given, Order, Report, Stamp};
use outpour_protocols::direct;
use outpour_terms::Terms;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{DEADLINE, LOOPBACK, TRANSFER, members};

/// The command's end of a channel to an agent.
struct Command {
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    agent: JoinHandle<Result<(), SessionError>>,
}

impl Command {
    /// Calls an agent with such a memory, and wants to admit it in this epoch to a cast of its own.
    async fn call(epochs: &Arc<Epochs>, dir: &Path, epoch: u64) -> Self {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let options = SessionOptions {
            roots: None,
            endpoint: None,
            listen: LOOPBACK,
            wrap: None,
            epochs: epochs.clone(),
            signers: Arc::default(),
            caller: None,
        };
        let agent = tokio::spawn(serve(reader, writer, options));
        let (reader, writer) = tokio::io::split(near);
        let mut command = Self {
            reader,
            writer,
            agent,
        };
        let _: Greeting = read_frame(&mut command.reader).await.unwrap();
        let admission = admission(&dir.join(epoch.to_string()), epoch);
        command.say(&CommandSays::Admit(Box::new(admission))).await;
        command
    }

    async fn say(&mut self, says: &CommandSays) {
        write_frame(&mut self.writer, says).await.unwrap();
    }

    async fn order(&mut self, transfer: [u8; 16], epoch: u64, seq: u64, order: Order) {
        let stamp = Stamp { epoch, seq };
        let given = Given { stamp, order };
        self.say(&CommandSays::Order { transfer, given }).await;
    }

    async fn hear(&mut self) -> AgentSays {
        let heard = timeout(DEADLINE, read_frame(&mut self.reader)).await;
        heard.expect("the agent says something").unwrap()
    }

    async fn joined(&mut self) {
        let said = self.hear().await;
        assert!(matches!(said, AgentSays::Joined { .. }), "{said:?}");
    }

    /// The next order that the agent says it has carried out.
    async fn acted(&mut self) -> Stamp {
        loop {
            if let AgentSays::Report(Report::Acted(stamp)) = self.hear().await {
                return stamp;
            }
        }
    }

    /// The order to leave, which the agent obeys.
    async fn finish(mut self, epoch: u64) {
        let Stamp { epoch, seq } = Stamp::last(epoch);
        self.order(TRANSFER, epoch, seq, Order::Finish).await;
        let ended = timeout(DEADLINE, self.agent).await;
        ended.expect("the agent leaves").unwrap().unwrap();
    }
}

fn admission(path: &Path, epoch: u64) -> Admission {
    let id = *blake3::hash(b"an object").as_bytes();
    Admission {
        cast: [epoch as u8; 16],
        transfer: TRANSFER,
        epoch,
        node: NodeId(1),
        priority: Priority::default(),
        path: path.to_str().unwrap().as_bytes().to_vec(),
        file_name: None,
        label: "it".to_owned(),
        verify_after: false,
        want: Want::All,
        terms: Terms::new(direct::ENTRY.by_default(), members(2), 1),
        manifest: ManifestOffer {
            len: 100_000,
            block_bytes: 100_000,
            hashes: vec![id],
            id,
            inline: None,
        },
        signature: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_comes_back_obeys_no_deposed_coordinator() {
    let dir = tempfile::tempdir().unwrap();
    let memory = || Arc::new(Epochs::beneath(dir.path()).unwrap());
    let mut second = Command::call(&memory(), dir.path(), 2).await;
    second.joined().await;
    second.finish(2).await;
    // What the first says now has waited somewhere; the agent was started anew.
    let mut first = Command::call(&memory(), dir.path(), 1).await;
    let AgentSays::Unable { error } = first.hear().await else {
        panic!("it obeys");
    };
    let expected = "the order is of epoch 1; a coordinator of epoch 2 has taken over";
    assert_eq!(error, expected);
    first.agent.await.unwrap().unwrap();
    let mut third = Command::call(&memory(), dir.path(), 3).await;
    third.joined().await;
    third.finish(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_others_and_those_that_come_again_are_not_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let epochs = Arc::new(Epochs::beneath(dir.path()).unwrap());
    let mut command = Command::call(&epochs, dir.path(), 2).await;
    command.joined().await;
    command.order(TRANSFER, 2, 3, Order::Census).await;
    assert_eq!(command.acted().await, Stamp { epoch: 2, seq: 3 });
    // Each of these would end its part.
    command.order(TRANSFER, 2, 3, Order::Finish).await;
    command.order(TRANSFER, 2, 1, Order::Finish).await;
    command.order(TRANSFER, 1, 9, Order::Finish).await;
    command.order([1; 16], 2, 9, Order::Finish).await;
    command.order(TRANSFER, 2, 4, Order::Census).await;
    assert_eq!(command.acted().await, Stamp { epoch: 2, seq: 4 });
    // A later coordinator calls while this one still speaks.
    let mut later = Command::call(&epochs, dir.path(), 3).await;
    later.joined().await;
    command.order(TRANSFER, 2, 5, Order::Finish).await;
    command.order(TRANSFER, 3, 1, Order::Census).await;
    assert_eq!(command.acted().await, Stamp { epoch: 3, seq: 1 });
    later.finish(3).await;
    command.finish(3).await;
}
