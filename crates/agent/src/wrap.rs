//! What a caller puts between a node's object and the data plane.

use std::fmt;
use std::sync::Arc;

use outpour_net::BlockIo;

type Object = Arc<dyn BlockIo>;
type Around = dyn Fn(Object) -> Object + Send + Sync;

/// Puts something of the caller's between the data plane and the objects that an agent takes part
/// in casting.
///
/// It is called once for each object that is opened, and what it returns sees every call of the data
/// plane. As a rule that passes the calls on: to count them, to delay them, or to change what
/// leaves the node.
#[derive(Clone)]
pub struct Wrap(Arc<Around>);

impl Wrap {
    /// A wrapper around each object.
    pub fn new(
        wrap: impl Fn(Arc<dyn BlockIo>) -> Arc<dyn BlockIo> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(wrap))
    }

    /// The object as the data plane is to see it.
    pub(crate) fn around(&self, object: Arc<dyn BlockIo>) -> Arc<dyn BlockIo> {
        (self.0)(object)
    }
}

impl fmt::Debug for Wrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrap").finish_non_exhaustive()
    }
}
