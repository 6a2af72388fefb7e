//! Random runs of the store over simulated disks: `disks [FIRST [SEEDS]]`, or `disks --trace SEED` to see every
//! call of one.

use std::time::Instant;

use outpour_disks::simulated::{Case, fuzz, play};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, seed] = &args[..]
        && flag == "--trace"
    {
        let case = Case {
            loud: true,
            ..Case::of(seed.parse()?)
        };
        println!("{:#?}", play(&case));
        return Ok(());
    }
    let number = |index: usize| args.get(index).map(|arg| arg.parse::<u64>()).transpose();
    let first = number(0)?.unwrap_or(0);
    let seeds = number(1)?.unwrap_or(2000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    let report = fuzz(first..first + seeds, threads);
    print!("{report}");
    println!("{:.1} s", begun.elapsed().as_secs_f64());
    match report.failures.is_empty() {
        true => Ok(()),
        false => Err("a promise was broken; see --trace SEED".into()),
    }
}
