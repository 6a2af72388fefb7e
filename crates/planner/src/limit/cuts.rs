//! Boundaries between the sources and a receiver, as the program needs them.

use super::flow::Flow;
use super::model::Model;

/// By how much less than the rate may cross a boundary before the program is told of it,
/// relative; a little above the precision of the program's own solutions.
const VIOLATION_MIN: f64 = 1e-6;

/// What has to cross a boundary: the sum of flow times coefficient is at least the rate.
pub(super) struct Cut {
    /// Flows per receiving node, by index, and their coefficients; flows that do not cross are
    /// left out.
    pub(super) terms: Vec<(usize, f64)>,
}

/// A boundary around one node of class `receiver`. The sources' side has the classes that `inside`
/// holds; of the receiver's own class, it has all but the one node, or none.
fn cut(model: &Model<'_>, receiver: usize, inside: &[bool]) -> Cut {
    let peers = f64::from(model.classes[receiver].nodes) - 1.0;
    let terms = model.arcs.iter().enumerate().filter_map(|(index, arc)| {
        let (from, to) = (inside[arc.from], inside[arc.to]);
        let into = f64::from(model.classes[arc.to].nodes);
        let share = match (arc.from == receiver, arc.to == receiver) {
            (false, false) => into * f64::from(u8::from(from && !to)),
            // With its peers inside, only the flow to the one node crosses.
            (false, true) => f64::from(u8::from(from)) * if to { 1.0 } else { into },
            (true, false) => into * peers / (peers + 1.0) * f64::from(u8::from(from && !to)),
            (true, true) => f64::from(u8::from(from)),
        };
        (share > 0.0).then_some((index, share))
    });
    Cut {
        terms: terms.collect(),
    }
}

/// The boundaries every program starts with: the sources alone, each receiver alone.
pub(super) fn first(model: &Model<'_>) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let only_roots: Vec<bool> = model.classes.iter().map(|class| class.root).collect();
    for (index, receiver) in model.receivers().enumerate() {
        if index == 0 {
            cuts.push(cut(model, receiver, &only_roots));
        }
        cuts.push(cut(model, receiver, &vec![true; model.classes.len()]));
    }
    cuts
}

/// The boundaries that less than `rate` crosses, given the flows per receiving node.
pub(super) fn violated(model: &Model<'_>, flows: &[f64], rate: f64) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = Vec::new();
    for receiver in model.receivers() {
        // One vertex per class, where the receiver's stands for its peers, one for itself, and one
        // from which all sources have as much as they can send.
        let alone = model.classes.len();
        let origin = alone + 1;
        let nodes = f64::from(model.classes[receiver].nodes);
        let peers = (nodes - 1.0) / nodes;
        let mut flow = Flow::new(origin + 1);
        for root in model.roots() {
            flow.add(origin, root, rate);
        }
        for (arc, per_node) in model.arcs.iter().zip(flows) {
            let total = per_node.max(0.0) * f64::from(model.classes[arc.to].nodes);
            match (arc.from == receiver, arc.to == receiver) {
                (false, false) => flow.add(arc.from, arc.to, total),
                (false, true) => {
                    flow.add(arc.from, arc.to, total * peers);
                    flow.add(arc.from, alone, total / nodes);
                }
                (true, false) => flow.add(arc.from, arc.to, total * peers),
                (true, true) => flow.add(arc.from, alone, total / nodes),
            }
        }
        let sent = flow.send(origin, alone, rate);
        if sent < rate * (1.0 - VIOLATION_MIN) {
            let near = flow.source_side(origin);
            let far = flow.far_side(alone);
            let both = if near == far {
                vec![near]
            } else {
                vec![near, far]
            };
            cuts.extend(both.iter().map(|inside| cut(model, receiver, inside)));
        }
    }
    cuts
}
