//! How many operations a simulation of gossip takes, at the size that simulations have.

use outpour_coding::{Span, draw_coefficients};

use crate::dice;

const NODES: usize = 300;
const BLOCKS: usize = 200;

/// Every round each node sends a random combination to the next in a random ring, the source
/// too. All have everything soon after as many rounds as there are blocks [Cooper §2.1].
#[test]
fn three_hundred_nodes_spread_two_hundred_blocks() {
    let mut dice = dice(1);
    let mut spans = vec![Span::new(BLOCKS).unwrap(); NODES];
    spans[0] = Span::full(BLOCKS).unwrap();
    let mut vectors = vec![[0; BLOCKS]; NODES];
    let mut rounds = 0;
    while spans.iter().any(|span| !span.is_full()) {
        rounds += 1;
        for (span, vector) in spans.iter().zip(&mut vectors) {
            let mut weights = [0; BLOCKS];
            draw_coefficients(&mut dice, &mut weights[..span.rank()]);
            span.combine(&weights[..span.rank()], vector).unwrap();
        }
        let order = shuffled(&mut dice);
        for (sender, receiver) in order.iter().zip(order.iter().cycle().skip(1)) {
            let vector = vectors[*sender];
            spans[*receiver].insert(&vector).unwrap();
        }
    }
    assert!(
        (BLOCKS..BLOCKS + 9 + 20).contains(&rounds),
        "{rounds} rounds"
    );
    let waste: u64 = spans[1..].iter().map(|span| span.counts().dependent).sum();
    assert!(
        waste < (NODES * 20) as u64,
        "{waste} vectors were of no use"
    );
}

fn shuffled(dice: &mut rand_pcg::Pcg64Mcg) -> Vec<usize> {
    use rand_core::RngCore as _;
    let mut order: Vec<usize> = (0..NODES).collect();
    for at in (1..NODES).rev() {
        order.swap(at, dice.next_u32() as usize % (at + 1));
    }
    order
}
