//! What a seed decides before the world begins.

use std::collections::BTreeSet;

use penstock_link::{Course, PIPE_BYTES};
use penstock_trial::Random;
use penstock_wire::Status;

/// About as many bytes go to each node, and come from it, until a program of one thread has its
/// objects. Most cuts are behind them, because a program without objects tests little.
const SET_UP_BYTES_UP: usize = 1_000;
const SET_UP_BYTES_DOWN: usize = 1_000;

/// About as many bytes go between two workers with the first small transfers, of which several are
/// often under way at a time. Cuts among them have found most.
const FIRST_TRANSFERS_BYTES: usize = 300;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    /// The link to a node is cut behind a number of bytes, in one direction.
    Cut {
        node: usize,
        is_up: bool,
        bytes: usize,
    },
    /// What a worker sends stops behind a number of bytes, and nobody hangs up.
    Silent {
        node: usize,
        bytes: usize,
    },
    /// The device of a node makes a number of buffers and no more.
    Starved {
        node: usize,
        buffers: u32,
    },
    /// The link between two workers is cut behind a number of bytes.
    CutPeers {
        bytes: usize,
    },
}

impl Fault {
    /// Returns whether calls on a node can fail because of it.
    pub fn is_at(self, node: usize) -> bool {
        self.excuses(node, &[], &[])
    }

    /// Returns whether a command on a node may fail because of it. `users` are the nodes that use
    /// each buffer of the command, and `awaited` those of the commands in its wait list.
    pub fn excuses(self, own: usize, users: &[&BTreeSet<usize>], awaited: &[usize]) -> bool {
        let touches = |node| own == node || users.iter().any(|it| it.contains(&node));
        match self {
            Self::Nothing => false,
            Self::CutPeers { .. } => {
                users.iter().any(|it| it.len() > 1) || awaited.iter().any(|it| *it != own)
            }
            // The end of a command comes from its node, over a link that may be gone.
            Self::Cut { node, .. } | Self::Silent { node, .. } => {
                touches(node) || awaited.contains(&node)
            }
            Self::Starved { node, .. } => touches(node),
        }
    }

    /// Returns the statuses that it gives commands and calls.
    pub fn gives(self) -> &'static [Status] {
        match self {
            Self::Starved { .. } => {
                &[Status::MEM_OBJECT_ALLOCATION_FAILURE, Status::WAIT_LIST_FAILED]
            }
            _ => &[Status::NODE_LOST, Status::WAIT_LIST_FAILED],
        }
    }
}

/// Who draws numbers. Each draws others of the same seed.
#[derive(Clone, Copy, Debug)]
pub enum Draws {
    Plan,
    Schedule,
    /// A thread of the client with faults.
    Program(u64),
    /// A thread of the client without.
    Quiet(u64),
}

impl Draws {
    pub fn random(self, seed: u64) -> Random {
        let who = match self {
            Self::Plan => 1,
            Self::Schedule => 2,
            Self::Program(thread) => 3 + 2 * thread,
            Self::Quiet(thread) => 4 + 2 * thread,
        };
        // Two draws, so that no two streams are one stream from different places on.
        Random::new(Random::new(Random::new(seed).number() ^ who).number())
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    /// Threads of the program, each with a context of its own.
    pub threads: usize,
    /// Commands of each thread.
    pub commands: usize,
    /// Number of bytes that each link holds.
    pub pipe_bytes: usize,
    /// Whether the workers may link. Otherwise the client relays.
    pub has_peers: bool,
    /// Whether a buffer is so large that reads of it come in pieces.
    pub has_large: bool,
    pub fault: Fault,
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut random = Draws::Plan.random(seed);
        let nodes = [1, 2, 2][random.index(3)];
        let threads = 1 + random.index(2);
        let commands = 4 + random.index(24);
        let pipe_bytes = [96, 1 << 10, 16 << 10, PIPE_BYTES][random.index(4)];
        let node = random.index(nodes);
        let most = [200, 2_000, 20_000][random.index(3)];
        let bytes = 1 + random.index(most);
        let has_objects = random.below(8) != 0;
        let behind = |set_up: usize| if has_objects { threads * set_up + bytes } else { bytes };
        let fault = match random.below(12) {
            0 | 1 => Fault::Cut { node, is_up: true, bytes: behind(SET_UP_BYTES_UP) },
            2 | 3 => Fault::Cut { node, is_up: false, bytes: behind(SET_UP_BYTES_DOWN) },
            4 => Fault::Silent { node, bytes: behind(SET_UP_BYTES_DOWN) },
            5 => Fault::Starved { node, buffers: u32::try_from(random.below(4)).unwrap_or(0) },
            6..10 if nodes > 1 => {
                let most = [FIRST_TRANSFERS_BYTES, most][random.index(2)];
                Fault::CutPeers { bytes: 1 + random.index(most) }
            }
            _ => Fault::Nothing,
        };
        let has_peers = random.below(2) == 0 || matches!(fault, Fault::CutPeers { .. });
        // Each piece takes many steps over a link that holds few bytes.
        let has_large = pipe_bytes == PIPE_BYTES && random.below(4) == 0;
        Self { seed, nodes, threads, commands, pipe_bytes, has_peers, has_large, fault }
    }

    /// Returns the courses from the client to a node and back.
    pub fn courses(&self, node: usize) -> (Course, Course) {
        let course = Course { bytes_max: self.pipe_bytes, ..Course::default() };
        let (mut up, mut down) = (course, course);
        match self.fault {
            Fault::Cut { node: of, is_up: true, bytes } if of == node => {
                up.cut_behind = Some(bytes)
            }
            Fault::Cut { node: of, is_up: false, bytes } if of == node => {
                down.cut_behind = Some(bytes);
            }
            Fault::Silent { node: of, bytes } if of == node => down.stuck_behind = Some(bytes),
            _ => {}
        }
        (up, down)
    }

    /// Returns the course from one worker to another one.
    pub fn between_workers(&self) -> Course {
        let cut_behind = match self.fault {
            Fault::CutPeers { bytes } => Some(bytes),
            _ => None,
        };
        Course { bytes_max: self.pipe_bytes, cut_behind, ..Course::default() }
    }
}
