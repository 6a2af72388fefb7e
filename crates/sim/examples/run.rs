//! Simulates one cast and prints its report: network file, root, size, block, protocol, script.

use outpour_core::network::Network;
use outpour_core::script::Script;
use outpour_sim::cast::{CastConfig, simulate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let started = std::time::Instant::now();
    let script = match args.get(5) {
        Some(file) => Some(Script::parse(&std::fs::read_to_string(file)?, file)?),
        None => None,
    };
    let network = if args[0] == "-" {
        script.as_ref().ok_or("script")?.network(None)?
    } else {
        Network::from_toml(&std::fs::read_to_string(&args[0])?, &args[0])?
    };
    let root = network.node(&args[1]).ok_or("no such root")?;
    let planned = args[4].parse().ok().map(|method| {
        outpour_planner::multicast::plan(&network, root, method).map(|planned| {
            let size: outpour_core::Bytes = args[3].parse().unwrap_or_default();
            eprintln!("{} trees, block {size}", planned.plan.trees.len());
            planned.throughput.bytes_per_s()
        })
    });
    let planned = planned.transpose()?.unwrap_or(f64::NAN);
    let size: outpour_core::Bytes = args[2].parse()?;
    let report = simulate(CastConfig {
        network,
        root,
        size: args[2].parse()?,
        block: args[3].parse()?,
        protocol: args[4].clone(),
        seed: 1,
        faults: Vec::new(),
        plan: None,
        believed: None,
        script,
    })?;
    println!(
        "{} finish {:.3} of plan {:.4} limit {:.3} ratio {:.4} clairvoyant {:.4} throughput/optimum {:.4} wan {} repeats {} wall {:.2}",
        report.protocol,
        report.finish_s,
        size.as_f64() / planned / report.finish_s,
        report.limit_s,
        report.ratio,
        report.clairvoyant_s.unwrap_or(f64::NAN) / report.finish_s,
        1.0 / report.ratio,
        report.wan_bytes,
        report.wan_repeats,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
