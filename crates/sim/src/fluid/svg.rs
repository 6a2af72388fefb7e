//! Drawings of runs: windows, goodputs, running averages and the queue, one above the other over time, with
//! the closed forms dashed.

use super::{FlowSample, Fluid, Phase, Sample};
use crate::chart::{CURVES_MAX, Curve, INK, Panel, colour, draw as chart, short, thinned};

/// Draws a run and its phases.
pub fn draw(fluid: &Fluid, samples: &[Sample], phases: &[Phase]) -> String {
    let title = format!(
        "{} over {} packets/s, marked above {} in the queue; dashed: closed forms",
        match fluid.flows.len() {
            1 => "1 flow".to_owned(),
            flows => format!("{flows} flows"),
        },
        short(fluid.capacity_packets_per_s),
        short(fluid.mark_packets),
    );
    let more = fluid.flows.len().saturating_sub(CURVES_MAX);
    let note = (more > 0).then(|| format!("{more} more flows are not drawn"));
    let panels = panels(fluid, samples, phases);
    chart(&title, &panels, fluid.end_s(), note.as_deref())
}

fn panels(fluid: &Fluid, samples: &[Sample], phases: &[Phase]) -> Vec<Panel> {
    let shown = fluid.flows.iter().take(CURVES_MAX).enumerate();
    let per_flow = |value: fn(&FlowSample) -> f64| -> Vec<Curve> {
        let each = shown.clone().map(|(flow, it)| Curve {
            colour: colour(flow),
            name: format!("theta {}", it.theta),
            points: points(samples, |sample| {
                let is_on = (it.start_s..it.stop_s).contains(&sample.at_s);
                is_on.then(|| value(&sample.flows[flow]))
            }),
        });
        each.collect()
    };
    let all = |values: fn(&Phase) -> Vec<f64>| {
        let each = phases.iter().flat_map(|phase| {
            let values = values(phase).into_iter().take(CURVES_MAX);
            values.map(|value| (phase.from_s, phase.to_s, value))
        });
        each.collect()
    };
    vec![
        Panel {
            title: "window, packets",
            curves: per_flow(|it| it.window),
            predicted: all(|phase| phase.predicted.cwnds.clone()),
        },
        Panel {
            title: "goodput, packets/s",
            curves: per_flow(|it| it.goodput_packets_per_s),
            predicted: all(|phase| phase.predicted.goodputs_packets_per_s.clone()),
        },
        Panel {
            title: "alpha, the running average of the share of marked packets",
            curves: per_flow(|it| it.alpha),
            predicted: all(|phase| vec![phase.predicted.alpha]),
        },
        Panel {
            title: "queue, packets",
            curves: vec![Curve {
                colour: INK,
                name: "queue".to_owned(),
                points: points(samples, |sample| Some(sample.queue_packets)),
            }],
            predicted: all(|phase| vec![phase.predicted.queue_packets]),
        },
    ]
}

/// The points of a curve.
fn points(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let values = samples.iter();
    thinned(
        values
            .filter_map(|it| Some((it.at_s, value(it)?)))
            .collect(),
    )
}
