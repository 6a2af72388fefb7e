//! Pure optimisation: the least time a network allows.
