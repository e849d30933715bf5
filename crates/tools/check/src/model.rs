//! The reference model: performs the moments of a program one after the other on plain bytes, and
//! returns what each look at memory must see.

use std::collections::HashMap;

use crate::ledger::{Ledger, Work};
use crate::plan::{Act, Cmd, Kernel, MapMode, Program, Ptr, Rect, SvmEnd};
use crate::random::pattern;

/// Bytes, and which of them the specification determines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    pub data: Vec<u8>,
    /// Whether the specification determines each byte.
    pub known: Vec<bool>,
}

impl Bytes {
    pub(crate) fn unknown(len: usize) -> Self {
        Self { data: vec![0; len], known: vec![false; len] }
    }

    pub(crate) fn part(&self, offset: usize, len: usize) -> Self {
        Self {
            data: self.data[offset..offset + len].to_vec(),
            known: self.known[offset..offset + len].to_vec(),
        }
    }

    pub(crate) fn put(&mut self, offset: usize, from: &Self) {
        let end = offset + from.data.len();
        self.data[offset..end].copy_from_slice(&from.data);
        self.known[offset..end].copy_from_slice(&from.known);
    }

    pub(crate) fn forget(&mut self, offset: usize, len: usize) {
        self.known[offset..offset + len].fill(false);
    }

    pub(crate) fn word(&self, offset: usize) -> Option<u32> {
        let known = self.known[offset..offset + 4].iter().all(|&known| known);
        let bytes = &self.data[offset..offset + 4];
        known.then(|| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Returns the offset of the first determined byte that differs from `seen`, and the number of
    /// such bytes.
    pub fn difference(&self, seen: &[u8]) -> Option<(usize, usize)> {
        if self.data == seen {
            return None;
        }
        let wrong = |&index: &usize| self.known[index] && self.data[index] != seen[index];
        let first = (0..self.data.len()).find(wrong)?;
        Some((first, (first..self.data.len()).filter(wrong).count()))
    }
}

/// What the operations of a program see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub checks: HashMap<usize, Bytes>,
    /// The words that each `HotRead` may see.
    pub hot: HashMap<usize, Vec<u32>>,
}

/// Performs a program in the given order of its moments.
///
/// `ledger` must be that of `program`.
pub fn predict(program: &Program, ledger: &Ledger, order: &[usize]) -> Expected {
    Model::new(program, ledger).perform(order)
}

/// Returns, for every value that is ever written, the operation that wrote a word with this value.
pub fn origins(program: &Program, ledger: &Ledger) -> HashMap<u32, usize> {
    let mut model = Model::new(program, ledger);
    model.origins = Some(HashMap::new());
    for node in ledger.nodes.sequence() {
        model.moment(node);
    }
    model.origins.unwrap_or_default()
}

#[derive(Clone, Copy)]
enum Storage {
    Root(usize, usize),
    Area(Ptr),
}

struct Model<'a> {
    program: &'a Program,
    ledger: &'a Ledger,
    roots: HashMap<usize, Bytes>,
    areas: HashMap<usize, Bytes>,
    expected: Expected,
    origins: Option<HashMap<u32, usize>>,
    op: usize,
    /// By operation: the host memory that blocking writes have read before they were performed.
    taken: HashMap<usize, (usize, Bytes)>,
}

impl<'a> Model<'a> {
    fn new(program: &'a Program, ledger: &'a Ledger) -> Self {
        let arrays = program.arrays.iter().enumerate();
        // The runner clears the arrays before it starts.
        let cleared = |&len: &usize| Bytes { data: vec![0; len], known: vec![true; len] };
        Self {
            program,
            ledger,
            roots: HashMap::new(),
            areas: arrays.map(|(id, len)| (id, cleared(len))).collect(),
            expected: Expected::default(),
            origins: None,
            op: 0,
            taken: HashMap::new(),
        }
    }

    fn perform(mut self, order: &[usize]) -> Expected {
        for &node in order {
            self.moment(node);
        }
        self.expected
    }

    fn moment(&mut self, node: usize) {
        match self.ledger.nodes[node].moment.work {
            Work::Start(op) => {
                self.op = op;
                self.take(op);
                self.host(op);
            }
            Work::Cmd(op) => {
                self.op = op;
                let runs = self.ledger.cmds.iter().any(|cmd| cmd.node == node && cmd.runs());
                if let (true, Act::Enqueue { cmd, .. }) = (runs, &self.program.ops[op].act) {
                    self.command(op, node, cmd);
                }
            }
            Work::Root | Work::End(_) => {}
        }
    }

    /// Reads the host memory of a blocking write, which may happen during the call.
    fn take(&mut self, op: usize) {
        let Act::Enqueue { cmd, .. } = &self.program.ops[op].act else { return };
        let (Cmd::Write { from, .. } | Cmd::WriteRect { from, .. } | Cmd::WriteImage { from, .. }) =
            cmd
        else {
            return;
        };
        if self.ledger.takes_early(&self.program.ops[op].act) {
            self.taken.insert(op, (from.area, self.areas[&from.area].clone()));
        }
    }

    fn host(&mut self, op: usize) {
        match &self.program.ops[op].act {
            Act::NewBuffer { mem, size, init, .. } => self.allocate(*mem, *size, *init),
            Act::NewImage { mem, width, height, init, .. } => {
                self.allocate(*mem, width * height * 4, *init)
            }
            Act::NewSvm { mem, size, .. } => self.allocate(*mem, *size, None),
            Act::Store { to, len, seed } => {
                let words = (0..len.div_ceil(4)).map(|index| pattern(*seed, index));
                let mut data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
                data.truncate(*len);
                self.set(Storage::Area(*to), &Bytes { known: vec![true; *len], data });
            }
            Act::Check { at, len } => {
                let seen = self.get(Storage::Area(*at), *len);
                self.expected.checks.insert(op, seen);
            }
            Act::ReadTooBig { to, .. } => {
                if let Some(area) = self.areas.get_mut(&to.area) {
                    area.forget(to.offset, 4);
                }
            }
            _ => {}
        }
    }

    fn allocate(&mut self, mem: usize, size: usize, init: Option<Ptr>) {
        let content = match init {
            Some(at) => self.get(Storage::Area(at), size),
            None => Bytes::unknown(size),
        };
        self.roots.insert(mem, content);
    }

    fn mem(&self, mem: usize, offset: usize) -> Storage {
        let known = &self.ledger.mems[&mem];
        Storage::Root(known.root, known.offset + offset)
    }

    fn size(&self, mem: usize) -> usize {
        self.ledger.mems[&mem].size
    }

    fn get(&self, place: Storage, len: usize) -> Bytes {
        match place {
            Storage::Root(root, offset) => self.roots[&root].part(offset, len),
            Storage::Area(at) => match self.taken.get(&self.op) {
                Some((area, bytes)) if *area == at.area => bytes.part(at.offset, len),
                _ => self.areas[&at.area].part(at.offset, len),
            },
        }
    }

    fn set(&mut self, place: Storage, bytes: &Bytes) {
        if let Some(origins) = &mut self.origins {
            for index in (0..bytes.data.len() / 4).take(ORIGIN_WORDS_MAX) {
                if let Some(word) = bytes.word(index * 4) {
                    origins.entry(word).or_insert(self.op);
                }
            }
        }
        let found = match place {
            Storage::Root(root, offset) => self.roots.get_mut(&root).map(|it| (it, offset)),
            Storage::Area(at) => self.areas.get_mut(&at.area).map(|it| (it, at.offset)),
        };
        if let Some((target, offset)) = found {
            target.put(offset, bytes);
        }
    }

    fn copy(&mut self, from: Storage, to: Storage, len: usize) {
        let bytes = self.get(from, len);
        self.set(to, &bytes);
    }

    fn fill(&mut self, to: Storage, len: usize, word: u32) {
        let data = word.to_le_bytes().iter().copied().cycle().take(len).collect();
        self.set(to, &Bytes { data, known: vec![true; len] });
    }

    fn rows(&mut self, rect: &Rect, mem: usize, other: Storage, into_mem: bool) {
        for row in 0..rect.height {
            let own = self.mem(mem, rect.mem_offset + row * rect.mem_pitch);
            let skip = row * rect.other_pitch;
            let other = match other {
                Storage::Root(root, offset) => Storage::Root(root, offset + skip),
                Storage::Area(at) => Storage::Area(Ptr { area: at.area, offset: at.offset + skip }),
            };
            let (from, to) = if into_mem { (other, own) } else { (own, other) };
            self.copy(from, to, rect.width);
        }
    }

    fn command(&mut self, op: usize, node: usize, cmd: &Cmd) {
        match cmd {
            Cmd::Read { mem, offset, len, to } => {
                self.copy(self.mem(*mem, *offset), Storage::Area(*to), *len)
            }
            Cmd::Write { mem, offset, len, from } => {
                self.copy(Storage::Area(*from), self.mem(*mem, *offset), *len);
            }
            Cmd::ReadRect { mem, rect, to } => self.rows(rect, *mem, Storage::Area(*to), false),
            Cmd::WriteRect { mem, rect, from } => self.rows(rect, *mem, Storage::Area(*from), true),
            Cmd::Copy { from, from_offset, to, to_offset, len } => {
                self.copy(self.mem(*from, *from_offset), self.mem(*to, *to_offset), *len);
            }
            Cmd::CopyRect { from, to, to_offset, rect } => {
                self.rows(rect, *from, self.mem(*to, *to_offset), false);
            }
            Cmd::Fill { mem, offset, len, word } | Cmd::SvmFill { mem, offset, len, word } => {
                self.fill(self.mem(*mem, *offset), *len, *word);
            }
            Cmd::Launch { kernel, a, a_offset, b, b_offset, count, seed, .. } => {
                let to = self.mem(*a, a_offset * 4);
                let source = b.map(|b| self.get(self.mem(b, b_offset * 4), count * 4));
                let old = self.get(to, count * 4);
                self.set(to, &launch(*kernel, &old, source.as_ref(), *count, *seed));
            }
            Cmd::Marker | Cmd::Barrier => {}
            Cmd::Migrate { mems, undefined, .. } => {
                for &mem in mems.iter().filter(|_| *undefined) {
                    self.set(self.mem(mem, 0), &Bytes::unknown(self.size(mem)));
                }
            }
            Cmd::Map { mem, offset, len, mode, area } => {
                let content = match mode {
                    MapMode::Invalidate => Bytes::unknown(*len),
                    _ => self.get(self.mem(*mem, *offset), *len),
                };
                self.areas.insert(*area, content);
            }
            Cmd::Unmap { area } => {
                if let Some(map) = self.ledger.areas[area].map.filter(|map| map.mode.writes()) {
                    let len = self.ledger.areas[area].len;
                    let from = Storage::Area(Ptr { area: *area, offset: 0 });
                    self.copy(from, self.mem(map.mem, map.offset), len);
                }
            }
            Cmd::ReadImage { mem, to } => {
                self.copy(self.mem(*mem, 0), Storage::Area(*to), self.size(*mem))
            }
            Cmd::WriteImage { mem, from } => {
                self.copy(Storage::Area(*from), self.mem(*mem, 0), self.size(*mem));
            }
            Cmd::FillImage { mem, word } => self.fill(self.mem(*mem, 0), self.size(*mem), *word),
            Cmd::ImageToBuffer { image, mem, offset } => {
                self.copy(self.mem(*image, 0), self.mem(*mem, *offset), self.size(*image));
            }
            Cmd::BufferToImage { mem, offset, image } => {
                self.copy(self.mem(*mem, *offset), self.mem(*image, 0), self.size(*image));
            }
            Cmd::SvmCopy { to, from, len } => {
                let place = |end: &SvmEnd| match end {
                    SvmEnd::Svm { mem, offset } => self.mem(*mem, *offset),
                    SvmEnd::Host(at) => Storage::Area(*at),
                };
                self.copy(place(from), place(to), *len);
            }
            Cmd::HotFill { .. } => {}
            Cmd::HotRead { mem, to } => {
                let words = self.hot(node, *mem);
                self.expected.hot.insert(op, words);
                self.set(Storage::Area(*to), &Bytes::unknown(self.size(*mem)));
            }
        }
    }

    /// Returns the words that a read of a hot buffer may see: those of all fills that neither come
    /// after the read nor are certainly overwritten before it.
    fn hot(&self, read: usize, mem: usize) -> Vec<u32> {
        let mut fills = Vec::new();
        for known in &self.ledger.cmds {
            if let Act::Enqueue { cmd: Cmd::HotFill { mem: filled, word }, .. } =
                &self.program.ops[known.op].act
                && *filled == mem
            {
                fills.push((known.node, *word));
            }
        }
        let before = |first, second| first != second && self.ledger.nodes.is_before(first, second);
        let possible = |&&(node, _): &&(usize, u32)| {
            !before(read, node)
                && !fills.iter().any(|&(other, _)| before(node, other) && before(other, read))
        };
        fills.iter().filter(possible).map(|&(_, word)| word).collect()
    }
}

/// Largest number of words per write whose origin is remembered. It limits the time that an
/// explanation takes.
const ORIGIN_WORDS_MAX: usize = 1 << 16;

fn launch(kernel: Kernel, old: &Bytes, source: Option<&Bytes>, count: usize, seed: u32) -> Bytes {
    let mut new = Bytes::unknown(count * 4);
    for index in 0..count {
        let word = match (kernel, source) {
            (Kernel::Put | Kernel::Slow | Kernel::Cast, _) => Some(pattern(seed, index)),
            (_, Some(source)) => {
                old.word(index * 4).zip(source.word(index * 4)).map(|(a, b)| mix(a, b, seed))
            }
            _ => None,
        };
        if let Some(word) = word {
            new.data[index * 4..index * 4 + 4].copy_from_slice(&word.to_le_bytes());
            new.known[index * 4..index * 4 + 4].fill(true);
        }
    }
    new
}

/// The function that the kernel `Mix` computes.
pub fn mix(a: u32, b: u32, seed: u32) -> u32 {
    a.wrapping_mul(1_664_525).wrapping_add(b ^ seed).wrapping_add(1_013_904_223)
}
