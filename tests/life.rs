//! What happens to nodes: from the first label to the last, and whatever comes in between.
