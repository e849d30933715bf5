//! The cost model of transfers. It decides whether a broadcast from rank to rank is better than one
//! transfer for each member.
//!
//! A link has a latency, an overhead for each piece, and a time for each byte (the LogGP model of
//! Alexandrov et al., 1995). A rank sends one piece at a time, and receives while it sends.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time from the sender's call to the receiver's notice of an empty message, in ns.
    pub latency_ns: f64,
    /// Time that a piece costs its sender in addition to its bytes, in ns.
    pub overhead_ns: f64,
    /// Time for each byte, in ns.
    pub byte_ns: f64,
}

impl Default for Link {
    /// Returns an Ethernet of 10 Gbit/s, for runs whose links were not measured.
    fn default() -> Self {
        Self { latency_ns: 50_000.0, overhead_ns: 5_000.0, byte_ns: 0.8 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// The source sends to each member.
    Flat,
    /// In each round all that have the bytes send them on. This has few rounds, for few bytes.
    Binomial,
    /// Each participant passes pieces on to `arity` children. An arity of 1 is a chain, for many
    /// bytes.
    Pipeline { arity: u32 },
    /// Two binary trees, each for half of the bytes. A member that sends in one tree only receives
    /// in the other. So each link carries each byte once, as in a chain, and the paths are as short
    /// as in a tree (Sanders, Speck and Träff, 2009).
    Twin,
}

/// A shape, its piece size, and the predicted time until the last member has all bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    pub shape: Shape,
    /// Bytes of a piece.
    pub segment: u64,
    /// Predicted time in ns.
    pub predicted_ns: f64,
}

/// Size of the pieces between ranks, in bytes. It is large enough that a piece's overhead (some µs
/// for a look of the scheduler) is small beside its time on a link of 10 GB/s (100 µs), and small
/// enough that device, link and memory work at the same time.
pub const SEGMENT_BYTES: u64 = 1 << 20;

/// Piece sizes to try, in bytes. Below 64 KiB the overhead of a piece is no longer small beside its
/// bytes on links of 1 to 25 GB/s. Above 1 MiB the only gain is that fewer pieces need work, so
/// only transfers of GB use larger ones.
const SEGMENTS: [u64; 5] = [16 << 20, 4 << 20, 1 << 20, 256 << 10, SEGMENT_BYTES_MIN];
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// Longest time in ns that a piece may keep a link busy, except for the smallest piece size. Signs
/// of life and other messages wait behind some pieces, and must arrive within seconds. On 1 Gbit/s
/// this is 6 MB.
const PIECE_NS_MAX: f64 = 50e6;

/// Larger pieces may be slower by this fraction, because they cost less work that the model does
/// not contain.
const SEGMENT_SLACK: f64 = 0.02;

/// Arities to try. More children hardly make a tree less deep.
const ARITIES: [u32; 3] = [1, 2, 4];

/// A replacement must be predicted to be faster by this fraction...
const GAIN_MIN: f64 = 0.10;
/// ...and by this time in ns. Effects that the model does not contain are as large: a scheduler
/// that naps, a kernel on the same core.
const GAIN_NS_MIN: f64 = 100_000.0;

impl Link {
    /// Predicts one transfer for each of `members`, one after the other, in ns.
    pub fn flat(&self, members: u32, bytes: u64) -> f64 {
        let pieces = bytes.div_ceil(SEGMENT_BYTES).max(1) as f64;
        f64::from(members) * (pieces * self.overhead_ns + bytes as f64 * self.byte_ns)
            + self.latency_ns
    }

    /// Predicts a broadcast of this shape, in ns.
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
            Shape::Twin => {
                // Each piece goes to two children, and each tree has half of the pieces.
                let depth = f64::from(u32::BITS - members.leading_zeros());
                depth * (self.latency_ns + 2.0 * piece) + (pieces - 1.0) * piece
            }
        }
    }

    /// Returns the shape that is predicted to be the fastest, or `Flat` unless another shape gains
    /// enough. Other transfers keep the members' links busy for `least_ns`, so no shape is faster
    /// than that.
    pub fn choose(&self, members: u32, bytes: u64, least_ns: f64) -> Choice {
        let flat = Choice {
            shape: Shape::Flat,
            segment: SEGMENT_BYTES,
            predicted_ns: self.flat(members, bytes),
        };
        let mut best = self.best(members, bytes);
        best.predicted_ns = best.predicted_ns.max(least_ns);
        let gain = flat.predicted_ns - best.predicted_ns;
        if gain > GAIN_NS_MIN && gain > GAIN_MIN * flat.predicted_ns { best } else { flat }
    }

    /// Returns the fastest shape other than `Flat`.
    pub fn best(&self, members: u32, bytes: u64) -> Choice {
        let one = self.best_of_one(members, bytes);
        let twin = self.fastest(&[Shape::Twin], members, bytes);
        if twin.predicted_ns < one.predicted_ns { twin } else { one }
    }

    /// Returns the fastest shape with a single tree.
    pub fn best_of_one(&self, members: u32, bytes: u64) -> Choice {
        let [chain, binary, quad] = ARITIES.map(|arity| Shape::Pipeline { arity });
        self.fastest(&[chain, binary, quad, Shape::Binomial], members, bytes)
    }

    fn fastest(&self, shapes: &[Shape], members: u32, bytes: u64) -> Choice {
        let of_segment = |segment: u64| {
            let choices = shapes.iter().map(|shape| Choice {
                shape: *shape,
                segment,
                predicted_ns: self.shaped(*shape, members, bytes, segment),
            });
            choices.min_by(|one, other| one.predicted_ns.total_cmp(&other.predicted_ns))
        };
        let is_possible = |segment: u64| {
            segment <= SEGMENT_BYTES_MIN
                || (segment <= bytes && segment as f64 * self.byte_ns <= PIECE_NS_MAX)
        };
        let segments = SEGMENTS.iter().filter(|segment| is_possible(**segment));
        let choices: Vec<Choice> = segments.filter_map(|segment| of_segment(*segment)).collect();
        let least_ns =
            choices.iter().map(|choice| choice.predicted_ns).fold(f64::INFINITY, f64::min);
        let none =
            Choice { shape: Shape::Flat, segment: SEGMENT_BYTES, predicted_ns: f64::INFINITY };
        let is_fast = |choice: &&Choice| choice.predicted_ns <= least_ns * (1.0 + SEGMENT_SLACK);
        choices.iter().find(is_fast).copied().unwrap_or(none)
    }
}

/// Returns the number of levels below the source of a full tree.
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

/// One tree of a broadcast: a range of the bytes, and the way it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Offset of the range.
    pub first: u64,
    /// Length of the range.
    pub size: u64,
    /// Indices of the children of the source (index 0) and of each member.
    pub children: Vec<Vec<usize>>,
}

/// Returns the trees of a shape, for `bytes` in pieces of `segment`.
pub fn trees(shape: Shape, members: u32, bytes: u64, segment: u64) -> Vec<Tree> {
    if shape != Shape::Twin {
        return vec![Tree { first: 0, size: bytes, children: children(shape, members) }];
    }
    let half = bytes.div_ceil(segment.max(1)).div_ceil(2).saturating_mul(segment).min(bytes);
    let mut twins = vec![Tree { first: 0, size: half, children: in_order(members, |place| place) }];
    if half < bytes {
        // Members that send in the first tree have even positions there, so they get odd ones here.
        let moved = move |place: usize| {
            if members.is_multiple_of(2) {
                members as usize + 1 - place
            } else {
                place % members as usize + 1
            }
        };
        twins.push(Tree { first: half, size: bytes - half, children: in_order(members, moved) });
    }
    twins
}

/// Returns a binary tree of the positions 1, 2, 3... in order, so that odd positions have no
/// children. `name` maps a position to its member. The source's only child is the tree's root.
fn in_order(members: u32, name: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); members as usize + 1];
    // Parents with the positions left for their subtrees: the position before the first, and their
    // number.
    let mut open = vec![(0, 0, members as usize)];
    while let Some((parent, after, count)) = open.pop() {
        if count == 0 {
            continue;
        }
        let middle = 1_usize << count.ilog2();
        let member = name(after + middle);
        if let Some(list) = children.get_mut(parent) {
            list.push(member);
        }
        // The left subtree is the deeper one, and is served first.
        open.push((member, after + middle, count - middle));
        open.push((member, after, middle - 1));
    }
    children
}

/// Returns the indices of the children of the source (index 0) and of each member. Earlier children
/// have the larger subtrees.
fn children(shape: Shape, members: u32) -> Vec<Vec<usize>> {
    let count = members as usize + 1;
    let mut children = vec![Vec::new(); count];
    match shape {
        Shape::Flat => children.iter_mut().take(1).for_each(|list| list.extend(1..count)),
        Shape::Binomial => {
            // In each round, each participant that has the bytes takes the next one that has not.
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
        Shape::Twin => children = in_order(members, |place| place),
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
                        assert!(*child > giver, "{shape:?} {members}: no cycle");
                        parents[*child] += 1;
                    }
                }
                assert_eq!(parents[0], 0);
                assert!(parents[1..].iter().all(|parents| *parents == 1), "{shape:?} {members}");
            }
        }
    }

    #[test]
    fn of_twins_each_member_has_one_parent_in_both_and_sends_on_in_one() {
        for members in 1..200 {
            let bytes = 10 << 20;
            let twins = trees(Shape::Twin, members, bytes, 1 << 16);
            assert_eq!(twins.iter().map(|twin| twin.size).sum::<u64>(), bytes);
            assert_eq!(twins[1].first, twins[0].size);
            for twin in &twins {
                let mut reached = vec![0; members as usize + 1];
                let mut open = vec![(0, 0)];
                while let Some((place, depth)) = open.pop() {
                    assert!(
                        depth <= u32::BITS - members.leading_zeros(),
                        "{members}: {depth} deep"
                    );
                    reached[place] += 1;
                    open.extend(twin.children[place].iter().map(|child| (*child, depth + 1)));
                    assert!(twin.children[place].len() <= if place == 0 { 1 } else { 2 });
                }
                assert!(reached.iter().all(|times| *times == 1), "{members}: {reached:?}");
            }
            for member in 1..=members as usize {
                let sends = twins.iter().filter(|twin| !twin.children[member].is_empty()).count();
                assert!(sends <= 1, "{member} of {members}");
            }
        }
    }

    #[test]
    fn one_piece_has_one_tree() {
        let trees = trees(Shape::Twin, 5, 100, 1 << 16);
        assert_eq!((trees.len(), trees[0].size), (1, 100));
    }

    #[test]
    fn what_others_keep_the_links_busy_with_is_no_gain() {
        let flat = GIGABIT.flat(63, 1 << 20);
        assert_eq!(GIGABIT.choose(63, 1 << 20, flat).shape, Shape::Flat);
        assert_ne!(GIGABIT.choose(63, 1 << 20, 0.0).shape, Shape::Flat);
    }

    #[test]
    fn many_bytes_to_many_members_go_along_a_pipeline() {
        let choice = GIGABIT.choose(63, 64 << 20, 0.0);
        assert!(matches!(choice.shape, Shape::Pipeline { .. } | Shape::Twin), "{choice:?}");
        assert!(choice.predicted_ns * 10.0 < GIGABIT.flat(63, 64 << 20), "{choice:?}");
    }

    #[test]
    fn pieces_are_large_where_a_link_is_fast_and_bytes_are_many() {
        let fast = Link { latency_ns: 1_600.0, overhead_ns: 2_000.0, byte_ns: 0.3125 };
        let segment = |link: Link, bytes| link.best(1023, bytes).segment;
        assert_eq!(segment(fast, 20 << 30), 16 << 20);
        assert!(segment(fast, 200 << 20) < 1 << 20);
        assert_eq!(segment(GIGABIT, 20 << 30), 4 << 20, "16 MiB take 134 ms there");
        let slow = Link { byte_ns: 1e4, ..GIGABIT };
        assert_eq!(segment(slow, 20 << 30), SEGMENT_BYTES_MIN);
    }

    #[test]
    fn few_bytes_to_two_members_are_not_worth_a_tree() {
        assert_eq!(GIGABIT.choose(2, 64, 0.0).shape, Shape::Flat);
    }

    #[test]
    fn predictions_grow_with_bytes_and_members() {
        for members in 2..100 {
            for bytes in [1 << 10, 1 << 16, 1 << 20, 1 << 26] {
                let now = GIGABIT.best(members, bytes).predicted_ns;
                assert!(
                    GIGABIT.best(members + 1, bytes).predicted_ns
                        >= now * (1.0 - SEGMENT_SLACK) * 0.999
                );
                assert!(GIGABIT.best(members, bytes * 2).predicted_ns > now);
            }
        }
    }
}
