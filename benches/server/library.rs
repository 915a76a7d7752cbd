//! The library of server functions and its script, compared with the module and with the scripts
//! under `lua/`, which are written for one limiter each and do less.

use crate::contestants::{Contestant, FIXED_SIZE, SLIDINGLOG, THREE, load_library};
use crate::leases;
use crate::load::{Shape, log_case};
use crate::node::{Binary, Node};
use crate::rounds::{self, Figures};
use std::path::Path;

/// The maximum CPU time of a library call, divided by that of the script under `lua/`.
const BAR: f64 = 1.6;

/// One figure: its name, its value relative to another contestant, and its bar.
pub struct Share {
    pub figure: String,
    pub value: f64,
    pub bar: Option<f64>,
}

/// The figures of one server.
#[derive(Default)]
pub struct Shares {
    pub shares: Vec<Share>,
    pub figures: Vec<Figures>,
    pub command_lines: Vec<String>,
}

/// Measures every limiter that has a script under `lua/`.
pub fn measure(binary: &Binary, module: &Path, rounds: usize) -> Shares {
    eprintln!("{}: the library", binary.name);
    let mut shares = Shares::default();
    let node = Node::start(binary, module, &[], false);
    let sha = load_library(&node);
    for limiter in FIXED_SIZE {
        let group = [
            limiter.evalsha(&node),
            limiter.fcall(&node),
            limiter.by_script(&sha),
            limiter.by_function(),
            limiter.allowed(),
        ];
        shares.add(&node, limiter.name, &group, Shape::BASE, rounds);
    }
    let group = [
        Contestant::three_evalsha(&node),
        Contestant::three_by_script(&sha),
        Contestant::three_by_function(),
        Contestant::several(&THREE),
    ];
    shares.add(&node, "Three rules", &group, Shape::BASE, rounds);
    for (holders, figures) in leases::HOLDERS.into_iter().zip(leases::measure(&node, rounds)) {
        let of = format!("LEASE and RELEASE, {holders} holders");
        shares.push(&of, "script", "script", figures.library_script);
        shares.push(&of, "FCALL", "script", figures.library);
    }
    drop(node);

    let limit = 1_000;
    let node = Node::start(binary, module, &[], false);
    let sha = load_library(&node);
    let (shape, live) = log_case(limit);
    // The speed of a slower call varies more, so its logs need more spare room.
    let live = live * 3 / 4;
    let group = [
        SLIDINGLOG.steady_evalsha(&node, limit, live),
        SLIDINGLOG.steady_fcall(&node, limit, live),
        SLIDINGLOG.steady_by_script(&sha, limit, live),
        SLIDINGLOG.steady_by_function(limit, live),
        SLIDINGLOG.steady(limit, live),
    ];
    shares.add(&node, "SLIDINGLOG, limit 1,000", &group, shape, rounds.div_ceil(3));
    shares
}

impl Shares {
    /// Measures a group of contestants: the script under `lua/`, in some groups the same script as
    /// a function, then the library's script, the library's function, and the module.
    fn add(&mut self, node: &Node, name: &str, group: &[Contestant], shape: Shape, rounds: usize) {
        let figures = rounds::measure(node, group, shape, rounds);
        let [scripts @ .., library_script, library, module] = &figures[..] else {
            panic!("{name}: nothing to compare")
        };
        let (script, function) = (&scripts[0], &scripts[scripts.len() - 1]);
        let against = if scripts.len() > 1 { "FCALL" } else { "script" };
        self.push(name, "script", "script", rounds::cpu_by(library_script, script));
        self.push(name, "FCALL", against, rounds::cpu_by(library, function));
        let figure = format!("{name} by the library (FCALL), CPU against the module");
        let value = rounds::cpu_by(library, module);
        eprintln!("{figure}: {value:.2}");
        self.shares.push(Share { figure, value, bar: None });
        self.command_lines.extend(figures.iter().map(|one| one.command_line.clone()));
        self.figures.extend(figures);
    }

    fn push(&mut self, name: &str, form: &str, against: &str, value: f64) {
        let figure = match form {
            "script" => format!("{name} by the library's script, CPU against its Lua (EVALSHA)"),
            _ if against == "FCALL" => {
                format!("{name} by the library (FCALL), CPU against its Lua (FCALL)")
            }
            _ => format!("{name} by the library (FCALL), CPU against its Lua (EVALSHA)"),
        };
        eprintln!("{figure}: {value:.2}");
        self.shares.push(Share { figure, value, bar: Some(BAR) });
    }
}
