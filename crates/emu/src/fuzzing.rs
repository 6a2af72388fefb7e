//! What is done with arbitrary bytes as what programs inside and outside of an emulation send, to find out
//! whether it is borne; for tests.

use outpour_core::Network;

use crate::control::{Answer, Request};
use crate::engine::Load as _;
use crate::packet::Packet;

/// A packet from a device, if the first byte is even; else a line at the control socket.
pub fn emulation(bytes: &[u8]) {
    match bytes {
        [op, rest @ ..] if op % 2 == 0 => packet(rest),
        [_, rest @ ..] => line(rest),
        [] => {}
    }
}

/// What is taken for a packet counts at least as much as it is long, and a mark changes nothing but the
/// bits for it and the checksum.
fn packet(bytes: &[u8]) {
    let len = bytes.len();
    let Ok(mut packet) = Packet::new(bytes.to_vec(), len) else {
        return;
    };
    assert!(packet.packets() >= 1);
    assert!(packet.wire_bytes() as usize + outpour_system::emulation::OFFLOAD_HEADER_BYTES >= len);
    let _ = packet.destination();
    let before = packet.bytes().to_vec();
    let marked = packet.mark();
    let changed = before.iter().zip(packet.bytes()).filter(|(a, b)| a != b);
    assert!(changed.count() <= if marked { 3 } else { 0 });
    assert_eq!(packet.into_buffer().len(), len);
}

fn line(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        let again = serde_json::to_string(&request);
        assert!(again.is_ok_and(|again| serde_json::from_str(&again).ok() == Some(request)));
    }
    if let Ok(answer) = serde_json::from_slice::<Answer>(bytes) {
        if let Answer::Network(text) = &answer {
            let _ = Network::from_toml(text, "network");
        }
        let again = serde_json::to_string(&answer);
        assert!(again.is_ok_and(|again| serde_json::from_str(&again).ok() == Some(answer)));
    }
}
