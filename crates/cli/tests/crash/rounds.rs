//! Rounds with one fault each, of three kinds: power cuts, kills, and system calls that fail or lie.

pub(crate) mod cuts;
mod disk;
mod draw;
pub(crate) mod injections;
pub(crate) mod kills;
mod objects;
pub(crate) mod report;
pub(crate) mod site;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use report::{Row, Violation};
use site::Site;

/// How much is to be done.
pub(crate) struct Plan {
    pub(crate) cuts: u64,
    pub(crate) kills: u64,
    pub(crate) injections: u64,
    pub(crate) seed: u64,
    /// How many rounds run at a time.
    pub(crate) jobs: u64,
    pub(crate) dir: PathBuf,
    pub(crate) json: Option<PathBuf>,
}

impl Default for Plan {
    fn default() -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            cuts: 200,
            kills: 500,
            injections: 1300,
            seed: now.as_secs(),
            jobs: 2,
            dir: std::env::temp_dir(),
            json: None,
        }
    }
}

/// Does what is planned, prints tables; how many rounds broke a promise.
pub(crate) fn run(plan: &Plan) -> usize {
    println!("crash: seed {}", plan.seed);
    let objects = tempfile::tempdir_in(&plan.dir).unwrap();
    let mut all = Vec::new();
    let mut violations = Vec::new();
    if plan.cuts > 0 {
        let cases = cuts::cases(objects.path());
        let round = |site: &mut Site, round| {
            let row = cuts::cut(site, &cases, plan.seed, round);
            vec![row.expect("a file system can be mounted")]
        };
        all.push((
            "cuts",
            play(plan, "cuts", plan.cuts, &mut violations, round),
        ));
    }
    if plan.kills > 0 {
        let object = kills::object(&sub(objects.path(), "kills"));
        let rounds = plan.kills.div_ceil(kills::VICTIMS as u64);
        let round = |site: &mut Site, round| kills::kill(site, &object, plan.seed, round);
        all.push(("kills", play(plan, "kills", rounds, &mut violations, round)));
    }
    if plan.injections > 0 {
        let object = injections::object(&sub(objects.path(), "injections"));
        let round = |site: &mut Site, round| {
            let row = injections::inject(site, &object, plan.seed, round);
            vec![row.expect("there is strace")]
        };
        all.push((
            "injections",
            play(plan, "injections", plan.injections, &mut violations, round),
        ));
    }
    for violation in &violations {
        let Violation {
            kind,
            round,
            why,
            kept,
        } = violation;
        println!(
            "\n{kind}, round {round} of seed {}: {why}\n  see {kept}",
            plan.seed
        );
    }
    if let Some(path) = &plan.json {
        let mut document = json!({
            "seed": plan.seed,
            "violations": report::violations_to_json(&violations),
        });
        for (kind, rows) in &all {
            document[*kind] = report::to_json(rows);
        }
        std::fs::write(path, format!("{document:#}\n")).unwrap();
    }
    violations.len()
}

fn sub(dir: &Path, name: &str) -> PathBuf {
    let sub = dir.join(name);
    std::fs::create_dir(&sub).unwrap();
    sub
}

/// Plays rounds, several at a time, and prints a table of them.
fn play(
    plan: &Plan,
    kind: &'static str,
    rounds: u64,
    violations: &mut Vec<Violation>,
    round: impl Fn(&mut Site, u64) -> Vec<Row> + Sync,
) -> Vec<Row> {
    let next = AtomicU64::new(0);
    let found = Mutex::new((Vec::new(), Vec::new()));
    let worker = || {
        let mut site = Site::new(&plan.dir);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= rounds {
                return;
            }
            let done = catch_unwind(AssertUnwindSafe(|| round(&mut site, index)));
            match done {
                Ok(mut rows) => found.lock().unwrap().0.append(&mut rows),
                Err(panic) => {
                    let fresh = Site::new(&plan.dir);
                    let kept = std::mem::replace(&mut site, fresh).keep();
                    let violation = Violation {
                        kind,
                        round: index,
                        why: why(&*panic),
                        kept: kept.display().to_string(),
                    };
                    found.lock().unwrap().1.push(violation);
                }
            }
            if (index + 1).is_multiple_of(25) {
                println!("crash: {kind}: {} of {rounds} rounds", index + 1);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.min(rounds) {
            scope.spawn(worker);
        }
    });
    let (rows, mut broken) = found.into_inner().unwrap();
    violations.append(&mut broken);
    println!("\n{}", report::table(kind, &rows));
    rows
}

fn why(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}
