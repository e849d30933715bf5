//! The choice of the next step.

use super::random::{Random, mix};

/// Number of actors with a weight of their own.
pub(super) const ACTORS: usize = LINKS + LINKS_MAX;
/// Actors from this number on are links: one for each queue and each place.
pub(super) const LINKS: usize = 12;
const LINKS_MAX: usize = 6;
/// Weights of the steps of an actor: all actors alike, or some of them very slow.
const WEIGHTS: [usize; 4] = [1, 1, 30, 900];

pub(super) enum Chooser {
    /// Every step is equally likely.
    Uniform(Random),
    /// Some actors are much slower than others, as links and threads are.
    Uneven(Random, [usize; ACTORS]),
    /// Takes the steps of a script, and after its end always the first step.
    Script(Script),
}

/// A path through the choices of a run.
#[derive(Default)]
pub(super) struct Script {
    wanted: Vec<usize>,
    /// For each choice, its index and the number of choices.
    taken: Vec<(usize, usize)>,
}

impl Chooser {
    /// The first order of a program is uniform, the others are uneven.
    pub(super) fn random(seed: u64, order: u64) -> Self {
        let mut random = Random::new(mix(seed ^ mix(order + 1)));
        if order == 0 {
            return Self::Uniform(random);
        }
        let weights = std::array::from_fn(|_| WEIGHTS[random.below(WEIGHTS.len())]);
        Self::Uneven(random, weights)
    }

    /// Returns the index of a step. `actors` gives the actor of each step.
    pub(super) fn pick(&mut self, actors: &mut dyn ExactSizeIterator<Item = usize>) -> usize {
        let count = actors.len();
        match self {
            Self::Uniform(random) => random.below(count),
            Self::Uneven(random, weights) => {
                let mut sums = [0; 64];
                let mut all = 0;
                for (sum, actor) in sums.iter_mut().zip(actors) {
                    all += weights[actor % ACTORS];
                    *sum = all;
                }
                let at = random.below(all);
                sums.iter().take(count).position(|sum| at < *sum).unwrap_or(0)
            }
            Self::Script(script) => script.pick(count),
        }
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        match self {
            Self::Uniform(random) | Self::Uneven(random, _) => random.below(end),
            Self::Script(script) => script.pick(end),
        }
    }
}

impl Script {
    fn pick(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        let wanted = self.wanted.get(self.taken.len()).copied().unwrap_or(0);
        self.taken.push((wanted, count));
        wanted
    }

    /// Returns the next path after this one that leaves the first choice at most `turns_max` times,
    /// or `None` if there is none.
    pub(super) fn next(mut self, turns_max: usize) -> Option<Self> {
        while let Some((taken, count)) = self.taken.pop() {
            let turns = self.taken.iter().filter(|(taken, _)| *taken > 0).count();
            if taken + 1 < count && turns < turns_max {
                let mut wanted: Vec<usize> = self.taken.iter().map(|(taken, _)| *taken).collect();
                wanted.push(taken + 1);
                return Some(Self { wanted, taken: Vec::new() });
            }
        }
        None
    }
}
