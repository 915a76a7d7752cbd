use super::{commands, policies};
use crate::config::Configuration;
use crate::decider::Tags;
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
    let lines = commands(&loaded, &limiter, Tags::None);
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
    for (tags, key) in [(Tags::Value, "rl:{sample}:user"), (Tags::Domain, "rl:{api}:user")] {
        let tagged = commands(&loaded, &limiter, tags);
        assert!(tagged[1].contains(&format!(" {key}:api|fixed-60s|sample ")), "{}", tagged[1]);
    }
}

#[test]
fn limits_are_printed_as_lines_of_a_policy_file() {
    let own = "domain: api
limits:
- {match: {user: \"*\"}, name: user, rule: QUOTA 100 month, cost: 5}
- {match: {plan: \"*\"}, policy: search, default: GCRA 20 10 1}
";
    let tree = "domain: edge
descriptors:
- {key: ip, rate_limit: {unit: minute, requests_per_unit: 9}, shadow_mode: true}
- {key: ip, value: a, rate_limit: {unlimited: true}}
- {key: ip, value: b, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: to, rate_limit: {unit: second, requests_per_unit: 5, algorithm: gcra, burst: 20}}
";
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.yaml", own);
    write("b.yaml", tree);
    let loaded = Configuration::load(folder.path()).unwrap();
    let limiter = Limiter::new(Client::open("redis://127.0.0.1:1").unwrap());
    let expected = [
        "# user: each call needs COST 5",
        "user QUOTA 100 month",
        "# search: the policy search of the server",
        "ip SHADOW FIXED 9 60 ALIGNED",
        "# ip_a: unlimited, without a rule",
        "# ip_b: no requests, without a rule",
        "to GCRA 20 5 1",
    ];
    assert_eq!(policies(&loaded, &limiter).unwrap(), expected);
    write("c.yaml", &tree.replace("edge", "mail"));
    let loaded = Configuration::load(folder.path()).unwrap();
    let error = policies(&loaded, &limiter).unwrap_err();
    let places: Vec<_> = error.lines().map(|line| line.split_once(".yaml:").unwrap().1).collect();
    let second = "3:25: a second policy \"ip\": change its name, or print the files apart";
    assert_eq!(places, [second, "3:25: the first"]);
}
