//! The OTLP receiver from outside: real clients and hostile peers against real sockets. The engine
//! behind it is a mock that counts every byte that is admitted.

mod clients;
mod connections;
mod crowded;
mod hostile;
mod refusals;
mod refused_bodies;
mod runtime;
mod support;
mod waiting;
