//! The memory of a server, and limits for it.

use super::Client;

pub const MEGABYTE: i64 = 1 << 20;

pub fn used_memory(client: &mut Client) -> i64 {
    client.info_number("memory", "used_memory")
}

/// Limits the server to the memory that it uses now, plus `room`.
pub fn limit_memory(client: &mut Client, room: i64) {
    let bytes = used_memory(client) + room;
    client.ok(&format!("CONFIG SET maxmemory {bytes}"));
}

/// Asserts that the memory which eviction compares with `maxmemory` is within that limit.
pub fn assert_within_the_limit(client: &mut Client) {
    let fields = client.info("memory");
    let number = |name: &str| fields[name].parse::<i64>().expect("a number");
    let counted = number("used_memory") - number("mem_not_counted_for_evict");
    let limit = number("maxmemory");
    // The connection's own buffers may grow between two calls.
    assert!(counted <= limit + MEGABYTE, "{counted} of {limit} bytes");
}
