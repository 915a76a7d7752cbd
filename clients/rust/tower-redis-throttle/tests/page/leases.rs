use redis_throttle_client::{Error, Limiter, Rule};

pub async fn work(limiter: &Limiter, parts: u32) -> Result<u32, Error> {
    let jobs = Rule::lease("jobs", 5, "30s")?;
    let job = match limiter.lease(jobs.of("tenant:acme")).await {
        Err(Error::Denied(decision)) => {
            println!("all busy for {:?}", decision.retry_after);
            return Ok(0);
        }
        job => job?,
    };
    let mut done = 0;
    while done < parts && job.held() {
        done += 1; // the work; stops when the lease is lost
    }
    job.release().await;
    Ok(done)
}
