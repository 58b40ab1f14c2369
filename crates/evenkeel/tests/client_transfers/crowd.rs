//! Clients that make transfers at the same time, on one thread; they are stopped kindly, or killed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use tokio::task::AbortHandle;
use vfs::sim::Rng;

use crate::client::{self, Office};

pub struct Crowd {
    pub office: Arc<Office>,
    clients: Vec<AbortHandle>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Lets clients come in.
    pub fn start(office: Office, rng: &mut Rng) -> Self {
        let office = Arc::new(office);
        let seeds: Vec<Rng> = (0..CLIENTS).map(|_| rng.fork()).collect();
        let (sender, receiver) = std::sync::mpsc::channel();
        let shared = Arc::clone(&office);
        #[allow(clippy::disallowed_methods, reason = "joined when the crowd goes")]
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut clients = tokio::task::JoinSet::new();
                let handles =
                    seeds.into_iter().map(|rng| clients.spawn(client::run(Arc::clone(&shared), rng)));
                sender.send(handles.collect::<Vec<_>>()).unwrap();
                while let Some(ended) = clients.join_next().await {
                    if let Err(error) = ended
                        && error.is_panic()
                    {
                        shared.history.violation(format!("a client panicked: {error}"));
                    }
                }
            });
        });
        Self { office, clients: receiver.recv().unwrap(), thread: Some(thread) }
    }

    /// Kills all; returns when nothing of them is left.
    pub fn kill(&mut self) {
        self.office.closes.store(true, Ordering::Relaxed);
        self.clients.iter().for_each(AbortHandle::abort);
        self.join();
    }

    /// Has each end after its transfer, and waits for that.
    pub fn leave(&mut self) {
        self.office.closes.store(true, Ordering::Relaxed);
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// More wait for each other's rows than they transfer.
const CLIENTS: usize = 4;
