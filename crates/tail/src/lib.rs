//! Files as sources that grow, rotate and go away: found, told apart, read and cut into lines.
//!
//! Knows nothing of OTLP or of receivers. No file is read beyond what its user asks for, and
//! nothing is forgotten of a file before its user says that it is resolved.
