//! What losses do to windows and goodputs.

use std::time::Duration;

use outpour_sim::packets::flows::{Flows, Scheme};

use super::bottleneck::{MS, PAPER_LINK, at, course, flow, paper_line, play};
use super::jobs::{Job, Part};
use super::{BenchPushOptions, Entry, Input, as_they_are};
use crate::ExperimentError;
use crate::sweep::{PlotOf, Row};

pub(super) const FIGURE4A: Entry = Entry {
    name: "figure4a",
    about: "a burst of losses",
    setup: "one flow over a link of 10^6 packets/s and 40 us one way, which marks from 30 packets in its queue and holds \
            100; so many packets in a row are lost at 0.05 s. `least_of_before` is the least window after that over the \
            least before, percent; `collapse_from` the least number from 90 to 150 after which the window is below half. \
            Over moments of the loss, 0.37 ms apart.",
    paper: (
        "§V-A, figure 4a",
        "100 losses in a row hardly move the window of push, and DCTCP's collapses; push's does from 108 on.",
    ),
    why: "It does not. The window collapses when all that is in flight is lost, and the two packets with which the sender probes then: how many that are depends on where in the sawtooth the burst strikes, \
          which is the range of `collapse_from`. The paper has one number, 108. DCTCP takes a loss for congestion and halves its window.",
    series: "scheme",
    columns: &["least_of_before", "timeouts", "collapse_from"],
    axis: "losses in a row",
    plots: &[
        PlotOf::Series("least_of_before", "least window, percent of that before"),
        PlotOf::Course("cwnd", "seconds", "window, packets", None),
    ],
    input: Input::Nothing,
    jobs: figure4a,
    finish: near_the_burst,
};

/// Curves show what is around the burst.
fn near_the_burst(rows: &mut [Row], _: &[Part]) {
    for points in rows.iter_mut().flat_map(|row| row.curves.values_mut()) {
        points.retain(|(at_s, _)| (0.045..=0.06).contains(at_s));
    }
}

fn figure4a(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let counts: &[u64] = match options.short {
        true => &[100],
        false => &[20, 60, 100, 105, 110, 115, 120, 140],
    };
    let moments = if options.short { 1 } else { 6 };
    let mut jobs = Vec::new();
    for scheme in [Scheme::Push, Scheme::Dctcp] {
        for &lost in counts {
            let name = format!("{}.{lost}", scheme.name());
            jobs.push(Job::new("figure4a", &name, moments, move || {
                (0..moments)
                    .map(|moment| burst(scheme, lost, moment))
                    .collect()
            }));
        }
    }
    for moment in 0..moments {
        let name = format!("push.collapse.{moment}");
        jobs.push(Job::new("figure4a", &name, moment, move || {
            collapse(moment)
        }));
    }
    Ok(jobs)
}

/// A flow, and so many packets in a row that it loses.
fn burst(scheme: Scheme, lost: u64, moment: u32) -> Result<Part, String> {
    let when_s = 0.05 + 0.37e-3 * f64::from(moment);
    let mut line = paper_line();
    line.lose = vec![(at(when_s), lost)];
    // A timer of TCP takes 200 ms at least.
    let end_s = if scheme == Scheme::Push { 0.1 } else { 0.4 };
    let duration = Duration::from_secs_f64(end_s);
    let mut setup = Flows::new(vec![line], vec![flow(scheme)], duration);
    setup.sample = MS / 50;
    let run = play(&setup)?;
    let least = |from: f64, to: f64| {
        let around = run
            .samples
            .iter()
            .filter(|it| (from..to).contains(&it.at_s));
        around.map(|it| it.flows[0].cwnd).fold(f64::MAX, f64::min)
    };
    let part = Part::new(scheme.name(), Some(lost as f64))
        .figure(
            "least_of_before",
            100.0 * least(when_s, end_s) / least(0.03, when_s),
        )
        .figure("timeouts", run.flows[0].timeouts as f64);
    Ok(match (lost, moment) {
        (100, 0) => {
            let points = course(&run, |it| it.flows[0].cwnd).into_iter();
            part.curve("cwnd", points.take_while(|it| it.0 < 0.1).collect())
        }
        _ => part,
    })
}

/// After how many losses the window is below half of what it was.
fn collapse(moment: u32) -> Result<Vec<Part>, String> {
    for lost in 90..=150 {
        let found = burst(Scheme::Push, lost, moment)?;
        if found.figures["least_of_before"] < 50.0 {
            let part = Part::new("push, collapse", None);
            return Ok(vec![part.figure("collapse_from", lost as f64)]);
        }
    }
    Err("no number of losses from 90 to 150 makes the window collapse".to_owned())
}

pub(super) const FIGURE4B: Entry = Entry {
    name: "figure4b",
    about: "random losses",
    setup: "one flow over the link of `figure4a` for 2 s, of which the second half counts; the link loses so many percent of the packets that would enter it. \
            `of_link` is what arrives, none counted twice, percent of what the link carries; `got_going` is how many percent of the flows have more than a tenth of the link. Over seeds.",
    paper: (
        "§V-A, figure 4b",
        "The goodput of push stays up to a loss of 62 %; those of TCP-Reno, DCTCP and, a little less, DCCP fall at once, \
         below 5 % of the link from 10 % of loss on.",
    ),
    why: "It does not in what flows reach once they have got going, which `got_going` counts: a flow begins with one packet, and a window of one to three is lost whole so often, where more than half is lost, that \
          the timer doubles to 250 ms. So some flows are still at their start after 2 s, which is the range behind the means, and the best of a row says what push sustains. A sender probes with two packets before it takes a window for lost; \
          the paper does not say how its flows get going.",
    series: "scheme",
    columns: &["of_link", "got_going", "timeouts"],
    axis: "percent lost",
    plots: &[PlotOf::Series("of_link", "percent of the link")],
    input: Input::Nothing,
    jobs: figure4b,
    finish: as_they_are,
};

fn figure4b(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let losses: &[u32] = match options.short {
        true => &[10, 60],
        false => &[
            0, 1, 2, 5, 10, 20, 30, 40, 50, 55, 58, 60, 62, 64, 66, 68, 70,
        ],
    };
    let duration = if options.short { 100 * MS } else { 2000 * MS };
    let mut jobs = Vec::new();
    for scheme in [Scheme::Push, Scheme::Dctcp, Scheme::Dccp, Scheme::Reno] {
        for &percent in losses {
            for seed in options.seeds(3) {
                let name = format!("{}.{percent}.{seed}", scheme.name());
                jobs.push(Job::new(
                    "figure4b",
                    &name,
                    duration.as_millis(),
                    move || {
                        let mut line = paper_line();
                        line.loss = f64::from(percent) / 100.0;
                        let mut setup = Flows::new(vec![line], vec![flow(scheme)], duration);
                        setup.seed = seed;
                        let run = play(&setup)?;
                        let goodput = run.phases[0].flows[0].means.goodput_packets_per_s;
                        let of_link = 100.0 * goodput / PAPER_LINK.0;
                        let part = Part::new(scheme.name(), Some(f64::from(percent)))
                            .figure("of_link", of_link)
                            .figure("got_going", if of_link > 10.0 { 100.0 } else { 0.0 })
                            .figure("timeouts", run.flows[0].timeouts as f64);
                        Ok(vec![part])
                    },
                ));
            }
        }
    }
    Ok(jobs)
}
