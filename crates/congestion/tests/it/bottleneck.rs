//! A bottleneck packet by packet: flows with full windows share a queue that marks and drops.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outpour_congestion::{Ack, CongestionControl, Loss, REORDERING_MAX, Timeout};

/// A link with a queue.
pub(crate) struct Link {
    pub(crate) packets_per_s: f64,
    /// Round-trip propagation.
    pub(crate) delay_s: f64,
    /// Acknowledgements take up to so much more, drawn for each: where all take the same, the phases of flows
    /// lock, and who happens to come when the queue is long gets all the marks.
    pub(crate) jitter_s: f64,
    /// Packets that find more in the queue get a mark.
    pub(crate) mark_above: usize,
    /// Packets that find so many in the queue are dropped.
    pub(crate) queue_max: usize,
}

/// A flow and what is known of it.
pub(crate) struct Flow {
    pub(crate) control: Box<dyn CongestionControl>,
    pub(crate) start_s: f64,
    pub(crate) stop_s: f64,
    next: u64,
    /// Packets in flight, and when they were sent.
    flight: BTreeMap<u64, f64>,
    heard_s: f64,
    /// When an acknowledgement came, the window and the running average after it.
    pub(crate) heard: Vec<(f64, f64, f64)>,
    pub(crate) timeouts: usize,
}

impl Flow {
    pub(crate) fn new(control: Box<dyn CongestionControl>, start_s: f64, stop_s: f64) -> Self {
        Self {
            control,
            start_s,
            stop_s,
            next: 0,
            flight: BTreeMap::new(),
            heard_s: start_s,
            heard: Vec::new(),
            timeouts: 0,
        }
    }

    fn between(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &(f64, f64, f64)> {
        let heard = self.heard.iter();
        heard.filter(move |(at_s, ..)| (from_s..to_s).contains(at_s))
    }

    /// Acknowledgements in a time.
    pub(crate) fn delivered(&self, from_s: f64, to_s: f64) -> f64 {
        self.between(from_s, to_s).count() as f64
    }

    /// The mean of the running average in a time.
    pub(crate) fn alpha(&self, from_s: f64, to_s: f64) -> f64 {
        let sum: f64 = self.between(from_s, to_s).map(|(.., alpha)| alpha).sum();
        sum / self.delivered(from_s, to_s)
    }

    /// The mean of the window in a time.
    pub(crate) fn window(&self, from_s: f64, to_s: f64) -> f64 {
        let sum: f64 = self.between(from_s, to_s).map(|(_, it, _)| it).sum();
        sum / self.delivered(from_s, to_s)
    }

    /// The least and the largest window in a time.
    pub(crate) fn windows(&self, from_s: f64, to_s: f64) -> (f64, f64) {
        let windows = self.between(from_s, to_s).map(|(_, window, _)| *window);
        windows.fold((f64::INFINITY, 0.0), |(least, most), it| {
            (least.min(it), most.max(it))
        })
    }
}

/// A packet on its way: whose, its number, whether it has a mark.
type Packet = (usize, u64, bool);

/// Runs flows until `end_s`. Packets for which `drops(time, flow, how many it sent)` holds never reach the queue.
/// Returns the mean length that arriving packets found in the second half of the time.
pub(crate) fn run(
    link: &Link,
    flows: &mut [Flow],
    end_s: f64,
    mut drops: impl FnMut(f64, usize) -> bool,
) -> f64 {
    let mut now_s = 0.0_f64;
    let mut queue: VecDeque<Packet> = VecDeque::new();
    let mut served_s = f64::INFINITY;
    let mut arrivals: VecDeque<(f64, Packet)> = VecDeque::new();
    let (mut found, mut arrived) = (0.0, 0.0);
    let mut draws = 1_u64;
    // Acknowledgements take all of the propagation; whoever sends reaches the queue at once.
    while now_s < end_s {
        for (index, flow) in flows.iter_mut().enumerate() {
            let is_on = (flow.start_s..flow.stop_s).contains(&now_s);
            while is_on && (flow.flight.len() as f64) < flow.control.window().floor() {
                let number = flow.next;
                flow.next += 1;
                flow.flight.insert(number, now_s);
                if now_s > end_s / 2.0 {
                    (found, arrived) = (found + queue.len() as f64, arrived + 1.0);
                }
                if drops(now_s, index) || queue.len() >= link.queue_max {
                    continue;
                }
                if queue.is_empty() {
                    served_s = now_s + 1.0 / link.packets_per_s;
                }
                queue.push_back((index, number, queue.len() > link.mark_above));
            }
        }
        let arrival_s = arrivals.front().map_or(f64::INFINITY, |(at_s, _)| *at_s);
        let timers = flows.iter().map(|flow| {
            let is_on = now_s < flow.stop_s;
            let timer_s = if flow.flight.is_empty() {
                flow.start_s
            } else {
                flow.heard_s + 1.0
            };
            if is_on && timer_s > now_s {
                timer_s
            } else {
                f64::INFINITY
            }
        });
        let timer_s = timers.fold(f64::INFINITY, f64::min);
        now_s = served_s.min(arrival_s).min(timer_s).min(end_s);
        if now_s == served_s {
            let packet = queue.pop_front().unwrap();
            draws = draws
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let late_s = link.jitter_s * (draws >> 40) as f64 / (1_u64 << 24) as f64;
            // They do not overtake each other.
            let last_s = arrivals.back().map_or(0.0, |(at_s, _)| *at_s);
            arrivals.push_back(((now_s + link.delay_s + late_s).max(last_s), packet));
            let next_s = now_s + 1.0 / link.packets_per_s;
            served_s = if queue.is_empty() {
                f64::INFINITY
            } else {
                next_s
            };
        } else if now_s == arrival_s {
            let (_, (index, number, is_marked)) = arrivals.pop_front().unwrap();
            hear(&mut flows[index], now_s, number, is_marked);
        }
        for flow in flows.iter_mut() {
            if !flow.flight.is_empty() && now_s >= flow.heard_s + 1.0 && now_s < flow.stop_s {
                time_out(flow, now_s);
            }
        }
    }
    found / arrived
}

fn hear(flow: &mut Flow, now_s: f64, number: u64, is_marked: bool) {
    let in_flight = flow.flight.len() as u64;
    let Some(sent_s) = flow.flight.remove(&number) else {
        return;
    };
    let now = Duration::from_secs_f64(now_s);
    flow.control.on_ack(&Ack {
        now,
        acked: 1,
        marked: u64::from(is_marked),
        largest: number,
        next: flow.next,
        in_flight,
        rtt: Some(Duration::from_secs_f64(now_s - sent_s)),
        is_app_limited: false,
    });
    let kept = flow
        .flight
        .split_off(&(number.saturating_sub(REORDERING_MAX - 1)));
    let lost = std::mem::replace(&mut flow.flight, kept);
    if let Some((largest, _)) = lost.last_key_value() {
        flow.control.on_loss(&Loss {
            now,
            lost: lost.len() as u64,
            largest: *largest,
            next: flow.next,
            in_flight: in_flight - 1,
        });
    }
    flow.heard_s = now_s;
    let alpha = flow.control.alpha().unwrap_or(f64::NAN);
    flow.heard.push((now_s, flow.control.window(), alpha));
}

fn time_out(flow: &mut Flow, now_s: f64) {
    let in_flight = flow.flight.len() as u64;
    flow.flight.clear();
    flow.control.on_timeout(&Timeout {
        now: Duration::from_secs_f64(now_s),
        next: flow.next,
        in_flight,
    });
    flow.heard_s = now_s;
    flow.timeouts += 1;
}
