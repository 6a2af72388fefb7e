//! Same seed, same trace; another seed, another.

use std::time::Duration;

use outpour_core::{NodeId, Time};
use outpour_sim::cast::{CastConfig, trace};
use outpour_sim::fault::{Fault, FaultKind};
use outpour_sim::fuzz::{Case, play};

use super::{cast, star};

#[test]
fn a_cast_with_the_same_seed_has_the_same_trace() {
    let stall = Fault {
        at: Time::from_secs_f64(0.5),
        lasts: Some(Duration::from_secs(3)),
        kind: FaultKind::Stall { node: NodeId(3) },
    };
    let run = |seed| {
        let faults = vec![stall.clone()];
        let mut config = CastConfig {
            faults,
            ..cast(star(8), "swarm", 50)
        };
        config.asked.seed = Some(seed);
        trace(config, None).unwrap().1
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn random_runs_with_the_same_seed_have_the_same_trace() {
    let run = |seed| {
        let case = Case::draw(seed, None);
        let mut world = case.world(None);
        play(&mut world, &case).unwrap();
        world.trace_hash()
    };
    let hashes: Vec<_> = (0..40).map(run).collect();
    assert_eq!(hashes, (0..40).map(run).collect::<Vec<_>>());
    assert!((1..40).all(|index| hashes[index] != hashes[0]));
}
