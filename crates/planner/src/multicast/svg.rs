//! Drawings of plans: sites on a circle, trees in colours, what is used up in red.

use std::collections::BTreeMap;
use std::f64::consts::{PI, TAU};
use std::fmt::Write;

use outpour_core::network::{Network, Resource};
use outpour_core::text::escape_xml;
use outpour_core::{NodeId, Rate};

use super::{Place, Planned};

/// The colours of trees, told apart by most eyes; none of them is the red of what is used up.
const COLOURS: [&str; 10] = [
    "#0072b2", "#e69f00", "#009e73", "#8c5bb5", "#56b4e9", "#a6761d", "#7f7f7f", "#1b4f72",
    "#b8b800", "#e78ac3",
];

/// The colour of trees beyond the first, the thinnest.
const COLOUR_OTHERS: &str = "#c8c8c8";

const COLOUR_USED_UP: &str = "#d62728";
const COLOUR_USED_UP_BACK: &str = "#f9d3d3";

/// How far trees that use the same link are apart, in pixels.
const APART: f64 = 5.0;

/// The width of the thinnest and the thickest line.
const WIDTHS: (f64, f64) = (1.2, 4.2);

/// Up to how many links have their load written on them; more would only hide the trees.
const LABELS_MAX: usize = 60;

/// The radius of a site.
const SITE: f64 = 9.0;

/// The width of the list of trees, and that of names to the left and right of the circle.
const LEGEND: f64 = 190.0;
const MARGIN: (f64, f64) = (150.0, 80.0);

/// A point of the drawing, right and down.
#[derive(Clone, Copy)]
struct Point(f64, f64);

impl Point {
    fn along(self, towards: Self, distance: f64) -> Self {
        let (x, y) = (towards.0 - self.0, towards.1 - self.1);
        let length = x.hypot(y).max(1e-9);
        Self(
            self.0 + x / length * distance,
            self.1 + y / length * distance,
        )
    }
}

/// Draws a plan for `network`.
pub fn draw(network: &Network, planned: &Planned) -> String {
    let drawing = Drawing::new(network, planned);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = drawing.write(&mut out);
    out
}

struct Drawing<'d> {
    network: &'d Network,
    planned: &'d Planned,
    at: BTreeMap<Place, Point>,
    /// The trees that use each link.
    links: BTreeMap<(Place, Place), Vec<usize>>,
    centre: Point,
    radius: f64,
}

fn is_root(network: &Network, planned: &Planned, place: Place) -> bool {
    planned.plan.roots.iter().any(|root| match place {
        Place::Node(node) => node == *root,
        Place::Cluster(id) => id == network.cluster_of(*root),
    })
}

impl<'d> Drawing<'d> {
    fn new(network: &'d Network, planned: &'d Planned) -> Self {
        let mut places = Vec::new();
        let mut links: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, route) in planned.routes.iter().enumerate() {
            for (from, to) in &route.edges {
                places.extend([*from, *to]);
                links.entry((*from, *to)).or_default().push(index);
            }
        }
        if places.is_empty() {
            let cluster = |root: &NodeId| Place::Cluster(network.cluster_of(*root));
            places.extend(planned.plan.roots.iter().map(cluster));
        }
        places.sort_unstable();
        places.dedup();
        // The first root at the top.
        let is_root = |place: &Place| is_root(network, planned, *place);
        let first = places.iter().position(is_root).unwrap_or_default();
        places.rotate_left(first);
        let count = places.len() as f64;
        let radius = (count * 26.0).clamp(210.0, 700.0);
        let centre = Point(MARGIN.0 + radius, MARGIN.1 + 50.0 + radius);
        let at = places.into_iter().enumerate().map(|(index, place)| {
            let angle = TAU * index as f64 / count - PI / 2.0;
            let point = Point(
                centre.0 + radius * angle.cos(),
                centre.1 + radius * angle.sin(),
            );
            (place, point)
        });
        Self {
            network,
            planned,
            at: at.collect(),
            links,
            centre,
            radius,
        }
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let legend = 90.0 + 20.0 * (self.planned.routes.len().min(COLOURS.len()) + 3) as f64;
        let width = 2.0 * (self.radius + MARGIN.0) + LEGEND;
        let height = (2.0 * (self.radius + MARGIN.1) + 50.0).max(legend);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="12">"#
        )?;
        writeln!(out, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
        self.write_heads(out)?;
        self.write_title(out)?;
        for (link, trees) in &self.links {
            self.write_used_up(out, *link, trees.len())?;
        }
        for (link, trees) in &self.links {
            for (lane, tree) in trees.iter().enumerate() {
                let aside = (lane as f64 - (trees.len() as f64 - 1.0) / 2.0) * APART;
                self.write_edge(out, *link, *tree, aside)?;
            }
        }
        if self.links.len() <= LABELS_MAX {
            for link in self.links.keys() {
                self.write_load(out, *link)?;
            }
        }
        for place in self.at.keys() {
            self.write_site(out, *place)?;
        }
        self.write_legend(out)?;
        writeln!(out, "</svg>")
    }

    fn write_heads(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "<defs>")?;
        for (index, colour) in COLOURS.iter().chain([&COLOUR_OTHERS]).enumerate() {
            writeln!(
                out,
                r#"<marker id="head{index}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1 L10 5 L0 9 z" fill="{colour}"/></marker>"#
            )?;
        }
        writeln!(out, "</defs>")
    }

    fn write_title(&self, out: &mut String) -> std::fmt::Result {
        let planned = self.planned;
        let roots = planned.plan.roots.iter();
        let roots: Vec<&str> = roots.map(|root| self.network.name(*root)).collect();
        let roots = escape_xml(&roots.join(", "));
        let (method, rate) = (planned.method, planned.throughput);
        writeln!(
            out,
            r#"<text x="24" y="34" font-size="18" font-weight="bold">{method} from {roots}: {rate}</text>"#
        )?;
        let optimum = match (planned.gap() < 1e-6, planned.exact) {
            (true, true) => "the optimum".to_owned(),
            (_, true) => format!(
                "{:.1} % below the optimum of {}",
                planned.gap() * 100.0,
                planned.optimum
            ),
            _ => format!("no plan exceeds {}", planned.optimum),
        };
        writeln!(out, r##"<text x="24" y="54" fill="#555">{optimum}</text>"##)
    }

    /// The control points of a link's curve, bent to its right, so that the way back is apart.
    fn curve(&self, link: (Place, Place), aside: f64) -> (Point, Point, Point) {
        let (from, to) = (self.at[&link.0], self.at[&link.1]);
        let (x, y) = (to.0 - from.0, to.1 - from.1);
        let length = x.hypot(y).max(1e-9);
        let right = Point(-y / length, x / length);
        let move_by = |point: Point, by: f64| Point(point.0 + right.0 * by, point.1 + right.1 * by);
        let middle = Point((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0);
        let bent = move_by(middle, length * 0.12 + aside * 2.0);
        let from = move_by(from.along(bent, SITE + 2.0), aside * 0.6);
        let to = move_by(to.along(bent, SITE + 3.0), aside * 0.6);
        (from, bent, to)
    }

    fn write_used_up(
        &self,
        out: &mut String,
        link: (Place, Place),
        trees: usize,
    ) -> std::fmt::Result {
        if !self.planned.saturated.contains(&self.resource(link)) {
            return Ok(());
        }
        let (from, bent, to) = self.curve(link, 0.0);
        let width = trees as f64 * APART + 7.0;
        writeln!(
            out,
            r#"<path d="{}" fill="none" stroke="{COLOUR_USED_UP_BACK}" stroke-width="{width:.1}"/>"#,
            path(from, bent, to)
        )
    }

    fn write_edge(
        &self,
        out: &mut String,
        link: (Place, Place),
        tree: usize,
        aside: f64,
    ) -> std::fmt::Result {
        let route = &self.planned.routes[tree];
        let (from, bent, to) = self.curve(link, aside);
        let most = self
            .planned
            .routes
            .iter()
            .map(|route| route.rate)
            .fold(Rate::ZERO, Rate::max);
        let share = match most.is_unlimited() {
            true => 1.0,
            false => route.rate.bytes_per_s() / most.bytes_per_s(),
        };
        let width = WIDTHS.0 + (WIDTHS.1 - WIDTHS.0) * share;
        let (head, colour) = colour(tree);
        writeln!(
            out,
            r#"<path d="{}" fill="none" stroke="{colour}" stroke-width="{width:.1}" marker-end="url(#head{head})"><title>tree {}: {}</title></path>"#,
            path(from, bent, to),
            tree + 1,
            route.rate,
        )
    }

    /// What a link carries, and which share of its capacity that is.
    fn write_load(&self, out: &mut String, link: (Place, Place)) -> std::fmt::Result {
        let trees = &self.links[&link];
        let load: Rate = trees
            .iter()
            .map(|tree| self.planned.routes[*tree].rate)
            .sum();
        let resource = self.resource(link);
        let capacity = self.network.capacity(resource);
        let used_up = self.planned.saturated.contains(&resource);
        let (from, bent, to) = self.curve(link, 0.0);
        // A little before the middle, where the labels of links that cross would meet.
        let (a, b, c) = (0.62 * 0.62, 2.0 * 0.62 * 0.38, 0.38 * 0.38);
        let x = a * from.0 + b * bent.0 + c * to.0;
        let y = a * from.1 + b * bent.1 + c * to.1;
        let text = match (used_up, capacity.is_unlimited()) {
            (true, _) | (_, true) => load.to_string(),
            _ => {
                let share = load.bytes_per_s() / capacity.bytes_per_s();
                format!("{load} ({:.0} %)", share * 100.0)
            }
        };
        let (colour, weight) = if used_up {
            (COLOUR_USED_UP, "bold")
        } else {
            ("#555", "normal")
        };
        writeln!(
            out,
            r#"<text x="{x:.1}" y="{:.1}" font-size="9" fill="{colour}" font-weight="{weight}" text-anchor="middle" stroke="white" stroke-width="3" paint-order="stroke">{text}</text>"#,
            y + 3.0,
        )
    }

    fn write_site(&self, out: &mut String, place: Place) -> std::fmt::Result {
        let at = self.at[&place];
        let used_up = self.used_up(place);
        let fill = if is_root(self.network, self.planned, place) {
            "#222"
        } else {
            "white"
        };
        let stroke = if used_up.is_empty() {
            "#222"
        } else {
            COLOUR_USED_UP
        };
        writeln!(
            out,
            r#"<circle cx="{:.1}" cy="{:.1}" r="{SITE}" fill="{fill}" stroke="{stroke}" stroke-width="2.5"/>"#,
            at.0, at.1
        )?;
        let label = self.centre.along(at, self.radius + SITE + 12.0);
        let (x, y) = (label.0 - self.centre.0, label.1 - self.centre.1);
        let anchor = match x / self.radius {
            x if x > 0.2 => "start",
            x if x < -0.2 => "end",
            _ => "middle",
        };
        let lift = if y < -0.8 * self.radius && anchor == "middle" {
            12.0
        } else {
            -4.0
        };
        writeln!(
            out,
            r#"<text x="{:.1}" y="{:.1}" font-weight="bold" text-anchor="{anchor}">{}</text>"#,
            label.0,
            label.1 - lift,
            escape_xml(place.name(self.network)),
        )?;
        writeln!(
            out,
            r#"<text x="{:.1}" y="{:.1}" font-size="10" fill="{COLOUR_USED_UP}" text-anchor="{anchor}">{used_up}</text>"#,
            label.0,
            label.1 - lift + 13.0,
        )
    }

    fn write_legend(&self, out: &mut String) -> std::fmt::Result {
        let x = 2.0 * (self.radius + MARGIN.0);
        let mut y = 34.0;
        let routes = &self.planned.routes;
        let drawn = routes.len().min(COLOURS.len());
        for (tree, route) in routes.iter().enumerate().take(drawn) {
            let colour = colour(tree).1;
            self.write_key(
                out,
                Point(x, y),
                colour,
                4.0,
                &format!("tree {}: {}", tree + 1, route.rate),
            )?;
            y += 20.0;
        }
        if routes.len() > drawn {
            let rate: Rate = routes[drawn..].iter().map(|route| route.rate).sum();
            let text = format!("{} more trees: {rate}", routes.len() - drawn);
            self.write_key(out, Point(x, y), COLOUR_OTHERS, 4.0, &text)?;
            y += 20.0;
        }
        if !self.planned.saturated.is_empty() {
            self.write_key(out, Point(x, y + 8.0), COLOUR_USED_UP_BACK, 12.0, "used up")?;
        }
        Ok(())
    }

    fn write_key(
        &self,
        out: &mut String,
        at: Point,
        colour: &str,
        width: f64,
        text: &str,
    ) -> std::fmt::Result {
        let Point(x, y) = at;
        writeln!(
            out,
            r#"<line x1="{x:.0}" y1="{y:.0}" x2="{:.0}" y2="{y:.0}" stroke="{colour}" stroke-width="{width}"/><text x="{:.0}" y="{:.0}">{text}</text>"#,
            x + 26.0,
            x + 34.0,
            y + 4.0,
        )
    }

    /// What a link of the drawing is in the network.
    fn resource(&self, link: (Place, Place)) -> Resource {
        let cluster = |place| match place {
            Place::Cluster(id) => id,
            Place::Node(node) => self.network.cluster_of(node),
        };
        match link {
            (Place::Node(a), Place::Node(b)) if cluster(link.0) == cluster(link.1) => {
                Resource::Local(a, b)
            }
            (a, b) => Resource::Link(cluster(a), cluster(b)),
        }
    }

    /// Which access links of a site are used up, in words.
    fn used_up(&self, place: Place) -> String {
        let (cluster, node) = match place {
            Place::Cluster(id) => (id, None),
            Place::Node(node) => (self.network.cluster_of(node), Some(node)),
        };
        let mut words = Vec::new();
        for (word, of_cluster) in [
            ("in", Resource::ClusterIn(cluster)),
            ("out", Resource::ClusterOut(cluster)),
        ] {
            let of_node = |node| match word {
                "in" => Resource::NodeIn(node),
                _ => Resource::NodeOut(node),
            };
            let is_used_up = |resource| self.planned.saturated.contains(&resource);
            let members: Vec<_> = match node {
                Some(node) => vec![node],
                None => self.network.nodes_of(cluster).collect(),
            };
            let count = members
                .iter()
                .filter(|node| is_used_up(of_node(**node)))
                .count();
            if is_used_up(of_cluster) || (count > 0 && count == members.len()) {
                words.push(format!("{word} used up"));
            } else if count > 0 {
                words.push(format!("{word} of {count} nodes used up"));
            }
        }
        words.join(", ")
    }
}

fn colour(tree: usize) -> (usize, &'static str) {
    let index = tree.min(COLOURS.len());
    (index, COLOURS.get(index).copied().unwrap_or(COLOUR_OTHERS))
}

fn path(from: Point, bent: Point, to: Point) -> String {
    format!(
        "M{:.1} {:.1} Q{:.1} {:.1} {:.1} {:.1}",
        from.0, from.1, bent.0, bent.1, to.0, to.1
    )
}
