//! Finds accesses to shared memory whose order nothing determines, by vector clocks.

use super::program::{Fold, THREADS_MAX, WORDS};

type Clock = [u32; THREADS_MAX];

/// A thread, and its time.
type Moment = (usize, u32);

/// What threads did with a word.
#[derive(Clone, Debug, Default)]
struct Word {
    written: Option<Moment>,
    read: Vec<Moment>,
    changed: Vec<(Moment, Fold)>,
}

#[derive(Debug)]
pub struct Races {
    clocks: Vec<Clock>,
    words: Vec<Word>,
}

/// How a thread uses a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
    /// An atomic change, which commutes with others of its kind.
    Change(Fold),
}

impl Races {
    pub fn new(threads: usize) -> Self {
        let clock = |thread: usize| {
            let mut clock = [0; THREADS_MAX];
            clock[thread] = 1;
            clock
        };
        let clocks = (0..threads).map(clock).collect();
        Self { clocks, words: vec![Word::default(); WORDS] }
    }

    /// Orders what these threads did before what they do next.
    pub fn meet(&mut self, threads: &[usize]) {
        let mut all = [0; THREADS_MAX];
        for &thread in threads {
            all.iter_mut()
                .zip(self.clocks[thread])
                .for_each(|(most, time)| *most = time.max(*most));
        }
        for &thread in threads {
            self.clocks[thread] = all;
            self.clocks[thread][thread] += 1;
        }
    }

    /// Notes a use. Returns whether everything before that matters has a place in the order.
    pub fn is_ordered(&mut self, thread: usize, word: usize, how: Use) -> bool {
        let (clock, it) = (&self.clocks[thread], &mut self.words[word]);
        let before = |who: usize, when: u32| who == thread || clock[who] >= when;
        let now = clock[thread];
        let is_new = |fold: &Fold| how != Use::Change(*fold);
        let others = it.changed.iter().filter(|(_, fold)| is_new(fold));
        let fine = it.written.is_some_and(|(who, when)| before(who, when))
            && others.into_iter().all(|((who, when), _)| before(*who, *when))
            && (how == Use::Read || it.read.iter().all(|(who, when)| before(*who, *when)));
        match how {
            Use::Read => it.read.push((thread, now)),
            Use::Change(fold) => it.changed.push(((thread, now), fold)),
            Use::Write => {
                // The first write of a word needs nothing before it.
                let fine = fine || it.written.is_none();
                *it = Word { written: Some((thread, now)), ..Word::default() };
                return fine;
            }
        }
        fine
    }
}
