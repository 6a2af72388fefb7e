//! What links between clusters carried, noted again and again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outpour_core::Network;
use outpour_core::network::ClusterId;
use serde::Serialize;

/// How many samples of a link are kept; later ones are not.
pub const SAMPLES_MAX: usize = 100_000;

/// What the links between clusters carried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Carried {
    /// When the first sample begins, in seconds since 1970.
    pub since_unix_s: f64,
    /// How long each sample is, seconds.
    pub every_s: f64,
    /// Each link that nodes can use.
    pub links: Vec<LinkCarried>,
}

/// What a link carried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkCarried {
    /// The cluster that sends.
    pub from: String,
    /// The cluster that receives.
    pub to: String,
    /// Bytes of the packets that left the link's queue in each sample, headers included.
    pub bytes: Vec<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Samples {
    every: u64,
    next: u64,
    carried: Carried,
    ids: Vec<(ClusterId, ClusterId)>,
    before: Vec<u64>,
}

impl Samples {
    /// Samples of so much time each, from now on.
    pub(crate) fn new(network: &Network, every: Duration) -> Self {
        let clusters = || (0..network.clusters().len() as u32).map(ClusterId);
        let ids: Vec<_> = clusters()
            .flat_map(|from| clusters().map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
            .collect();
        let name = |id: &ClusterId| network.clusters()[id.index()].name.clone();
        let links = ids.iter().map(|(from, to)| LinkCarried {
            from: name(from),
            to: name(to),
            bytes: Vec::new(),
        });
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let every = every.max(Duration::from_millis(1)).as_nanos() as u64;
        Self {
            every,
            next: every,
            carried: Carried {
                since_unix_s: since.unwrap_or_default().as_secs_f64(),
                every_s: every as f64 / 1e9,
                links: links.collect(),
            },
            before: vec![0; ids.len()],
            ids,
        }
    }

    /// When the next one ends, in nanoseconds since the start.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Takes one; `carried` is what a link has carried since the start.
    pub(crate) fn take(&mut self, carried: impl Fn(ClusterId, ClusterId) -> u64) {
        self.next += self.every;
        for ((link, before), (from, to)) in
            (self.carried.links.iter_mut().zip(&mut self.before)).zip(&self.ids)
        {
            let all = carried(*from, *to);
            debug_assert!(all >= *before, "what was carried is not taken back");
            if link.bytes.len() < SAMPLES_MAX {
                link.bytes.push(all - *before);
            }
            *before = all;
        }
    }

    pub(crate) fn finish(self) -> Carried {
        self.carried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_what_came_since_the_last() {
        let text = "[[cluster]]\nname = \"a\"\nnodes = 1\n[[cluster]]\nname = \"b\"\nnodes = 1\n";
        let network = Network::from_toml(text, "test").expect("it is a network");
        let mut samples = Samples::new(&network, Duration::from_millis(100));
        assert_eq!(samples.next(), 100_000_000);
        for all in [5, 5, 12] {
            samples.take(|from, _| if from == ClusterId(0) { all } else { 0 });
        }
        assert_eq!(samples.next(), 400_000_000);
        let carried = samples.finish();
        let [there, back] = &carried.links[..] else {
            panic!("there are two links: {carried:?}");
        };
        assert_eq!((there.from.as_str(), there.to.as_str()), ("a", "b"));
        assert_eq!(
            (&there.bytes[..], &back.bytes[..]),
            (&[5, 0, 7][..], &[0, 0, 0][..])
        );
    }
}
