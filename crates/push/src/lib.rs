//! Rateless parallel push up to the socket: sender, receiver and controller without I/O [PPUSH §III].
//!
//! Several sources that have the same object push different coded symbols of it to one receiver. The
//! machines here hold the whole protocol and neither sockets, clocks, threads nor payload: time and messages
//! come in as values, messages go out as values, and each machine says when it wants to be woken.
//!
//! | machine | one for | talks to |
//! |---|---|---|
//! | [`Receiver`] | each task: one object for one device | the controller, and every source that pushes |
//! | [`Sender`] | each flow: one source in one task | the receiver |
//! | [`Source`] | each source: its flows, as ordered | the controller |
//! | [`Controller`] | all tasks | sources and receivers |
//!
//! **What a driver owes.** It calls `handle_*` with what arrived and the time, which never goes back; then
//! `poll_*` until it returns nothing; then it waits for the next message or for the time of `wake_at`, at
//! which it calls `handle_wake`. Messages may be lost, repeated, delayed and reordered, and may be lies:
//! every machine stays within its bounds and never panics, whatever arrives. Who a message is from, the
//! driver has to know: machines believe it, so messages have to be authenticated and protected from replay,
//! and the address of a receiver has to be proven, before a machine sees them.
//!
//! A packet is a [`Data`] with the payload of one symbol; [`Data`] and [`Ack`] are plain values, and no
//! machine allocates per packet once its tables have grown to the size of a window.
//!
//! Which source sends what is either rateless or a fixed share, see [`Assignment`].

mod controller;
mod decoder;
mod error;
mod layout;
mod message;
mod receiver;
mod rtt;
mod sender;
mod source;
pub mod theta;
pub mod wire;

pub use controller::{
    Controller, ControllerOptions, ControllerOutput, Split, TaskEnd, TaskView, ThetaPolicy,
};
pub use decoder::{ChanceDecoder, Decoder, ExactDecoder};
pub use error::Error;
pub use layout::{Layout, SYMBOL_NUMBERS};
pub use message::{
    ACK_SPAN, Accepted, Ack, Assignment, Data, DeviceId, FlowEnd, FlowId, Lie, LinkId, Order,
    OrderState, Progress, Refusal, SEATS_MAX, SourceId, TaskId, ToController, ToReceiver, ToSource,
    URI_BYTES_MAX,
};
pub use receiver::{
    AHEAD_MAX, Estimate, Footprint, Receiver, ReceiverCounts, ReceiverEnd, ReceiverOptions,
    ReceiverOutput,
};
pub use sender::{
    FLIGHT_MAX, Sender, SenderCounts, SenderOptions, SenderOutput, SenderProgress, SenderTimers,
};
pub use source::{FLOWS_MAX, Source, SourceOptions, SourceOutput};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
