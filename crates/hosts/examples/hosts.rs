//! Random casts of whole hosts: `hosts [FIRST [SEEDS [PROTOCOL]]]`, or `hosts --trace SEED` to see all that happens in
//! one.

use std::time::Instant;

use outpour_hosts::{Case, fuzz, play};
use outpour_protocols::registry;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, seed] = &args[..]
        && flag == "--trace"
    {
        let case = Case {
            seed: seed.parse()?,
            protocol: None,
            loud: true,
        };
        println!("{:#?}", play(&case));
        return Ok(());
    }
    let number = |index: usize| args.get(index).map(|arg| arg.parse::<u64>()).transpose();
    let first = number(0)?.unwrap_or(0);
    let seeds = number(1)?.unwrap_or(2000);
    let protocol = args.get(2).and_then(|name| registry::find(name));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    let report = fuzz(first..first + seeds, protocol, threads);
    print!("{report}");
    println!("{:.1} s", begun.elapsed().as_secs_f64());
    match report.failures.is_empty() {
        true => Ok(()),
        false => Err("a promise was broken; see --trace SEED".into()),
    }
}
