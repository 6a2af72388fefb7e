//! Measured traffic reaches those who may decide: the sources.

use outpour_core::{NodeId, Traffic};

use super::{Coordinator, Order};
use crate::Role;

impl Coordinator {
    /// Traffic was measured: all sources that take part by now are told, and others when they do.
    pub(super) fn on_traffic(&mut self, traffic: Vec<Traffic>) {
        self.traffic = traffic;
        if self.began_at.is_some() && !self.ended {
            self.present()
                .into_iter()
                .for_each(|node| self.tell_traffic(node));
        }
    }

    pub(super) fn tell_traffic(&mut self, node: NodeId) {
        let traffic = self.traffic.clone();
        let source = self
            .node_mut(node)
            .is_some_and(|host| host.role == Role::Source);
        // Who was told something is told as well that there is nothing any more.
        if source && (!traffic.is_empty() || self.traffic_told) {
            self.traffic_told = true;
            self.order(node, Order::Foreground { traffic });
        }
    }
}
