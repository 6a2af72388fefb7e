//! Columns divided among threads.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use super::blocking::CHUNK;
use super::{Kernel, Matrix};

/// Columns that are worth a thread's attention, in bytes.
const PIECE_MIN: usize = 16 << 10;
/// Pieces for each thread: a thread that is held up leaves its later pieces to the others.
const PIECES: usize = 8;

/// Computes `outputs` in pieces that threads take as they come to it.
pub(super) fn multiply(
    kernel: Kernel,
    threads: usize,
    outputs: &mut [&mut [u8]],
    sources: &[&[u8]],
    matrix: Matrix<'_>,
) {
    let longest = outputs.iter().map(|output| output.len()).max();
    let longest = longest.unwrap_or_default();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.min(cores).min(longest / PIECE_MIN);
    if threads <= 1 {
        return kernel.multiply(outputs, sources, matrix);
    }
    let piece = longest.div_ceil(threads * PIECES).max(PIECE_MIN);
    let pieces = Mutex::new(pieces(outputs, piece.next_multiple_of(CHUNK)).into_iter());
    let work = || {
        let mut beginnings = Vec::with_capacity(sources.len());
        // A statement of its own: the lock is released before the work begins.
        while let Some((from, mut outputs)) = next(&pieces) {
            beginnings.clear();
            beginnings.extend(
                sources
                    .iter()
                    .map(|source| source.get(from..).unwrap_or(&[])),
            );
            kernel.multiply(&mut outputs, &beginnings, matrix);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

fn next<T>(pieces: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    pieces.lock().ok()?.next()
}

/// The outputs' columns, `len` at a time, with the column that each piece begins with.
fn pieces<'a>(outputs: &'a mut [&mut [u8]], len: usize) -> Vec<(usize, Vec<&'a mut [u8]>)> {
    let mut rests: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut **output).collect();
    let mut pieces = Vec::new();
    let mut from = 0;
    while rests.iter().any(|rest| !rest.is_empty()) {
        let cut = |rest: &mut &'a mut [u8]| {
            let at = len.min(rest.len());
            let (piece, after) = std::mem::take(rest).split_at_mut(at);
            *rest = after;
            piece
        };
        pieces.push((from, rests.iter_mut().map(cut).collect()));
        from += len;
    }
    pieces
}
