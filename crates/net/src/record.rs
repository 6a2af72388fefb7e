//! The TLS 1.3 record layer after the handshake (RFC 8446, section 5), for bulk data.
//!
//! rustls makes the handshake, derives every key, and hands the traffic keys over through its
//! kernel interface. Its own record layer would copy each record twice on either side and lock
//! both directions together. Here a record is encrypted once on its way into the buffer that goes
//! to the socket, and decrypted where the socket has put it; the directions are independent.
//! The wire format is plain TLS 1.3: a stock rustls peer reads and writes it (see the tests).

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outpour_system::secret::Wiped;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;

#[path = "record/fuzz.rs"]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test, which may panic"
)]
mod fuzz;

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
#[path = "record/wiped.rs"]
#[allow(clippy::unwrap_used)]
mod wiped;

pub use fuzz::fuzz;

/// Most plaintext in a record.
pub(crate) const PLAIN_MAX: usize = 1 << 14;
/// Most that a record may take on the wire with padding and expansion.
pub(crate) const RECORD_MAX: usize = HEADER + PLAIN_MAX + 256;
/// What a record costs beyond its plaintext: header, content type, tag.
pub(crate) const OVERHEAD: usize = HEADER + 1 + TAG;

const HEADER: usize = 5;
const TAG: usize = 16;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// `key_update`, without and with a request for one in return.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const KEY_UPDATE_BOTH: [u8; 5] = [24, 0, 0, 1, 1];
/// A key encrypts this many records, far below what AES-GCM allows: 64 GiB.
const RECORDS_PER_KEY: u64 = 1 << 22;
/// So many records AES-GCM allows with one key: 2^24.5 (section 5.5). A peer that goes on with it is left.
const RECORDS_PER_KEY_MAX: u64 = 23_726_566;
/// So many records in a row may bring no data. More keep us busy with deriving keys, for nothing.
const IDLE_MAX: u32 = 32;

// rustls changes keys after 2^24 records.
const _: () = assert!(RECORDS_PER_KEY < 1 << 24 && 1 << 24 < RECORDS_PER_KEY_MAX);
const _: () = assert!(RECORD_MAX - HEADER <= u16::MAX as usize);
const _: () = assert!(PLAIN_MAX + OVERHEAD <= RECORD_MAX);
// The sequence number fills the end of a nonce.
const _: () = assert!(aead::NONCE_LEN == 4 + size_of::<u64>());

/// What can go wrong with a record; always the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("closed by the peer")]
    Closed,
    #[error("the peer ended the connection with TLS alert {}", alert_name(*.0))]
    Alert(u8),
    #[error("malformed TLS record: {0}")]
    Malformed(&'static str),
    #[error("a TLS record does not decrypt")]
    Decrypt,
    #[error("TLS keys cannot be derived: {0}")]
    Keys(String),
}

fn alert_name(code: u8) -> String {
    let alert = rustls::AlertDescription::from(code);
    format!("{code} ({alert:?})")
}

type Secrets = Result<ConnectionTrafficSecrets, rustls::Error>;

/// Derives the next key of a direction.
pub(crate) trait Rekey: Send {
    fn next_tx(&mut self) -> Secrets;
    fn next_rx(&mut self) -> Secrets;
}

/// What the directions of a connection share.
pub(crate) struct Keys {
    rekey: Mutex<Box<dyn Rekey>>,
    /// The peer asked for our next key.
    wanted: AtomicBool,
}

impl Keys {
    pub(crate) fn new(rekey: impl Rekey + 'static) -> Arc<Self> {
        Arc::new(Self {
            rekey: Mutex::new(Box::new(rekey)),
            wanted: AtomicBool::new(false),
        })
    }

    fn next(&self, derive: impl FnOnce(&mut dyn Rekey) -> Secrets) -> Result<Key, RecordError> {
        let mut rekey = self.rekey.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = derive(&mut **rekey).map_err(|error| RecordError::Keys(error.to_string()))?;
        Key::new(0, &secrets)
    }
}

/// A traffic key with its nonces.
struct Key {
    secret: Wiped<Secret>,
    sequence: u64,
}

/// What nobody may find in memory once it is not used any more. The library wipes no key of its own.
struct Secret {
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
}

impl Key {
    fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Result<Self, RecordError> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&aead::CHACHA20_POLY1305, key, iv)
            }
            _ => return Err(RecordError::Keys("unknown cipher suite".into())),
        };
        let unbound = UnboundKey::new(algorithm, key.as_ref())
            .map_err(|_| RecordError::Keys("a key of the wrong length".into()))?;
        let iv = iv.as_ref().try_into().map_err(|_| {
            RecordError::Keys("an initialisation vector of the wrong length".into())
        })?;
        let key = LessSafeKey::new(unbound);
        Ok(Self {
            secret: Wiped::new(Secret { key, iv }),
            sequence,
        })
    }

    /// The nonce of the next record: the sequence number, xored onto the end of the vector.
    fn nonce(&mut self) -> Result<Nonce, RecordError> {
        let sequence = self.sequence;
        self.sequence = sequence
            .checked_add(1)
            .ok_or(RecordError::Malformed("sequence numbers are used up"))?;
        let mut nonce = self.secret.iv;
        for (byte, mask) in nonce.iter_mut().skip(4).zip(sequence.to_be_bytes()) {
            *byte ^= mask;
        }
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Encrypts what goes out.
pub(crate) struct Sealer {
    key: Key,
    keys: Arc<Keys>,
    records_per_key: u64,
    records: u64,
}

impl Sealer {
    pub(crate) fn new(
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
        keys: Arc<Keys>,
    ) -> Result<Self, RecordError> {
        let key = Key::new(sequence, secrets)?;
        Ok(Self {
            key,
            keys,
            records_per_key: RECORDS_PER_KEY,
            records: 0,
        })
    }

    /// Makes keys last for so many records only.
    #[cfg(test)]
    pub(crate) const fn rekey_every(&mut self, records: u64) {
        self.records_per_key = records;
    }

    /// Appends `plain` to `out` as records of application data.
    pub(crate) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        for chunk in plain.chunks(PLAIN_MAX) {
            if self.records >= self.records_per_key || self.keys.wanted.load(Ordering::Relaxed) {
                self.update_key(out)?;
            }
            debug_assert!(self.records < self.records_per_key);
            self.seal_one(DATA, chunk, out)?;
        }
        Ok(())
    }

    /// Appends the alert that says that nothing more will come.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        self.seal_one(ALERT, &[1, 0], out)
    }

    fn update_key(&mut self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        self.keys.wanted.store(false, Ordering::Relaxed);
        self.seal_one(HANDSHAKE, &KEY_UPDATE, out)?;
        self.key = self.keys.next(|rekey| rekey.next_tx())?;
        self.records = 0;
        debug_assert_eq!(self.key.sequence, 0, "a new key begins anew");
        Ok(())
    }

    fn seal_one(&mut self, kind: u8, plain: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        debug_assert!(plain.len() <= PLAIN_MAX);
        debug_assert!(self.records <= self.records_per_key);
        debug_assert!(self.records <= self.key.sequence, "a nonce was used twice");
        const TOO_LONG: RecordError = RecordError::Malformed("a record that is too long");
        let before = out.len();
        let sealed = plain.len().saturating_add(1 + TAG);
        let length = u16::try_from(sealed).map_err(|_| TOO_LONG)?;
        let [high, low] = length.to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let nonce = self.key.nonce()?;
        out.reserve(sealed.saturating_add(HEADER));
        out.extend_from_slice(&header);
        let start = out.len();
        out.extend_from_slice(plain);
        out.push(kind);
        let content = out.get_mut(start..).unwrap_or_default();
        let tag = self
            .key
            .secret
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), content)
            .map_err(|_| TOO_LONG)?;
        out.extend_from_slice(tag.as_ref());
        debug_assert_eq!(
            out.len().checked_sub(before),
            plain.len().checked_add(OVERHEAD)
        );
        // A key is not used for half as many.
        self.records = self.records.saturating_add(1);
        Ok(())
    }
}

/// Decrypts incoming records.
pub(crate) struct Opener {
    key: Key,
    keys: Arc<Keys>,
    /// How many records in a row have brought no data.
    idle: u32,
}

/// A record found at the front of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// How many bytes of the buffer it takes.
    pub(crate) len: usize,
    /// Where its application data lies now, in plain; empty for records of TLS itself.
    pub(crate) plain: Range<usize>,
}

impl Opener {
    pub(crate) fn new(
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
        keys: Arc<Keys>,
    ) -> Result<Self, RecordError> {
        Ok(Self {
            key: Key::new(sequence, secrets)?,
            keys,
            idle: 0,
        })
    }

    /// Decrypts the record at the front of `buf` in place; `None` if it is not all there yet.
    pub(crate) fn open(&mut self, buf: &mut [u8]) -> Result<Option<Record>, RecordError> {
        let Some(header) = buf.first_chunk::<HEADER>().copied() else {
            return Ok(None);
        };
        let [kind, _, _, high, low] = header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != DATA {
            return Err(RecordError::Malformed("not application data"));
        }
        if length > RECORD_MAX - HEADER {
            return Err(RecordError::Malformed("longer than allowed"));
        }
        let len = length.saturating_add(HEADER);
        let Some(body) = buf.get_mut(HEADER..len) else {
            return Ok(None);
        };
        if self.key.sequence >= RECORDS_PER_KEY_MAX {
            return Err(RecordError::Malformed("too many with one key"));
        }
        let nonce = self.key.nonce()?;
        let plain = self
            .key
            .secret
            .key
            .open_in_place(nonce, Aad::from(header), body)
            .map_err(|_| RecordError::Decrypt)?;
        debug_assert_eq!(plain.len().checked_add(TAG), Some(length));
        // Content, its type, and zeros as padding, which count.
        if plain.len() > PLAIN_MAX + 1 {
            return Err(RecordError::Malformed("more content than allowed"));
        }
        let kind_at = plain
            .iter()
            .rposition(|byte| *byte != 0)
            .ok_or(RecordError::Malformed("without a content type"))?;
        let (content, kind) = plain.split_at(kind_at);
        let data = match kind.first().copied().unwrap_or_default() {
            DATA => content.len(),
            HANDSHAKE if content == KEY_UPDATE || content == KEY_UPDATE_BOTH => {
                if content == KEY_UPDATE_BOTH {
                    self.keys.wanted.store(true, Ordering::Relaxed);
                }
                self.key = self.keys.next(|rekey| rekey.next_rx())?;
                0
            }
            HANDSHAKE => return Err(RecordError::Malformed("unexpected handshake message")),
            ALERT => return Err(alert(content)),
            _ => return Err(RecordError::Malformed("unknown content type")),
        };
        self.idle = if data > 0 {
            0
        } else {
            self.idle.saturating_add(1)
        };
        if self.idle > IDLE_MAX {
            return Err(RecordError::Malformed("too many without data"));
        }
        debug_assert!(data <= PLAIN_MAX);
        debug_assert!(data.saturating_add(OVERHEAD) <= len);
        Ok(Some(Record {
            len,
            plain: HEADER..data.saturating_add(HEADER),
        }))
    }
}

fn alert(content: &[u8]) -> RecordError {
    match content {
        [_, 0] => RecordError::Closed,
        [_, description] => RecordError::Alert(*description),
        _ => RecordError::Malformed("an alert of the wrong length"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Keys that change with each update, the same on both sides.
    struct Chain(u8, u8);

    impl Rekey for Chain {
        fn next_tx(&mut self) -> Result<ConnectionTrafficSecrets, rustls::Error> {
            self.0 += 1;
            Ok(secrets(self.0))
        }
        fn next_rx(&mut self) -> Result<ConnectionTrafficSecrets, rustls::Error> {
            self.1 += 1;
            Ok(secrets(self.1))
        }
    }

    fn secrets(step: u8) -> ConnectionTrafficSecrets {
        ConnectionTrafficSecrets::Aes256Gcm {
            key: rustls::crypto::cipher::AeadKey::from([step; 32]),
            iv: rustls::crypto::cipher::Iv::new([step ^ 0x55; 12]),
        }
    }

    fn pair() -> (Sealer, Opener) {
        let keys = || Keys::new(Chain(0, 0));
        let sealer = Sealer::new(7, &secrets(0), keys()).unwrap();
        let opener = Opener::new(7, &secrets(0), keys()).unwrap();
        (sealer, opener)
    }

    fn open_all(opener: &mut Opener, wire: &mut [u8]) -> Result<Vec<u8>, RecordError> {
        let mut all = Vec::new();
        let mut at = 0;
        while let Some(record) = opener.open(&mut wire[at..])? {
            all.extend_from_slice(&wire[at..][record.plain]);
            at += record.len;
        }
        assert_eq!(at, wire.len());
        Ok(all)
    }

    #[test]
    fn data_round_trips_across_records_and_key_updates() {
        let (mut sealer, mut opener) = pair();
        sealer.rekey_every(3);
        let plain: Vec<u8> = (0..10 * PLAIN_MAX + 77)
            .map(|i| ((i * 31) >> 3) as u8)
            .collect();
        let mut wire = Vec::new();
        sealer.seal(&plain, &mut wire).unwrap();
        assert_eq!(opener.open(&mut wire[..PLAIN_MAX]).unwrap(), None);
        assert!(open_all(&mut opener, &mut wire).unwrap() == plain);
        // 11 records of data and 3 key updates.
        assert_eq!(
            wire.len(),
            plain.len() + 11 * OVERHEAD + 3 * (OVERHEAD + KEY_UPDATE.len())
        );
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        for at in 0..OVERHEAD + 10 {
            let (mut sealer, mut opener) = pair();
            let mut wire = Vec::new();
            sealer.seal(&[5; 10], &mut wire).unwrap();
            wire[at] ^= 1;
            // A longer length is an incomplete record until more comes.
            let opened = opener.open(&mut wire);
            assert!(
                matches!(opened, Err(_) | Ok(None)),
                "bit flipped in byte {at}: {opened:?}"
            );
        }
    }

    #[test]
    fn replayed_and_reordered_records_are_refused() {
        let (mut sealer, mut opener) = pair();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        sealer.seal(b"first", &mut first).unwrap();
        sealer.seal(b"second", &mut second).unwrap();
        let replay = first.clone();
        assert!(opener.open(&mut first).unwrap().is_some());
        assert_eq!(opener.open(&mut replay.clone()), Err(RecordError::Decrypt));
        let (_, mut opener) = pair();
        assert_eq!(opener.open(&mut second), Err(RecordError::Decrypt));
    }

    #[test]
    fn alerts_and_foreign_records_end_the_connection() {
        let (mut sealer, mut opener) = pair();
        let mut wire = Vec::new();
        sealer.close(&mut wire).unwrap();
        assert_eq!(opener.open(&mut wire), Err(RecordError::Closed));
        let mut wire = Vec::new();
        sealer.seal_one(ALERT, &[2, 48], &mut wire).unwrap();
        assert_eq!(opener.open(&mut wire), Err(RecordError::Alert(48)));
        assert!(RecordError::Alert(48).to_string().contains("UnknownCA"));
        let mut wire = Vec::new();
        sealer
            .seal_one(HANDSHAKE, &[24, 0, 0, 1, 2], &mut wire)
            .unwrap();
        assert!(matches!(
            opener.open(&mut wire),
            Err(RecordError::Malformed(_))
        ));
        let mut too_long = vec![23, 3, 3, 0x41, 0x01];
        assert!(matches!(
            opener.open(&mut too_long),
            Err(RecordError::Malformed(_))
        ));
        let mut handshake = vec![22, 3, 3, 0, 30];
        assert!(matches!(
            opener.open(&mut handshake),
            Err(RecordError::Malformed(_))
        ));
    }

    #[test]
    fn padding_is_allowed_and_nothing_but_padding_is_not() {
        let (mut sealer, mut opener) = pair();
        let mut wire = Vec::new();
        // A record of another kind whose content ends in a type and zeros is a padded record.
        sealer.seal_one(0, b"padded\x17\0\0\0", &mut wire).unwrap();
        let record = opener.open(&mut wire).unwrap().unwrap();
        assert_eq!(&wire[record.plain], b"padded");
        let mut wire = Vec::new();
        sealer.seal_one(0, &[0; 20], &mut wire).unwrap();
        assert!(matches!(
            opener.open(&mut wire),
            Err(RecordError::Malformed(_))
        ));
    }

    /// A record that stock TLS would not send, sealed with the key of a peer.
    fn sealed(sealer: &mut Sealer, inner: &[u8]) -> Vec<u8> {
        let length = (inner.len() + TAG) as u16;
        let header = [DATA, 3, 3, (length >> 8) as u8, length as u8];
        let nonce = sealer.key.nonce().unwrap();
        let mut body = inner.to_vec();
        let key = &sealer.key.secret.key;
        key.seal_in_place_append_tag(nonce, Aad::from(header), &mut body)
            .unwrap();
        [&header[..], &body].concat()
    }

    #[test]
    fn padding_counts_as_content() {
        let padded = |len: usize| {
            let mut inner = vec![0; len];
            inner[..2].copy_from_slice(&[5, DATA]);
            inner
        };
        let (mut sealer, mut opener) = pair();
        let mut longest = sealed(&mut sealer, &padded(PLAIN_MAX + 1));
        let record = opener.open(&mut longest).unwrap().unwrap();
        assert_eq!(longest[record.plain], [5]);
        // The bound on what is encrypted does not say so: it leaves room for 255 bytes more.
        for len in [PLAIN_MAX + 2, RECORD_MAX - HEADER - TAG] {
            let (mut sealer, mut opener) = pair();
            let mut wire = sealed(&mut sealer, &padded(len));
            assert_eq!(
                opener.open(&mut wire),
                Err(RecordError::Malformed("more content than allowed"))
            );
        }
    }

    #[test]
    fn a_flood_of_records_without_data_ends_the_connection() {
        let update = |sealer: &mut Sealer, wire: &mut Vec<u8>| sealer.update_key(wire).unwrap();
        let empty =
            |sealer: &mut Sealer, wire: &mut Vec<u8>| sealer.seal_one(DATA, &[], wire).unwrap();
        type Say = fn(&mut Sealer, &mut Vec<u8>);
        for say in [update as Say, empty as Say] {
            let (mut sealer, mut opener) = pair();
            let mut wire = Vec::new();
            for _ in 0..3 {
                (0..IDLE_MAX).for_each(|_| say(&mut sealer, &mut wire));
                sealer.seal(b"data", &mut wire).unwrap();
            }
            assert_eq!(open_all(&mut opener, &mut wire).unwrap(), b"data".repeat(3));
            let mut wire = Vec::new();
            (0..=IDLE_MAX).for_each(|_| say(&mut sealer, &mut wire));
            assert_eq!(
                open_all(&mut opener, &mut wire),
                Err(RecordError::Malformed("too many without data"))
            );
        }
    }

    #[test]
    fn requests_for_new_keys_are_answered_by_one_however_many_they_are() {
        let (mut sealer, mut opener) = pair();
        let mut answers = Sealer::new(0, &secrets(9), opener.keys.clone()).unwrap();
        let mut wire = Vec::new();
        for _ in 0..IDLE_MAX {
            sealer
                .seal_one(HANDSHAKE, &KEY_UPDATE_BOTH, &mut wire)
                .unwrap();
            sealer.key = sealer.keys.next(|rekey| rekey.next_tx()).unwrap();
            sealer.records = 0;
        }
        assert_eq!(open_all(&mut opener, &mut wire).unwrap(), b"");
        let mut out = Vec::new();
        answers.seal(b"data", &mut out).unwrap();
        answers.seal(b"data", &mut out).unwrap();
        let update = OVERHEAD + KEY_UPDATE.len();
        assert_eq!(out.len(), update + 2 * (OVERHEAD + 4));
    }

    #[test]
    fn a_key_is_not_used_for_more_records_than_it_is_good_for() {
        let keys = || Keys::new(Chain(0, 0));
        let last = RECORDS_PER_KEY_MAX - 1;
        let mut sealer = Sealer::new(last, &secrets(0), keys()).unwrap();
        let mut opener = Opener::new(last, &secrets(0), keys()).unwrap();
        let mut wire = Vec::new();
        sealer.seal_one(DATA, b"last", &mut wire).unwrap();
        assert!(opener.open(&mut wire).unwrap().is_some());
        let mut wire = Vec::new();
        sealer.seal_one(DATA, b"more", &mut wire).unwrap();
        assert_eq!(
            opener.open(&mut wire),
            Err(RecordError::Malformed("too many with one key"))
        );
        // Sequence numbers do not begin again: a nonce would be used twice.
        let mut key = Key::new(u64::MAX - 1, &secrets(0)).unwrap();
        assert!(key.nonce().is_ok());
        assert!(key.nonce().is_err() && key.nonce().is_err());
    }

    #[test]
    fn nonces_are_those_of_the_standard_and_differ() {
        let mut seen = std::collections::BTreeSet::new();
        let borders = [
            0,
            0xff,
            0x100,
            0xffff,
            0xffff_ffff,
            0x1_0000_0000,
            u64::MAX - 2,
        ];
        for start in borders {
            let mut key = Key::new(start, &secrets(0)).unwrap();
            for sequence in start..start + 2 {
                let mut right = [0; 12];
                right[4..].copy_from_slice(&sequence.to_be_bytes());
                let right = right.map(|byte| byte ^ 0x55);
                let nonce = key.nonce().unwrap();
                assert_eq!(nonce.as_ref(), &right);
                seen.insert(right);
            }
        }
        // 0x100 and its kin are reached from below as well.
        assert_eq!(seen.len(), 2 * borders.len() - 2);
    }
}
