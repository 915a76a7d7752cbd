//! Measures the steps of a call in the engine: `make bench-pure`.

mod cases;

use cases::Step;
use criterion::{Criterion, criterion_group, criterion_main};
use std::time::{Duration, Instant};

fn steps(criterion: &mut Criterion) {
    for case in cases::all() {
        let mut group = criterion.benchmark_group(&case.name);
        group.warm_up_time(Duration::from_millis(200));
        group.measurement_time(Duration::from_millis(500));
        for step in Step::ALL {
            if !case.repeat(step, 0) {
                continue;
            }
            group.bench_function(step.name(), |bencher| {
                bencher.iter_custom(|times| {
                    let started = Instant::now();
                    case.repeat(step, times);
                    started.elapsed()
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, steps);
criterion_main!(benches);
