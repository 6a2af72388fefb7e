//! What happens in a service, as data.

use std::fmt;
use std::net::IpAddr;

use outpour_agent::session::Audited;
use outpour_core::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::OTHER_MEMORY;

/// How many events wait for the program that runs a service. If it lets more come to pass, the oldest
/// are lost, and it is told how many.
pub const EVENTS_MAX: usize = 1024;

/// What happens in a service. As JSON, `event` says which it is; as text it is one line, in which what
/// an operator's machine has said is not escaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ServiceEvent {
    /// An operator is served: a cast, a look at what is here, or a measurement.
    Began {
        /// The operator's address.
        peer: IpAddr,
        /// Its name.
        operator: String,
    },
    /// An operator is no longer served.
    Ended {
        /// The operator's address.
        peer: IpAddr,
        /// Its name.
        operator: String,
        /// Why it ended before its time, in one line; `None` if it did not.
        error: Option<String>,
    },
    /// An operator was turned away after it had said what it wants: it has, or all have, as many places as
    /// there are (see [`super::CASTS_MAX`]), or it does not count any more.
    TurnedAway {
        /// The operator's address.
        peer: IpAddr,
        /// Why, in one line.
        why: String,
    },
    /// What an operator has asked for and what came of it, as the file of audits has it.
    Audited(Audited),
    /// Something that was audited is not in the file. It is tried again with the next line.
    NotAudited {
        /// Why, in one line.
        error: String,
    },
    /// The identity or the list of revoked operators was replaced by something that cannot be used; what
    /// was read before holds.
    NotRead {
        /// Why, in one line.
        error: String,
    },
    /// A connection could not be accepted. The service tries again soon.
    NotAccepted {
        /// Why, in one line.
        error: String,
    },
    /// Connections that had not proved themselves were closed to make room for others.
    Crowded {
        /// How many, since the last such event.
        closed: u64,
        /// The address from which the last of them came.
        last_from: IpAddr,
    },
    /// The system gives this process less memory than casts may take, so it may end in the middle of one.
    LittleMemory {
        /// What it gives.
        limit: Bytes,
        /// What casts may take.
        memory: Bytes,
    },
    /// Events were lost, as the program that runs the service has not asked for them in time.
    Missed {
        /// How many.
        events: u64,
    },
}

impl fmt::Display for ServiceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { peer, operator } => write!(f, "cast by {operator} from {peer}: began"),
            Self::Ended {
                peer,
                operator,
                error: None,
            } => write!(f, "cast by {operator} from {peer}: ended"),
            Self::Ended {
                peer,
                operator,
                error: Some(error),
            } => write!(f, "cast by {operator} from {peer}: {error}"),
            Self::Audited(audited) => write!(f, "audit: {audited}"),
            Self::NotAudited { error } => write!(f, "cannot write the audit: {error}"),
            Self::NotRead { error } => write!(f, "what was read before holds: {error}"),
            Self::TurnedAway { peer, why } => write!(f, "{peer}: turned away: {why}"),
            Self::NotAccepted { error } => write!(f, "cannot accept a connection: {error}"),
            Self::Crowded { closed, last_from } => write!(
                f,
                "too many connections that do not prove themselves: closed {closed}, the last from {last_from}"
            ),
            Self::LittleMemory { limit, memory } => write!(
                f,
                "casts may take {memory:#} and the rest up to {OTHER_MEMORY:#}, but this process is limited to {limit:#} \
                 (MemoryMax of its unit): lower --memory or raise the limit"
            ),
            Self::Missed { events } => write!(f, "{events} events were lost"),
        }
    }
}

/// The end of a bounded queue at which events come in.
#[derive(Clone, Debug)]
pub(super) struct Teller(broadcast::Sender<ServiceEvent>);

impl Teller {
    pub(super) fn tell(&self, event: ServiceEvent) {
        // The program may have stopped listening.
        let _ = self.0.send(event);
    }
}

/// The other end.
#[derive(Debug)]
pub(super) struct Told(broadcast::Receiver<ServiceEvent>);

impl Told {
    /// The next event; `None` if there will be none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<ServiceEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(events)) => Some(ServiceEvent::Missed { events }),
            Err(RecvError::Closed) => None,
        }
    }
}

/// A queue of [`EVENTS_MAX`] events.
pub(super) fn queue() -> (Teller, Told) {
    let (teller, told) = broadcast::channel(EVENTS_MAX);
    (Teller(teller), Told(told))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn turned_away(number: usize) -> ServiceEvent {
        let why = number.to_string();
        ServiceEvent::TurnedAway { peer: PEER, why }
    }

    #[tokio::test]
    async fn who_is_slow_hears_how_many_events_were_lost_and_the_rest() {
        for lost in [0, 3] {
            let (teller, mut told) = queue();
            (0..EVENTS_MAX + lost).for_each(|n| teller.tell(turned_away(n)));
            drop(teller);
            if lost > 0 {
                let events = lost as u64;
                assert_eq!(told.next().await, Some(ServiceEvent::Missed { events }));
            }
            for n in lost..EVENTS_MAX + lost {
                assert_eq!(told.next().await, Some(turned_away(n)));
            }
            assert_eq!(told.next().await, None);
        }
    }

    #[test]
    fn events_are_plain_data_and_lines() {
        let ended = ServiceEvent::Ended {
            peer: PEER,
            operator: "ana".to_owned(),
            error: Some("no".to_owned()),
        };
        let json = r#"{"event":"ended","peer":"127.0.0.1","operator":"ana","error":"no"}"#;
        assert_eq!(serde_json::to_string(&ended).unwrap(), json);
        assert_eq!(serde_json::from_str::<ServiceEvent>(json).unwrap(), ended);
        assert_eq!(ended.to_string(), "cast by ana from 127.0.0.1: no");
    }
}
