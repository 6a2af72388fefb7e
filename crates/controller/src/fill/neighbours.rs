//! What a site gets sooner from a neighbour than from afar.
//!
//! Sites often lie in groups that are joined faster inside than with each other, such as those of a
//! continent. A block then should enter a group once: if it goes to two of its sites at the same
//! time, it takes the place of another block on a slow link, and the second site would have had it
//! from the first sooner. So links first carry what no neighbour of the site has or is about to get;
//! only then, rather than idle, they carry what one does.

use std::ops::Range;

use crate::blocks::Runs;
use crate::room::Room;

/// How much faster its way to a site has to be for one site to be a neighbour, relative to the way
/// that a block would take.
const NEAR: f64 = 2.0;

/// See the module. Sites are clusters, by index.
pub(super) struct Neighbours {
    /// What each site or a neighbour of it is about to get from afar; empty if no site has a neighbour.
    soon: Vec<Runs>,
}

impl Neighbours {
    pub(super) fn new(room: &Room) -> Self {
        let sites = if are_any(room) { room.clusters() } else { 0 };
        Self {
            soon: vec![Runs::default(); sites],
        }
    }

    /// Whether any site has a neighbour.
    pub(super) fn are_any(&self) -> bool {
        !self.soon.is_empty()
    }

    /// Whether `to` has no neighbour, as seen from `from`, among `holders`.
    pub(super) fn is_nearest(
        &self,
        room: &Room,
        mut holders: impl Iterator<Item = usize>,
        from: usize,
        to: usize,
    ) -> bool {
        from != to && !holders.any(|holder| is_neighbour(room, holder, from, to))
    }

    /// Blocks are on their way from a site to another.
    pub(super) fn note(&mut self, room: &Room, from: usize, to: usize, run: &Range<u32>) {
        if from == to {
            return;
        }
        for (site, soon) in self.soon.iter_mut().enumerate() {
            if site != from && is_neighbour(room, to, from, site) {
                soon.insert(run.clone());
            }
        }
    }

    /// The first blocks of a run that neither a site nor a neighbour of it is about to get.
    pub(super) fn next_absent(&self, site: usize, run: Range<u32>) -> Option<Range<u32>> {
        match self.soon.get(site) {
            Some(soon) => soon.next_absent(run.start, run.end),
            None => Some(run),
        }
    }
}

/// Whether blocks from `holder` are much sooner at `to` than from `from`.
fn is_neighbour(room: &Room, holder: usize, from: usize, to: usize) -> bool {
    let inside = holder == to;
    holder != from && (inside || room.speed(holder, to) > NEAR * room.speed(from, to))
}

/// Whether ways into any site differ that much.
fn are_any(room: &Room) -> bool {
    let sites = 0..room.clusters();
    sites.clone().any(|to| {
        let others = sites.clone().filter(|from| *from != to);
        let speeds = others.map(|from| room.speed(from, to));
        let used = speeds.filter(|speed| *speed > 0.0);
        let (least, most) = used.fold((f64::INFINITY, 0.0_f64), |(least, most), speed| {
            (least.min(speed), most.max(speed))
        });
        most > NEAR * least
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use outpour_core::network::Network;

    use super::*;

    /// Two continents of two sites.
    fn room() -> Room {
        let mut toml = String::new();
        for site in ["e0", "e1", "w0", "w1"] {
            toml += &format!("[[cluster]]\nname = \"{site}\"\nnodes = 1\n");
        }
        toml += "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 MB/s\"\n";
        for pair in ["e", "w"] {
            toml += &format!("[[link]]\nfrom = \"{pair}*\"\nto = \"{pair}*\"\nrate = \"9 MB/s\"\n");
        }
        let network = Network::from_toml(&toml, "continents").expect("it is a network");
        let rate = |resource| network.capacity(resource).bytes_per_s();
        Room::new(&network, 1.0, rate)
    }

    #[test]
    fn what_comes_to_a_site_comes_to_its_neighbours() {
        let room = room();
        let mut neighbours = Neighbours::new(&room);
        assert!(neighbours.are_any());
        neighbours.note(&room, 0, 2, &(3..5));
        for site in [2, 3] {
            assert_eq!(neighbours.next_absent(site, 0..9), Some(0..3));
            assert_eq!(neighbours.next_absent(site, 3..9), Some(5..9));
            assert_eq!(neighbours.next_absent(site, 3..5), None);
        }
        // Not to others.
        for site in [0, 1] {
            assert_eq!(neighbours.next_absent(site, 0..9), Some(0..9));
        }
        // What is sent within a continent is no news for another.
        neighbours.note(&room, 2, 3, &(5..9));
        assert_eq!(neighbours.next_absent(0, 0..9), Some(0..9));
    }

    #[test]
    fn the_nearest_that_have_a_block_send_it() {
        let room = room();
        let neighbours = Neighbours::new(&room);
        let nearest = |holders: &[usize], from, to| {
            neighbours.is_nearest(&room, holders.iter().copied(), from, to)
        };
        assert!(nearest(&[0, 1], 1, 2));
        assert!(nearest(&[0, 3], 3, 2));
        assert!(!nearest(&[0, 3], 0, 2));
        assert!(!nearest(&[0, 2], 0, 2), "it is there already");
        assert!(!nearest(&[2], 2, 2), "nothing comes from elsewhere");
    }

    #[test]
    fn where_all_links_are_alike_there_are_no_neighbours() {
        let toml = "[[cluster]]\nname = \"a\"\nnodes = 1\n[[cluster]]\nname = \"b\"\nnodes = 1\n\
                    [[cluster]]\nname = \"c\"\nnodes = 1\n[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 MB/s\"\n";
        let network = Network::from_toml(toml, "alike").expect("it is a network");
        let rate = |resource| network.capacity(resource).bytes_per_s();
        let neighbours = Neighbours::new(&Room::new(&network, 1.0, rate));
        assert!(!neighbours.are_any());
        assert_eq!(neighbours.next_absent(1, 0..9), Some(0..9));
    }
}
