use redis_throttle_client::{Error, Limiter, OnError, QuotaUnit, Rule};

pub struct Gateway {
    limiter: Limiter,
    rpm: Rule,
    tpm: Rule,
    month: Rule,
    runs: Rule,
}

impl Gateway {
    pub fn new(limiter: Limiter) -> Result<Self, Error> {
        Ok(Self {
            limiter,
            rpm: Rule::gcra("rpm", 60, 60, "1m")?,
            tpm: Rule::token_bucket("tpm", 90_000, 90_000, "1m")?,
            month: Rule::quota("month", 5_000_000, QuotaUnit::Month)?.on_error(OnError::Deny)?,
            runs: Rule::lease("runs", 4, "2m")?,
        })
    }

    /// After `Error::Denied` by the server nothing was taken.
    pub async fn ask(&self, tenant: &str, prompt: &str) -> Result<String, Error> {
        let estimate = 1800;
        let items = [
            self.rpm.of(tenant),
            self.tpm.of(tenant).cost(estimate),
            self.month.of(tenant).reserve(estimate),
            self.runs.of(tenant),
        ];
        let admitted = self.limiter.admit(&items, None).await?;
        let (text, tokens) = model(prompt).await;
        admitted.settle(&self.tpm, tokens)?;
        admitted.settle(&self.month, tokens)?;
        admitted.finish().await;
        Ok(text)
    }
}

/// Replace it by yours.
async fn model(prompt: &str) -> (String, u64) {
    (format!("answer to {prompt}"), 1240)
}
