use redis_throttle_client::redis::RedisError;
use redis_throttle_client::{Cluster, Limiter};

pub fn over_a_cluster() -> Result<Limiter, RedisError> {
    let nodes = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"];
    Ok(Limiter::new(Cluster::new(nodes)?))
}
