//! What flows get of a bottleneck, and what losses do to them, packet by packet [PPUSH §IV-B, §V-A].

use outpour_congestion::{Algorithm, WfccOptions};

use crate::bottleneck::{Flow, Link, run};
use crate::feed::near;

fn wfcc(theta: f64, start_s: f64, stop_s: f64) -> Flow {
    let options = WfccOptions {
        theta,
        ..WfccOptions::default()
    };
    let control = Algorithm::Wfcc(options).build().unwrap();
    Flow::new(control, start_s, stop_s)
}

/// 20 Mbit/s of packets of 1210 bytes, next to no propagation.
fn edge() -> Link {
    Link {
        packets_per_s: 2066.0,
        delay_s: 1e-4,
        jitter_s: 0.0,
        mark_above: 30,
        queue_max: 100,
    }
}

#[test]
fn two_flows_share_by_their_weights() {
    let mut flows = [wfcc(1.0, 0.0, 64.0), wfcc(4.0, 2.0, 62.0)];
    run(&edge(), &mut flows, 64.0, |_, _| false);
    let [one, four] = &flows;
    near(one.delivered(1.0, 2.0), 2066.0, 0.05);
    near(one.alpha(1.0, 2.0), 0.258, 0.1);
    near(four.window(4.0, 62.0) / one.window(4.0, 62.0), 4.0, 0.05);
    // Goodputs are a little further apart: of a window of 6.6 packets, 6 can be in flight.
    let ratio = four.delivered(4.0, 62.0) / one.delivered(4.0, 62.0);
    near(ratio, 4.0, 0.15);
    near(one.alpha(4.0, 62.0), 0.577, 0.1);
    near(four.alpha(4.0, 62.0), 0.577, 0.1);
    near(one.delivered(63.0, 64.0), 2066.0, 0.05);
    assert_eq!(one.timeouts + four.timeouts, 0);
}

#[test]
fn with_larger_windows_goodputs_are_as_the_weights() {
    let mut flows = [wfcc(1.0, 0.0, 60.0), wfcc(4.0, 0.0, 60.0)];
    let link = Link {
        jitter_s: 10.0 / 2066.0,
        mark_above: 120,
        queue_max: 400,
        ..edge()
    };
    run(&link, &mut flows, 60.0, |_, _| false);
    let [one, four] = &flows;
    let ratio = four.delivered(10.0, 60.0) / one.delivered(10.0, 60.0);
    near(ratio, 4.0, 0.05);
}

#[test]
fn the_queue_stays_at_the_threshold_of_marks() {
    let mut flows = [wfcc(1.0, 0.0, 8.0), wfcc(4.0, 0.0, 8.0)];
    let queue = run(&edge(), &mut flows, 8.0, |_, _| false);
    near(queue, 30.0, 0.1);
}

/// A link of a million packets per second and 40 us each way that loses `burst` packets in a row after 0.05 s.
fn burst(name: &str, burst: usize, end_s: f64) -> Flow {
    let link = Link {
        packets_per_s: 1e6,
        delay_s: 8e-5,
        jitter_s: 0.0,
        mark_above: 30,
        queue_max: 100,
    };
    let control = name.parse::<Algorithm>().unwrap().build().unwrap();
    let mut flows = [Flow::new(control, 0.0, 2.0)];
    let mut left = burst;
    run(&link, &mut flows, end_s, |now_s, _| {
        let drops = now_s > 0.05 && left > 0;
        left -= usize::from(drops);
        drops
    });
    let [flow] = flows;
    flow
}

#[test]
fn a_burst_of_a_hundred_losses_moves_wfcc_as_little_as_marks_do() {
    let flow = burst("wfcc", 100, 0.06);
    assert_eq!(flow.timeouts, 0);
    let (least, most) = flow.windows(0.04, 0.05);
    assert!(least > 100.0 && most < 115.0, "{least} to {most}");
    let (after, _) = flow.windows(0.05, 0.06);
    assert!(after >= 0.95 * least, "{after} of {least}");
    assert!(flow.delivered(0.05, 0.06) > 9800.0);
    // DCTCP takes losses for congestion: half is left.
    let dctcp = burst("dctcp", 100, 0.06);
    let (before, _) = dctcp.windows(0.04, 0.05);
    let (after, _) = dctcp.windows(0.05, 0.06);
    assert!(after < 0.6 * before, "{after} of {before}");
}

#[test]
fn with_all_in_flight_lost_only_a_timeout_helps() {
    let survives = |lost| burst("wfcc", lost, 0.052).delivered(0.0511, 0.052) > 0.0;
    // As many as fill the path and the queue up to its marks: 80 and 30, less what a sawtooth took.
    let least = (95..120).find(|lost| !survives(*lost)).unwrap();
    assert!((103..=112).contains(&least), "{least}");
    let flow = burst("wfcc", least, 1.06);
    assert_eq!(flow.timeouts, 1);
    assert_eq!(flow.delivered(0.0511, 1.05), 0.0);
    // It begins anew with one packet, without slow start.
    let (_, most) = flow.windows(1.05, 1.0505);
    assert!((2.0..8.0).contains(&most), "{most}");
}

#[test]
fn losses_at_random_leave_wfcc_its_goodput_and_take_it_from_the_others() {
    let goodput = |name: &str| {
        let link = Link {
            packets_per_s: 1e5,
            delay_s: 4e-4,
            jitter_s: 0.0,
            mark_above: 30,
            queue_max: 100,
        };
        let control = name.parse::<Algorithm>().unwrap().build().unwrap();
        let mut flows = [Flow::new(control, 0.0, 2.0)];
        let mut state = 7_u64;
        run(&link, &mut flows, 2.0, |_, _| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % 10 < 2
        });
        flows[0].delivered(1.0, 2.0) / link.packets_per_s
    };
    assert!(goodput("wfcc") > 0.9, "{}", goodput("wfcc"));
    for name in ["dctcp", "reno", "cubic", "dccp"] {
        assert!(goodput(name) < 0.15, "{name}: {}", goodput(name));
    }
}
