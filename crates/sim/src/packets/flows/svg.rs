//! Drawings of runs: goodputs, windows, running averages and queues over time.

use super::{FlowSample, Flows, PortReport, Run, Sample};
use crate::chart::{CURVES_MAX, Curve, Panel, colour, draw as chart, thinned};

/// Draws a run.
pub fn draw(flows: &Flows, run: &Run) -> String {
    let shown = flows.flows.iter().take(CURVES_MAX).enumerate();
    let per_flow = |title: &'static str, value: fn(&FlowSample) -> f64| {
        let curves = shown.clone().map(|(index, flow)| {
            let (from, to) = (run.flows[index].from_s, run.flows[index].to_s);
            let value = |sample: &Sample| {
                let is_on = (from..=to).contains(&sample.at_s);
                is_on.then(|| value(&sample.flows[index]))
            };
            Curve {
                colour: colour(index),
                name: match flow.theta.first() {
                    Some((_, theta)) => format!("{}: theta {theta}", index + 1),
                    None => format!("{}: {}", index + 1, flow.scheme.name()),
                },
                points: points(run, value),
            }
        });
        Panel {
            title,
            curves: curves.collect(),
            predicted: Vec::new(),
        }
    };
    let used = run.ports.iter().enumerate();
    // Ports at which nothing ever waits, as those of acknowledgements, would only hide the others.
    let used = used.filter(|it| it.1.max_queue_packets > 0);
    let queue = |(place, (index, port)): (usize, (usize, &PortReport))| Curve {
        colour: colour(place),
        name: escaped(&format!("{} to {}", port.from, port.to)),
        points: points(run, |sample| Some(sample.queues[index] as f64)),
    };
    let queues = Panel {
        title: "queue, packets",
        curves: used.take(CURVES_MAX).enumerate().map(queue).collect(),
        predicted: Vec::new(),
    };
    let panels = [
        per_flow("goodput, packets/s", |it| it.goodput_packets_per_s),
        per_flow("window, packets", |it| it.cwnd),
        per_flow(
            "alpha, the running average of the share of marked packets",
            |it| it.alpha,
        ),
        queues,
    ];
    let title = match flows.flows.len() {
        1 => "1 flow, packet by packet".to_owned(),
        flows => format!("{flows} flows, packet by packet"),
    };
    let more = flows.flows.len().saturating_sub(CURVES_MAX);
    let note = (more > 0).then(|| format!("{more} more flows are not drawn"));
    chart(
        &title,
        &panels,
        flows.duration.as_secs_f64(),
        note.as_deref(),
    )
}

fn points(run: &Run, value: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let samples = run.samples.iter();
    thinned(
        samples
            .filter_map(|it| Some((it.at_s, value(it)?)))
            .collect(),
    )
}

/// Names of nodes come from a file, and are text here.
fn escaped(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().take(40) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
