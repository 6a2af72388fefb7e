//! Congestion control against what its sources say about it.
#![allow(clippy::unwrap_used)]

mod bottleneck;
mod cubic;
mod dctcp;
mod feed;
mod options;
mod random;
mod shares;
mod tcp;
mod wfcc;
