//! What transfers cost: the model that decides whether a broadcast from rank to rank is better than one transfer for each.
//!
//! A link has a latency, an overhead for each piece, and a time for each byte (the LogGP model of Alexandrov et al.,
//! 1995). A rank sends one piece at a time, and receives while it sends.

use serde::Serialize;

/// A link between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// From the sender's call to the receiver's notice, for no bytes, in ns.
    pub latency_ns: f64,
    /// What a piece costs its sender beside its bytes, in ns.
    pub overhead_ns: f64,
    /// For each byte, in ns.
    pub byte_ns: f64,
}

impl Default for Link {
    /// An Ethernet of 10 Gbit/s, for runs whose links nobody measured.
    fn default() -> Self {
        Self { latency_ns: 50_000.0, overhead_ns: 5_000.0, byte_ns: 0.8 }
    }
}

/// How a broadcast goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// The source sends to each member.
    Flat,
    /// In each round all that have the bytes send them on: few rounds, for few bytes.
    Binomial,
    /// Each sends on to so many, piece by piece. One is a chain, for many bytes.
    Pipeline {
        /// Children of each.
        arity: u32,
    },
}

/// A shape, its pieces, and what it is predicted to take until the last member has all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How.
    pub shape: Shape,
    /// Bytes of a piece.
    pub segment: u64,
    /// In ns.
    pub predicted_ns: f64,
}

/// Pieces that are tried, in bytes: below 64 KiB the overhead of a piece is no longer small beside its bytes on links of
/// 1 to 25 GB/s, above 1 MiB nothing is gained.
const SEGMENTS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];

/// Arities that are tried. With more children a tree is hardly less deep.
const ARITIES: [u32; 3] = [1, 2, 4];

/// A replacement must be predicted to be faster by this part...
const GAIN_MIN: f64 = 0.10;
/// ...and by so many ns: what the model does not know (a scheduler that naps, a kernel that shares the core) is as large.
const GAIN_NS_MIN: f64 = 100_000.0;

impl Link {
    /// One transfer for each of `members`, one after the other.
    pub fn flat(&self, members: u32, bytes: u64) -> f64 {
        let pieces = bytes.div_ceil(super::plan::SEGMENT_BYTES).max(1) as f64;
        f64::from(members) * (pieces * self.overhead_ns + bytes as f64 * self.byte_ns) + self.latency_ns
    }

    /// A broadcast of this shape.
    pub fn shaped(&self, shape: Shape, members: u32, bytes: u64, segment: u64) -> f64 {
        let piece = self.overhead_ns + segment.min(bytes) as f64 * self.byte_ns;
        let pieces = bytes.div_ceil(segment).max(1) as f64;
        match shape {
            Shape::Flat => self.flat(members, bytes),
            Shape::Binomial => {
                let rounds = f64::from(u32::BITS - members.leading_zeros());
                rounds * (self.latency_ns + pieces * piece)
            }
            Shape::Pipeline { arity } => {
                let width = f64::from(arity);
                let depth = f64::from(depth(members, arity));
                depth * (self.latency_ns + width * piece) + (pieces - 1.0) * width * piece
            }
        }
    }

    /// The shape that is predicted to be the fastest; `Flat` unless another gains enough.
    pub fn choose(&self, members: u32, bytes: u64) -> Choice {
        let flat = Choice {
            shape: Shape::Flat,
            segment: super::plan::SEGMENT_BYTES,
            predicted_ns: self.flat(members, bytes),
        };
        let best = self.best(members, bytes);
        let gain = flat.predicted_ns - best.predicted_ns;
        if gain > GAIN_NS_MIN && gain > GAIN_MIN * flat.predicted_ns { best } else { flat }
    }

    /// The fastest shape that is no `Flat`.
    pub fn best(&self, members: u32, bytes: u64) -> Choice {
        let mut best = Choice { shape: Shape::Binomial, segment: SEGMENTS[2], predicted_ns: f64::INFINITY };
        for segment in SEGMENTS {
            let shapes = ARITIES.map(|arity| Shape::Pipeline { arity });
            for shape in shapes.into_iter().chain([Shape::Binomial]) {
                let predicted_ns = self.shaped(shape, members, bytes, segment);
                if predicted_ns < best.predicted_ns {
                    best = Choice { shape, segment, predicted_ns };
                }
            }
        }
        best
    }
}

/// Levels below the source of a full tree.
fn depth(members: u32, arity: u32) -> u32 {
    if arity <= 1 {
        return members;
    }
    let (mut reached, mut level, mut depth) = (0_u32, 1_u32, 0);
    while reached < members {
        level = level.saturating_mul(arity);
        reached = reached.saturating_add(level);
        depth += 1;
    }
    depth
}

/// For each of `members` and the source (index 0), the indices of its children. Earlier children have the larger subtrees.
pub fn children(shape: Shape, members: u32) -> Vec<Vec<usize>> {
    let count = members as usize + 1;
    let mut children = vec![Vec::new(); count];
    match shape {
        Shape::Flat => children.iter_mut().take(1).for_each(|list| list.extend(1..count)),
        Shape::Binomial => {
            // Round by round, those that have the bytes each take the next that has not.
            let mut having = 1;
            while having < count {
                let new = having.min(count - having);
                for (giver, list) in children.iter_mut().enumerate().take(new) {
                    list.push(having + giver);
                }
                having += new;
            }
        }
        Shape::Pipeline { arity } => {
            let arity = arity.max(1) as usize;
            for child in 1..count {
                if let Some(list) = children.get_mut((child - 1) / arity) {
                    list.push(child);
                }
            }
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Link = Link { latency_ns: 25_000.0, overhead_ns: 2_000.0, byte_ns: 8.0 };

    #[test]
    fn every_member_has_one_parent() {
        for shape in [
            Shape::Flat,
            Shape::Binomial,
            Shape::Pipeline { arity: 1 },
            Shape::Pipeline { arity: 2 },
            Shape::Pipeline { arity: 4 },
        ] {
            for members in 1..200 {
                let lists = children(shape, members);
                let mut parents = vec![0; members as usize + 1];
                for (giver, list) in lists.iter().enumerate() {
                    for child in list {
                        assert!(*child > giver, "{shape:?} {members}: no circle");
                        parents[*child] += 1;
                    }
                }
                assert_eq!(parents[0], 0);
                assert!(parents[1..].iter().all(|parents| *parents == 1), "{shape:?} {members}");
            }
        }
    }

    #[test]
    fn many_bytes_to_many_members_go_along_a_pipeline() {
        let choice = GIGABIT.choose(63, 64 << 20);
        assert!(matches!(choice.shape, Shape::Pipeline { .. }), "{choice:?}");
        assert!(choice.predicted_ns * 10.0 < GIGABIT.flat(63, 64 << 20), "{choice:?}");
    }

    #[test]
    fn few_bytes_to_two_members_are_not_worth_a_tree() {
        assert_eq!(GIGABIT.choose(2, 64).shape, Shape::Flat);
    }

    #[test]
    fn predictions_grow_with_bytes_and_members() {
        for members in 2..100 {
            for bytes in [1 << 10, 1 << 16, 1 << 20, 1 << 26] {
                let now = GIGABIT.best(members, bytes).predicted_ns;
                assert!(GIGABIT.best(members + 1, bytes).predicted_ns >= now * 0.999);
                assert!(GIGABIT.best(members, bytes * 2).predicted_ns > now);
            }
        }
    }
}
