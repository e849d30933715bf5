//! The thread of each node that sends commands to its worker. It waits while the link has no room.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use penstock_client::{Context, Error, Event, Heap, Node, Queue, Session};
use penstock_wire::Status;

use super::desk::{BackendMessage, Desk};
use super::heap;
use super::landing::Landing;
use super::sent::SentEvent;
use super::task::Task;
use crate::backend::Failure;
use crate::command::CommandId;
use crate::error::code;

/// A task for the thread of a node.
#[derive(Debug)]
pub(super) struct SendOrder {
    pub(super) id: CommandId,
    pub(super) queue: Arc<Queue>,
    pub(super) task: Task,
    /// The operations that it runs after. All were sent before it.
    pub(super) waits: Vec<Arc<SentEvent>>,
    pub(super) sent: Arc<SentEvent>,
}

/// Queues orders for the thread of a node.
#[derive(Debug)]
pub(super) struct NodeSender {
    /// Bytes of writes sent early, see `EARLY_BYTES_MAX`.
    pub(super) early: u64,
    orders: Option<Sender<SendOrder>>,
    thread: Option<JoinHandle<()>>,
}

impl NodeSender {
    pub(super) fn start(
        node: &Arc<Node>,
        context: Arc<Context>,
        desk: Desk,
    ) -> std::io::Result<Self> {
        let (orders, taken) = mpsc::channel();
        let sender = SenderThread {
            node: node.index(),
            session: Arc::clone(node.session()),
            context,
            desk,
            orders: taken,
        };
        let run = move || sender.run();
        let thread = penstock_process::start(format!("wtr-node-{}", node.index()), run)?;
        Ok(Self { early: 0, orders: Some(orders), thread: Some(thread) })
    }

    /// Queues an order. Returns `false` if the thread has ended.
    pub(super) fn give(&self, order: SendOrder) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }
}

impl Drop for NodeSender {
    fn drop(&mut self) {
        // The thread ends when nobody can give it orders any more. All commands have ended, so it
        // does not wait.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

struct SenderThread {
    node: usize,
    session: Arc<Session>,
    context: Arc<Context>,
    desk: Desk,
    orders: Receiver<SendOrder>,
}

impl SenderThread {
    fn run(self) {
        loop {
            let order = match self.orders.try_recv() {
                Ok(order) => order,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    // There are no more orders for now, so the worker must see all orders so far. A
                    // failed flush fails the commands, and they report it.
                    _ = self.session.flush();
                    let Ok(order) = self.orders.recv() else { return };
                    order
                }
            };
            self.send(order);
        }
    }

    fn send(&self, order: SendOrder) {
        let SendOrder { id, queue, task, waits, sent } = order;
        let waits: Vec<Event> = waits.iter().filter_map(|earlier| earlier.event()).collect();
        let phrase = task.phrase();
        let landing = task.target().map(Landing::new);
        let heap = task.heap();
        let refusal = |error: &Error| self.desk.refusal(self.node, phrase, error);
        match task.perform(&self.context, &queue, &waits, landing.clone(), &refusal) {
            Ok(event) => {
                let is_watched =
                    sent.set_sent(event.clone().unwrap_or_else(|| Event::ended(Status::OK)));
                if is_watched {
                    self.desk.tell(BackendMessage::Sent(id));
                }
                match event {
                    Some(event) => self.report(id, phrase, &event, landing, heap),
                    None => self.desk.done(id),
                }
            }
            Err(failure) => {
                if let Some(landing) = landing {
                    landing.close();
                }
                // Commands that come after it must find that it has failed.
                _ = sent.set_sent(Event::ended(Status(failure.code.min(-1))));
                self.desk.failed(id, failure);
            }
        }
    }

    /// Reports the end of a command. For a kernel that talks to others the outcome says whether the
    /// heap was aborted.
    fn report(
        &self,
        id: CommandId,
        what: &'static str,
        event: &Event,
        landing: Option<Landing>,
        over: Option<Arc<Heap>>,
    ) {
        let (desk, node, timed) = (self.desk.clone(), self.node, event.clone());
        event.on_complete(move |status| {
            if let Some(landing) = landing {
                landing.close();
            }
            let Some(heap) = over else { return desk.ended(id, node, what, status, &timed) };
            let teller = desk.clone();
            let tell = move || {
                let aborted = heap.aborted();
                drop(heap);
                match aborted {
                    Some(reason) => teller.failed(id, heap::aborted(&reason)),
                    None => teller.ended(id, node, what, status, &timed),
                }
            };
            // The question waits for the workers, and this thread receives their answers.
            if penstock_process::start("wtr-heap", tell).is_err() {
                let message =
                    "cannot start a thread to check whether the heap was aborted".to_owned();
                desk.failed(
                    id,
                    Failure { code: code::OUT_OF_HOST_MEMORY, message, log: String::new() },
                );
            }
        });
    }
}
