//! Which of the possible steps comes next.

use super::random::Random;

/// Actors that are told apart by their weights.
pub(super) const ACTORS: usize = LINKS + LINKS_MAX;
/// The actors behind this one are links: one for each queue and each place.
pub(super) const LINKS: usize = 12;
const LINKS_MAX: usize = 6;
/// What an actor's steps weigh against those of others: all alike, or some of them very slow.
const WEIGHTS: [usize; 4] = [1, 1, 30, 900];

pub(super) enum Chooser {
    /// Every step is as likely as any other.
    Uniform(Random),
    /// Some actors are much slower than others, as links and threads are.
    Uneven(Random, [usize; ACTORS]),
}

impl Chooser {
    /// The first order of a program is even, the others are not.
    pub(super) fn random(order: u64, mut random: Random) -> Self {
        if order == 0 {
            return Self::Uniform(random);
        }
        let weights = std::array::from_fn(|_| WEIGHTS[random.below(WEIGHTS.len())]);
        Self::Uneven(random, weights)
    }

    /// An index of the steps whose actors are given.
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
        }
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        match self {
            Self::Uniform(random) | Self::Uneven(random, _) => random.below(end),
        }
    }
}
