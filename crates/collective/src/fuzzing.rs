//! What is done with arbitrary bytes as what members of a group say, to find out whether it is borne; for tests.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::{Store, is_sound};
use crate::wire::{Answer, Hello, LetterError, Listening, Note, receive};
use crate::{BYTES_MAX, Ticket};
use outpour_core::NodeId;

const KEY: [u8; 32] = [9; 32];

/// A ticket: what is one reads back as it is printed.
pub fn ticket(bytes: &[u8]) {
    let Some(Ok(ticket)) = std::str::from_utf8(bytes).ok().map(str::parse::<Ticket>) else {
        return;
    };
    assert_eq!(ticket.to_string().parse(), Ok(ticket.clone()));
    let digits = ticket
        .to_string()
        .rsplit_once('#')
        .map(|(_, digits)| digits.to_owned());
    assert!(digits.is_some_and(|digits| !format!("{ticket:?}").contains(&digits)));
}

/// Letters at the rendezvous, of a sender that has the key if the first byte is even, and what members
/// say to each other.
pub fn letters(bytes: &[u8]) {
    let [op, body @ ..] = bytes else {
        return;
    };
    match op >> 1 {
        0 => letter::<Hello>(body, op % 2 == 0),
        1 => letter::<Answer>(body, op % 2 == 0),
        2 => letter::<Listening>(body, op % 2 == 0),
        _ => note(body),
    }
}

fn letter<T: DeserializeOwned + Serialize>(body: &[u8], signed: bool) {
    if !signed {
        // As it comes: its length, its words and its code are what they are.
        assert!(read::<T>(body).is_err(), "a letter without the key");
        return;
    }
    let mut wire = (body.len() as u32).to_le_bytes().to_vec();
    wire.extend(body);
    wire.extend(blake3::keyed_hash(&KEY, body).as_bytes());
    let Ok(message) = read::<T>(&wire) else {
        return;
    };
    let encoded = postcard::to_stdvec(&message);
    assert!(encoded.is_ok_and(|again| postcard::from_bytes::<T>(&again).is_ok()));
}

/// All of it is there, so nothing is waited for.
fn read<T: DeserializeOwned>(mut wire: &[u8]) -> Result<T, LetterError> {
    let mut reading = pin!(receive(&mut wire, &KEY));
    match reading
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(read) => read,
        Poll::Pending => unreachable!("a slice is there at once"),
    }
}

fn note(body: &[u8]) {
    let Ok(note) = postcard::from_bytes::<Note<'_>>(body) else {
        return;
    };
    assert!(postcard::to_stdvec(&note).is_ok());
    let Note::Owns { stripe, .. } = note else {
        return;
    };
    // What is refused asks for no memory; what is not fits what a member may give.
    if is_sound(&stripe) && stripe.bytes <= 1 << 20 {
        assert!(stripe.bytes <= BYTES_MAX as u64);
        let blocks = stripe.hashes.len();
        let store = Store::new(vec![(NodeId(0), stripe)]);
        assert!(store.is_none_or(|store| store.have().len() as usize == blocks));
    }
}
