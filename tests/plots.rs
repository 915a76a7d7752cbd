//! The pictures in `docs/plots/`: which calls each algorithm allows of the same traffic. A real
//! server decides the calls, on a clock that is frozen between them.
//!
//! ```text
//! make plots
//! cargo test --locked --test plots
//! ```
//!
//! `DRAW=1`, which `make plots` sets, writes the pictures. Without it they are drawn in memory and
//! compared with the committed ones. `SERVER` and `RL_MODULE` have the same meaning as in the
//! end-to-end suite.

#[path = "plots/picture.rs"]
mod picture;
#[path = "plots/traffic.rs"]
mod traffic;

use std::path::Path;
use std::{env, fs};

use support::Server;
use traffic::{BURSTY, GREEDY, Passage, STEADY};

#[test]
fn committed_pictures_show_the_calls_that_a_server_allows() {
    let server = Server::start();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/plots");
    for traffic in &[STEADY, BURSTY, GREEDY] {
        let passages = traffic::play(&mut server.client(), traffic);
        let drawn = picture::draw(traffic, &passages);
        let path = folder.join(format!("{}.svg", traffic.name));
        if env::var("DRAW").is_ok_and(|draw| draw == "1") {
            fs::write(&path, drawn).expect("the picture can be written");
            continue;
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        let name = path.display();
        assert!(drawn == committed, "{name} is out of date: `make plots`, then look at it");
    }
}

/// Checks that the remarks in the picture are still true after a change of the traffic.
#[test]
fn each_remark_of_the_greedy_picture_is_true_for_its_row() {
    let passages = traffic::play(&mut Server::start().client(), &GREEDY);
    let [fixed, sliding, log, token_bucket, leaky_bucket, gcra, backoff] = &passages;
    assert_eq!([fixed, log, leaky_bucket].map(Passage::densest), [20, 10, 10]);
    assert!((11..20).contains(&sliding.densest()), "{}", sliding.densest());
    assert_eq!(token_bucket.acts_ms(), gcra.acts_ms());
    let gaps_ms = |passage: &Passage| -> Vec<i64> {
        passage.acts_ms().windows(2).map(|acts_ms| acts_ms[1] - acts_ms[0]).collect()
    };
    assert!(gaps_ms(leaky_bucket).iter().all(|gap_ms| *gap_ms == 1_000));
    assert_eq!(gaps_ms(backoff)[9..], [1_000, 2_000, 4_000, 8_000, 16_000]);
}
