//! What only a stand can do to a node.
