//! When and on what an experiment was run.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::ExperimentError;

/// The clock experiments are timed with.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The day, in UTC.
pub(crate) fn date() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    civil(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// The date of a day since 1970-01-01, counting years from March so that leap days come last.
fn civil(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + later)
}

/// A hash of so many bytes, short enough for the name of a file.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let short = &digest.as_ref()[..8];
    short.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hash of this program, which another build does not have.
///
/// # Errors
/// If its file cannot be read.
pub(crate) fn program() -> Result<String, ExperimentError> {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    if let Some(known) = PROGRAM.get() {
        return Ok(known.clone());
    }
    // Linux finds the file that runs here even after a new build took its name.
    let path = Path::new("/proc/self/exe");
    let bytes = fs::read(path).map_err(|e| ExperimentError::file(path, &e))?;
    Ok(PROGRAM.get_or_init(|| hash(&bytes)).clone())
}

/// The machine in a line.
pub(crate) fn describe() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |text| {
        text.trim_start_matches([' ', '\t', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{model}, {cores} cores, Linux {}",
        read("/proc/sys/kernel/osrelease").trim()
    )
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_become_dates() {
        let known = [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
        ];
        for (day, date) in known
            .into_iter()
            .chain([(19_783, "2024-03-01"), (20_819, "2027-01-01")])
        {
            assert_eq!(civil(day), date);
        }
    }
}
