//! N bodies under gravity by Barnes-Hut, computed by processes in several clusters that exchange
//! what they computed by all-gather after each step ([Burger §5.2]).
//!
//! ```text
//! cargo run --release -p outpour-collective --example nbody [-- PROCESSES CLUSTERS BODIES STEPS]
//! ```
//!
//! The program starts the processes itself, each a member of one group. When they are done, it
//! computes all steps once more alone and compares: every process must end with the same bits.
#![allow(clippy::print_stdout)]

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use outpour_collective::{Group, JoinConfig, Rendezvous};

type Failure = Box<dyn std::error::Error>;
type Vector = [f64; 3];

/// How far a group of bodies has to be to count as one: its box's half size times this.
const THETA: f64 = 5.0;
/// A box with more bodies than this is divided.
const LEAF_MAX: usize = 64;
/// Length of a step.
const STEP: f64 = 1e-3;
/// Keeps forces finite where bodies meet.
const SOFTENING: f64 = 1e-4;
/// Where the ticket is handed to the processes: arguments can be read by others.
const TICKET: &str = "NBODY_TICKET";

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "member") {
        return member(&numbers(&args[1..])?);
    }
    let given = numbers(&args)?;
    let or = |index: usize, default| given.get(index).copied().unwrap_or(default);
    launch(or(0, 8).max(1), or(1, 3).max(1), or(2, 20_000), or(3, 10))
}

fn numbers(args: &[String]) -> Result<Vec<usize>, Failure> {
    Ok(args
        .iter()
        .map(|arg| arg.parse())
        .collect::<Result<_, _>>()?)
}

// ---- processes

/// Starts the processes, waits for them, and checks what they say.
fn launch(processes: usize, clusters: usize, count: usize, steps: usize) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let place = ([127, 0, 0, 1], 0).into();
    let rendezvous = runtime.block_on(Rendezvous::bind(place, processes as u32))?;
    let ticket = rendezvous.ticket().to_string();
    let served = runtime.spawn(rendezvous.serve());
    println!("{count} bodies, {steps} steps, {processes} processes in {clusters} clusters");

    let begun = Instant::now();
    let start = |rank: usize| -> Result<Child, Failure> {
        let words = [rank, processes, clusters, count, steps].map(|number| number.to_string());
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("member").args(words).env(TICKET, &ticket);
        Ok(command.stdout(Stdio::piped()).spawn()?)
    };
    let children = (0..processes).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut hashes = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err("a process failed".into());
        }
        let said = String::from_utf8(output.stdout)?;
        let (times, hash) = said
            .trim()
            .rsplit_once(' ')
            .ok_or("a process said nothing")?;
        println!("{times}");
        hashes.push(hash.to_owned());
    }
    runtime.block_on(served)??;
    println!("together: {:.2?}", begun.elapsed());

    let begun = Instant::now();
    let mut bodies = initial(count);
    for _ in 0..steps {
        let updates = accelerations(&bodies, 0..count);
        advance(&mut bodies, &updates);
    }
    println!("alone:    {:.2?}", begun.elapsed());
    let alone = hash(&bodies);
    match hashes.iter().position(|hash| *hash != alone) {
        None => println!("all {processes} processes end with the same bits as one alone: {alone}"),
        Some(rank) => return Err(format!("process {rank} ends with {}", hashes[rank]).into()),
    }
    Ok(())
}

/// One process: computes its share of the forces in each step and learns the others'.
fn member(numbers: &[usize]) -> Result<(), Failure> {
    let [rank, processes, clusters, count, steps] = *numbers else {
        return Err("expected five numbers".into());
    };
    let ticket = std::env::var(TICKET)?.parse()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let cluster = format!("cluster{}", rank * clusters / processes);
    let mut group = runtime.block_on(Group::join(JoinConfig::new(ticket, rank as u32, cluster)))?;
    let share = |rank: usize| rank * count / processes..(rank + 1) * count / processes;
    let mut bodies = initial(count);
    let (mut computing, mut exchanging) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..steps {
        let begun = Instant::now();
        let mine = encode(&accelerations(&bodies, share(rank)));
        computing += begun.elapsed();
        let begun = Instant::now();
        let all = runtime.block_on(group.all_gather(&mine))?;
        exchanging += begun.elapsed();
        let begun = Instant::now();
        let updates: Vec<Vector> = all.iter().flat_map(|part| decode(part)).collect();
        if updates.len() != count {
            return Err(format!("{} updates of {count} bodies", updates.len()).into());
        }
        advance(&mut bodies, &updates);
        computing += begun.elapsed();
    }
    runtime.block_on(group.leave())?;
    let line = format!("{rank}: computed {computing:.2?}, exchanged {exchanging:.2?}");
    writeln!(std::io::stdout(), "{line} {}", hash(&bodies))?;
    Ok(())
}

fn encode(vectors: &[Vector]) -> Vec<u8> {
    vectors
        .iter()
        .flatten()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn decode(bytes: &[u8]) -> Vec<Vector> {
    let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let vector = |bytes: &[u8]| [0, 8, 16].map(|at| number(&bytes[at..at + 8]));
    bytes.chunks_exact(24).map(vector).collect()
}

fn hash(bodies: &[Body]) -> String {
    let mut hasher = blake3::Hasher::new();
    for body in bodies {
        hasher.update(&encode(&[body.position, body.velocity]));
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

// ---- bodies

#[derive(Clone, Copy)]
struct Body {
    position: Vector,
    velocity: Vector,
    mass: f64,
}

/// Bodies that are the same in every process: a ball that turns.
fn initial(count: usize) -> Vec<Body> {
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 / (1_u64 << 53) as f64).mul_add(2.0, -1.0)
    };
    let body = |_| loop {
        let position = [random(), random(), random()];
        if dot(position, position) <= 1.0 {
            let velocity = [-position[1] / 2.0, position[0] / 2.0, 0.0];
            return Body {
                position,
                velocity,
                mass: 1.0 / count as f64,
            };
        }
    };
    (0..count).map(body).collect()
}

/// Moves all bodies by a step.
fn advance(bodies: &mut [Body], accelerations: &[Vector]) {
    for (body, acceleration) in bodies.iter_mut().zip(accelerations) {
        let axes = body.position.iter_mut().zip(&mut body.velocity);
        for ((position, velocity), change) in axes.zip(acceleration) {
            *velocity += change * STEP;
            *position += *velocity * STEP;
        }
    }
}

/// The accelerations of some bodies by all.
fn accelerations(bodies: &[Body], of: std::ops::Range<usize>) -> Vec<Vector> {
    let tree = Cell::of_all(bodies);
    let pulled = bodies[of].iter().map(|body| {
        let mut sum = [0.0; 3];
        tree.pull(bodies, body.position, &mut sum);
        sum
    });
    pulled.collect()
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// A cube of space with the bodies in it.
struct Cell {
    half: f64,
    mass: f64,
    /// Center of mass.
    center: Vector,
    content: Content,
}

enum Content {
    Bodies(Vec<usize>),
    Cells(Vec<Cell>),
}

impl Cell {
    fn of_all(bodies: &[Body]) -> Self {
        let farthest = bodies.iter().flat_map(|body| body.position);
        let half = farthest.fold(1e-9, |most: f64, coordinate| most.max(coordinate.abs()));
        Self::new(bodies, (0..bodies.len()).collect(), [0.0; 3], half)
    }

    fn new(bodies: &[Body], inside: Vec<usize>, middle: Vector, half: f64) -> Self {
        let mass = inside.iter().map(|index| bodies[*index].mass).sum();
        let mut center = [0.0; 3];
        for body in inside.iter().map(|index| bodies[*index]) {
            (0..3).for_each(|axis| center[axis] += body.position[axis] * body.mass / mass);
        }
        // A cube too small to be divided holds bodies that are in one place.
        let content = if inside.len() <= LEAF_MAX || half < 1e-12 {
            Content::Bodies(inside)
        } else {
            Content::Cells(Self::divide(bodies, &inside, middle, half / 2.0))
        };
        Self {
            half,
            mass,
            center,
            content,
        }
    }

    fn divide(bodies: &[Body], inside: &[usize], middle: Vector, half: f64) -> Vec<Self> {
        let mut octants: [Vec<usize>; 8] = Default::default();
        for index in inside {
            let above = |axis: usize| bodies[*index].position[axis] >= middle[axis];
            let bits = (0..3).map(|axis| usize::from(above(axis)) << axis);
            octants[bits.sum::<usize>()].push(*index);
        }
        let place = |octant: usize| {
            let side = |axis: usize| if octant >> axis & 1 == 1 { half } else { -half };
            [0, 1, 2].map(|axis| middle[axis] + side(axis))
        };
        let cells = octants
            .into_iter()
            .enumerate()
            .filter(|(_, inside)| !inside.is_empty());
        cells
            .map(|(octant, inside)| Self::new(bodies, inside, place(octant), half))
            .collect()
    }

    /// Adds the pull on a point.
    fn pull(&self, bodies: &[Body], point: Vector, sum: &mut Vector) {
        let away = [0, 1, 2].map(|axis| self.center[axis] - point[axis]);
        if dot(away, away).sqrt() > self.half * THETA {
            return attract(away, self.mass, sum);
        }
        match &self.content {
            Content::Cells(cells) => {
                cells.iter().for_each(|cell| cell.pull(bodies, point, sum));
            }
            Content::Bodies(inside) => {
                for body in inside.iter().map(|index| &bodies[*index]) {
                    let away = [0, 1, 2].map(|axis| body.position[axis] - point[axis]);
                    attract(away, body.mass, sum);
                }
            }
        }
    }
}

fn attract(away: Vector, mass: f64, sum: &mut Vector) {
    let square = dot(away, away) + SOFTENING;
    let factor = mass / (square * square.sqrt());
    (0..3).for_each(|axis| sum[axis] += away[axis] * factor);
}
