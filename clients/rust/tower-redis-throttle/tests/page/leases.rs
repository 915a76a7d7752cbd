use redis_throttle_client::{Error, Limiter, Rule};

pub async fn work(limiter: &Limiter, parts: u32) -> Result<u32, Error> {
    let jobs = Rule::lease("jobs", 5, "30s")?;
    let held = match limiter.lease(jobs.of("tenant:acme")).await {
        Err(Error::Denied(decision)) => {
            println!("all busy for {:?}", decision.retry_after);
            return Ok(0);
        }
        held => held?,
    };
    let mut done = 0;
    while done < parts && held.held() {
        done += 1; // no longer held: another holder may have it
    }
    held.release().await;
    Ok(done)
}
