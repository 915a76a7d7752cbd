//! An axum service with limits.

fn main() {}
