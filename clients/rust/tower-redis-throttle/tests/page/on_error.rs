use redis_throttle_client::{Error, OnError, Rule};

pub fn rules() -> Result<[Rule; 2], Error> {
    let login = Rule::gcra("login", 5, 5, "15m")?.on_error(OnError::Deny)?;
    let search = Rule::gcra("search", 100, 100, "1m")?;
    Ok([login, search.on_error(OnError::Local)?.local_share(0.1)?])
}
