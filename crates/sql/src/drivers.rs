//! The thread on which drivers run, and the worker of the lane that they answer to.
//!
//! Out of scope: what runs there.

use std::sync::Arc;

use tokio::sync::Notify;
use txn::shared_lane::{LaneHost, LaneWorker, Pause};

/// The thread on which drivers run.
#[derive(Debug)]
pub struct Drivers {
    handle: tokio::runtime::Handle,
    /// Dropped to end it.
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drivers {
    /// Starts it. It ends when the last owner lets go of it; what runs there then is dropped.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub fn start() -> std::io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        #[allow(clippy::disallowed_methods, reason = "owned here, and joined when it is dropped")]
        let thread = std::thread::Builder::new()
            .name("txn-sql".to_owned())
            .spawn(move || drop(runtime.block_on(stopped)))?;
        Ok(Arc::new(Self { handle, stop: Some(stop), thread: Some(thread) }))
    }

    /// Whether this is their thread.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// Where tasks are spawned.
    #[must_use]
    pub fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.take().expect("taken here alone");
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the thread of the databases' drivers panicked");
        }
    }
}

/// What drivers answer is handled on their thread: a thread between the two would be woken, and would wake, for every step.
impl LaneHost for Drivers {
    fn run(&self, worker: LaneWorker) -> std::io::Result<()> {
        self.handle.spawn(turn_until_over(worker));
        Ok(())
    }

    fn is_here(&self) -> bool {
        Self::is_here(self)
    }
}

async fn turn_until_over(mut worker: LaneWorker) {
    let look = Arc::new(Notify::new());
    let wake = Arc::clone(&look);
    worker.set_wake(move || wake.notify_one());
    loop {
        match worker.turn() {
            Pause::None => {}
            // Drivers send what they were asked while the worker writes.
            Pause::Yield => tokio::task::yield_now().await,
            Pause::Rest(rest) => tokio::time::sleep(rest).await,
            // Late is as well as woken: it looks at all there is.
            Pause::Sleep(most) => _ = tokio::time::timeout(most, look.notified()).await,
            Pause::Over => return,
        }
    }
}
