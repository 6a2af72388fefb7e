//! What is done with arbitrary bytes to find out whether the record layer bears them; for tests.

use rustls::ConnectionTrafficSecrets;

use super::{
    ALERT, DATA, HANDSHAKE, IDLE_MAX, KEY_UPDATE, KEY_UPDATE_BOTH, Keys, Opener, RECORD_MAX, Rekey,
    Sealer, Secrets,
};

/// Keys that both sides change alike.
struct Chain(u8, u8);

impl Chain {
    fn secrets(step: u8) -> ConnectionTrafficSecrets {
        ConnectionTrafficSecrets::Aes128Gcm {
            key: rustls::crypto::cipher::AeadKey::from([step; 32]),
            iv: rustls::crypto::cipher::Iv::new([step ^ 0x55; 12]),
        }
    }
}

impl Rekey for Chain {
    fn next_tx(&mut self) -> Secrets {
        self.0 = self.0.wrapping_add(1);
        Ok(Self::secrets(self.0))
    }

    fn next_rx(&mut self) -> Secrets {
        self.1 = self.1.wrapping_add(1);
        Ok(Self::secrets(self.1))
    }
}

/// A peer that has the keys seals what it likes: data, padding, changes of keys, alerts, other types, and turns bytes
/// of it. What is opened is what was sealed as data, in order, up to the first record that is none; after that
/// nothing is.
pub fn fuzz(bytes: &[u8]) {
    let keys = || Keys::new(Chain(0, 0));
    let (Ok(mut sealer), Ok(mut opener)) = (
        Sealer::new(0, &Chain::secrets(0), keys()),
        Opener::new(0, &Chain::secrets(0), keys()),
    ) else {
        return;
    };
    let (mut wire, mut expected, mut sound) = (Vec::<u8>::new(), Vec::<u8>::new(), true);
    let mut rest = bytes;
    let mut idle = 0;
    while let [op, len, more @ ..] = rest {
        let (content, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let before = wire.len();
        let said = say(&mut sealer, &mut wire, *op, content);
        if wire.len() > before {
            idle = match &said {
                Some(data) if !data.is_empty() => 0,
                _ => idle + 1,
            };
        }
        sound = sound && said.is_some() && idle <= IDLE_MAX;
        if sound {
            expected.extend(said.unwrap_or_default());
        }
    }
    let (mut opened, mut at) = (Vec::<u8>::new(), 0);
    let ended = loop {
        match opener.open(&mut wire[at..]) {
            Ok(Some(record)) => {
                assert!(record.plain.end <= record.len && record.len <= RECORD_MAX);
                opened.extend(&wire[at..][record.plain]);
                at += record.len;
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert_eq!(opened, expected);
    if sound {
        assert_eq!(ended, Ok(()));
        assert_eq!(at, wire.len());
    }
}

/// Adds what a peer sends; the data that it brings, or none if it ends the connection.
fn say(sealer: &mut Sealer, wire: &mut Vec<u8>, op: u8, content: &[u8]) -> Option<Vec<u8>> {
    let before = wire.len();
    match op % 16 {
        0..=5 => sealer.seal(content, wire).ok().map(|()| content.to_vec()),
        6 | 7 => sealer.update_key(wire).ok().map(|()| Vec::new()),
        8 => sealer.close(wire).ok().and(None),
        // Any type, and padding: what ends in a type and zeros is a record of that type.
        9..=12 => {
            let kind = match op >> 4 {
                0..=3 => DATA,
                4..=6 => 0,
                7..=9 => HANDSHAKE,
                10..=12 => ALERT,
                _ => op,
            };
            sealer.seal_one(kind, content, wire).ok()?;
            let mut inner = content.to_vec();
            inner.push(kind);
            let end = inner.iter().rposition(|byte| *byte != 0)?;
            inner.truncate(end + 1);
            match inner.pop() {
                Some(DATA) => Some(inner),
                Some(HANDSHAKE) if inner == KEY_UPDATE || inner == KEY_UPDATE_BOTH => {
                    sealer.key = sealer.keys.next(|rekey| rekey.next_tx()).ok()?;
                    sealer.records = 0;
                    Some(Vec::new())
                }
                _ => None,
            }
        }
        13 if content.is_empty() => Some(Vec::new()),
        13 => {
            wire.extend(content);
            None
        }
        _ => {
            sealer.seal(content, wire).ok()?;
            let at = before + usize::from(op >> 4) % (wire.len() - before).max(1);
            match wire.get_mut(at) {
                Some(byte) => *byte ^= op | 1,
                None => return Some(Vec::new()),
            }
            None
        }
    }
}
