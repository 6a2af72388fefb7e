//! How fast something grows: a line through what was seen, by least squares.

/// The slope of the line that is nearest to these points, in values per unit of what stands first; `None`
/// if they lie at one place.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let squares: f64 = points.iter().map(|it| (it.0 - x) * (it.0 - x)).sum();
    let products: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    (squares > 0.0).then(|| products / squares)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::slope;

    #[test]
    fn a_line_has_its_slope_and_noise_around_it_has_none() {
        let line: Vec<_> = (0..10)
            .map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x)))
            .collect();
        assert!((slope(&line).unwrap() - 2.0).abs() < 1e-12);
        let noise: Vec<_> = (0..100).map(|x| (f64::from(x), f64::from(x % 2))).collect();
        assert!(slope(&noise).unwrap().abs() < 1e-3);
        assert_eq!(slope(&[]), None);
        assert_eq!(slope(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }
}
