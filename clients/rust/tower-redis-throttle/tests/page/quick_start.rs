use redis_throttle_client::{Limiter, Rule, redis::Client};

pub async fn greet() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::open(crate::url())?;
    let limiter = Limiter::new(client);
    let api = Rule::gcra("api", 10, 10, "1m")?;
    let decision = limiter.check(api.of("user:42")).await?;
    if decision.allowed {
        println!("allowed, {} left", decision.remaining);
    } else {
        println!("denied, retry in {:?}", decision.retry_after);
    }
    Ok(())
}
