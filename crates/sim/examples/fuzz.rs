//! Random runs of all protocols, without the command line: `fuzz [FIRST [SEEDS [PROTOCOL]]]`.
//!
//! A single seed is played with everything that happens printed to the standard error.

use outpour_protocols::registry;
use outpour_sim::fuzz::{Case, FuzzConfig, fuzz, play};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args.get(index).map(|arg| arg.parse::<u64>()).transpose();
    let first = number(0)?.unwrap_or(0);
    let seeds = number(1)?.unwrap_or(2000);
    let protocol = args.get(2).and_then(|name| registry::find(name));
    if seeds == 1 {
        let case = Case::draw(first, protocol);
        eprintln!("{case:#?}\n{}", case.network.to_toml());
        let sink: Box<dyn std::io::Write + Send> = Box::new(std::io::stderr());
        let mut world = case.world(Some(sink));
        println!("{:?}", play(&mut world, &case));
        if let Some(other) = case.turned() {
            let sink: Box<dyn std::io::Write + Send> = Box::new(std::io::stderr());
            println!("{:?}", play(&mut other.world(Some(sink)), &other));
        }
        return Ok(());
    }
    let report = fuzz(FuzzConfig {
        first,
        seeds,
        threads: 0,
        protocol,
    });
    println!("{report:#?}");
    Ok(())
}
