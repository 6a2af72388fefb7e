//! Tasks with several sources, packet by packet: every one ends or says why, no port carries more than it can,
//! and equal seeds give equal reports.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::topology::{Metric, Topology, TopologyError};
use outpour_core::{NodeId, Time};
use outpour_sim::packets::tasks::{
    Instance, Links, Scheme, Setting, Shape, Sizes, Sources, Task, TasksError, Workload,
};
use outpour_sim::parallel::in_parallel;
use proptest::prelude::*;

const LINKS: Links = Links {
    packets_per_s: 2e5,
    fabric_packets_per_s: 4e5,
    delay: Duration::from_micros(20),
    packet_bytes: 1500,
};

fn setting(shape: &str, scheme: Scheme) -> Setting {
    let shape: Shape = shape.parse().unwrap();
    Setting::new(shape.topology(&LINKS).unwrap(), scheme)
}

fn workload(packets: u64, tasks: u32) -> Workload {
    Workload {
        sources: Sources::Pool(4),
        load: 0.8,
        sizes: Sizes::fixed(packets).unwrap(),
        tasks,
    }
}

/// What holds of every instance.
fn sane(setting: &Setting, instance: &Instance) {
    let name = setting.scheme;
    assert!(
        instance.busiest_port <= 1.0 + 1e-9,
        "{name}: a port was busy for {} of the time",
        instance.busiest_port
    );
    for (task, tct) in instance.tcts_s.iter().enumerate() {
        let why = instance.failures.iter().find(|it| it.task == task);
        assert_eq!(tct.is_none(), why.is_some(), "{name}: task {task}");
        assert!(tct.is_none_or(|it| it > 0.0), "{name}: task {task}");
    }
    // No link of a host carries the object faster than this.
    if instance.failures.is_empty() {
        assert!(
            instance.normalized_average_tct > 1.0,
            "{name}: {instance:?}"
        );
    }
}

#[test]
fn every_scheme_completes_every_task() {
    for scheme in Scheme::ALL {
        for shape in ["obs:12", "leaf-spine:3x4x2", "fat-tree:4"] {
            let setting = setting(shape, scheme);
            let instance = setting.instance(&workload(700, 12), 3).unwrap();
            sane(&setting, &instance);
            assert_eq!(instance.failures, [], "{scheme} on {shape}");
            let shares: f64 = instance.shares.iter().sum();
            // Rateless sources send a few symbols more than an object has.
            assert!((11.999..12.0 * 1.2).contains(&shares), "{scheme}: {shares}");
        }
    }
}

/// Resources of a network have a direction each, so no way back passes the vertices of the way there.
#[test]
fn every_scheme_completes_every_task_over_clusters() {
    let text = r#"
        [[cluster]]
        name = "a"
        nodes = 6
        node_out = "2.4 Gbit/s"
        node_in = "2.4 Gbit/s"
        node_queue = "100 packets"
        node_ecn = "30 packets"

        [[cluster]]
        name = "b"
        nodes = 6
        node_out = "2.4 Gbit/s"
        node_in = "1.2 Gbit/s"

        [[link]]
        from = "*"
        to = "*"
        rate = "12 Gbit/s"
        delay = "0.1 ms"
    "#;
    let network = Network::from_toml(text, "net.toml").unwrap();
    let topology = Topology::from_network(&network).unwrap();
    for scheme in Scheme::ALL {
        let setting = Setting {
            metric: Metric::Delay,
            ..Setting::new(topology.clone(), scheme)
        };
        let instance = setting.instance(&workload(700, 12), 3).unwrap();
        sane(&setting, &instance);
        assert_eq!(instance.failures, [], "{scheme}");
        // Acknowledgements pass ports of their own.
        assert!(instance.packet_hops > 2 * 12 * 700, "{scheme}");
    }
}

#[test]
fn equal_seeds_give_equal_reports_on_any_number_of_threads() {
    let jobs: Vec<(Scheme, u64)> = Scheme::ALL
        .into_iter()
        .flat_map(|scheme| [(scheme, 1), (scheme, 2)])
        .collect();
    let run = |threads| {
        in_parallel(&jobs, threads, |(scheme, seed)| {
            let setting = setting("fat-tree:4", *scheme);
            setting.instance(&workload(300, 8), *seed).unwrap()
        })
    };
    let (one, many) = (run(1), run(4));
    assert_eq!(one, many);
    assert_ne!(one[0].tcts_s, one[1].tcts_s, "the seed changes nothing");
}

#[test]
fn all_schemes_get_the_same_tasks() {
    let drawn = Scheme::ALL.map(|scheme| {
        let setting = setting("obs:12", scheme);
        workload(300, 50).draw(&setting, 5).unwrap()
    });
    assert!(drawn.iter().all(|tasks| *tasks == drawn[0]));
    assert!(drawn[0].is_sorted_by_key(|task| task.at));
}

#[test]
fn a_larger_fanout_adds_sources_and_changes_nothing_else() {
    for sources in [Sources::Pool(6), Sources::Any, Sources::OnePer(2)] {
        let work = Workload {
            sources,
            sizes: Sizes::parse("10 0\n1000 1\n", "sizes").unwrap(),
            ..workload(300, 50)
        };
        let with = |fanout| {
            let setting = Setting {
                fanout,
                ..setting("obs:12", Scheme::Dctcp)
            };
            work.draw(&setting, 5).unwrap()
        };
        let (few, many) = (with(2), with(5));
        for (few, many) in few.iter().zip(&many) {
            assert_eq!(few.holders, many.holders[..2], "{sources:?}");
            let holders = many.holders.clone();
            assert_eq!(
                Task {
                    holders,
                    ..few.clone()
                },
                *many
            );
        }
        assert!(many.iter().any(|it| it.holders != many[0].holders));
    }
}

#[test]
fn sizes_move_neither_devices_nor_sources() {
    let setting = setting("obs:12", Scheme::Dctcp);
    let tasks = |sizes: &str| {
        let sizes = Sizes::parse(sizes, "sizes").unwrap();
        let work = Workload {
            sizes,
            ..workload(300, 50)
        };
        let drawn = work.draw(&setting, 5).unwrap();
        let of = |it: Task| (it.device, it.holders);
        drawn.into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(tasks("10 0\n1000 1\n"), tasks("50 0.5\n70 1\n"));
}

#[test]
fn tasks_arrive_as_fast_as_the_load_says() {
    let setting = setting("obs:20", Scheme::Dctcp);
    let tasks = workload(1000, 4000).draw(&setting, 1).unwrap();
    // Four links of sources carry 2e5 packets per second each.
    let expected = 0.8 * 4.0 * 2e5 / 1000.0;
    let found = 3999.0 / tasks.last().unwrap().at.as_secs_f64();
    assert!(
        (found / expected - 1.0).abs() < 0.05,
        "{found} for {expected}"
    );
    let any = Workload {
        sources: Sources::Any,
        ..workload(1000, 4000)
    };
    let tasks = any.draw(&setting, 1).unwrap();
    let expected = 0.8 * 20.0 * 2e5 / 1000.0;
    let found = 3999.0 / tasks.last().unwrap().at.as_secs_f64();
    assert!(
        (found / expected - 1.0).abs() < 0.05,
        "{found} for {expected}"
    );
}

#[test]
fn one_source_in_each_pod() {
    let setting = setting("fat-tree:4", Scheme::Dctcp);
    let workload = Workload {
        sources: Sources::OnePer(4),
        ..workload(100, 60)
    };
    let tasks = workload.draw(&setting, 9).unwrap();
    let mut pool: Vec<u32> = tasks
        .iter()
        .flat_map(|it| &it.holders)
        .map(|it| it.0)
        .collect();
    pool.sort_unstable();
    pool.dedup();
    let pods: Vec<u32> = pool.iter().map(|host| host / 4).collect();
    assert_eq!(pods, [0, 1, 2, 3]);
    assert!(tasks.iter().all(|it| !pool.contains(&it.device.0)));
}

#[test]
fn a_lone_task_takes_as_long_as_its_link() {
    let task = Task {
        at: Time::ZERO,
        packets: 20_000,
        device: NodeId(0),
        holders: vec![NodeId(1), NodeId(2), NodeId(3)],
    };
    for scheme in Scheme::ALL {
        let setting = setting("obs:4", scheme);
        let instance = setting.play(std::slice::from_ref(&task), 1).unwrap();
        sane(&setting, &instance);
        let normalized = instance.normalized_average_tct;
        // 0.1 s at full rate. What comes on top are round trips of 0.1 ms and, without marks, repetitions.
        let most = if matches!(scheme, Scheme::Reno | Scheme::Dccp) {
            1.3
        } else {
            1.06
        };
        assert!(normalized < most, "{scheme}: {normalized}");
        let hops = instance.packet_hops as f64;
        assert!(hops >= 2.0 * 20_000.0, "{scheme}: {hops}");
    }
}

#[test]
fn what_sources_send_is_what_prioritizes() {
    // All from one host: whoever is small waits for the large one, or not.
    let task = |packets, device| Task {
        at: Time::ZERO,
        packets,
        device: NodeId(device),
        holders: vec![NodeId(0)],
    };
    let tasks = [task(20_000, 1), task(2000, 2)];
    let small = |scheme: &str| {
        let scheme = Scheme::ALL
            .into_iter()
            .find(|it| it.name() == scheme)
            .unwrap();
        let played = setting("obs:3", scheme).play(&tasks, 1).unwrap();
        played.tcts_s[1].unwrap()
    };
    let (equal, first) = (small("push-1-0"), small("push-1-1"));
    // 20 ms when both have the same rate, 10 ms alone; the large one gives way within some round trips.
    assert!((0.018..0.024).contains(&equal), "{equal}");
    assert!((0.010..0.016).contains(&first), "{first}");
}

#[test]
fn rateless_sources_make_up_for_a_slow_one() {
    // The first source is busy with two other tasks all the time.
    let task = |at_s, packets, device, holders: &[u32]| Task {
        at: Time::from_secs_f64(at_s),
        packets,
        device: NodeId(device),
        holders: holders.iter().copied().map(NodeId).collect(),
    };
    let mut tasks = vec![task(0.0, 60_000, 5, &[0]), task(0.0, 60_000, 6, &[0])];
    tasks.push(task(0.02, 20_000, 7, &[0, 1, 2]));
    let tct = |scheme: &str| {
        let scheme = Scheme::ALL
            .into_iter()
            .find(|it| it.name() == scheme)
            .unwrap();
        let played = setting("obs:8", scheme).play(&tasks, 1).unwrap();
        (
            played.tcts_s[2].unwrap(),
            played.shares[played.shares.len() - 3..].to_vec(),
        )
    };
    let (fixed, _) = tct("push-0-0");
    let (rateless, shares) = tct("push-1-0");
    assert!(rateless < fixed * 0.8, "{rateless} and {fixed}");
    assert!(
        shares.iter().any(|it| *it < 0.3) && shares.iter().any(|it| *it > 0.35),
        "{shares:?}"
    );
}

#[test]
fn a_dead_source_stops_no_rateless_task() {
    let task = Task {
        at: Time::ZERO,
        packets: 20_000,
        device: NodeId(0),
        holders: vec![NodeId(1), NodeId(2), NodeId(3)],
    };
    for scheme in Scheme::ALL {
        let mut setting = setting("obs:5", scheme);
        setting.deaths = vec![(Time::from_secs_f64(0.02), NodeId(2))];
        setting.give_up_after = Duration::from_secs(20);
        let instance = setting.play(std::slice::from_ref(&task), 1).unwrap();
        sane(&setting, &instance);
        let takes_over = matches!(scheme, Scheme::Push { .. } | Scheme::Scdp);
        assert_eq!(
            instance.failures.is_empty(),
            takes_over,
            "{scheme}: {:?}",
            instance.failures
        );
        if !takes_over {
            let why = &instance.failures[0].why;
            assert!(why.contains("packets of its share"), "{why}");
        }
    }
}

#[test]
fn what_was_not_completed_is_in_no_mean() {
    let task = |packets, device, holder| Task {
        at: Time::ZERO,
        packets,
        device: NodeId(device),
        holders: vec![NodeId(holder)],
    };
    // The source of the large one dies.
    let tasks = [task(1000, 0, 1), task(100_000, 2, 3)];
    for scheme in [Scheme::Dctcp, Scheme::Scdp] {
        let mut setting = setting("obs:4", scheme);
        setting.deaths = vec![(Time::from_secs_f64(0.01), NodeId(3))];
        setting.give_up_after = Duration::from_secs(2);
        let dying = setting.play(&tasks, 1).unwrap();
        assert_eq!(dying.failures.len(), 1, "{scheme}");
        let alone = setting.play(&tasks[..1], 1).unwrap();
        assert_eq!(dying.average_tct_s, alone.average_tct_s, "{scheme}");
        assert_eq!(
            dying.normalized_average_tct, alone.normalized_average_tct,
            "{scheme}"
        );
    }
}

#[test]
fn nothing_is_played_after_the_last_task() {
    let task = Task {
        at: Time::ZERO,
        packets: 1000,
        device: NodeId(0),
        holders: vec![NodeId(1)],
    };
    for scheme in Scheme::ALL {
        let mut setting = setting("obs:4", scheme);
        let played = setting.play(std::slice::from_ref(&task), 1).unwrap();
        // A death long after that.
        setting.deaths = vec![(Time::from_secs_f64(900.0), NodeId(1))];
        let dying = setting.play(std::slice::from_ref(&task), 1).unwrap();
        assert_eq!(played, dying, "{scheme}");
    }
}

#[test]
fn a_site_pulls_over_all_of_its_links() {
    // Three links lead to the site of the device, one to that of each source.
    let table = "site_a,site_b,delay_ms\n0,1,1\n0,2,1\n0,3,1\n1,2,1\n2,3,1\n";
    let links = Links {
        packets_per_s: 1e4,
        ..LINKS
    };
    let trunk = links.link(1e4).unwrap();
    let topology =
        Topology::from_csv(table, "links.csv", outpour_core::network::Link::OPEN, trunk).unwrap();
    // The first task has one source; then three fetch over as many links.
    let task = |at_s, packets, holders: &[u32]| Task {
        at: Time::from_secs_f64(at_s),
        packets,
        device: NodeId(0),
        holders: holders.iter().copied().map(NodeId).collect(),
    };
    let tasks = [task(0.0, 100, &[1]), task(0.1, 30_000, &[1, 2, 3])];
    let setting = Setting {
        metric: Metric::Delay,
        ..Setting::new(topology, Scheme::Scdp)
    };
    let took = setting.play(&tasks, 1).unwrap().tcts_s[1].unwrap();
    // 1 s over three links, 3 s over one.
    assert!((1.0..1.3).contains(&took), "{took}");
}

#[test]
fn scdp_loses_no_header_however_many_sessions_begin_together() {
    let tasks: Vec<Task> = (0..150)
        .map(|_| Task {
            at: Time::ZERO,
            packets: 200,
            device: NodeId(0),
            holders: vec![NodeId(1), NodeId(2), NodeId(3)],
        })
        .collect();
    let links = Links {
        delay: Duration::from_millis(2),
        ..LINKS
    };
    let shape: Shape = "obs:4".parse().unwrap();
    let setting = Setting::new(shape.topology(&links).unwrap(), Scheme::Scdp);
    let played = setting.play(&tasks, 1).unwrap();
    assert_eq!((played.drops, &played.failures[..]), (0, &[][..]));
    assert!(played.trimmed > 10_000, "{}", played.trimmed);
    // 30 000 packets at 2e5 in a second, and some round trips of 8 ms.
    assert!(played.makespan_s < 0.2, "{}", played.makespan_s);
}

#[test]
fn sources_of_all_schemes_begin_together() {
    let task = Task {
        at: Time::ZERO,
        packets: 1,
        device: NodeId(0),
        holders: vec![NodeId(1)],
    };
    for scheme in Scheme::ALL {
        let mut setting = setting("obs:4", scheme);
        setting.control_delay = Duration::from_millis(5);
        let played = setting.play(std::slice::from_ref(&task), 1).unwrap();
        // The packet leaves after 10 ms, and takes 2 * (20 + 5) us.
        let took = played.tcts_s[0].unwrap();
        assert!((took - 0.01005).abs() < 2e-6, "{scheme}: {took}");
    }
}

#[test]
fn timeouts_are_within_the_same_bounds_with_all_schemes() {
    // The only packet or its acknowledgement is lost as often as not, so timeouts follow each other.
    let lossy = |scheme| {
        let topology = setting("obs:4", scheme).topology;
        let lossy = topology
            .with_links(|_, wire| outpour_core::network::Link {
                loss: 0.3,
                ..wire.link
            })
            .unwrap();
        Setting {
            rto_initial: Duration::from_millis(20),
            rto_max: Duration::from_millis(30),
            ..Setting::new(lossy, scheme)
        }
    };
    let task = Task {
        at: Time::ZERO,
        packets: 1,
        device: NodeId(0),
        holders: vec![NodeId(1)],
    };
    for scheme in [Scheme::ALL[0], Scheme::Dctcp, Scheme::Reno, Scheme::Dccp] {
        for seed in 0..20 {
            let played = lossy(scheme)
                .play(std::slice::from_ref(&task), seed)
                .unwrap();
            let took = played.tcts_s[0].unwrap();
            // Parallel Push sends probes first, which count as no timeout.
            let most = 0.001 + 0.03 * (played.timeouts + 1) as f64;
            assert!(
                took < most,
                "{scheme}: {took} and {} timeouts",
                played.timeouts
            );
        }
    }
}

#[test]
fn bad_settings_are_refused_by_name() {
    let good = setting("obs:10", Scheme::Dctcp);
    let said = |setting: &Setting, workload: &Workload| {
        setting.instance(workload, 1).unwrap_err().to_string()
    };
    let work = workload(100, 3);
    let with = |change: fn(&mut Setting)| {
        let mut setting = good.clone();
        change(&mut setting);
        setting
    };
    for (setting, message) in [
        (with(|it| it.fanout = 0), "`fanout` is 0: expected 1 to 64"),
        (
            with(|it| it.fanout = 5),
            "`fanout` is 5: only 4 sources have each object",
        ),
        (
            with(|it| it.mark_packets = 101),
            "`mark` is 101: a queue of 100 packets never holds more than that",
        ),
        (
            with(|it| it.queue_packets = 0),
            "`queue` is 0: expected 1 to 1000000",
        ),
        (
            with(|it| it.scdp_thresholds = [3, 2, 4, 5]),
            "`scdp_thresholds` is 3: expected growing numbers from 1",
        ),
    ] {
        assert_eq!(said(&setting, &work), message);
    }
    for (load, sources, message) in [
        (
            f64::NAN,
            4,
            "`load` is NaN: expected a number from 0.01 to 100",
        ),
        (0.0, 4, "`load` is 0: expected a number from 0.01 to 100"),
        (
            0.5,
            10,
            "`sources` is 10: only 9 of the hosts can have all objects, as another has to fetch them",
        ),
    ] {
        let work = Workload {
            load,
            sources: Sources::Pool(sources),
            ..work.clone()
        };
        assert_eq!(said(&good, &work), message);
    }
    let task = |packets, holders: &[u32]| Task {
        at: Time::ZERO,
        packets,
        device: NodeId(0),
        holders: holders.iter().copied().map(NodeId).collect(),
    };
    for (task, message) in [
        (task(0, &[1]), "task 0: its object has no packets"),
        (task(1, &[]), "task 0: nobody has its object"),
        (task(1, &[0]), "task 0: its device has its object"),
        (task(1, &[10]), "task 0: there is no such host"),
        (task(1, &[1, 1]), "task 0: a host has its object twice"),
    ] {
        assert_eq!(good.play(&[task], 1).unwrap_err().to_string(), message);
    }
}

#[test]
fn bad_shapes_are_refused() {
    for text in [
        "obs",
        "obs:",
        "obs:-1",
        "ring:5",
        "leaf-spine:3x4",
        "fat-tree:4x4",
    ] {
        let error = text.parse::<Shape>().unwrap_err();
        assert!(
            error.to_string().contains(&format!("no topology `{text}`")),
            "{error}"
        );
    }
    let none = "fat-tree:5".parse::<Shape>().unwrap().topology(&LINKS);
    assert!(
        matches!(none, Err(TasksError::Topology(TopologyError::Count { .. }))),
        "{none:?}"
    );
    let links = Links {
        packets_per_s: f64::NAN,
        ..LINKS
    };
    let none = "obs:5".parse::<Shape>().unwrap().topology(&links);
    assert!(none.unwrap_err().to_string().contains("packets_per_s"));
    // Hosts that nothing limits.
    let open = Topology::one_big_switch(5, outpour_core::network::Link::OPEN).unwrap();
    let none = Setting::new(open, Scheme::Dctcp).instance(&workload(100, 2), 1);
    assert!(
        matches!(none, Err(TasksError::Unlimited { .. })),
        "{none:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_network_tasks_end_or_say_why(
        scheme in 0..Scheme::ALL.len(),
        packets in 1_u64..600,
        load in 0.2..1.5_f64,
        (queue, mark) in (2_u32..60).prop_flat_map(|queue| (Just(queue), 1..=queue)),
        fanout in 1_u32..=4,
        loss in 0.0..0.05_f64,
        delay_us in 0_u64..500,
        block_symbols in 1_u32..400,
        window in prop::option::of(1.0..40.0_f64),
        death in prop::option::of(0.0..0.05_f64),
        seed in any::<u64>(),
    ) {
        let links = Links { delay: Duration::from_micros(delay_us), ..LINKS };
        let topology = "leaf-spine:2x4x2".parse::<Shape>().unwrap().topology(&links).unwrap();
        let lossy = topology.with_links(|_, wire| outpour_core::network::Link { loss, ..wire.link });
        let setting = Setting {
            queue_packets: queue,
            mark_packets: mark,
            fanout,
            block_symbols,
            initial_window: window,
            deaths: death.map(|at| (Time::from_secs_f64(at), NodeId(3))).into_iter().collect(),
            give_up_after: Duration::from_secs(60),
            ..Setting::new(lossy.unwrap(), Scheme::ALL[scheme])
        };
        let workload = Workload { load, ..workload(packets, 8) };
        let instance = setting.instance(&workload, seed).unwrap();
        sane(&setting, &instance);
        let is_stoppable = !matches!(setting.scheme, Scheme::Push { .. } | Scheme::Scdp);
        if death.is_none() {
            prop_assert_eq!(&instance.failures, &[]);
        } else if !is_stoppable && fanout > 1 {
            prop_assert_eq!(&instance.failures, &[], "{}", setting.scheme);
        }
    }
}
