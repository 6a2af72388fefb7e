//! Ranges in host names: `node[01-19]`, `node[1,3,5-7]`, `r[1-2]n[1-4]`.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use super::{HostFault, show};

/// A number has at most this many digits, so that it fits what counts it.
const DIGITS_MAX: usize = 9;

/// Writes out every host a pattern names, the last range counting fastest.
///
/// # Errors
/// If a bracket holds no range, or the pattern names more than `max` hosts.
pub(super) fn expand(pattern: &str, max: usize) -> Result<Vec<String>, HostFault> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('[') {
        let (list, tail) = after.split_once(']').ok_or(HostFault::Open)?;
        let numbers = numbers(list, max)?;
        if names.len().saturating_mul(numbers.len()) > max {
            return Err(HostFault::TooMany);
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |n| format!("{name}{before}{n}")))
            .collect();
        rest = tail;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// The numbers of one bracket, each as it is written into the name.
fn numbers(list: &str, max: usize) -> Result<Vec<String>, HostFault> {
    let mut all = Vec::new();
    for item in list.split(',') {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        let (from, to) = match (number(low), number(high)) {
            (Some(from), Some(to)) => (from, to),
            _ => return Err(HostFault::Range(show(list))),
        };
        if from > to {
            return Err(HostFault::Backwards(show(list)));
        }
        // A leading zero asks for padding; then both ends must agree on the width.
        let padded = |text: &str| text.len() > 1 && text.starts_with('0');
        if (padded(low) || padded(high)) && low.len() != high.len() {
            return Err(HostFault::Widths(show(list)));
        }
        let width = if padded(low) { low.len() } else { 0 };
        if to.saturating_sub(from) as usize >= max.saturating_sub(all.len()) {
            return Err(HostFault::TooMany);
        }
        all.extend((from..=to).map(|n| format!("{n:0width$}")));
    }
    Ok(all)
}

fn number(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    (plain && digits.len() <= DIGITS_MAX).then(|| digits.parse().ok())?
}
