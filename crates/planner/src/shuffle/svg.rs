//! Drawings of placements: mappers to the left, hosts with reducers to the right, flows as wide as they are
//! fast, what is used up in red.

use std::collections::BTreeMap;
use std::fmt::Write;

use outpour_core::Rate;
use outpour_core::text::escape_xml;

use super::{Coflow, HostId, Hosts, Placement};

/// How many hosts are drawn at each side, those that send and receive most; more would hide each other.
const HOSTS_MAX: usize = 40;
/// How many names of reducers are written beside a host.
const NAMES_MAX: usize = 4;
const COLOUR: &str = "#0072b2";
const COLOUR_USED_UP: &str = "#d62728";
/// The width of the thinnest and the thickest flow, in pixels.
const WIDTHS: (f64, f64) = (0.6, 14.0);
/// Where both sides are, and how far hosts are apart, in pixels.
const LEFT: f64 = 220.0;
const RIGHT: f64 = 620.0;
const WIDTH: f64 = 900.0;
const TOP: f64 = 70.0;
const APART: f64 = 34.0;
/// What uses this share of a rate uses it up.
const USED_UP: f64 = 1.0 - 1e-6;

/// A host at one side.
struct Side {
    host: HostId,
    /// Bytes per second.
    used: f64,
    rate: f64,
    text: String,
}

impl Side {
    fn is_used_up(&self) -> bool {
        self.used >= self.rate * USED_UP
    }
}

/// Draws a placement. `names` are those of hosts, `reducers` those of reducers.
pub fn draw(
    coflow: &Coflow,
    hosts: &Hosts,
    placement: &Placement,
    names: &dyn Fn(HostId) -> String,
    reducers: &[String],
) -> String {
    let mut flows: BTreeMap<(HostId, HostId), f64> = BTreeMap::new();
    let (mut sent, mut received) = (BTreeMap::new(), BTreeMap::new());
    let mut on: BTreeMap<HostId, Vec<&str>> = BTreeMap::new();
    for (reducer, host) in placement.hosts.iter().enumerate() {
        on.entry(*host).or_default().push(&reducers[reducer]);
        received.entry(*host).or_insert(0.0);
        for flow in coflow.flows(reducer) {
            let rate = placement.rate(reducer, &flow);
            *sent.entry(flow.mapper).or_insert(0.0) += rate;
            *received.entry(*host).or_insert(0.0) += rate;
            *flows.entry((flow.mapper, *host)).or_insert(0.0) += rate;
        }
    }
    let left = side(&sent, &hosts.out, names);
    let right = side(&received, &hosts.into, |host| {
        let all = on.get(&host).map_or(&[][..], Vec::as_slice);
        let shown = all[..all.len().min(NAMES_MAX)].join(", ");
        let more = match all.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}: {shown}{more}", names(host))
    });
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, placement, (&left, &right), &flows);
    let dropped = sent.len() - left.len() + received.len() - right.len();
    if dropped > 0 {
        let _ = write!(
            out,
            "<text x=\"20\" y=\"{TOP}\" dy=\"-12\" font-size=\"12\">{dropped} hosts that send or receive less \
             are not drawn</text>"
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The hosts of a side, those that use most, in their order.
fn side(used: &BTreeMap<HostId, f64>, rates: &[f64], text: impl Fn(HostId) -> String) -> Vec<Side> {
    let mut hosts: Vec<(HostId, f64)> = used.iter().map(|(host, used)| (*host, *used)).collect();
    hosts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    hosts.truncate(HOSTS_MAX);
    hosts.sort_by_key(|(host, _)| *host);
    let each = hosts.into_iter().map(|(host, used)| Side {
        host,
        used,
        rate: rates[host],
        text: text(host),
    });
    each.collect()
}

fn write_all(
    out: &mut String,
    placement: &Placement,
    (left, right): (&[Side], &[Side]),
    flows: &BTreeMap<(HostId, HostId), f64>,
) -> std::fmt::Result {
    let rows = left.len().max(right.len()) as f64;
    let height = TOP + rows * APART + 30.0;
    let at = |sides: &[Side], index: usize| {
        TOP + (rows - sides.len() as f64) * APART / 2.0 + (index as f64 + 0.5) * APART
    };
    let factor = placement.factor();
    let known = factor.map(|factor| format!(", at most {factor:.2} times the least"));
    let known = known.unwrap_or_default();
    write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"20\" y=\"28\" font-size=\"16\">{:.3} s{known}; what is used up is red</text>",
        placement.seconds,
    )?;
    let most = flows.values().copied().fold(0.0, f64::max);
    for (from, sender) in left.iter().enumerate() {
        for (to, receiver) in right.iter().enumerate() {
            let rate = flows.get(&(sender.host, receiver.host)).copied();
            let Some(rate) = rate.filter(|rate| *rate > 0.0) else {
                continue;
            };
            let width = (rate / most * WIDTHS.1).max(WIDTHS.0);
            let (y1, y2) = (at(left, from), at(right, to));
            let middle = (LEFT + RIGHT) / 2.0;
            write!(
                out,
                "<path d=\"M{LEFT} {y1} C{middle} {y1} {middle} {y2} {RIGHT} {y2}\" fill=\"none\" \
                 stroke=\"{COLOUR}\" stroke-opacity=\"0.45\" stroke-width=\"{width:.2}\"/>"
            )?;
        }
    }
    for (sides, x, anchor, apart) in [(left, LEFT, "end", -10.0), (right, RIGHT, "start", 10.0)] {
        for (index, side) in sides.iter().enumerate() {
            let colour = match side.is_used_up() {
                true => COLOUR_USED_UP,
                false => COLOUR,
            };
            let rate = |rate: f64| Rate::from_bytes_per_s(rate).unwrap_or(Rate::ZERO);
            let y = at(sides, index);
            write!(
                out,
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"6\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{y}\" font-size=\"12\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}\
                 <tspan x=\"{}\" dy=\"13\" font-size=\"10\">{} of {}</tspan></text>",
                x + apart,
                escape_xml(&side.text),
                x + apart,
                rate(side.used),
                rate(side.rate),
            )?;
        }
    }
    Ok(())
}
