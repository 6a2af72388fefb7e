//! How a port treats packets, as callers describe it.

use std::num::NonZeroU32;
use std::time::Duration;

use outpour_core::Rate;
use outpour_core::network::Backlog;

use crate::loss::Loss;

/// How many queues a port has at most.
pub const CLASSES_MAX: usize = 8;

/// How large a weight may be, so that shares stay exact.
pub const WEIGHT_MAX: u32 = 1000;

/// How a port treats packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// How fast packets are served, bytes per second. Without limit they pass and never wait; at
    /// zero nothing passes.
    pub rate: Rate,
    /// How long a packet is on its way once it was served.
    pub delay: Duration,
    /// Who waits where, and who is next.
    pub discipline: Discipline,
    /// What is lost at random, before it reaches a queue.
    pub loss: Loss,
}

impl Setting {
    /// A port without delay and losses.
    pub const fn new(rate: Rate, discipline: Discipline) -> Self {
        Self {
            rate,
            delay: Duration::ZERO,
            discipline,
            loss: Loss::NONE,
        }
    }

    /// The same with a delay.
    #[must_use]
    pub const fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Whether the port does nothing to packets, so that a route can leave it out.
    pub fn is_open(&self) -> bool {
        self.rate.is_unlimited() && self.delay.is_zero() && self.loss == Loss::NONE
    }
}

/// One queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// How much waits, besides the packet in service, before more is dropped or trimmed.
    pub limit: Backlog,
    /// A packet that finds so much or more waiting in its queue is marked; the one in service does
    /// not count.
    pub mark_from: Option<Backlog>,
    /// The share of the rate if others wait, too, in proportion to their weights, at most
    /// [`WEIGHT_MAX`]; of no meaning under [`Order::Strict`].
    pub weight: NonZeroU32,
}

impl Queue {
    /// A queue of weight one.
    pub const fn new(limit: Backlog, mark_from: Option<Backlog>) -> Self {
        Self {
            limit,
            mark_from,
            weight: NonZeroU32::MIN,
        }
    }

    /// The same with a weight.
    #[must_use]
    pub const fn weighing(mut self, weight: NonZeroU32) -> Self {
        self.weight = weight;
        self
    }
}

/// Which queue is served next. A packet in service is never interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The first that is not empty.
    #[default]
    Strict,
    /// All in turn, such that bytes are in proportion to weights while several wait: start-time
    /// fair queueing [Goyal, Vin and Cheng 1996].
    Weighted,
}

/// The queues of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discipline {
    queues: Vec<Queue>,
    order: Order,
    trims: bool,
}

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No queue, or too many.
    #[error("a port has {queues} queues, expected 1 to {CLASSES_MAX}")]
    Queues {
        /// How many there are.
        queues: usize,
    },
    /// A limit or a threshold of nothing.
    #[error("queue {class}: a limit and a threshold are at least one packet or byte")]
    Empty {
        /// Which queue, from zero.
        class: usize,
    },
    /// Marks that would never be made.
    #[error("queue {class}: it would mark from {mark_from} on, but holds {limit} at most")]
    Unreachable {
        /// Which queue, from zero.
        class: usize,
        /// The threshold.
        mark_from: Backlog,
        /// The limit.
        limit: Backlog,
    },
    /// A weight that is too large.
    #[error("queue {class}: expected a weight of at most {WEIGHT_MAX}, found {weight}")]
    Weight {
        /// Which queue, from zero.
        class: usize,
        /// Its weight.
        weight: u32,
    },
    /// Losses that cannot be.
    #[error("a share of {share} lost in runs of {burst} cannot be")]
    Loss {
        /// The share.
        share: f64,
        /// The mean length of a run.
        burst: f64,
    },
}

impl Discipline {
    /// One first-in first-out queue.
    pub fn drop_tail(limit: Backlog, mark_from: Option<Backlog>) -> Self {
        Self {
            queues: vec![Queue::new(limit, mark_from)],
            order: Order::Strict,
            trims: false,
        }
    }

    /// Several queues, one for each class; packets of further classes join the last.
    ///
    /// # Errors
    /// Without a queue or with more than [`CLASSES_MAX`], if a limit or a threshold is nothing, if a
    /// threshold is above the limit, and if a weight is above [`WEIGHT_MAX`].
    pub fn classes(queues: Vec<Queue>, order: Order) -> Result<Self, SettingError> {
        if !(1..=CLASSES_MAX).contains(&queues.len()) {
            let queues = queues.len();
            return Err(SettingError::Queues { queues });
        }
        for (class, queue) in queues.iter().enumerate() {
            let Queue {
                limit,
                mark_from,
                weight,
            } = *queue;
            if weight.get() > WEIGHT_MAX {
                let weight = weight.get();
                return Err(SettingError::Weight { class, weight });
            }
            if limit.is_empty() || mark_from.is_some_and(Backlog::is_empty) {
                return Err(SettingError::Empty { class });
            }
            if let Some(mark_from) = mark_from.filter(|from| from.exceeds(limit)) {
                return Err(SettingError::Unreachable {
                    class,
                    mark_from,
                    limit,
                });
            }
        }
        let trims = false;
        Ok(Self {
            queues,
            order,
            trims,
        })
    }

    /// The same, but a packet whose queue is full loses its payload ([`crate::Load::trim`]); what
    /// is left joins the queue of the class it has then, or is dropped if that is full, too.
    /// Headers that go first and payloads behind make the switch of NDP [Handley et al. 2017].
    #[must_use]
    pub fn trimming(mut self) -> Self {
        self.trims = true;
        self
    }

    /// The queues, first class first.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Which queue is served next.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Whether payloads are cut where they find no room.
    pub fn trims(&self) -> bool {
        self.trims
    }
}
