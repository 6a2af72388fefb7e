//! A packet as it comes from a TUN device: the offloading header, then IP.
//!
//! Packets come from programs inside the emulation, so nothing in them is believed before it is
//! checked against the length that was read.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::net::Ipv4Addr;

use outpour_system::emulation::OFFLOAD_HEADER_BYTES;

use crate::engine::Load;

const IP: usize = OFFLOAD_HEADER_BYTES;
const IP_HEADER_BYTES_MIN: usize = 20;
const PROTOCOL_TCP: u8 = 6;
const UDP_HEADER_BYTES: usize = 8;

/// The offloading header's kind of bundle, with the flag for ECN taken away.
const BUNDLE_NONE: u8 = 0;
const BUNDLE_ECN: u8 = 0x80;

/// The two bits of the IP header about congestion: not capable, experienced.
const ECN_BITS: u8 = 0b11;
const ECN_NOT_CAPABLE: u8 = 0b00;
const ECN_EXPERIENCED: u8 = 0b11;

/// A packet, or a bundle of segments that only become packets on a real wire.
pub(crate) struct Packet {
    bytes: Vec<u8>,
    len: u32,
    wire_bytes: u32,
    packets: u32,
}

impl Packet {
    /// Takes the first `len` bytes of a buffer; gives the buffer back if they are no IPv4 packet.
    pub(crate) fn new(bytes: Vec<u8>, len: usize) -> Result<Self, Vec<u8>> {
        let read = bytes.get(..len).unwrap_or(&[]);
        let Some((wire_bytes, packets)) = measure(read) else {
            return Err(bytes);
        };
        Ok(Self {
            bytes,
            len: len as u32,
            wire_bytes,
            packets,
        })
    }

    /// What goes to the device of the receiver.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len as usize).unwrap_or_default()
    }

    /// Where it goes.
    pub(crate) fn destination(&self) -> Ipv4Addr {
        // An IPv4 header is there: `new` made sure.
        let octets = self
            .bytes
            .get(IP + 16..)
            .and_then(|rest| rest.first_chunk::<4>());
        octets
            .copied()
            .map_or(Ipv4Addr::UNSPECIFIED, Ipv4Addr::from)
    }

    /// The buffer, for the next packet.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

impl Load for Packet {
    fn wire_bytes(&self) -> u32 {
        self.wire_bytes
    }

    fn packets(&self) -> u32 {
        self.packets
    }

    fn held_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Sets "congestion experienced" if the sender said that it understands.
    fn mark(&mut self) -> bool {
        let header = self.bytes.get_mut(IP..);
        let Some([_, ecn, _, _, _, _, _, _, _, _, high, low, ..]) = header else {
            return false;
        };
        let old = *ecn;
        if old & ECN_BITS == ECN_NOT_CAPABLE {
            return false;
        }
        let new = old | ECN_EXPERIENCED;
        if new != old {
            *ecn = new;
            let sum = u16::from_be_bytes([*high, *low]);
            [*high, *low] = checksum_after(sum, u16::from(old), u16::from(new)).to_be_bytes();
        }
        true
    }
}

/// The checksum of a header in which one 16-bit word changed (RFC 1624).
const fn checksum_after(sum: u16, old: u16, new: u16) -> u16 {
    // In ones' complement what is carried comes back at the other end.
    const fn add(a: u16, b: u16) -> u16 {
        let (sum, carried) = a.overflowing_add(b);
        sum.wrapping_add(carried as u16)
    }
    !add(add(!sum, !old), new)
}

/// How many bytes and packets this is on the wire; `None` if it is no IPv4 packet.
fn measure(read: &[u8]) -> Option<(u32, u32)> {
    let header: [u8; OFFLOAD_HEADER_BYTES] = read.get(..IP)?.try_into().ok()?;
    let ip = read.get(IP..)?;
    let first = *ip.first()?;
    let ip_header = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || ip_header < IP_HEADER_BYTES_MIN || ip.len() < ip_header {
        return None;
    }
    let whole = ip.len() as u32;
    let segment = usize::from(u16::from_ne_bytes([header[4], header[5]]));
    if header[1] & !BUNDLE_ECN == BUNDLE_NONE || segment == 0 {
        return Some((whole, 1));
    }
    let (ip_head, inner) = ip.split_at_checked(ip_header)?;
    let above = if *ip_head.get(9)? == PROTOCOL_TCP {
        usize::from(inner.get(12)? >> 4) * 4
    } else {
        UDP_HEADER_BYTES
    };
    let payload = inner.len().saturating_sub(above);
    let packets = payload.div_ceil(segment).max(1) as u32;
    // Each further segment repeats the headers. It fits: a packet is at most 64 KiB.
    let headers = ip_header.checked_add(above)? as u32;
    let repeated = packets.saturating_sub(1).checked_mul(headers)?;
    Some((whole.checked_add(repeated)?, packets))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sum(header: &[u8]) -> u16 {
        let words = header
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let mut total: u32 = words.sum();
        total = (total & 0xffff) + (total >> 16);
        total = (total & 0xffff) + (total >> 16);
        !(total as u16)
    }

    fn packet(payload: usize, tos: u8, bundle: u8, segment: u16) -> Vec<u8> {
        let mut bytes = vec![0; IP + 40 + payload];
        bytes[1] = bundle;
        bytes[4..6].copy_from_slice(&segment.to_ne_bytes());
        bytes[IP] = 0x45;
        bytes[IP + 1] = tos;
        bytes[IP + 9] = PROTOCOL_TCP;
        bytes[IP + 16..IP + 20].copy_from_slice(&[10, 1, 0, 7]);
        bytes[IP + 20 + 12] = 5 << 4;
        let header = sum(&bytes[IP..IP + 20]);
        bytes[IP + 10..IP + 12].copy_from_slice(&header.to_be_bytes());
        bytes
    }

    fn read(bytes: Vec<u8>) -> Packet {
        let len = bytes.len();
        Packet::new(bytes, len).ok().unwrap()
    }

    #[test]
    fn bundles_count_as_what_they_become() {
        let single = read(packet(1000, 0, 0, 0));
        assert_eq!((single.wire_bytes(), single.packets()), (1040, 1));
        assert_eq!(single.destination(), Ipv4Addr::new(10, 1, 0, 7));
        let bundle = read(packet(3500, 0, 1, 1448));
        assert_eq!((bundle.wire_bytes(), bundle.packets()), (3500 + 3 * 40, 3));
        let with_ecn = read(packet(2896, 0, 0x81, 1448));
        assert_eq!((with_ecn.wire_bytes(), with_ecn.packets()), (2976, 2));
    }

    #[test]
    fn marks_keep_the_checksum_right() {
        for (tos, marked, after) in [(0, false, 0), (1, true, 3), (2, true, 3), (3, true, 3)] {
            for class in [0, 0xb8] {
                let mut packet = read(packet(10, class | tos, 0, 0));
                assert_eq!(packet.mark(), marked);
                assert_eq!(packet.bytes()[IP + 1], class | after);
                assert_eq!(sum(&packet.bytes()[IP..IP + 20]), 0);
            }
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let good = packet(0, 0, 1, 1448);
        for len in 0..IP + 20 {
            assert!(Packet::new(good.clone(), len).is_err(), "{len}");
        }
        assert!(Packet::new(good.clone(), good.len() + 1).is_err());
        let mut six = good.clone();
        six[IP] = 0x60;
        assert!(Packet::new(six, good.len()).is_err());
        let mut long = good.clone();
        long[IP] = 0x4f;
        assert!(Packet::new(long, good.len()).is_err());
        // A bundle whose TCP header is cut off, and one whose TCP header lies about its length.
        assert!(Packet::new(good.clone(), IP + 30).is_err());
        let mut liar = good.clone();
        liar[IP + 20 + 12] = 0xf0;
        let liar = Packet::new(liar, good.len()).ok().unwrap();
        assert_eq!(liar.packets(), 1);
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        use rand_core::{RngCore, SeedableRng};
        let mut dice = rand_pcg::Pcg64::seed_from_u64(3);
        for round in 0..20_000 {
            let mut bytes = packet((dice.next_u32() % 64) as usize, 2, 1, 7);
            for _ in 0..dice.next_u32() % 6 {
                let at = dice.next_u32() as usize % bytes.len();
                bytes[at] = dice.next_u32() as u8;
            }
            let len = dice.next_u32() as usize % (bytes.len() + 2);
            if let Ok(mut packet) = Packet::new(bytes, len) {
                packet.mark();
                packet.destination();
                assert!(
                    packet.packets() >= 1 && packet.wire_bytes() as usize >= IP,
                    "{round}"
                );
                assert_eq!(packet.bytes().len(), len);
            }
        }
    }
}
