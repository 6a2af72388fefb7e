//! What traffic that is not planned takes of hosts' bandwidth [RPC §III].

use super::super::{HostId, Hosts};

/// What is known of the traffic that is not planned.
#[derive(Clone, Debug, Default)]
pub(super) struct Monitor {
    /// What each host receives and sends of it, bytes per second, averaged over some seconds.
    into: Vec<f64>,
    out: Vec<f64>,
    /// What it receives and sends now.
    into_now: Vec<f64>,
    out_now: Vec<f64>,
    at_s: f64,
}

/// Over how many seconds traffic that is not planned is averaged.
const AVERAGED_S: f64 = 1.0;

impl Monitor {
    /// Begins, if these are not the hosts that it knows.
    pub(super) fn watch(&mut self, hosts: usize, now_s: f64) {
        if self.into.len() == hosts {
            return;
        }
        let none = vec![0.0; hosts];
        *self = Self {
            into: none.clone(),
            out: none.clone(),
            into_now: none.clone(),
            out_now: none,
            at_s: now_s,
        };
    }

    /// A host receives at a rate from now on, in these shares from mappers.
    pub(super) fn sees(
        &mut self,
        host: HostId,
        bytes_per_s: f64,
        shares: impl Iterator<Item = (HostId, f64)>,
    ) {
        self.into_now[host] += bytes_per_s;
        for (mapper, share) in shares {
            self.out_now[mapper] += bytes_per_s * share;
        }
    }

    /// Averages what was seen since the last time, which was going on until now.
    pub(super) fn look(&mut self, now_s: f64) {
        let new = 1.0 - (-(now_s - self.at_s) / AVERAGED_S).exp();
        self.at_s = now_s;
        for (averages, now) in [
            (&mut self.into, &mut self.into_now),
            (&mut self.out, &mut self.out_now),
        ] {
            for (average, now) in averages.iter_mut().zip(now) {
                *average += (*now - *average) * new;
                *now = 0.0;
            }
        }
    }

    /// What hosts are expected to have for others.
    pub(super) fn available(&self, hosts: &Hosts) -> Hosts {
        // Some is left for everybody: such traffic ends.
        let without = |rates: &[f64], used: &[f64]| {
            let each = rates.iter().zip(used);
            each.map(|(rate, used)| (rate - used).max(rate / 100.0))
                .collect()
        };
        Hosts {
            out: without(&hosts.out, &self.out),
            into: without(&hosts.into, &self.into),
            slots: hosts.slots.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        Hosts {
            out: vec![100.0, 0.0],
            into: vec![0.0, 100.0],
            slots: vec![0, 9],
        }
    }

    fn monitor() -> Monitor {
        let mut monitor = Monitor::default();
        monitor.watch(2, 0.0);
        monitor
    }

    #[test]
    fn what_goes_on_is_expected_to_go_on() {
        let mut monitor = monitor();
        for tenth in 1..=100 {
            monitor.sees(1, 60.0, [(0, 1.0)].into_iter());
            monitor.look(f64::from(tenth) / 10.0);
        }
        let available = monitor.available(&hosts());
        assert!((available.into[1] - 40.0).abs() < 0.01, "{available:?}");
        assert!((available.out[0] - 40.0).abs() < 0.01, "{available:?}");
        assert_eq!(available.slots, hosts().slots);
    }

    #[test]
    fn what_has_ended_is_forgotten_after_some_seconds() {
        let mut monitor = monitor();
        monitor.sees(1, 100.0, [(0, 1.0)].into_iter());
        monitor.look(1.0);
        let then = monitor.available(&hosts()).into[1];
        // After a second, 1 - 1/e of it counts.
        assert!((then - 100.0 / std::f64::consts::E).abs() < 0.01, "{then}");
        monitor.look(11.0);
        let later = monitor.available(&hosts()).into[1];
        assert!(later > 99.9, "{later}");
    }

    #[test]
    fn some_bandwidth_is_always_left() {
        let mut monitor = monitor();
        monitor.sees(1, 100.0, [(0, 1.0)].into_iter());
        monitor.look(100.0);
        assert_eq!(monitor.available(&hosts()).into[1], 1.0);
    }
}
