//! The moments of a program, and which of them happens before which. The ledgers of OpenCL and of
//! CUDA programs are built on it.

use std::ops::Index;

use crate::bits::Bits;

/// One moment of a program: the start or the end of an operation, or a command.
#[derive(Clone, Debug)]
pub struct Node<M> {
    /// All moments that happen before this one.
    pub before: Bits,
    pub moment: M,
}

/// All moments of a program, in the order in which they were added. The first one is the start of
/// the program.
#[derive(Clone, Debug)]
pub struct Moments<M> {
    nodes: Vec<Node<M>>,
}

impl<M> Moments<M> {
    pub fn new(root: M) -> Self {
        Self { nodes: vec![Node { before: Bits::default(), moment: root }] }
    }

    /// Adds a moment that happens after those of `before`, and returns its index.
    pub fn add(&mut self, before: Bits, moment: M) -> usize {
        self.nodes.push(Node { before, moment });
        self.nodes.len() - 1
    }

    /// Returns a moment and all moments before it.
    pub fn until(&self, node: usize) -> Bits {
        let mut all = self.nodes[node].before.clone();
        all.insert(node);
        all
    }

    /// Adds a moment and all moments before it to `before`.
    pub fn put_before(&self, node: usize, before: &mut Bits) {
        before.unite(&self.nodes[node].before);
        before.insert(node);
    }

    /// Whether the first moment happens before the second, or is the same.
    pub fn is_before(&self, first: usize, second: usize) -> bool {
        first == second || self.nodes[second].before.has(first)
    }

    /// Returns the moments in one order that respects what happens before what.
    pub fn sequence(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.nodes.len()).collect();
        all.sort_by_key(|&node| (self.nodes[node].before.count(), node));
        all
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Node<M>> {
        self.nodes.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Node<M>> {
        self.nodes.iter_mut()
    }
}

impl<M> Index<usize> for Moments<M> {
    type Output = Node<M>;

    fn index(&self, node: usize) -> &Node<M> {
        &self.nodes[node]
    }
}
