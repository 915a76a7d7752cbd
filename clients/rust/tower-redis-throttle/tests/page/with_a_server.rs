use redis_throttle_client::redis::{Client, cmd};
use redis_throttle_client::{Limiter, Rule};

pub async fn the_fourth_waits() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::open(crate::url())?;
    let mut server = client.get_multiplexed_async_connection().await?;
    cmd("RL.DEBUG").arg("CLOCK").arg("FREEZE").exec_async(&mut server).await?;
    let limiter = Limiter::new(client);
    let mails = Rule::fixed("mails", 3, "1h")?;
    for allowed in [true, true, true, false] {
        assert_eq!(limiter.check(mails.of("bob")).await?.allowed, allowed);
    }
    cmd("RL.DEBUG").arg("CLOCK").arg("ADVANCE").arg("1h").exec_async(&mut server).await?;
    assert!(limiter.check(mails.of("bob")).await?.allowed);
    cmd("RL.DEBUG").arg("CLOCK").arg("RESUME").exec_async(&mut server).await?;
    Ok(())
}
