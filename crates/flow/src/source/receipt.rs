//! What a receiver knows of a request that it submitted.

use super::Refusal;
use crate::export::BoxFuture;

/// A request that is in the log. Dropping it changes nothing for the request, except where the
/// sender waits for its only backend: without an answer it has to send again, and the request is
/// not sent any more.
///
/// Where there is nothing to wait for, a receipt costs no allocation.
#[must_use = "a sender is answered when the receipt says so"]
#[derive(Default)]
pub struct Receipt {
    pace: Option<BoxFuture<'static, ()>>,
    answer: Option<BoxFuture<'static, Result<(), Refusal>>>,
}

impl Receipt {
    /// `pace`: until then the source should send nothing more. `answer`: what the sender is told.
    /// `None`: there is nothing to wait for.
    pub fn new(
        pace: Option<BoxFuture<'static, ()>>,
        answer: Option<BoxFuture<'static, Result<(), Refusal>>>,
    ) -> Receipt {
        Receipt { pace, answer }
    }

    /// Waits until the deliveries want more from this source. Returns at once unless one falls
    /// behind.
    pub async fn paced(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.await;
            self.pace = None;
        }
    }

    /// Waits until the sender may be answered, as `buffer.ack` promises. Says nothing about
    /// backends under `ack: memory`.
    pub async fn accepted(mut self) -> Result<(), Refusal> {
        self.paced().await;
        match self.answer {
            Some(answer) => answer.await,
            None => Ok(()),
        }
    }
}
