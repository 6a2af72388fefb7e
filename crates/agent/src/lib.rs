//! One node's part in a cast: protocol, data plane and store joined.
