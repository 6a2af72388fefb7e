//! Placements of reducers: known answers, bounds against programs that are slow and plain, and what
//! cannot be.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem};
use outpour_planner::shuffle::{
    Coflow, Flow, HostId, Hosts, Placement, Share, ShuffleError, place, relax, round,
};
use proptest::prelude::*;

/// Reducers that fetch so much from host 0.
fn from_one(sizes: &[f64]) -> Coflow {
    let flow = |bytes: &f64| {
        vec![Flow {
            mapper: 0,
            bytes: *bytes,
        }]
    };
    Coflow::new(sizes.iter().map(flow).collect()).unwrap()
}

/// Host 0 holds all and runs nothing, the others receive so much.
fn receivers(into: &[f64]) -> Hosts {
    Hosts {
        out: vec![1e12; into.len() + 1],
        into: std::iter::once(0.0).chain(into.iter().copied()).collect(),
        slots: std::iter::once(0)
            .chain(into.iter().map(|_| u32::MAX))
            .collect(),
    }
}

/// The time of the slowest host, where nothing is local.
fn scale(sizes: &[f64], into: &[f64], places: &[HostId]) -> f64 {
    let mut loads = vec![0.0; into.len()];
    for (size, place) in sizes.iter().zip(places) {
        loads[*place] += size;
    }
    let times = loads
        .iter()
        .zip(into)
        .map(|(load, rate)| match *load > 0.0 {
            true => load / rate,
            false => 0.0,
        });
    times.fold(0.0, f64::max)
}

/// The relaxed problem as a linear program: for each bound on what a reducer alone may take, the
/// least scale; the best of all bounds.
fn relaxed_by_program(sizes: &[f64], into: &[f64]) -> f64 {
    let mut bounds: Vec<f64> = sizes
        .iter()
        .flat_map(|size| into.iter().map(move |rate| size / rate))
        .collect();
    bounds.sort_by(f64::total_cmp);
    let with = |bound: f64| -> f64 {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let scale = problem.add_var(1.0, (0.0, f64::INFINITY));
        let mut loads = vec![LinearExpr::empty(); into.len()];
        for size in sizes {
            let mut all = LinearExpr::empty();
            for (load, rate) in loads.iter_mut().zip(into) {
                if size / rate <= bound {
                    let part = problem.add_var(0.0, (0.0, 1.0));
                    all.add(part, 1.0);
                    load.add(part, size / rate);
                }
            }
            problem.add_constraint(all, ComparisonOp::Eq, 1.0);
        }
        for mut load in loads {
            load.add(scale, -1.0);
            problem.add_constraint(load, ComparisonOp::Le, 0.0);
        }
        let solved = problem.solve().ok().and_then(|it| it.into_solution().ok());
        solved.map_or(f64::INFINITY, |it| it.objective().max(bound))
    };
    bounds.into_iter().map(with).fold(f64::INFINITY, f64::min)
}

/// The best of all placements.
fn best_of_all(coflow: &Coflow, hosts: &Hosts, started: &[Option<HostId>]) -> f64 {
    let count = hosts.into.len();
    let mut least = f64::INFINITY;
    let mut places = vec![0; coflow.reducers()];
    'all: loop {
        let fits = (0..count).all(|host| {
            let on = places.iter().filter(|place| **place == host).count();
            on <= hosts.slots[host] as usize
        });
        let stays = started
            .iter()
            .zip(&places)
            .all(|(started, place)| started.is_none_or(|started| started == *place));
        if fits && stays {
            least = least.min(coflow.seconds(hosts, &places));
        }
        for place in &mut places {
            *place += 1;
            if *place < count {
                continue 'all;
            }
            *place = 0;
        }
        return least;
    }
}

fn size() -> impl Strategy<Value = f64> {
    prop_oneof![
        1 => Just(0.0),
        8 => (1..1000_u32).prop_map(f64::from),
        4 => (1..4_u32).prop_map(|size| f64::from(size) * 250.0),
    ]
}

fn bandwidth() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => prop::sample::select(vec![0.1, 0.2, 0.5, 1.0, 10.0, 40.0]),
        2 => (1..100_u32).prop_map(|rate| f64::from(rate) / 10.0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_relaxed_problem_is_solved_as_by_a_linear_program(
        sizes in prop::collection::vec((1..1000_u32).prop_map(f64::from), 1..6),
        into in prop::collection::vec(bandwidth(), 1..6),
    ) {
        let open: Vec<HostId> = (0..into.len()).collect();
        let relaxed = relax(&sizes, &into, &open, &vec![0.0; into.len()]).unwrap();
        let expected = relaxed_by_program(&sizes, &into);
        prop_assert!(
            (relaxed.scale - expected).abs() <= 1e-9 * expected,
            "{} for {expected}", relaxed.scale
        );
    }

    #[test]
    fn small_coflows_are_within_twice_the_best_of_all(
        sizes in prop::collection::vec(size(), 1..6),
        into in prop::collection::vec(bandwidth(), 1..5),
    ) {
        let (coflow, hosts) = (from_one(&sizes), receivers(&into));
        let placement = place(&coflow, &hosts, &[]).unwrap();
        let best = best_of_all(&coflow, &hosts, &[]);
        prop_assert!(placement.lower_bound_s <= best * (1.0 + 1e-9));
        prop_assert!(placement.seconds >= best * (1.0 - 1e-9));
        prop_assert!(placement.seconds <= 2.0 * best);
    }

    #[test]
    fn started_local_and_limited_reducers_are_placed(
        holds in prop::collection::vec(prop::collection::vec(size(), 4), 1..5),
        out in prop::collection::vec(bandwidth(), 4),
        into in prop::collection::vec(bandwidth(), 4),
        slots in prop::collection::vec(0..3_u32, 4),
        first in prop::option::of(0..4_usize),
    ) {
        let flows = |holds: &Vec<f64>| {
            let flow = |(mapper, bytes): (usize, &f64)| Flow { mapper, bytes: *bytes };
            holds.iter().enumerate().map(flow).collect()
        };
        let coflow = Coflow::new(holds.iter().map(flows).collect()).unwrap();
        let hosts = Hosts { out, into, slots };
        let mut started = vec![None; coflow.reducers()];
        started[0] = first.filter(|host| hosts.slots[*host] > 0);
        match place(&coflow, &hosts, &started) {
            Ok(placement) => {
                let best = best_of_all(&coflow, &hosts, &started);
                prop_assert!(placement.lower_bound_s <= best * (1.0 + 1e-9));
                prop_assert!(placement.seconds >= best * (1.0 - 1e-9));
                obeys(&coflow, &hosts, &started, &placement)?;
            }
            Err(error) => {
                let all: u32 = hosts.slots.iter().sum();
                let many = matches!(error, ShuffleError::Slots { .. });
                prop_assert!(many && coflow.reducers() as u32 > all, "{error}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn rounding_is_within_twice_the_relaxed_problem(
        sizes in prop::collection::vec(size(), 1..20),
        into in prop::collection::vec(bandwidth(), 1..12),
        loads in prop::collection::vec((0..300_u32).prop_map(f64::from), 12),
    ) {
        let open: Vec<HostId> = (0..into.len()).collect();
        let loads = &loads[..into.len()];
        let relaxed = relax(&sizes, &into, &open, loads).unwrap();
        prop_assert!(relaxed.shares.len() <= sizes.len() + into.len());
        // What is split is all there, and no host is above the scale.
        let mut served = vec![0.0; sizes.len()];
        let mut on = loads.to_vec();
        for share in &relaxed.shares {
            served[share.reducer] += share.amount;
            on[share.host] += share.amount;
            let alone = sizes[share.reducer] / into[share.host];
            prop_assert!(alone <= relaxed.scale * (1.0 + 1e-6), "it is slower there alone");
        }
        for (served, size) in served.iter().zip(&sizes) {
            prop_assert!((served - size).abs() <= 1e-6 * size.max(1.0));
        }
        for (on, rate) in on.iter().zip(&into) {
            prop_assert!(on / rate <= relaxed.scale * (1.0 + 1e-6));
        }
        // Each host gets what it serves whole, and at most one other reducer.
        let places = round(sizes.len(), &relaxed.shares);
        let mut on = loads.to_vec();
        for (size, place) in sizes.iter().zip(&places) {
            on[*place] += size;
        }
        for (on, rate) in on.iter().zip(&into) {
            prop_assert!(on / rate <= 2.0 * relaxed.scale * (1.0 + 1e-6));
        }
    }

    #[test]
    fn no_host_gets_two_split_reducers_of_any_part_with_one_circle(
        joins in prop::collection::vec(any::<prop::sample::Index>(), 1..14),
        circle in any::<[prop::sample::Index; 2]>(),
        amounts in prop::collection::vec(1..100_u32, 40),
    ) {
        // A tree that grows by a reducer or a host at a time, and one edge more.
        let (mut reducers, mut hosts) = (1_usize, 1_usize);
        let mut edges = vec![(0_usize, 0_usize)];
        for (number, join) in joins.iter().enumerate() {
            if number % 2 == 0 {
                edges.push((join.index(reducers), hosts));
                hosts += 1;
            } else {
                edges.push((reducers, join.index(hosts)));
                reducers += 1;
            }
        }
        let more = (circle[0].index(reducers), circle[1].index(hosts));
        if !edges.contains(&more) {
            edges.push(more);
        }
        let share = |((reducer, host), amount): (&(usize, usize), &u32)| Share {
            reducer: *reducer,
            host: *host,
            amount: f64::from(*amount),
        };
        let shares: Vec<Share> = edges.iter().zip(&amounts).map(share).collect();
        let places = round(reducers, &shares);
        let degree = |reducer: usize| edges.iter().filter(|edge| edge.0 == reducer).count();
        let mut split = vec![0; hosts];
        for (reducer, place) in places.iter().enumerate() {
            prop_assert!(edges.contains(&(reducer, *place)), "it serves a share");
            split[*place] += usize::from(degree(reducer) > 1);
        }
        prop_assert!(split.iter().all(|count| *count <= 1), "{split:?} of {edges:?}");
    }
}

/// Whether a placement keeps to what is fixed, to limits and to rates, and is through in its time.
fn obeys(
    coflow: &Coflow,
    hosts: &Hosts,
    started: &[Option<HostId>],
    placement: &Placement,
) -> Result<(), TestCaseError> {
    let count = hosts.into.len();
    let (mut out, mut into, mut on) = (vec![0.0; count], vec![0.0; count], vec![0; count]);
    for (reducer, place) in placement.hosts.iter().enumerate() {
        prop_assert!(started[reducer].is_none_or(|host| host == *place));
        on[*place] += 1;
        for flow in coflow.flows(reducer) {
            let rate = placement.rate(reducer, &flow);
            out[flow.mapper] += rate;
            into[*place] += rate;
            if flow.mapper != *place {
                prop_assert!(rate * placement.seconds >= flow.bytes * (1.0 - 1e-9));
            }
        }
    }
    for host in 0..count {
        prop_assert!(on[host] <= hosts.slots[host]);
        prop_assert!(out[host] <= hosts.out[host] * (1.0 + 1e-9));
        prop_assert!(into[host] <= hosts.into[host] * (1.0 + 1e-9));
    }
    Ok(())
}

/// [RPC theorem 6]: `M (M - 1)` small reducers, one `M` times as large, and `M` equal hosts.
#[test]
fn the_tight_case_is_tight_for_rounding_and_solved_by_the_relaxed_problem() {
    for m in [2_usize, 3, 10, 40] {
        let small = m * (m - 1);
        let mut sizes = vec![1.0; small];
        sizes.push(m as f64);
        let into = vec![1.0; m];
        // As printed: the small ones in turn, the large one everywhere.
        let whole = (0..small).map(|reducer| Share {
            reducer,
            host: reducer % m,
            amount: 1.0,
        });
        let split = (0..m).map(|host| Share {
            reducer: small,
            host,
            amount: 1.0,
        });
        let shares: Vec<Share> = whole.chain(split).collect();
        let rounded = round(sizes.len(), &shares);
        let worst = (2 * m - 1) as f64;
        assert_eq!(scale(&sizes, &into, &rounded), worst);
        let placement = place(&from_one(&sizes), &receivers(&into), &[]).unwrap();
        assert_eq!(placement.seconds, m as f64);
        assert_eq!(placement.factor(), Some(1.0));
    }
}

/// [RPC figure 1]: each coflow alone.
#[test]
fn the_largest_reducer_goes_to_the_fastest_host() {
    let hosts = receivers(&[2e9, 1e9, 1e9]);
    let first = place(&from_one(&[1e9, 1.5e9, 2e9]), &hosts, &[]).unwrap();
    assert_eq!((first.hosts[2], first.seconds), (1, 1.5));
    let second = place(&from_one(&[1.5e9, 2e9, 2e9]), &hosts, &[]).unwrap();
    assert_eq!(second.seconds, 2.0);
    // Where it has started on a slow host it stays.
    let started = [None, None, Some(2)];
    let stuck = place(&from_one(&[1e9, 1.5e9, 2e9]), &hosts, &started).unwrap();
    assert_eq!((stuck.hosts[2], stuck.seconds), (2, 2.0));
}

#[test]
fn a_reducer_runs_where_most_of_its_data_is() {
    let flow = |mapper, bytes| Flow { mapper, bytes };
    let coflow = Coflow::new(vec![
        vec![flow(0, 9.0), flow(1, 1.0)],
        vec![flow(0, 1.0), flow(1, 9.0)],
    ]);
    let hosts = Hosts {
        out: vec![1.0; 2],
        into: vec![1.0; 2],
        slots: vec![2; 2],
    };
    let placement = place(&coflow.unwrap(), &hosts, &[]).unwrap();
    assert_eq!(placement.hosts, [0, 1]);
    assert_eq!(placement.seconds, 1.0);
}

#[test]
fn what_cannot_be_is_said() {
    let coflow = from_one(&[5.0, 7.0]);
    let try_with = |change: &dyn Fn(&mut Hosts)| {
        let mut hosts = receivers(&[1.0, 2.0]);
        change(&mut hosts);
        place(&coflow, &hosts, &[]).unwrap_err().to_string()
    };
    assert_eq!(
        try_with(&|hosts| hosts.slots = vec![0, 1, 0]),
        "2 reducers have to be placed, and hosts may run 1"
    );
    assert_eq!(
        try_with(&|hosts| hosts.into.fill(0.0)),
        "reducer 0 can be nowhere: no host that may run it receives anything"
    );
    assert_eq!(
        try_with(&|hosts| hosts.out[0] = 0.0),
        "host 0 holds data for reducers and sends nothing: the coflow never ends"
    );
    assert_eq!(
        try_with(&|hosts| hosts.into[1] = f64::NAN),
        "a rate of host 1 is negative or not finite"
    );
    assert!(matches!(
        place(&coflow, &receivers(&[1.0]), &[Some(9), None]),
        Err(ShuffleError::NoHost {
            reducer: 0,
            host: 9
        })
    ));
    assert!(matches!(
        place(&coflow, &receivers(&[1.0]), &[None]),
        Err(ShuffleError::Lengths)
    ));
    let beyond = Coflow::new(vec![vec![Flow {
        mapper: 7,
        bytes: 1.0,
    }]])
    .unwrap();
    assert!(matches!(
        place(&beyond, &receivers(&[1.0]), &[]),
        Err(ShuffleError::NoHost {
            reducer: 0,
            host: 7
        })
    ));
    for bytes in [-1.0, f64::NAN, f64::INFINITY] {
        let flow = Flow { mapper: 3, bytes };
        let refused = Coflow::new(vec![vec![], vec![flow]]);
        let expected = ShuffleError::Flow {
            reducer: 1,
            mapper: 3,
        };
        assert_eq!(refused, Err(expected));
    }
}
