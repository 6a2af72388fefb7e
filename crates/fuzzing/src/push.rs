//! Input for `outpour-push`.

use std::time::Duration;

use outpour_core::Time;
use outpour_push::wire::{self, MESSAGE_BYTES_MAX, Message};
use outpour_push::*;

const TASK: TaskId = TaskId(1);
const SEATS: u32 = 4;

/// Messages, each with a byte before it that says how many bytes it has. One that is let through comes back
/// as it was, and no machine minds it.
pub(crate) fn messages(bytes: &[u8]) {
    let mut machines = Machines::new();
    let mut rest = bytes;
    while let [len, more @ ..] = rest {
        let (one, after) = more.split_at(usize::from(*len).min(more.len()));
        rest = after;
        machines.now += Duration::from_millis(u64::from(*len));
        let Ok((message, payload)) = wire::decode(one) else {
            continue;
        };
        if !names_fit(&message) {
            continue;
        }
        let mut again = wire::encode(&message, Vec::new());
        assert!(again.len() <= MESSAGE_BYTES_MAX);
        again.extend(payload);
        // By its bytes, as a weight that is no number is not equal to itself.
        let (back, kept) = wire::decode(&again).expect("what was encoded");
        let mut third = wire::encode(&back, Vec::new());
        third.extend(kept);
        assert_eq!(third, again);
        machines.handle(&message, payload);
    }
}

/// Machines refuse longer names, and do not send them.
fn names_fit(message: &Message) -> bool {
    let uri = match message {
        Message::ToController(
            ToController::Request { uri, .. } | ToController::Announce { uri, .. },
        ) => uri,
        Message::ToSource(ToSource::Order(order)) => &order.uri,
        _ => return true,
    };
    uri.len() <= URI_BYTES_MAX
}

/// One of each, in the middle of a task.
struct Machines {
    now: Time,
    controller: Controller,
    source: Source,
    sender: Sender,
    receiver: Receiver,
}

impl Machines {
    fn new() -> Self {
        let now = Time::ZERO;
        let layout = Layout::new(50, 10).expect("a small object");
        let flow = FlowId {
            task: TASK,
            seat: 0,
        };
        let assignment = Assignment::Rateless {
            seats: SEATS,
            sources: 2,
        };
        let mut source = Source::new(SourceOptions::new(SourceId(1)), now).expect("defaults");
        source.hold("object", layout).expect("a short name");
        let options = ReceiverOptions::new("object", DeviceId(1));
        let decoder = Box::new(ChanceDecoder::new(1));
        let mut receiver = Receiver::new(options, decoder, now).expect("defaults");
        let accepted = Accepted {
            epoch: 0,
            task: TASK,
            layout,
            seats: SEATS,
            sources: 2,
            is_coded: true,
        };
        receiver.handle_controller(now, &ToReceiver::Accepted(accepted));
        Self {
            now,
            controller: Controller::new(ControllerOptions::default(), now).expect("defaults"),
            source,
            sender: Sender::new(&SenderOptions::new(flow, layout, assignment)).expect("defaults"),
            receiver,
        }
    }

    fn handle(&mut self, message: &Message, payload: &[u8]) {
        let now = self.now;
        match message {
            Message::Data(data) => {
                self.receiver.handle_data(now, data, false, payload);
            }
            Message::Ack(ack) => {
                self.source.handle_ack(now, ack);
                if ack.flow == self.sender.flow() {
                    self.sender.handle_ack(now, ack);
                }
            }
            Message::Fin(flow) => {
                self.source.handle_fin(*flow);
                self.receiver.handle_fin(*flow);
            }
            Message::FinAck(flow) => {
                self.source.handle_fin_ack(*flow);
                self.receiver.handle_fin_ack(*flow);
            }
            Message::ToController(it) => self.controller.handle_message(now, it),
            Message::ToReceiver(it) => self.receiver.handle_controller(now, it),
            Message::ToSource(it) => self.source.handle_controller(now, it),
        }
        self.controller.handle_wake(now);
        self.source.handle_wake(now);
        self.sender.handle_wake(now);
        self.receiver.handle_wake(now);
        // What they want sent is bounded by windows and tables.
        let mut sent = 0;
        while self.controller.poll_transmit(now).is_some()
            || self.source.poll_transmit(now).is_some()
            || self.sender.poll_send(now).is_some()
            || self.receiver.poll_transmit(now).is_some()
        {
            sent += 1;
            assert!(sent < 100_000, "machines send without end");
        }
    }
}
