//! What is decided in short ways is what is decided by looking at everything.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::super::{Coflow, Flow, Hosts};
use super::*;

const HOSTS: usize = 9;

/// Hosts of drawn rates, of which the last may run reducers, and coflows that are under way there.
pub(super) fn world(seed: u64) -> (Hosts, Vec<Running>) {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |count: u64| dice.next_u64() % count;
    let mut rate = || [1.0, 5.0, 40.0][below(3) as usize];
    let hosts = Hosts {
        out: (0..HOSTS).map(|_| rate()).collect(),
        into: (0..HOSTS).map(|_| rate()).collect(),
        slots: (0..HOSTS)
            .map(|host| if host < 3 { 0 } else { 9 })
            .collect(),
    };
    let mut running = Vec::new();
    for number in 0..1 + below(5) as usize {
        let sizes: Vec<f64> = (0..1 + below(6)).map(|_| 1.0 + below(50) as f64).collect();
        let mut flow = || Flow {
            mapper: below(4) as usize,
            bytes: 1.0 + below(9) as f64,
        };
        let coflow = match seed % 2 {
            0 => Coflow::split(&sizes, vec![flow(), flow()]),
            _ => Coflow::new(sizes.iter().map(|_| vec![flow(), flow()]).collect()),
        };
        let mut coflow = Running::new(number, 0.0, coflow.unwrap_or_default());
        for reducer in 0..sizes.len() {
            coflow.start(reducer, 3 + below(HOSTS as u64 - 3) as usize);
            if below(3) == 0 {
                let part = if below(2) == 0 { 1.0 } else { 0.5 };
                coflow.fetched(reducer, coflow.left(reducer) * part);
            }
        }
        running.push(coflow);
    }
    (hosts, running)
}

#[test]
fn a_coflow_without_room_gets_nothing() {
    let (mut none, mut some) = (0, 0);
    for seed in 0..500 {
        let (hosts, running) = world(seed);
        let mut room = Room::new(&hosts, &running);
        for (index, coflow) in running.iter().enumerate() {
            let (all, any) = (room.has_room_for_all(coflow), room.has_room_for(coflow));
            let mut grants = Vec::new();
            let mut serving = room.serve(index, coflow);
            serving.give_together();
            serving.end(&mut grants);
            assert!(all || grants.is_empty(), "seed {seed}");
            some += grants.len();
            none += usize::from(!all && any);
            let any = room.has_room_for(coflow);
            let mut grants = Vec::new();
            let mut serving = room.serve(index, coflow);
            serving.give_rest();
            serving.end(&mut grants);
            assert!(any || grants.is_empty(), "seed {seed}");
        }
    }
    assert!(none > 100 && some > 100, "both happen: {none} {some}");
}

#[test]
fn what_is_left_takes_as_long_however_it_is_counted() {
    for seed in 0..500 {
        let (hosts, mut running) = world(seed);
        for coflow in &mut running {
            let places: Vec<usize> = coflow.places().iter().copied().flatten().collect();
            let all = coflow.seconds(&places, &hosts);
            let short = coflow.alone_s(&hosts);
            assert!((short - all).abs() <= all * 1e-12, "{short} {all}");
        }
    }
}

/// Coflows under way whose reducers fetch from a mapper of their own each, as what moves mappers does.
fn moves(seed: u64) -> (Hosts, Vec<Running>) {
    let (hosts, _) = world(seed);
    let mut dice = Pcg64Mcg::seed_from_u64(!seed);
    let mut below = |count: u64| dice.next_u64() % count;
    let mut running = Vec::new();
    for number in 0..2 + below(3) as usize {
        let first = below(HOSTS as u64) as usize;
        let count = 1 + below(4) as usize;
        let flows = (0..count).map(|it| Flow {
            mapper: (first + it) % HOSTS,
            bytes: 1.0 + below(50) as f64,
        });
        let coflow = Coflow::new(flows.map(|flow| vec![flow]).collect());
        let mut coflow = Running::new(number, 0.0, coflow.unwrap_or_default());
        for reducer in 0..count {
            coflow.start(reducer, (first + count + below(3) as usize) % HOSTS);
            if below(3) == 0 {
                coflow.fetched(reducer, coflow.left(reducer) * 0.5);
            }
        }
        running.push(coflow);
    }
    (hosts, running)
}

#[test]
fn mappers_of_one_reducer_each_are_counted_as_any_other() {
    let mut granted = 0;
    for seed in 0..500 {
        let (hosts, running) = moves(seed);
        let decide = |running: &mut [Running]| {
            let alone: Vec<f64> = running.iter_mut().map(|it| it.alone_s(&hosts)).collect();
            let mut room = Room::new(&hosts, running);
            let mut grants = Vec::new();
            for (index, coflow) in running.iter().enumerate() {
                let mut serving = room.serve(index, coflow);
                serving.give_together();
                serving.give_rest();
                serving.end(&mut grants);
            }
            (alone, grants)
        };
        let mut short = running.clone();
        assert!(short.iter().all(|coflow| coflow.only().is_some()));
        let mut long = running;
        long.iter_mut().for_each(Running::forget_own_mappers);
        let (short, long) = (decide(&mut short), decide(&mut long));
        assert_eq!(short, long, "seed {seed}");
        granted += short.1.len();
    }
    assert!(granted > 500, "{granted} grants");
}

#[test]
fn what_has_started_on_a_slow_host_goes_on_before_others_start_there() {
    let hosts = Hosts {
        out: vec![1000.0, 0.0, 0.0],
        into: vec![0.0, 4.0, 1.0],
        slots: vec![0, 9, 9],
    };
    let coflow = |number: usize, bytes: f64| {
        let flows = vec![vec![Flow { mapper: 0, bytes }]];
        Running::new(number, 0.0, Coflow::new(flows).unwrap_or_default())
    };
    // Behind four of its like the fifth would take 500 s on the fast host, and 400 s on the slow one if nothing
    // were there. What is there takes 240 s: less than that, though more than each of the others alone.
    let mut running: Vec<Running> = (0..6).map(|number| coflow(number, 400.0)).collect();
    running[0] = coflow(0, 240.0);
    running[0].start(0, 2);
    let news = News { coflows: true };
    let mut rpc = Scheme::Rpc.scheduler(RpcOptions::default());
    let decision = rpc.decide(0.0, &hosts, &mut running, news);
    let slow: Vec<usize> = (0..6)
        .filter(|it| running[*it].places()[0] == Some(2))
        .collect();
    assert_eq!(slow, [0], "none starts on the slow host");
    let grant = decision.grants.iter().find(|grant| grant.coflow == 0);
    assert_eq!(grant.map(|grant| grant.bytes_per_s), Some(1.0));
}
