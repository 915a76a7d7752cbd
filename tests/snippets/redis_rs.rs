pub fn check(server: &str) -> redis::RedisResult<String> {
    let timeout = std::time::Duration::from_millis(250);
    let client = redis::Client::open(server)?; // redis://127.0.0.1:7777
    let mut connection = client.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    let reply = redis::cmd("RL.GCRA").arg(&["user:42", "6", "10", "60"]).query(&mut connection)?;
    let (allowed, _, remaining, retry_after_ms, _): (bool, i64, i64, i64, i64) = reply;
    Ok(match allowed {
        true => format!("allowed, {remaining} left"),
        false => format!("denied, retry in {retry_after_ms} ms"),
    })
}
