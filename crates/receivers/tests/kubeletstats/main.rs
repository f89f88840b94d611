//! The receiver `kubeletstats` against kubelets that do harm, and with an engine that refuses,
//! waits or has no memory.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../prometheus/engine.rs"]
mod engine;
mod hostile;
mod life;
mod scene;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../prometheus/server.rs"]
mod server;
