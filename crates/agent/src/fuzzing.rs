//! What is done with arbitrary bytes as what comes through a control channel or from a file of an agent, to find
//! out whether it is borne; for tests.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use outpour_net::BlockIo as _;
use outpour_protocols::coordinator::{Obedience, Order};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::content::Blob;
use crate::control::{AgentSays, CommandSays, ControlError, Greeting, ManifestOffer, read_frame};

/// Frames of a control channel, each a byte before it that says whose, and its length.
pub fn control(bytes: &[u8]) {
    let [op, body @ ..] = bytes else {
        return;
    };
    match op % 4 {
        0 => {
            if let Some(greeting) = heard::<Greeting>(body)
                && let Err(error) = greeting.check()
            {
                assert!(!error.to_string().contains(char::is_control));
            }
        }
        1 => {
            if let Some(AgentSays::Hashed(described)) = heard(body) {
                offered(described.manifest);
            }
        }
        2 => command(body),
        // As it comes, length and all.
        _ => {
            let mut wire = body;
            while let Poll::Ready(Ok(_)) = read::<AgentSays>(&mut wire) {}
        }
    }
}

fn command(body: &[u8]) {
    match heard(body) {
        Some(CommandSays::Admit(admission)) => {
            let known = admission.terms.check(admission.node);
            let _ = admission.want.of(1000);
            if known.is_ok() {
                let size = admission.terms.block_bytes;
                let _ = admission.terms.batches(1000, size);
            }
            offered(admission.manifest);
        }
        Some(CommandSays::Order { transfer, given }) => {
            let mut obedience = Obedience::new(transfer, 1);
            let stamp = given.stamp;
            if obedience.admit(transfer, stamp).is_ok() {
                assert!(
                    obedience.admit(transfer, stamp).is_err(),
                    "an order is obeyed once"
                );
            }
            if let Order::Begin { contacts } = &given.order {
                assert!(contacts.iter().count() <= body.len());
            }
        }
        _ => {}
    }
}

/// An offer that is taken can be fetched: each block has a length, all of them that of the manifest, and
/// what came with it can be read.
fn offered(mut offer: ManifestOffer) {
    if offer.len > 1 << 20 {
        return;
    }
    // No input finds its own hash.
    if let Some(inline) = &offer.inline {
        offer.id = *blake3::hash(inline).as_bytes();
    }
    let len = u64::from(offer.len);
    let Some(blob) = Blob::offered(offer) else {
        return;
    };
    let have = blob.have();
    let mut sum = 0;
    let mut buf = Vec::new();
    for block in 0..have.len() {
        sum += u64::from(blob.block_len(block).unwrap_or(0));
        if have.contains(block) {
            assert!(blob.read(block, &mut buf).is_ok());
            assert_eq!(Some(buf.len() as u32), blob.block_len(block));
        }
    }
    assert_eq!(sum, len);
    assert_eq!(blob.block_len(have.len()), None);
    let _ = blob.decode(|_| Ok(()));
}

/// One value from a frame of these bytes. What was understood is said again and understood as the same: by its
/// bytes, as a number that is none is not equal to itself.
fn heard<T: DeserializeOwned + Serialize>(body: &[u8]) -> Option<T> {
    let mut wire = (body.len() as u32).to_be_bytes().to_vec();
    wire.extend(body);
    let Poll::Ready(read) = read::<T>(&mut &wire[..]) else {
        unreachable!("a slice is there at once");
    };
    let value = read.ok()?;
    let once = postcard::to_stdvec(&value);
    let back = once
        .clone()
        .and_then(|bytes| postcard::from_bytes::<T>(&bytes));
    assert_eq!(back.and_then(|back| postcard::to_stdvec(&back)), once);
    Some(value)
}

fn read<T: DeserializeOwned>(wire: &mut &[u8]) -> Poll<Result<T, ControlError>> {
    let mut reading = pin!(read_frame(wire));
    reading
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// A file of epochs.
pub fn epochs(bytes: &[u8]) {
    crate::epochs::fuzz(bytes);
}
