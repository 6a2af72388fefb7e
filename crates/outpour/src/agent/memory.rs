//! How much memory a service takes: what it is given, how that is divided, and whether the system gives
//! that much.

use std::fs;
use std::path::{Path, PathBuf};

use outpour_core::Bytes;

/// Memory for all casts of a service unless it is told otherwise. With [`OTHER_MEMORY`] it fits the unit that
/// is delivered, which has 512 MiB.
pub const MEMORY: Bytes = Bytes(384 << 20);

/// What the program takes at most besides: itself, connections, messages, and what its allocator has over.
pub const OTHER_MEMORY: Bytes = Bytes(96 << 20);

/// Where control groups are, of version 2 and of version 1.
const GROUPS: &str = "/sys/fs/cgroup";
const GROUPS_1: &str = "/sys/fs/cgroup/memory";

/// What is for blocks under way and blocks kept for reuse.
pub(super) const fn of_blocks(memory: Bytes) -> Bytes {
    Bytes(memory.0 / 3)
}

/// What is for all else that grows with casts.
pub(super) const fn of_casts(memory: Bytes) -> Bytes {
    Bytes(memory.0 - of_blocks(memory).0)
}

/// What this process is limited to, if that is less than it may take with so much memory for casts.
pub(super) fn too_little(memory: Bytes) -> Option<Bytes> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = limit(&own, Path::new(GROUPS), Path::new(GROUPS_1))?;
    (limit.0 < memory.0.saturating_add(OTHER_MEMORY.0)).then_some(limit)
}

/// The least limit of the groups that a process is in, as its file of groups names them, and of those
/// above.
fn limit(own: &str, groups: &Path, groups_1: &Path) -> Option<Bytes> {
    let limits = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            return least(groups, path, "memory.max");
        }
        let of_memory = controllers.split(',').any(|it| it == "memory");
        of_memory.then(|| least(groups_1, path, "memory.limit_in_bytes"))?
    });
    limits.min()
}

fn least(groups: &Path, path: &str, name: &str) -> Option<Bytes> {
    let here = groups.join(path);
    let all = here.ancestors().take_while(|it| it.starts_with(groups));
    let file = |group: &Path| -> PathBuf { group.join(name) };
    // No limit is the word `max`, or in version 1 a number beyond all memory.
    let limits = all.filter_map(|group| fs::read_to_string(file(group)).ok()?.trim().parse().ok());
    limits.map(Bytes).min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_given_is_divided_and_fits_the_unit() {
        assert_eq!(of_blocks(MEMORY).0 + of_casts(MEMORY).0, MEMORY.0);
        let unit = include_str!("../../../../contrib/outpour-agent.service");
        let line = unit.lines().find_map(|it| it.strip_prefix("MemoryMax="));
        let mebibytes = line.unwrap().strip_suffix('M').unwrap();
        let max: u64 = mebibytes.parse().unwrap();
        assert!(MEMORY.0 + OTHER_MEMORY.0 <= max << 20);
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("two/a/memory.max", "536870912\n");
        write("two/a/b/memory.max", "max\n");
        write("one/c/memory.limit_in_bytes", "268435456\n");
        write("one/memory.limit_in_bytes", "9223372036854771712\n");
        let groups = [dir.path().join("two"), dir.path().join("one")];
        let of = |own| limit(own, &groups[0], &groups[1]);
        assert_eq!(of("0::/a/b\n"), Some(Bytes(512 << 20)));
        assert_eq!(of("4:cpu:/a\n3:memory:/c\n0::/\n"), Some(Bytes(256 << 20)));
        assert_eq!(of("0::/elsewhere\n"), None);
        assert_eq!(of("nonsense\n"), None);
    }
}
