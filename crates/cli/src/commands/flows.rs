//! `outpour sim flows`: flows over given links, packet by packet.

use outpour_sim::packets::flows::file::{EXAMPLE, TEXT_BYTES_MAX, parse};
use outpour_sim::packets::flows::{
    FlowReport, FlowSample, Flows, Packets, Phase, PortReport, Run, svg,
};
use serde::Serialize;

use super::{plan, sim};
use crate::args::flows::SimFlowsArgs;
use crate::out::{self, Failure};
use crate::report::table;

/// How many flows, phases of flows, and ports are printed for people; the rest is in the JSON.
const ROWS_MAX: usize = 40;

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    flows: &'a [FlowReport],
    ports: &'a [PortReport],
    phases: &'a [Phase],
    packets: Packets,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
}

/// All samples.
#[derive(Serialize)]
struct Series {
    at_s: Vec<f64>,
    flows: Vec<FlowSeries>,
    ports: Vec<PortSeries>,
}

#[derive(Serialize)]
struct FlowSeries {
    goodput_packets_per_s: Vec<f64>,
    cwnd: Vec<f64>,
    alpha: Vec<f64>,
    rtt_s: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct PortSeries {
    queue_packets: Vec<u64>,
}

/// Plays flows.
///
/// # Errors
/// If the file cannot be read, or something is out of range.
pub(super) fn run(args: &SimFlowsArgs) -> Result<(), Failure> {
    let Some(path) = args.scenario.as_ref().filter(|_| !args.example) else {
        out::result(EXAMPLE.trim_end());
        return Ok(());
    };
    let (file, text) = sim::text(path, "scenario", TEXT_BYTES_MAX)?;
    let flows = parse(&text, &file).map_err(|error| Failure::Failed(error.to_string()))?;
    let run = flows.run();
    let run = run.map_err(|error| Failure::Failed(format!("{file}: {error}")))?;
    if let Some(path) = &args.svg {
        plan::write(path, &svg::draw(&flows, &run))?;
    }
    if args.output.json {
        out::json(&Printed {
            flows: &run.flows,
            ports: &run.ports,
            phases: &run.phases,
            packets: run.packets,
            series: args.series.then(|| series(&run)),
        });
    } else if !args.output.quiet {
        out::result(for_people(&flows, &run));
    }
    Ok(())
}

fn series(run: &Run) -> Series {
    let of = |flow: usize, value: fn(&FlowSample) -> f64| {
        let samples = run.samples.iter();
        samples.map(|it| value(&it.flows[flow])).collect()
    };
    let flow = |flow: usize| FlowSeries {
        goodput_packets_per_s: of(flow, |it| it.goodput_packets_per_s),
        cwnd: of(flow, |it| it.cwnd),
        alpha: of(flow, |it| it.alpha),
        rtt_s: run.samples.iter().map(|it| it.flows[flow].rtt_s).collect(),
    };
    let port = |port: usize| PortSeries {
        queue_packets: run.samples.iter().map(|it| it.queues[port]).collect(),
    };
    Series {
        at_s: run.samples.iter().map(|it| it.at_s).collect(),
        flows: (0..run.flows.len()).map(flow).collect(),
        ports: (0..run.ports.len()).map(port).collect(),
    }
}

fn for_people(flows: &Flows, run: &Run) -> String {
    let all = run.packets;
    format!(
        "{}\n\n{}\n\n{}\n\n\
         means of flows from start to stop, of ports over all the time, of phases over the second half of each\n\
         {} packets sent, acknowledgements included: {} arrived, {} dropped, {} on the way at {} s",
        flow_table(run),
        port_table(run),
        phase_table(run),
        all.sent,
        all.received,
        all.dropped,
        all.inside,
        flows.duration.as_secs_f64(),
    )
}

/// A table of so many rows at most, and how many were left out.
fn bounded<const N: usize>(mut rows: Vec<[String; N]>) -> String {
    let more = (rows.len() - 1).saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX + 1);
    match more {
        0 => table(&rows),
        more => format!("{}\nand {more} more; --json has all", table(&rows)),
    }
}

fn alpha(alpha: Option<f64>) -> String {
    alpha.map_or_else(|| "-".to_owned(), |alpha| format!("{alpha:.3}"))
}

fn time(from_s: f64, to_s: f64) -> String {
    let rounded = |seconds: f64| (seconds * 1e6).round() / 1e6;
    format!("{} to {} s", rounded(from_s), rounded(to_s))
}

fn flow_table(run: &Run) -> String {
    let head = [
        "FLOW", "SCHEME", "TIME", "GOODPUT", "WINDOW", "ALPHA", "RTT", "SENT", "DROPPED",
        "TIMEOUTS",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(run.flows.iter().map(|flow| {
        [
            flow.flow.to_string(),
            flow.scheme.to_owned(),
            time(flow.from_s, flow.to_s),
            format!("{:.0} pps", flow.means.goodput_packets_per_s),
            format!("{:.1}", flow.means.mean_cwnd),
            alpha(flow.means.mean_alpha),
            match flow.rtt_s {
                Some(rtt_s) => format!("{:.3} ms", rtt_s * 1e3),
                None => "-".to_owned(),
            },
            flow.sent.to_string(),
            flow.drops.to_string(),
            flow.timeouts.to_string(),
        ]
    }));
    bounded(rows)
}

fn port_table(run: &Run) -> String {
    let head = [
        "PORT", "QUEUE", "LONGEST", "USED", "PACKETS", "MARKED", "DROPPED",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(run.ports.iter().map(|port| {
        [
            outpour_core::text::escape(&format!("{} to {}", port.from, port.to)).into_owned(),
            format!("{:.1}", port.mean_queue_packets),
            port.max_queue_packets.to_string(),
            format!("{:.1} %", port.used * 100.0),
            port.packets.to_string(),
            port.marks.to_string(),
            port.drops.to_string(),
        ]
    }));
    bounded(rows)
}

fn phase_table(run: &Run) -> String {
    let head = [
        "PHASE", "FLOW", "THETA", "GOODPUT", "WINDOW", "ALPHA", "QUEUE",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for phase in &run.phases {
        // Of several ports the one at which most wait.
        let queues = phase.ports.iter().map(|port| port.mean_queue_packets);
        let queue = queues.fold(0.0, f64::max);
        for (index, flow) in phase.flows.iter().enumerate() {
            let only_first = |text: String| if index == 0 { text } else { String::new() };
            rows.push([
                only_first(time(phase.from_s, phase.to_s)),
                flow.flow.to_string(),
                (flow.theta).map_or_else(|| "-".to_owned(), |theta| theta.to_string()),
                format!("{:.0} pps", flow.means.goodput_packets_per_s),
                format!("{:.1}", flow.means.mean_cwnd),
                alpha(flow.means.mean_alpha),
                only_first(format!("{queue:.1}")),
            ]);
        }
    }
    bounded(rows)
}
