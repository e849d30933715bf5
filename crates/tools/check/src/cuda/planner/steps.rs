//! The steps of a program: its beginning, an operation in its middle, its end.

use super::Planner;
use crate::cuda::feature::Feature;
use crate::cuda::plan::{Act, Part, Side, Work};
use crate::draft::Steps;
use crate::plan::Ptr;

impl Steps for Planner {
    fn prologue(&mut self) {
        for area in 0..self.program.areas.len() - 1 {
            let (len, seed) = (self.program.areas[area].len, self.random.word());
            self.emit(Act::Store { to: Ptr { area, offset: 0 }, len, seed });
        }
        for context in 0..self.program.contexts.len() {
            for _ in 0..self.random.between(1, 3) {
                self.new_stream(context);
            }
            for _ in 0..self.random.between(2, 3) {
                self.new_mem(context);
            }
        }
    }

    fn step(&mut self) {
        if self.random.chance(30) {
            self.thread = self.random.below(self.program.threads);
        }
        let context = self.random.below(self.program.contexts.len());
        let _: Option<()> = match self.random.below(100) {
            0..60 => self.work(context, false).and_then(|work| self.give(context, work)),
            60..64 => self.store(),
            64..68 => self.check(),
            68..73 => self.event_step(context),
            73..77 => self.wait_somehow(context),
            77..83 => self.life(context),
            83..86 => self.registration(),
            86..90 => self.graph(context),
            _ => self.motif(context),
        };
    }

    fn epilogue(&mut self) {
        self.thread = 0;
        for thread in 1..self.program.threads {
            let now = self.ledger.now(thread);
            if !self.ledger.nodes.is_before(now, self.ledger.now(0)) {
                self.sync(thread, 0, 0);
            }
        }
        for context in 0..self.program.contexts.len() {
            self.emit(Act::ContextSync { context });
        }
        let result = self.program.areas.len() - 1;
        let mems: Vec<usize> =
            self.ledger.mems.iter().filter(|(_, mem)| mem.alive).map(|(&id, _)| id).collect();
        for mem in mems {
            let known = self.ledger.mems[&mem];
            let at = Ptr { area: result, offset: 0 };
            let len = known.size.min(self.program.areas[result].len);
            let work =
                Work::Copy { to: Side::Host(at), from: Side::Device { mem, offset: 0 }, len };
            if self.emit(Act::Now { context: known.context, work }).is_some() {
                self.emit(Act::Check { at, len });
            }
        }
        for area in 0..result {
            let len = self.program.areas[area].len;
            self.emit(Act::Check { at: Ptr { area, offset: 0 }, len });
        }
    }

    fn len(&self) -> usize {
        self.program.ops.len()
    }
}

impl Planner {
    fn new_stream(&mut self, context: usize) -> Option<()> {
        let blocking = self.has(Feature::Blocking) && self.random.chance(60);
        let stream = self.fresh();
        self.emit(Act::NewStream { stream, context, blocking }).map(drop)
    }

    fn new_mem(&mut self, context: usize) -> Option<()> {
        let size = match self.random.below(4) {
            0 => (self.size / 2).max(64),
            1 => self.size * 2,
            _ => self.size,
        };
        let mem = self.fresh();
        if self.has(Feature::AsyncMemory) && self.random.chance(40) {
            let stream = self.a_stream(context)?;
            if self.emit(Act::AllocAsync { mem, stream, size }).is_some() {
                return Some(());
            }
        }
        self.emit(Act::Alloc { mem, context, size }).map(drop)
    }

    /// Enqueues work in a stream, or calls the synchronous form.
    pub(super) fn give(&mut self, context: usize, work: Work) -> Option<()> {
        let has_form = !matches!(work, Work::Launch { .. } | Work::Function { .. });
        if has_form && self.has(Feature::Synchronous) && self.random.chance(25) {
            return self.emit(Act::Now { context, work }).map(drop);
        }
        let stream = self.a_stream(context)?;
        self.emit(Act::Enqueue { stream, work })?;
        if self.random.chance(12) {
            let event = self.an_event(context, self.thread, 0)?;
            self.emit(Act::Record { event, stream })?;
        }
        Some(())
    }

    fn store(&mut self) -> Option<()> {
        let (to, len) = self.host(self.size, false)?;
        let seed = self.random.word();
        self.emit(Act::Store { to, len, seed }).map(drop)
    }

    fn check(&mut self) -> Option<()> {
        let (at, len) = self.host(self.size, false)?;
        self.emit(Act::Check { at, len }).map(drop)
    }

    /// Returns an event of any context, if there is one.
    fn any_event(&mut self) -> Option<usize> {
        let alive = self.ledger.events.iter().filter(|(_, it)| it.alive);
        let all: Vec<usize> = alive.map(|(&id, _)| id).collect();
        self.random.pick(&all)
    }

    fn event_step(&mut self, context: usize) -> Option<()> {
        let stream = self.a_stream(context)?;
        if self.has(Feature::StreamWaits) && self.random.chance(40) {
            let event = self.any_event()?;
            return self.emit(Act::StreamWait { stream, event }).map(drop);
        }
        let event = self.an_event(context, self.thread, 0)?;
        self.emit(Act::Record { event, stream }).map(drop)
    }

    fn wait_somehow(&mut self, context: usize) -> Option<()> {
        let query = self.has(Feature::Queries) && self.random.chance(40);
        let act = match self.random.below(10) {
            0..4 => Act::EventWait { event: self.any_event()?, query },
            4..8 => Act::StreamSync { stream: self.a_stream(context)?, query },
            _ => Act::ContextSync { context },
        };
        self.emit(act).map(drop)
    }

    /// Creates and releases objects.
    fn life(&mut self, context: usize) -> Option<()> {
        let releases = self.has(Feature::Releases);
        match self.random.below(10) {
            0..2 if releases => {
                let made =
                    self.ledger.streams.iter().filter(|(_, it)| it.alive && it.context == context);
                let all: Vec<usize> = made.map(|(&id, _)| id).collect();
                // Each context keeps one stream.
                let stream = self.random.pick(&all).filter(|_| all.len() > 1)?;
                self.emit(Act::DropStream { stream }).map(drop)
            }
            2..4 if releases => {
                let event = self.any_event()?;
                self.emit(Act::DropEvent { event }).map(drop)
            }
            4..7 => {
                let mem = self.a_mem(context)?;
                let stream = self.a_stream(context)?;
                let pooled = self.ledger.mems[&mem].pooled && self.random.chance(80);
                let act = if pooled { Act::FreeAsync { mem, stream } } else { Act::Free { mem } };
                self.emit(act)?;
                self.new_mem(context)
            }
            7..8 => self.new_stream(context),
            _ => self.new_mem(context),
        }
    }

    fn registration(&mut self) -> Option<()> {
        if !self.has(Feature::Registered) {
            return None;
        }
        let area = self.random.below(self.program.areas.len() - 1);
        let known = self.ledger.areas[area];
        let act = if known.registered { Act::Unregister { area } } else { Act::Register { area } };
        self.emit(act).map(drop)
    }

    /// Creates a graph and launches it, or launches an existing graph again.
    fn graph(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Graphs) {
            return None;
        }
        let all: Vec<usize> = self.ledger.graphs.keys().copied().collect();
        if let Some(graph) = self.random.pick(&all).filter(|_| self.random.chance(50)) {
            let context = self.ledger.graphs[&graph].context;
            let stream = self.a_stream(context)?;
            return self.emit(Act::Graph { stream, graph }).map(drop);
        }
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..self.random.between(1, 5) {
            let Some(work) = self.work(context, true) else { continue };
            let second = self.has(Feature::Branches) && !parts.is_empty() && self.random.chance(40);
            parts.push(Part { second, work });
        }
        let graph = self.fresh();
        self.emit(Act::NewGraph { graph, context, parts })?;
        for _ in 0..self.random.between(1, 3) {
            let stream = self.a_stream(context)?;
            self.emit(Act::Graph { stream, graph })?;
        }
        Some(())
    }
}
