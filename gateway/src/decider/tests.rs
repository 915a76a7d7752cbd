use super::*;
use crate::config::Configuration;
use crate::matching::{Descriptor, matches};

fn configuration(text: &str) -> Configuration {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.yaml");
    std::fs::write(&file, text).unwrap();
    Configuration::load(&file).unwrap()
}

/// Descriptors with hits, the costs of the checks, and the units of the other calls.
type Row<'a> = (&'a [((&'a str, &'a str), Hits)], &'a [u64], &'a [(u64, Kind)]);

#[test]
fn plan_merges_equal_rows_and_keeps_changes_apart() {
    let loaded = configuration(
        "domain: api
limits:
  - {match: {user: '*'}, rule: FIXED 10 1h, cost: 3}
  - {match: {model: '*'}, rule: FIXED 10 1h, count: reported}
  - {match: {tries: '*'}, rule: BACKOFF 3 1s 1m 1h}
",
    );
    let user = ("user", "a");
    let (model, tries) = (("model", "m"), ("tries", "t"));
    use Hits::{Back, Given, Unset};
    let table: [Row<'_>; 8] = [
        (&[(user, Unset)], &[3], &[]),
        (&[(user, Unset), (user, Given(2))], &[9], &[]),
        (&[(user, Given(0))], &[0], &[]),
        (&[(user, Given(0)), (user, Unset)], &[3], &[]),
        (&[(user, Back(2)), (user, Unset)], &[3], &[(6, Kind::Refund)]),
        (&[(model, Unset), (model, Given(0)), (model, Given(7))], &[1], &[(7, Kind::Charge)]),
        (&[(tries, Unset), (tries, Unset)], &[1], &[]),
        (&[(tries, Given(0))], &[], &[(1, Kind::Peek)]),
    ];
    for (pairs, costs, changes) in table {
        let descriptors: Vec<_> =
            pairs.iter().map(|(one, _)| Descriptor { entries: vec![*one], limit: None }).collect();
        let found = matches(loaded.domain("api").unwrap(), &descriptors);
        let all: Vec<_> = found
            .into_iter()
            .zip(pairs)
            .map(|(found, (_, hits))| DescriptorHits { found, hits: *hits })
            .collect();
        let planned = Planned::of(&all);
        let planned_costs: Vec<_> = planned.checks.iter().map(Check::cost).collect();
        let planned_changes: Vec<_> =
            planned.changes.iter().map(|change| (change.units, change.kind)).collect();
        assert_eq!((&planned_costs[..], &planned_changes[..]), (costs, changes), "{pairs:?}");
    }
}

#[tokio::test]
async fn deadline_leaves_time_for_the_way_back() {
    let limiter = Limiter::new(redis_throttle_client::redis::Client::open("redis://a").unwrap());
    let ms = Duration::from_millis;
    let decider = Decider::new(limiter, ms(10), Tags::None, false);
    let table = [(None, 30), (Some(1000), 30), (Some(20), 15), (Some(12), 7), (Some(5), 1)];
    for (patience, within) in table {
        assert_eq!(decider.within(patience.map(ms)), ms(within), "{patience:?}");
    }
}
