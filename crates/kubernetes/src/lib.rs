//! Objects of Kubernetes as an API server has them now, for service discovery and for processors.
//!
//! The crate `kube` knows where the API server is, who we are, and how both are proven
//! (`docs/decisions/045-objects-of-kubernetes.md`). The rooms, from the bottom upwards:
//!
//! 1. `access`: where the API server is, and who we are. `options`: the same, as a configuration
//!    says it. `failure`: why a request has no answer. `session`: a client, and the credentials
//!    that texts of failures must not have.
//! 2. `client`: requests, and their answers piece by piece, within bounds.
//! 3. `resource`: the kinds of objects, and which of them are asked for. `objects`: the fields that
//!    are kept of them; all others are skipped while they are read. `quantity`, `image`: texts in
//!    them.
//! 4. `watch`: lists the objects, then watches them, and makes [`Event`]s of both. It goes on after
//!    every failure: what was known before stays. `telling` says once that it fails, and why.
//! 5. `index`: objects by their keys and by other names. Pure: events and times in, look-ups out.
//!
//! Bounds: the bytes of a page, of an event, and of all objects of an index.

mod access;
mod client;
mod failure;
mod image;
mod index;
pub mod objects;
mod options;
mod quantity;
mod resource;
mod session;
mod telling;
mod watch;

pub use access::{Access, BoxFuture, Credentials, Pem, Server, ServerSource, own_namespace};
pub use client::Client;
pub use failure::Failure;
pub use image::{Image, canonical};
pub use index::{Index, Indexed};
pub use quantity::Quantity;
pub use resource::{Query, Resource, segment};
pub use telling::Telling;
pub use watch::{Event, Sink, Timing, follow};
