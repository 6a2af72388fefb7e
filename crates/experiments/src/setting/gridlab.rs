//! The GridLab sites of [Burger §3.2.3], read from a table of what was measured between them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use outpour_core::Bytes;
use outpour_core::network::Network;

use super::Setting;
use crate::ExperimentError;

/// What the thesis has in tables 3.1 and 3.2.
const TABLE: &str = include_str!("../../data/gridlab.csv");

/// How large a table may be.
const BYTES_MAX: usize = 1 << 20;

/// The way back of a link that carries data one way only. A connection needs it for its
/// acknowledgements; it is far too slow to matter for anything else.
const WAY_BACK: &str = "1 B/s";

/// Sites and what passes between them, MB/s.
#[derive(Clone, Debug)]
pub(crate) struct Gridlab {
    sites: Vec<(String, f64, f64)>,
    links: BTreeMap<(String, String), f64>,
}

impl Gridlab {
    /// The table in the file, or the one of the thesis.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self, ExperimentError> {
        let Some(path) = file else {
            return Self::parse(TABLE, "gridlab.csv");
        };
        let text = std::fs::read_to_string(path).map_err(|e| ExperimentError::file(path, &e))?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, file: &str) -> Result<Self, ExperimentError> {
        let fail = |line: usize| {
            let expected = "`capacity,SITE,IN,OUT` or `link,FROM,TO,RATE`, rates in MB/s";
            ExperimentError::Setup(format!("{file}:{}: expected {expected}", line + 1))
        };
        if text.len() > BYTES_MAX {
            return Err(ExperimentError::Setup(format!(
                "{file}: longer than {BYTES_MAX} bytes"
            )));
        }
        let mut table = Self {
            sites: Vec::new(),
            links: BTreeMap::new(),
        };
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let rate = |text: &str| {
                let rate: Option<f64> = text.parse().ok();
                rate.filter(|rate| rate.is_finite() && *rate >= 0.0)
                    .ok_or_else(|| fail(number))
            };
            match cells.as_slice() {
                ["capacity", site, into, out] => {
                    table
                        .sites
                        .push(((*site).to_owned(), rate(into)?, rate(out)?));
                }
                ["link", from, to, passes] => {
                    let pair = ((*from).to_owned(), (*to).to_owned());
                    table.links.insert(pair, rate(passes)?);
                }
                _ => return Err(fail(number)),
            }
        }
        Ok(table)
    }

    /// The sites by name.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &str> {
        self.sites.iter().map(|(name, ..)| name.as_str())
    }

    /// The description of the network. What is dead one way only is closed altogether if links
    /// have to carry data both ways.
    fn toml(&self, both_ways: bool) -> String {
        let mut toml = String::new();
        for (name, into, out) in &self.sites {
            let _ = write!(
                toml,
                "\n[[cluster]]\nname = \"{name}\"\nnodes = 1\nnode_out = \"{out} MB/s\"\n\
                 node_in = \"{into} MB/s\"\n"
            );
        }
        for ((from, to), rate) in &self.links {
            let back = self
                .links
                .get(&(to.clone(), from.clone()))
                .copied()
                .unwrap_or_default();
            let rate = match (*rate > 0.0, back > 0.0) {
                (true, true) => format!("{rate} MB/s"),
                (true, false) if !both_ways => format!("{rate} MB/s"),
                (false, true) if !both_ways => WAY_BACK.to_owned(),
                _ => continue,
            };
            let _ = write!(
                toml,
                "\n[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"\n"
            );
        }
        toml
    }

    /// A multicast from one of the sites.
    pub(crate) fn setting(&self, root: &str, size: Bytes) -> Result<Setting, ExperimentError> {
        let mut setting = Setting::new(&self.toml(false), root, size)?;
        setting.asked = Some(Network::from_toml(&self.toml(true), "network")?);
        Ok(setting)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_optimum_of_each_root_is_known() {
        let table = Gridlab::read(None).unwrap();
        assert_eq!(table.sites().count(), 8);
        for root in table.sites() {
            let setting = table.setting(root, Bytes(200_000_000)).unwrap();
            let limit = outpour_planner::limit(&setting.network, &[setting.root], setting.size);
            let throughput = limit.unwrap().throughput.bytes_per_s() / 1e6;
            let known = if root == "eltoro" { 0.95 } else { 1.18 };
            assert!((throughput - known).abs() < 1e-3, "{root}: {throughput}");
        }
    }

    #[test]
    fn a_table_that_is_none_is_refused_with_its_line() {
        for (text, line) in [
            ("capacity,a,1", 1),
            ("# x\nlink,a,b,fast", 2),
            ("link,a,b,-1", 1),
            ("nothing", 1),
        ] {
            let error = Gridlab::parse(text, "t.csv").unwrap_err().to_string();
            assert!(error.starts_with(&format!("t.csv:{line}: ")), "{error}");
        }
    }
}
