//! A group as its members see it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use outpour_core::{Bytes, NodeId};
use outpour_net::{Endpoint, EndpointConfig, EndpointKey, Member, Session, SessionConfig};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::driver::{Command, Driver, DriverConfig, Gift};
use crate::wire::{Answer, Contact, Hello, LetterError, Listening, post, receive};
use crate::{BYTES_MAX, GroupError, Ticket};

/// How long the rendezvous may take to answer; it waits for all members.
const ANSWER_MAX: Duration = Duration::from_secs(150);
/// How often a rendezvous that is not there yet is called, and how long the pause is.
const CALLS: u32 = 50;
const CALL_PAUSE: Duration = Duration::from_millis(200);

/// Which member joins which group, and how.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// Where the members meet, and the proof that this is one.
    pub ticket: Ticket,
    /// This member's number, from 0; all are different and none is left out.
    pub rank: u32,
    /// The cluster this member is in: members of equal names share a fast network.
    pub cluster: String,
    /// The address on which others reach this member; by default the one from which it reaches
    /// the rendezvous.
    pub listen: Option<IpAddr>,
    /// How long a member may be unreachable before it is lost. It is also how long connecting
    /// to the others may take once all are known.
    pub patience: Duration,
    /// Memory for blocks under way; what operations move comes on top.
    pub memory: Bytes,
}

impl JoinConfig {
    /// With ten seconds of patience and 32 MiB of buffers.
    pub fn new(ticket: Ticket, rank: u32, cluster: impl Into<String>) -> Self {
        Self {
            ticket,
            rank,
            cluster: cluster.into(),
            listen: None,
            patience: Duration::from_secs(10),
            memory: Bytes(32 << 20),
        }
    }
}

/// One member's hold on a group. All members have to call the same operations in the same order.
///
/// The member goes on serving the others in the background after an operation has returned. To
/// drop a group without [`Group::leave`] is to fail the others' operations.
#[derive(Debug)]
pub struct Group {
    rank: u32,
    size: u32,
    commands: mpsc::Sender<Command>,
}

impl Group {
    /// Joins a group; returns when every member is connected with every other. Must be called in
    /// a tokio runtime.
    ///
    /// # Errors
    /// If the rendezvous cannot be reached or refuses, or not all members can be reached.
    pub async fn join(config: JoinConfig) -> Result<Self, GroupError> {
        let meeting = meet(&config).await?;
        let Meeting {
            session,
            events,
            contacts,
        } = meeting;
        let me = NodeId(config.rank);
        for (rank, contact) in contacts.iter().enumerate() {
            let member = Member {
                addrs: vec![contact.addr],
                key: contact.key,
            };
            let node = NodeId(rank as u32);
            if node != me {
                session.set_member(node, member);
            }
        }
        let size = contacts.len() as u32;
        let (ready, all_up) = oneshot::channel();
        let (commands, orders) = mpsc::channel(1);
        let driver = Driver::new(DriverConfig {
            me,
            clusters: numbered(&contacts),
            patience: config.patience,
            session,
            ready,
        });
        tokio::spawn(driver.run(orders, events));
        let group = Self {
            rank: config.rank,
            size,
            commands,
        };
        all_up.await.map_err(|_| GroupError::Ended)??;
        Ok(group)
    }

    /// This member's number.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// How many members there are.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Gives `mine` to every member and returns what all have given, by rank. Members may give
    /// different amounts, nothing included.
    ///
    /// # Errors
    /// If a member is lost, or `mine` is longer than [`BYTES_MAX`].
    pub async fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, GroupError> {
        let gift = Gift::All(limited(mine)?);
        let mut all = vec![Vec::new(); self.size as usize];
        for (node, data) in self.give(gift).await? {
            if let Some(place) = all.get_mut(node.index()) {
                *place = data;
            }
        }
        Ok(all)
    }

    /// Brings what member `root` has to every member; the root calls with its data, the others
    /// with none.
    ///
    /// # Errors
    /// If a member is lost, the data is longer than [`BYTES_MAX`], the root is no member, gives
    /// nothing, or another member gives something.
    pub async fn multicast(
        &mut self,
        root: u32,
        data: Option<&[u8]>,
    ) -> Result<Vec<u8>, GroupError> {
        if root >= self.size || (root == self.rank) != data.is_some() {
            let (rank, size) = (self.rank, self.size);
            return Err(GroupError::Misuse(format!(
                "a multicast from member {root} of {size}, called by member {rank} {} data",
                if data.is_some() { "with" } else { "without" }
            )));
        }
        let data = data.map(limited).transpose()?;
        let root = NodeId(root);
        let given = self.give(Gift::One { root, data }).await?;
        Ok(given
            .into_iter()
            .next()
            .map(|(_, data)| data)
            .unwrap_or_default())
    }

    /// Leaves the group when no other member needs this one any more: when all others have
    /// everything of every operation.
    ///
    /// # Errors
    /// If a member is lost before that.
    pub async fn leave(self) -> Result<(), GroupError> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Leave { answer };
        self.commands
            .send(command)
            .await
            .map_err(|_| GroupError::Ended)?;
        answered.await.map_err(|_| GroupError::Ended)?
    }

    async fn give(&self, gift: Gift) -> Result<Vec<(NodeId, Vec<u8>)>, GroupError> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Give { gift, answer };
        self.commands
            .send(command)
            .await
            .map_err(|_| GroupError::Ended)?;
        answered.await.map_err(|_| GroupError::Ended)?
    }
}

fn limited(data: &[u8]) -> Result<Vec<u8>, GroupError> {
    if data.len() > BYTES_MAX {
        let len = data.len();
        return Err(GroupError::Misuse(format!(
            "{len} bytes for one operation; a member can give {BYTES_MAX}"
        )));
    }
    Ok(data.to_vec())
}

/// Clusters by number, in the order in which their names first appear.
fn numbered(contacts: &[Contact]) -> Vec<u32> {
    let mut names: Vec<&str> = Vec::new();
    let mut numbers = Vec::with_capacity(contacts.len());
    for Contact { cluster, .. } in contacts {
        let known = names.iter().position(|name| name == cluster);
        let number = known.unwrap_or_else(|| {
            names.push(cluster);
            names.len() - 1
        });
        numbers.push(number as u32);
    }
    numbers
}

/// What a member has after the meeting.
struct Meeting {
    session: Session,
    events: outpour_net::Events,
    contacts: Vec<Contact>,
}

/// Goes to the rendezvous, and comes back with a session and the others' addresses.
async fn meet(config: &JoinConfig) -> Result<Meeting, GroupError> {
    let (addr, secret) = (config.ticket.addr(), config.ticket.key());
    let mut stream = call(addr).await?;
    let broken = |error: LetterError| GroupError::Network(format!("rendezvous {addr}: {error}"));
    let local = stream.local_addr();
    let local = local.map_err(|error| GroupError::address("no way to", addr, &error))?;
    let key = EndpointKey::generate()?;
    let mut nonce = [0; 16];
    let random = SystemRandom::new().fill(&mut nonce);
    random.map_err(|_| GroupError::Network("no randomness from the system".to_owned()))?;
    let hello = Hello {
        rank: config.rank,
        cluster: config.cluster.clone(),
        key: key.digest(),
        nonce,
    };
    post(&mut stream, &secret, &hello).await.map_err(broken)?;
    let group = match answer(&mut stream, config, nonce).await? {
        Answer::Welcome { group, .. } => group,
        _ => return Err(broken(LetterError::Nonsense)),
    };
    let node = NodeId(config.rank);
    let ip = config.listen.unwrap_or_else(|| local.ip());
    let mut endpoint = EndpointConfig::new(key, SocketAddr::new(ip, 0));
    endpoint.memory = config.memory;
    let endpoint = Endpoint::start(endpoint)?;
    let (session, events) = endpoint.session(&SessionConfig::new(group, node))?;
    let listening = Listening {
        addr: SocketAddr::new(ip, endpoint.local_addr().port()),
    };
    post(&mut stream, &secret, &listening)
        .await
        .map_err(broken)?;
    match answer(&mut stream, config, nonce).await? {
        Answer::Roster { contacts, .. } if contacts.len() > config.rank as usize => Ok(Meeting {
            session,
            events,
            contacts,
        }),
        _ => Err(broken(LetterError::Nonsense)),
    }
}

/// Connects to a rendezvous, which may come into being only now.
async fn call(addr: SocketAddr) -> Result<TcpStream, GroupError> {
    let mut calls = 1;
    loop {
        match TcpStream::connect(addr).await {
            Ok(stream) => return Ok(stream),
            Err(error) if calls == CALLS => {
                return Err(GroupError::address("no rendezvous at", addr, &error));
            }
            Err(_) => tokio::time::sleep(CALL_PAUSE).await,
        }
        calls += 1;
    }
}

/// The next answer of the rendezvous, if it is about what was asked now.
async fn answer(
    stream: &mut TcpStream,
    config: &JoinConfig,
    nonce: [u8; 16],
) -> Result<Answer, GroupError> {
    let (addr, key) = (config.ticket.addr(), config.ticket.key());
    let received = timeout(ANSWER_MAX, receive(stream, &key)).await;
    let failed = |why: String| GroupError::Network(format!("rendezvous {addr}: {why}"));
    let answer = received
        .map_err(|_| failed("no answer".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let of = match &answer {
        Answer::Welcome { nonce, .. }
        | Answer::Roster { nonce, .. }
        | Answer::Refused { nonce, .. } => *nonce,
    };
    match answer {
        _ if of != nonce => Err(failed(LetterError::Forged.to_string())),
        Answer::Refused { why, .. } => Err(GroupError::Refused {
            rank: config.rank,
            why,
        }),
        answer => Ok(answer),
    }
}
