//! Names of the Collector's components, core and contrib.
