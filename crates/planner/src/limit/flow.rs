//! Maximum flows between a few dozen vertices, for the cuts they leave.

/// Capacity below this share of the whole counts as used up; below the precision of the rates.
const EMPTY: f64 = 1e-11;

/// A dense network of flows; `capacity[a * vertices + b]` is what is left from `a` to `b`.
pub(super) struct Flow {
    vertices: usize,
    capacity: Vec<f64>,
}

impl Flow {
    /// Without any capacity.
    pub(super) fn new(vertices: usize) -> Self {
        Self {
            vertices,
            capacity: vec![0.0; vertices * vertices],
        }
    }

    /// Adds capacity from one vertex to another.
    pub(super) fn add(&mut self, from: usize, to: usize, capacity: f64) {
        self.capacity[from * self.vertices + to] += capacity;
    }

    /// Sends as much as possible from `source` to `sink`, at most `enough`, and says how much.
    pub(super) fn send(&mut self, source: usize, sink: usize, enough: f64) -> f64 {
        let mut sent = 0.0;
        loop {
            let levels = self.levels(source);
            let mut next = vec![0; self.vertices];
            let before = sent;
            while levels[sink] != usize::MAX && enough - sent > EMPTY {
                let more = self.push(source, sink, enough - sent, &levels, &mut next);
                if more <= EMPTY {
                    break;
                }
                sent += more;
            }
            // Each round with a way to the sink sends something, until that is enough.
            if sent == before {
                return sent;
            }
        }
    }

    /// Which vertices `source` can still send to: its side of a smallest cut, as small as it gets.
    pub(super) fn source_side(&self, source: usize) -> Vec<bool> {
        let levels = self.levels(source);
        levels
            .into_iter()
            .map(|level| level != usize::MAX)
            .collect()
    }

    /// Which vertices cannot send to `sink` any more: the other side of a smallest cut that lies
    /// as close to the sink as it gets.
    pub(super) fn far_side(&self, sink: usize) -> Vec<bool> {
        let mut reaches = vec![false; self.vertices];
        reaches[sink] = true;
        let mut queue = vec![sink];
        while let Some(to) = queue.pop() {
            for (from, reaches) in reaches.iter_mut().enumerate() {
                if !*reaches && self.left(from, to) > EMPTY {
                    *reaches = true;
                    queue.push(from);
                }
            }
        }
        reaches.into_iter().map(|reaches| !reaches).collect()
    }

    fn left(&self, from: usize, to: usize) -> f64 {
        self.capacity[from * self.vertices + to]
    }

    /// The number of steps from `source` to each vertex along what is left.
    fn levels(&self, source: usize) -> Vec<usize> {
        let mut levels = vec![usize::MAX; self.vertices];
        levels[source] = 0;
        let mut queue = vec![source];
        let mut head = 0;
        while let Some(&from) = queue.get(head) {
            head += 1;
            for to in 0..self.vertices {
                if levels[to] == usize::MAX && self.left(from, to) > EMPTY {
                    levels[to] = levels[from] + 1;
                    queue.push(to);
                }
            }
        }
        levels
    }

    /// Sends along one path of rising levels; `next` remembers where each vertex has got to.
    fn push(
        &mut self,
        at: usize,
        sink: usize,
        most: f64,
        levels: &[usize],
        next: &mut [usize],
    ) -> f64 {
        if at == sink {
            return most;
        }
        while next[at] < self.vertices {
            let to = next[at];
            let left = self.left(at, to);
            if left > EMPTY && levels[to] == levels[at] + 1 {
                let sent = self.push(to, sink, most.min(left), levels, next);
                if sent > EMPTY {
                    self.capacity[at * self.vertices + to] -= sent;
                    self.capacity[to * self.vertices + at] += sent;
                    return sent;
                }
            }
            next[at] += 1;
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ways to the sink that meet: 0 -> 1 -> 3 and 0 -> 2 -> 3, and 1 -> 2.
    fn example() -> Flow {
        let mut flow = Flow::new(4);
        for (from, to, capacity) in [
            (0, 1, 5.0),
            (0, 2, 1.0),
            (1, 3, 2.0),
            (1, 2, 1.5),
            (2, 3, 4.0),
        ] {
            flow.add(from, to, capacity);
        }
        flow
    }

    #[test]
    fn the_flow_is_as_large_as_the_smallest_cut() {
        let mut flow = example();
        assert_eq!(flow.send(0, 3, f64::INFINITY), 4.5);
        assert_eq!(flow.source_side(0), [true, true, false, false]);
        assert_eq!(flow.far_side(3), [true, true, false, false]);
    }

    /// What was sent the first way there is may have to make room: 1 takes the only way of 2, and has
    /// another one.
    #[test]
    fn what_was_sent_is_taken_back_where_it_is_in_the_way() {
        let mut flow = Flow::new(6);
        for (from, to) in [(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (3, 5), (4, 5)] {
            flow.add(from, to, 1.0);
        }
        assert_eq!(flow.send(0, 5, f64::INFINITY), 2.0);
        assert_eq!(
            flow.source_side(0),
            [true, false, false, false, false, false]
        );
    }

    #[test]
    fn two_smallest_cuts_are_told_apart() {
        let mut flow = Flow::new(3);
        flow.add(0, 1, 1.0);
        flow.add(1, 2, 1.0);
        assert_eq!(flow.send(0, 2, f64::INFINITY), 1.0);
        assert_eq!(flow.source_side(0), [true, false, false]);
        assert_eq!(flow.far_side(2), [true, true, false]);
    }

    #[test]
    fn no_more_is_sent_than_is_enough() {
        assert_eq!(example().send(0, 3, 1.25), 1.25);
        assert_eq!(Flow::new(2).send(0, 1, 1.0), 0.0);
    }

    #[test]
    fn a_rest_too_small_to_send_is_not_waited_for() {
        let mut flow = Flow::new(4);
        for (from, to) in [(0, 1), (1, 3), (0, 2), (2, 3)] {
            flow.add(from, to, 1.0);
        }
        assert_eq!(flow.send(0, 3, 1.0 + EMPTY / 2.0), 1.0);
    }
}
