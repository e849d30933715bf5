//! Workers in a world, their links, and what a daemon does for them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use penstock_client::{LinkedNode, Pool};
use penstock_daemon::node::Node;
use penstock_daemon::session::{Admissions, Dialer, PeerSetup, Session, SharedSession};
use penstock_link::{Address, Course, LinkError, Side, Stream, establish, linked};
use penstock_process::Lock;
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::hello::{TICKET_BYTES, feature};
use penstock_wire::limits::BEAT_MS;

use crate::plan::Plan;

/// What links between clients and workers can do.
const FEATURES: u64 = feature::PEERS | feature::BEATS;

type Ticket = [u8; TICKET_BYTES];

/// A worker's session, while there is one.
type Slot = Arc<Lock<Option<Arc<SharedSession>>>>;

/// Knows which worker has admitted which ticket, as the daemons do.
#[derive(Default)]
struct Daemons(Lock<HashMap<Ticket, Slot>>);

/// What a worker asks its daemon.
struct Asked {
    daemons: Arc<Daemons>,
    session: Slot,
    between: Course,
}

impl Admissions for Asked {
    fn admit(&self, ticket: &Ticket) -> bool {
        self.daemons.0.lock().insert(*ticket, self.session.clone());
        let (session, ticket) = (self.session.clone(), *ticket);
        let answer = move || {
            let session = session.lock().clone();
            if let Some(session) = session {
                session.admitted(&ticket);
            }
        };
        penstock_process::start("daemon admits", answer).is_ok()
    }

    fn forget(&self, ticket: &Ticket) {
        self.daemons.0.lock().remove(ticket);
    }
}

impl Dialer for Asked {
    fn dial(&self, _address: &str, ticket: &Ticket) -> Result<Stream, LinkError> {
        let found = self.daemons.0.lock().remove(ticket);
        let session = found.and_then(|it| it.lock().clone()).ok_or(LinkError::Closed)?;
        let (here, there) = linked(self.between, self.between).map_err(no_link)?;
        let ticket = *ticket;
        let arrive = move || session.arrived(&ticket, there);
        penstock_process::start("daemon hands over", arrive).map_err(no_link)?;
        Ok(here)
    }
}

/// Returns the name of the host of a node, which errors say.
pub fn host(node: usize) -> String {
    format!("node{node}")
}

fn no_link(source: io::Error) -> LinkError {
    LinkError::System { doing: "making a link", source }
}

/// Finds the simulated device, once: the process has one.
fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| {
        penstock_device::Driver::simulate();
        Node::find(Vec::new()).0
    })
}

/// Starts the workers of a client, and returns its pool.
///
/// # Panics
/// If the system has no descriptors or threads left.
pub fn pool(plan: &Plan) -> Pool {
    // Before there are threads that could wait for each other in here.
    _ = node();
    let daemons = Arc::new(Daemons::default());
    let links = (0..plan.nodes).map(|index| {
        let (up, down) = plan.courses(index);
        let (here, there) = linked(up, down).expect("descriptors are left");
        let session = Slot::default();
        let between = plan.between_workers();
        let asked = Arc::new(Asked { daemons: daemons.clone(), session: session.clone(), between });
        let setup = PeerSetup { dialer: Some(asked.clone()), admissions: Some(asked) };
        let setup = if plan.has_peers { setup } else { PeerSetup::default() };
        let serve = move || serve(there, setup, &session);
        penstock_process::start(format!("session {index}"), serve).expect("threads are left");
        let mut description = node().description().clone();
        description.host = host(index);
        let address = format!("mem:{}", host(index));
        description.addresses = vec![address.clone()];
        let link = establish(here, FEATURES, Side::Client, to_client::check);
        let address: Address = address.parse().expect("an address in memory");
        let link = link.expect("nothing is negotiated");
        LinkedNode { address, description, features: FEATURES, link }
    });
    Pool::over(links.collect(), |line| drop(line.to_string()))
}

/// Serves a client, as a worker does.
fn serve(stream: Stream, setup: PeerSetup, slot: &Slot) {
    let link = establish(stream, FEATURES, Side::Worker, to_worker::check);
    let (sender, receiver) = link.expect("nothing is negotiated");
    let session = Session::new(node(), sender, setup, None);
    let shared = session.shared();
    *slot.lock() = Some(shared.clone());
    let is_over = Arc::new(Lock::new(false));
    let ends = is_over.clone();
    let beat = move || {
        while !*ends.lock() && shared.tend(true).is_ok() {
            penstock_process::sleep(Duration::from_millis(BEAT_MS));
        }
    };
    penstock_process::start("beats", beat).expect("threads are left");
    session.run(receiver);
    *is_over.lock() = true;
    // A worker's process ends with its session, and what holds the session with it.
    drop(slot.lock().take());
}
