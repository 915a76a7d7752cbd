use super::{commands, policies};
use crate::config::Configuration;
use redis_throttle_client::Limiter;
use redis_throttle_client::redis::Client;

#[test]
fn each_limit_has_a_line_with_its_command() {
    let own = "domain: api
limits:
- {match: {path: \"/search/*\", user: \"*\"}, policy: search, for: [\"user:{user}\"], cost: 3,
   key: [user], default: GCRA 20 10 1}
- {match: {user: \"*\"}, rule: FIXED 5 1m, count: reported}
- {match: {user: \"a*\"}, rule: FIXED 5 1m}
";
    let tree = "domain: edge
descriptors:
- {key: ip, rate_limit: {unit: minute, requests_per_unit: 9}, shadow_mode: true}
- {key: ip, value: \"10.*\", rate_limit: {unlimited: true}}
- key: kind
  value: mail
  descriptors: [{key: to, rate_limit: {unit: day, requests_per_unit: 0}}]
";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), own).unwrap();
    std::fs::write(folder.path().join("b.yaml"), tree).unwrap();
    let loaded = Configuration::load(folder.path()).unwrap();
    // Nothing listens there, and nothing is sent.
    let limiter = Limiter::new(Client::open("redis://127.0.0.1:1").unwrap());
    let lines: Vec<_> = loaded.domains().flat_map(|one| commands(one, &limiter)).collect();
    let name = &*loaded.domain("api").unwrap().limits[2].name;
    assert!(name.starts_with("user_a-"), "{name}");
    let expected = [
        "api (path=/search/sample),(user=sample): RL.USE \
         rl:search:api|@path_/search/-.user-IDENTITY|sample search COST 3 FOR user:sample \
         DEFAULT GCRA 20 10 1",
        "api (user=sample): RL.FIXED rl:user:api|fixed-60s|sample 5 60 (reports: RL.CHARGE)",
        "api (user=asample): another limit matches first",
        "edge (ip=sample): RL.FIXED rl:ip:edge|fixed-60s|sample 9 60 ALIGNED (shadow mode)",
        "edge (ip=10.sample): unlimited, no call",
        "edge (kind=mail),(to=sample): denied, no call",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        // The hash stands for the characters that a name cannot have.
        let identity = line.split(".user-").nth(1).and_then(|rest| rest.split('|').next());
        let expected = expected.replace("IDENTITY", identity.unwrap_or_default());
        assert_eq!(*line, expected);
    }
}

#[test]
fn limits_are_printed_as_lines_of_a_policy_file() {
    let text = "domain: edge
descriptors:
- {key: ip, rate_limit: {unit: minute, requests_per_unit: 9}}
- {key: ip, value: \"10.*\", rate_limit: {unlimited: true}}
- {key: user, rate_limit: {unit: second, requests_per_unit: 5, algorithm: gcra, burst: 20}}
";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("edge.yaml"), text).unwrap();
    let loaded = Configuration::load(folder.path()).unwrap();
    let limiter = Limiter::new(Client::open("redis://127.0.0.1:1").unwrap());
    let lines = policies(loaded.domain("edge").unwrap(), &limiter);
    assert_eq!(lines, ["ip FIXED 9 60 ALIGNED", "user GCRA 20 5 1"]);
}
