//! Where the members of a group meet once and are told where the others are.

use std::net::SocketAddr;
use std::time::Duration;

use outpour_net::SessionId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::wire::{Answer, Contact, Hello, Listening, post, receive};
use crate::{GroupError, MEMBERS_MAX, Ticket};

/// How long all members together may take to come.
const GATHER_MAX: Duration = Duration::from_secs(120);
/// How long one of them may take to say the next thing.
const LETTER_MAX: Duration = Duration::from_secs(20);
/// How many connections are served at a time, more than there are members.
const VISITORS_MAX: usize = 2 * MEMBERS_MAX as usize;
/// How many bytes a cluster's name may have.
const NAME_BYTES_MAX: usize = 255;

/// A meeting place of one group, where its members get to know each other.
#[derive(Debug)]
pub struct Rendezvous {
    listener: TcpListener,
    ticket: Ticket,
    members: u32,
    group: SessionId,
}

/// What a visitor has come to.
enum Visit {
    /// A rank that asks to be let in.
    Asks {
        rank: u32,
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// A member that listens.
    Listens { rank: u32, contact: Contact },
    /// A member that left before all were there.
    Left { rank: u32 },
}

/// How the meeting ends, as visitors are told.
type End = Option<Result<Vec<Contact>, String>>;

impl Rendezvous {
    /// A place for `members` members at an address; port 0 lets the system choose.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the number is 0 or above [`MEMBERS_MAX`].
    pub async fn bind(addr: SocketAddr, members: u32) -> Result<Self, GroupError> {
        if !(1..=MEMBERS_MAX).contains(&members) {
            return Err(GroupError::Misuse(format!(
                "a group of {members} members; it can have 1 to {MEMBERS_MAX}"
            )));
        }
        let failed = |error| GroupError::address("cannot listen on", addr, &error);
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let ticket = Ticket::new(addr);
        Ok(Self {
            listener,
            ticket: ticket
                .ok_or_else(|| GroupError::Network("no randomness from the system".to_owned()))?,
            members,
            group: SessionId::random()?,
        })
    }

    /// What members need to join.
    pub const fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Serves until all members are told about each other.
    ///
    /// # Errors
    /// If they do not all come within two minutes; those that came are told which are missing.
    pub async fn serve(self) -> Result<(), GroupError> {
        let key = self.ticket.key();
        let end = watch::Sender::new(None);
        let (tell, mut told) = mpsc::channel(VISITORS_MAX);
        let mut visitors = JoinSet::new();
        let mut hall = Hall::new(self.members);
        let deadline = Instant::now() + GATHER_MAX;
        while hall.missing().is_some() {
            let happened = timeout_at(deadline, async {
                tokio::select! {
                    Some(visit) = told.recv() => hall.take(visit),
                    came = self.listener.accept() => {
                        if let Ok((stream, _)) = came && visitors.len() < VISITORS_MAX {
                            visitors.spawn(serve_visitor(stream, Visitor {
                                key,
                                group: self.group,
                                tell: tell.clone(),
                                end: end.subscribe(),
                            }));
                        }
                    }
                    Some(_) = visitors.join_next() => {}
                }
            });
            if happened.await.is_err() {
                break;
            }
        }
        let missing = hall.missing();
        let outcome = match &missing {
            None => Ok(hall.contacts()),
            Some(missing) => Err(format!("not all members arrived: {missing}")),
        };
        end.send_replace(Some(outcome));
        // Those that came are told; one that does not listen is not waited for.
        let all = async { while visitors.join_next().await.is_some() {} };
        let _ = timeout(LETTER_MAX, all).await;
        match missing {
            None => Ok(()),
            Some(missing) => Err(GroupError::Incomplete {
                seconds: GATHER_MAX.as_secs_f64(),
                missing,
            }),
        }
    }
}

/// What it takes to serve a visitor.
struct Visitor {
    key: [u8; 32],
    group: SessionId,
    tell: mpsc::Sender<Visit>,
    end: watch::Receiver<End>,
}

/// Serves one visitor from its greeting to the end of the meeting, if it has the ticket.
async fn serve_visitor(mut stream: TcpStream, visitor: Visitor) {
    let Visitor {
        key,
        group,
        tell,
        mut end,
    } = visitor;
    let hello = timeout(LETTER_MAX, receive::<Hello>(&mut stream, &key)).await;
    let Ok(Ok(hello)) = hello else {
        return;
    };
    let (rank, nonce) = (hello.rank, hello.nonce);
    let heard = match admit(&hello, &tell).await {
        Ok(()) => introduce(&mut stream, &key, &hello, group).await,
        Err(why) => {
            let _ = post(&mut stream, &key, &Answer::Refused { nonce, why }).await;
            return;
        }
    };
    let visit = match heard {
        Ok(contact) => Visit::Listens { rank, contact },
        Err(_) => Visit::Left { rank },
    };
    let stays = matches!(visit, Visit::Listens { .. });
    if tell.send(visit).await.is_err() || !stays {
        return;
    }
    let outcome = end
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|end| end.clone());
    let last = match outcome {
        Some(Ok(contacts)) => Answer::Roster { nonce, contacts },
        Some(Err(why)) => Answer::Refused { nonce, why },
        None => return,
    };
    let _ = timeout(LETTER_MAX, post(&mut stream, &key, &last)).await;
}

/// Asks whether a rank is free, and takes it.
async fn admit(hello: &Hello, tell: &mpsc::Sender<Visit>) -> Result<(), String> {
    if hello.cluster.len() > NAME_BYTES_MAX {
        return Err("its cluster's name is too long".to_owned());
    }
    let over = || "the rendezvous is over".to_owned();
    let (answer, answered) = oneshot::channel();
    let rank = hello.rank;
    tell.send(Visit::Asks { rank, answer })
        .await
        .map_err(|_| over())?;
    answered.await.map_err(|_| over())?
}

/// Tells a member which group it is in and hears where it listens.
async fn introduce(
    stream: &mut TcpStream,
    key: &[u8; 32],
    hello: &Hello,
    group: SessionId,
) -> Result<Contact, GroupError> {
    let welcome = Answer::Welcome {
        nonce: hello.nonce,
        group,
    };
    let silent = |_| GroupError::Network("it gives no address".to_owned());
    let talk = async {
        post(stream, key, &welcome).await?;
        receive::<Listening>(stream, key).await
    };
    let heard = timeout(LETTER_MAX, talk).await.map_err(silent)?;
    let listening = heard.map_err(|error| GroupError::Network(error.to_string()))?;
    Ok(Contact {
        cluster: hello.cluster.clone(),
        addr: listening.addr,
        key: hello.key,
    })
}

/// Which members are there.
struct Hall {
    taken: Vec<bool>,
    contacts: Vec<Option<Contact>>,
}

impl Hall {
    fn new(members: u32) -> Self {
        Self {
            taken: vec![false; members as usize],
            contacts: vec![None; members as usize],
        }
    }

    fn take(&mut self, visit: Visit) {
        match visit {
            Visit::Asks { rank, answer } => {
                let members = self.taken.len();
                let verdict = match self.taken.get_mut(rank as usize) {
                    Some(taken) if !*taken => {
                        *taken = true;
                        Ok(())
                    }
                    Some(_) => Err("that rank has arrived already".to_owned()),
                    None => Err(format!("ranks are 0 to {}", members - 1)),
                };
                let _ = answer.send(verdict);
            }
            Visit::Listens { rank, contact } => {
                if let Some(place) = self.contacts.get_mut(rank as usize) {
                    *place = Some(contact);
                }
            }
            // It may come again.
            Visit::Left { rank } => {
                if let Some(taken) = self.taken.get_mut(rank as usize) {
                    *taken = false;
                }
            }
        }
    }

    /// Which members are not there yet, in words.
    fn missing(&self) -> Option<String> {
        const NAMED_MAX: usize = 8;
        let ranks = self.contacts.iter().enumerate();
        let missing: Vec<String> = ranks
            .filter(|(_, c)| c.is_none())
            .map(|(rank, _)| rank.to_string())
            .collect();
        let named = missing
            .iter()
            .take(NAMED_MAX)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        match missing.len() {
            0 => None,
            1..=NAMED_MAX => Some(format!("member {named} is missing")),
            more => Some(format!(
                "members {named} and {} more are missing",
                more - NAMED_MAX
            )),
        }
    }

    fn contacts(self) -> Vec<Contact> {
        self.contacts.into_iter().flatten().collect()
    }
}
