//! Files on disk: manifest building, staging, journal, confinement.
