//! What the machines say to each other.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Layout;

/// How many consecutive packet numbers an [`Ack`] can tell of.
pub const ACK_SPAN: u32 = u64::BITS;
/// The most seats of a task.
pub const SEATS_MAX: u32 = 256;
/// The longest name of an object, in bytes.
pub const URI_BYTES_MAX: usize = 1024;

/// A task: one object for one device, numbered by the controller that granted it: its epoch, then a count, 32
/// bits each. So no controller gives out the numbers of another.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TaskId(pub u64);

impl TaskId {
    /// The epoch of the controller that granted the task.
    pub fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A host that has objects.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SourceId(pub u32);

/// A host or user that wants an object [PPUSH §III-A].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct DeviceId(pub u64);

/// A link of the network.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LinkId(pub u32);

/// A flow: one source in one task. Every flow of a task has its own seat, and no seat is taken twice: a
/// source that begins again does so with new symbols and with packet numbers from zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FlowId {
    /// The task.
    pub task: TaskId,
    /// Which of the task's flows it is.
    pub seat: u32,
}

/// What a packet has besides the payload of its symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Data {
    /// The flow.
    pub flow: FlowId,
    /// Its place in the order of sending, from zero; numbers only grow, and some are left out.
    pub number: u64,
    /// The block.
    pub block: u32,
    /// Which symbol of the block.
    pub symbol: u32,
}

/// Acknowledges packets of one flow that arrived lately. It is no sum of all that arrived: a packet that no
/// acknowledgement names counts as lost after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ack {
    /// The flow.
    pub flow: FlowId,
    /// The largest packet number it tells of.
    pub number: u64,
    /// Bit k says that packet `number - k` has arrived; bit 0 is set.
    pub received: u64,
    /// Bit k says that it had a congestion mark (ECN-CE, RFC 3168).
    pub marked: u64,
    /// The first block that is not decoded; the number of blocks when all are.
    pub floor: u32,
    /// The block of packet `number`.
    pub block: u32,
    /// How many symbols of that block are still needed from this sender; zero once it is decoded.
    pub needed: u32,
    /// The same of the block after it, which others may have begun before this sender does; zero as well if
    /// there is none.
    pub needed_next: u32,
}

/// Which symbols a source sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Assignment {
    /// Those with number `seat + k * seats` of every block, as many as it takes, none of them twice
    /// [PPUSH §III-A].
    Rateless {
        /// How many seats the task has.
        seats: u32,
        /// How many sources push, as far as the controller knows.
        sources: u32,
    },
    /// Source symbols `first` to `first + count - 1` of the object, each until it is acknowledged.
    Share {
        /// The first, counted over all blocks.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// What a receiver says that could not be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lie {
    /// It acknowledged a packet that was never sent.
    NeverSent(u64),
    /// It spoke of a block that the object does not have.
    NoSuchBlock(u32),
}

/// Why a flow is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowEnd {
    /// The receiver has what it wanted of this source.
    Completed,
    /// The controller ordered it.
    Stopped,
    /// Packets have waited so long for an acknowledgement, and none came.
    Silent(Duration),
    /// The receiver lied.
    Lied(Lie),
    /// All numbers of symbols of this block are used up.
    OutOfSymbols(u32),
    /// The order could not be carried out: its options are out of range, or the source has no room.
    Refused,
}

impl fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => write!(f, "completed"),
            Self::Stopped => write!(f, "stopped by the controller"),
            Self::Silent(waited) => write!(f, "the receiver has not answered for {waited:?}"),
            Self::Lied(Lie::NeverSent(number)) => {
                write!(
                    f,
                    "the receiver acknowledged packet {number}, which was never sent"
                )
            }
            Self::Lied(Lie::NoSuchBlock(block)) => {
                write!(
                    f,
                    "the receiver spoke of block {block}, which does not exist"
                )
            }
            Self::OutOfSymbols(block) => write!(f, "no symbols of block {block} are left to send"),
            Self::Refused => write!(f, "the source could not carry out the order"),
        }
    }
}

/// How far a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The task.
    pub task: TaskId,
    /// The first block that is not decoded.
    pub floor: u32,
    /// How many symbols are still missing over all blocks.
    pub remaining: u64,
}

/// A request is granted; told again whenever the number of sources changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The number of the task.
    pub task: TaskId,
    /// The epoch of the controller that says so.
    pub epoch: u32,
    /// How the object is cut.
    pub layout: Layout,
    /// How many seats the task has.
    pub seats: u32,
    /// How many sources push.
    pub sources: u32,
    /// Whether symbols are coded; otherwise they are the source symbols themselves.
    pub is_coded: bool,
}

/// Why a request is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// No source has announced the object.
    NoSuchObject,
    /// The controller has as many tasks as it can.
    Busy,
    /// The task has failed: no source is left that could push, or the receiver lied or was silent.
    TaskFailed,
}

/// A message to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToController {
    /// A device wants an object.
    Request {
        /// The object's name, at most [`URI_BYTES_MAX`] bytes.
        uri: String,
        /// Who wants it.
        device: DeviceId,
    },
    /// A receiver says how far it is, which also says that it lives.
    Progress(Progress),
    /// The same with all that a controller has to know of the task, if it is not the one that granted it.
    Resume {
        /// How far the receiver is.
        progress: Progress,
        /// The object's name.
        uri: String,
        /// Who wants it.
        device: DeviceId,
        /// How it is cut.
        layout: Layout,
        /// How many seats the task has.
        seats: u32,
        /// Seats below this may have been taken.
        seats_seen: u32,
        /// Whether symbols are coded.
        is_coded: bool,
        /// The highest epoch of a controller that the receiver has heard.
        epoch: u32,
    },
    /// A receiver has the object.
    Fin {
        /// The task.
        task: TaskId,
        /// Who wanted it: a controller that does not know the task has to know whom to answer.
        device: DeviceId,
    },
    /// A source has an object.
    Announce {
        /// The source.
        source: SourceId,
        /// The object's name.
        uri: String,
        /// How it is cut; the same at all sources.
        layout: Layout,
        /// The highest epoch that the source has heard of.
        epoch: u32,
        /// Which life of the source this is.
        incarnation: u64,
    },
    /// A source lives.
    Heartbeat {
        /// The source.
        source: SourceId,
        /// The highest epoch that it has heard of.
        epoch: u32,
        /// Which life of it this is.
        incarnation: u64,
    },
    /// A source has this flow, as it was last ordered: for a controller that did not order it.
    Flow {
        /// The source.
        source: SourceId,
        /// The last order.
        order: Order,
    },
    /// A source has carried out this order of a flow.
    Obeyed {
        /// The flow.
        flow: FlowId,
        /// The order's number.
        serial: u32,
    },
    /// A flow is over.
    Ended {
        /// The source.
        source: SourceId,
        /// The flow.
        flow: FlowId,
        /// Why.
        end: FlowEnd,
    },
}

/// A message to a receiver from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToReceiver {
    /// The request is granted.
    Accepted(Accepted),
    /// It is not.
    Refused(Refusal),
    /// The task that was granted has failed.
    Failed {
        /// The task.
        task: TaskId,
        /// The epoch of the controller that says so.
        epoch: u32,
    },
    /// The controller knows that the receiver has the object.
    FinAck(TaskId),
}

/// A message to a source from the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToSource {
    /// How a flow is to be.
    Order(Order),
    /// The controller knows that the flow is over.
    EndAck(FlowId),
    /// There is a controller of this epoch, which wants to hear of flows that it did not order.
    Epoch(u32),
}

/// Whether a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderState {
    /// It does.
    Push,
    /// Not now.
    Pause,
    /// Never again.
    Stop,
}

/// How a flow is to be from now on. It says everything, so that a lost order does no harm once a later one
/// arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The flow.
    pub flow: FlowId,
    /// The epoch of the controller that orders it; orders of an earlier one than the highest that the source has heard of
    /// are refused.
    pub epoch: u32,
    /// The life of the source that it is for; another does not know which symbols and packets of the flow were sent.
    pub incarnation: u64,
    /// Orders of a flow are numbered from 1; one that comes after a later one is not obeyed.
    pub serial: u32,
    /// Whether it sends.
    pub state: OrderState,
    /// Its weight, for congestion control that has one.
    pub theta: f64,
    /// Whom it sends to.
    pub device: DeviceId,
    /// The object's name.
    pub uri: String,
    /// How the object is cut.
    pub layout: Layout,
    /// Which symbols it sends.
    pub assignment: Assignment,
}
