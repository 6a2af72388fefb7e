//! The methods that are compared, with their looks.

use std::fmt;

/// A method of multicasting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    /// Its name: of a protocol, or of a planner's method whose trees are pushed.
    pub(crate) name: &'static str,
    label: &'static str,
    color: &'static str,
    /// Whether it pushes along trees that a planner made.
    pub(crate) planned: bool,
}

const fn asks(name: &'static str, label: &'static str, color: &'static str) -> Method {
    Method {
        name,
        label,
        color,
        planned: false,
    }
}

const fn plans(name: &'static str, label: &'static str, color: &'static str) -> Method {
    Method {
        name,
        label,
        color,
        planned: true,
    }
}

pub(crate) const BITTORRENT: Method = asks("bittorrent", "BitTorrent", "#9aa0a6");
pub(crate) const MOB: Method = asks("mob", "MOB", "#f2a93b");
pub(crate) const ROBBER: Method = asks("robber", "Robber", "#c0392b");
pub(crate) const CENTRAL: Method = asks("central", "central", "#14746f");
pub(crate) const BALANCED: Method = plans("balanced", "Balanced", "#2f6db5");
pub(crate) const OPTIMAL: Method = plans("optimal", "optimal trees", "#2e9e5b");
/// The name that the thesis gives a flat tree around dead links.
pub(crate) const SEMI_FLAT: Method = plans("direct", "semi-flat tree", "#c9b8a0");
pub(crate) const MAX_BOTTLENECK: Method = plans("max-bottleneck", "max bottleneck", "#8a6fb3");
pub(crate) const FPFR: Method = plans("fpfr", "FPFR", "#5fb6c9");
pub(crate) const MAGPIE: Method = plans("magpie", "MagPIe", "#7a5230");

const ALL: &[Method] = &[
    BITTORRENT,
    MOB,
    ROBBER,
    CENTRAL,
    BALANCED,
    OPTIMAL,
    SEMI_FLAT,
    MAX_BOTTLENECK,
    FPFR,
    MAGPIE,
];

/// The method of that name.
pub(crate) fn find(name: &str) -> Option<Method> {
    ALL.iter().find(|method| method.name == name).copied()
}

/// The names of all methods.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|method| method.name)
}

/// What a method is called in plots and tables.
pub(crate) fn label(name: &str) -> &str {
    find(name).map_or(name, |method| method.label)
}

/// The colour in which a method is drawn.
pub(crate) fn color(name: &str) -> &'static str {
    find(name).map_or("#666666", |method| method.color)
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
