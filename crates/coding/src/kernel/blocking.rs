//! The order in which a product of matrices is computed, the same for all instructions.
//!
//! Up to [`GROUP`] outputs are computed by one pass over the sources. With no more outputs than
//! that, sources are read where they are, a few at a time in long stripes: the outputs' stripe
//! stays in the second cache, and the processor sees few streams, each long enough to be foreseen.
//! With more, each source would be read again and again: a *panel* of columns is then copied once,
//! in the order in which the passes read it, and all outputs are computed from the copy, each
//! written once. Blocks whose distance is a power of two would evict one another from every cache;
//! panels do not.

use super::Matrix;

/// Bytes that a pass takes from a source at a time: a line of the cache.
pub(super) const CHUNK: usize = 64;
/// Outputs computed by one pass: as many as registers hold.
pub(super) const GROUP: usize = 4;
/// How far ahead of a pass its sources are fetched, in bytes. The processor does so by itself, but
/// stops at each page.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
pub(super) const AHEAD: usize = 512;
/// Sources that are multiplied by one preparation of coefficients.
const SOURCES_MAX: usize = 256;
/// Sources that a pass takes directly from where they are.
const DIRECT_SOURCES: usize = 4;
/// The most that any pass takes, see [`Lanes::TOGETHER`].
const DIRECT_SOURCES_MAX: usize = 8;
/// Bytes of outputs that such passes go over again and again: they stay in the second cache.
const DIRECT_BYTES: usize = 256 << 10;
/// Bytes of a panel: it shares the second cache with the outputs.
const PANEL: usize = 128 << 10;
/// Incomplete chunks that are completed at a time.
const TAILS: usize = 16;

/// Instructions for one pass.
pub(super) trait Lanes {
    /// A coefficient, ready to be multiplied by.
    type Factor: Copy;

    /// How many sources a pass for one output takes directly from where they are. That output
    /// would be read and written again for each few of them, while memory is what bounds it: so as
    /// many as have their factors in registers.
    const TOGETHER: usize = DIRECT_SOURCES;

    /// Makes a coefficient ready.
    fn factor(coefficient: u8) -> Self::Factor;

    /// Computes `O` outputs from some sources.
    ///
    /// # Safety
    /// The processor has the instructions, and the pass is sound as [`Pass`] says.
    #[allow(unsafe_code)]
    unsafe fn pass<const O: usize>(pass: &Pass<'_, Self::Factor, O>);
}

/// One pass over columns of some sources, for `O` outputs.
///
/// It is sound if, for each `chunk < chunks`, [`CHUNK`] bytes can be read `chunk * step` bytes
/// after each of `sources`, and can be read and written `chunk * CHUNK` bytes after each of
/// `outputs`, which overlap neither each other nor a source.
pub(super) struct Pass<'a, F, const O: usize> {
    pub(super) sources: &'a [*const u8],
    /// Whether to fetch into the cache what is [`AHEAD`] of what is read.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(super) fetch: bool,
    /// For each source its coefficient for each output.
    pub(super) factors: &'a [[F; O]],
    /// Bytes from one chunk of a source to the next.
    pub(super) step: usize,
    pub(super) outputs: [*mut u8; O],
    pub(super) chunks: usize,
    /// Whether outputs are set rather than added to.
    pub(super) fresh: bool,
}

#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
impl<F: Copy, const O: usize> Pass<'_, F, O> {
    /// Sources and factors, if there are exactly `S`: loops over them can be unrolled then, and
    /// factors of one output stay in registers.
    pub(super) fn exactly<const S: usize>(&self) -> Option<([*const u8; S], [[F; O]; S])> {
        let sources = self.sources.try_into().ok()?;
        Some((sources, self.factors.try_into().ok()?))
    }
}

/// A line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; CHUNK]);

/// Columns of which all `sources` and `outputs` have all bytes, from where the pointers point.
struct Section<'a> {
    sources: &'a [*const u8],
    /// Columns of the matrix, one for each source.
    columns: &'a [usize],
    outputs: &'a [*mut u8],
    /// Rows of the matrix, one for each output.
    rows: &'a [usize],
    len: usize,
    matrix: Matrix<'a>,
    fresh: bool,
}

/// Computes `outputs` from `sources`; sets them if `fresh`, else adds to them.
///
/// # Panics
/// If the matrix has not one row per output and one column per source.
pub(super) fn run<L: Lanes>(
    outputs: &mut [&mut [u8]],
    sources: &[&[u8]],
    matrix: Matrix<'_>,
    fresh: bool,
) {
    assert_eq!(matrix.rows(), outputs.len(), "one row for each output");
    assert_eq!(
        matrix.columns(),
        sources.len(),
        "one column for each source"
    );
    if fresh && sources.is_empty() {
        outputs.iter_mut().for_each(|output| output.fill(0));
    }
    for (first_column, sources) in (0..).step_by(SOURCES_MAX).zip(sources.chunks(SOURCES_MAX)) {
        for (first_row, outputs) in (0..)
            .step_by(SOURCES_MAX)
            .zip(outputs.chunks_mut(SOURCES_MAX))
        {
            let fresh = fresh && first_column == 0;
            sections::<L>(outputs, first_row, sources, first_column, matrix, fresh);
        }
    }
}

/// Divides columns where a source or an output ends.
fn sections<L: Lanes>(
    outputs: &mut [&mut [u8]],
    first_row: usize,
    sources: &[&[u8]],
    first_column: usize,
    matrix: Matrix<'_>,
    fresh: bool,
) {
    let mut from = 0;
    loop {
        let lens = outputs.iter().map(|output| output.len());
        let all = lens
            .clone()
            .chain(sources.iter().map(|source| source.len()));
        let Some(until) = all.filter(|&len| len > from).min() else {
            return;
        };
        if lens.max().is_none_or(|longest| longest < until) {
            return;
        }
        let (mut source_starts, mut columns) = ([std::ptr::null(); SOURCES_MAX], [0; SOURCES_MAX]);
        let mut live_sources = 0;
        for (column, source) in sources.iter().enumerate().filter(|(_, s)| s.len() >= until) {
            source_starts[live_sources] = source[from..].as_ptr();
            columns[live_sources] = first_column + column;
            live_sources += 1;
        }
        let (mut starts, mut rows) = ([std::ptr::null_mut(); SOURCES_MAX], [0; SOURCES_MAX]);
        let mut live = 0;
        for (row, output) in outputs
            .iter_mut()
            .enumerate()
            .filter(|(_, o)| o.len() >= until)
        {
            starts[live] = output[from..].as_mut_ptr();
            rows[live] = first_row + row;
            live += 1;
            if fresh && live_sources == 0 {
                output[from..until].fill(0);
            }
        }
        let section = Section {
            sources: &source_starts[..live_sources],
            columns: &columns[..live_sources],
            outputs: &starts[..live],
            rows: &rows[..live],
            len: until - from,
            matrix,
            fresh,
        };
        if live_sources > 0 {
            section.run::<L>();
        }
        from = until;
    }
}

/// What is to be computed of a section.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// Everything, from the sources themselves.
    Direct,
    /// Chunks of a panel, which holds the sources' first chunk, then their second, and so on.
    Panel { lines: &'a [Line], first: usize },
    /// The chunk that is not complete.
    Tail,
}

impl Section<'_> {
    fn run<L: Lanes>(&self) {
        if self.outputs.len() <= GROUP || self.sources.len() <= DIRECT_SOURCES {
            return self.part::<L>(Part::Direct);
        }
        let chunks = self.len / CHUNK;
        let width = (PANEL / CHUNK / self.sources.len()).clamp(1, chunks.max(1));
        let mut panel = vec![Line([0; CHUNK]); width * self.sources.len()];
        for first in (0..chunks).step_by(width) {
            let lines = &mut panel[..width.min(chunks - first) * self.sources.len()];
            self.pack(first, lines);
            self.part::<L>(Part::Panel { lines, first });
        }
        self.part::<L>(Part::Tail);
    }

    /// Copies chunks of all sources from `first` on.
    fn pack(&self, first: usize, lines: &mut [Line]) {
        let sources = self.sources.len();
        for (at, source) in self.sources.iter().enumerate() {
            for (chunk, line) in lines[at..].iter_mut().step_by(sources).enumerate() {
                // SAFETY: there are `len` bytes in each source, more than `first` chunks and the
                // panel's together.
                #[allow(unsafe_code)]
                unsafe {
                    let from = source.add((first + chunk) * CHUNK);
                    from.copy_to_nonoverlapping(line.0.as_mut_ptr(), CHUNK);
                }
            }
        }
    }

    /// Computes a part of all outputs.
    fn part<L: Lanes>(&self, part: Part<'_>) {
        for first in (0..self.outputs.len()).step_by(GROUP) {
            match self.outputs.len() - first {
                1 => self.group::<L, 1>(first, part),
                2 => self.group::<L, 2>(first, part),
                3 => self.group::<L, 3>(first, part),
                _ => self.group::<L, 4>(first, part),
            }
        }
    }

    /// Computes a part of the `O` outputs from `first` on.
    fn group<L: Lanes, const O: usize>(&self, first: usize, part: Part<'_>) {
        let mut factors = [[L::factor(0); O]; SOURCES_MAX];
        let mut used = [0; SOURCES_MAX];
        let mut count = 0;
        let rows: [&[u8]; O] = std::array::from_fn(|i| self.matrix.row(self.rows[first + i]));
        for (source, &column) in self.columns.iter().enumerate() {
            let coefficients = rows.map(|row| row[column]);
            if coefficients != [0; O] {
                factors[count] = coefficients.map(L::factor);
                used[count] = source;
                count += 1;
            }
        }
        let group = Group {
            section: self,
            used: if count == 0 { &[0] } else { &used[..count] },
            factors: &factors[..count.max(1)],
            outputs: std::array::from_fn(|i| self.outputs[first + i]),
        };
        match part {
            Part::Direct => {
                group.direct::<L>();
                group.tail::<L>();
            }
            Part::Panel { lines, first } => group.panel::<L>(lines, first),
            Part::Tail => group.tail::<L>(),
        }
    }
}

/// `O` outputs of a section, and the sources that matter to them.
struct Group<'a, F, const O: usize> {
    section: &'a Section<'a>,
    /// Indices of sources; at least one, so that there is something to set outputs from.
    used: &'a [usize],
    factors: &'a [[F; O]],
    outputs: [*mut u8; O],
}

impl<F: Copy, const O: usize> Group<'_, F, O> {
    /// Computes all complete chunks.
    fn direct<L: Lanes<Factor = F>>(&self) {
        let chunks = self.section.len / CHUNK;
        let stripe = DIRECT_BYTES / CHUNK / O;
        let together = if O == 1 { L::TOGETHER } else { DIRECT_SOURCES };
        for first in (0..chunks).step_by(stripe) {
            for turn in (0..self.used.len()).step_by(together) {
                let used = self.used[turn..].iter().take(together);
                let count = used.len();
                let mut sources = [std::ptr::null(); DIRECT_SOURCES_MAX];
                for (pointer, &source) in sources.iter_mut().zip(used) {
                    *pointer = self.section.sources[source].wrapping_add(first * CHUNK);
                }
                let pass = Pass {
                    sources: &sources[..count],
                    fetch: true,
                    factors: &self.factors[turn..][..count],
                    step: CHUNK,
                    outputs: self
                        .outputs
                        .map(|output| output.wrapping_add(first * CHUNK)),
                    chunks: stripe.min(chunks - first),
                    fresh: self.section.fresh && turn == 0,
                };
                // SAFETY: `run` was called for instructions that the processor has. Sources and
                // outputs have `len` bytes, outputs are borrowed exclusively.
                #[allow(unsafe_code)]
                unsafe {
                    L::pass(&pass);
                }
            }
        }
    }

    /// Computes the chunks from `first` on that a panel holds.
    fn panel<L: Lanes<Factor = F>>(&self, lines: &[Line], first: usize) {
        let width = self.section.sources.len();
        let mut sources = [std::ptr::null(); SOURCES_MAX];
        for (pointer, &source) in sources.iter_mut().zip(self.used) {
            *pointer = lines[source..].as_ptr().cast();
        }
        let pass = Pass {
            sources: &sources[..self.used.len()],
            fetch: false,
            factors: self.factors,
            step: width * CHUNK,
            outputs: self
                .outputs
                .map(|output| output.wrapping_add(first * CHUNK)),
            chunks: lines.len() / width,
            fresh: self.section.fresh,
        };
        // SAFETY: `run` was called for instructions that the processor has. The panel has a line
        // for each source and chunk, outputs have `len` bytes and are borrowed exclusively.
        #[allow(unsafe_code)]
        unsafe {
            L::pass(&pass);
        }
    }

    /// Computes the chunk that is not complete, in copies that are.
    fn tail<L: Lanes<Factor = F>>(&self) {
        let from = self.section.len / CHUNK * CHUNK;
        let len = self.section.len - from;
        if len == 0 {
            return;
        }
        let mut results = [Line([0; CHUNK]); O];
        let mut lines = [Line([0; CHUNK]); TAILS];
        for (used, factors) in self.used.chunks(TAILS).zip(self.factors.chunks(TAILS)) {
            let mut sources = [std::ptr::null(); TAILS];
            for (at, &source) in used.iter().enumerate() {
                // SAFETY: the source has `len` bytes after the complete chunks, fewer than a line.
                #[allow(unsafe_code)]
                unsafe {
                    let start = self.section.sources[source].add(from);
                    start.copy_to_nonoverlapping(lines[at].0.as_mut_ptr(), len);
                }
                sources[at] = lines[at].0.as_ptr();
            }
            let pass = Pass {
                sources: &sources[..used.len()],
                fetch: false,
                factors,
                step: CHUNK,
                outputs: results.each_mut().map(|line| line.0.as_mut_ptr()),
                chunks: 1,
                fresh: false,
            };
            // SAFETY: `run` was called for instructions that the processor has. There is one line
            // for each source and output.
            #[allow(unsafe_code)]
            unsafe {
                L::pass(&pass);
            }
        }
        for (result, output) in results.iter().zip(self.outputs) {
            // SAFETY: the output has `len` bytes after the complete chunks and is borrowed
            // exclusively.
            #[allow(unsafe_code)]
            let output = unsafe { std::slice::from_raw_parts_mut(output.add(from), len) };
            for (byte, result) in output.iter_mut().zip(result.0) {
                *byte = if self.section.fresh {
                    result
                } else {
                    *byte ^ result
                };
            }
        }
    }
}
