//! One language of the bench of clients.

fn main() {}
