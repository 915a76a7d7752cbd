//! The running program: listens, follows changes of its files, and drains after a signal.

use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use redis_throttle_client::{Limiter, prometheus};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::arguments::Arguments;
use crate::config::{Configuration, Remark};
use crate::decider::Decider;
use crate::listener::{Address, Listener};
use crate::log::{Level, event};
use crate::metrics::Metrics;
use crate::reload::{self, Live};
use crate::tls::{Certificate, Protocol};
use crate::{availability, grpc, http};

/// The time for the last calls to end.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

/// The services that run.
type Services = JoinSet<()>;

/// The signals for which the program waits.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Installs the handlers: before, SIGHUP ends the program. Needs a runtime.
    ///
    /// # Errors
    /// The system's reason.
    pub fn install() -> Result<Self, String> {
        let installed =
            |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
        Ok(Self {
            terminate: installed(SignalKind::terminate())?,
            interrupt: installed(SignalKind::interrupt())?,
            hang_up: installed(SignalKind::hangup())?,
        })
    }
}

/// Serves until SIGTERM or SIGINT, then finishes the calls that have begun.
///
/// # Errors
/// The reason that the program cannot serve.
pub async fn serve(
    arguments: Arguments,
    signals: Signals,
    live: Live,
    limiter: Limiter,
) -> Result<(), String> {
    log_loaded(&live.current());
    let mut registry = Registry::default();
    prometheus::metrics(&limiter, &mut registry);
    let metrics = Arc::new(Metrics::new(registry));
    let certificate = arguments.tls.clone().map(Certificate::load).transpose()?;
    let listeners = Listeners::bind(&arguments, certificate.as_ref()).await?;
    let mut ended = pin!(ended(signals.terminate, signals.interrupt));
    follow(&live, certificate, &metrics, signals.hang_up);
    // Before the first request, which would otherwise be decided without the server.
    let is_down = tokio::select! {
        () = &mut ended => return Ok(()),
        is_down = availability::is_down(&limiter) => is_down,
    };
    let (timeout, tags) = (arguments.timeout, arguments.tags);
    let decider = Decider::new(limiter.clone(), timeout, tags, arguments.is_cluster);
    tokio::spawn(availability::follow(decider.clone(), is_down));
    // A program that starts the gateway reads this line. A closed output is ignored.
    let greeting = format!("redis-throttle-gateway listens on {}\n", listeners.addresses()?);
    let _ = io::stdout().write_all(greeting.as_bytes());
    let (stop, stopped) = watch::channel(false);
    let mut services = listeners.serve(&live, &decider, &metrics, &stopped);
    let result = tokio::select! {
        () = ended => Ok(()),
        result = first_failure(&mut services) => result,
    };
    event(Level::Info, "draining").write();
    let _ = stop.send(true);
    let result = result.and(drained(&mut services).await);
    limiter.close().await;
    result
}

/// Logs that a configuration is in force, and its warnings.
fn log_loaded(loaded: &Configuration) {
    for warning in &loaded.warnings {
        event(Level::Warning, "configuration_warning").with("message", warning).write();
    }
    let (domains, limits) = (loaded.domains().count(), loaded.limits());
    let event = event(Level::Info, "configuration_loaded").with("domains", domains);
    event.with("limits", limits).write();
}

/// Logs the mistakes of a configuration.
pub fn log_mistakes(mistakes: &[Remark]) {
    for mistake in mistakes {
        event(Level::Error, "configuration_mistake").with("message", mistake).write();
    }
}

/// The sockets on which the gateway listens.
struct Listeners {
    grpc: Option<Listener>,
    http: Option<Listener>,
}

impl Listeners {
    async fn bind(
        arguments: &Arguments,
        certificate: Option<&Certificate>,
    ) -> Result<Self, String> {
        let bound = async |name: &str, address: Option<&Address>, protocol| {
            let Some(address) = address else { return Ok(None) };
            let tls = certificate.map(|certificate| certificate.of(protocol));
            let listener = Listener::bind(address, tls).await;
            listener
                .map(Some)
                .map_err(|error| format!("{name}: cannot listen on {address}: {error}"))
        };
        let grpc = bound("--grpc", arguments.grpc.as_ref(), Protocol::Grpc).await?;
        Ok(Self { grpc, http: bound("--http", arguments.http.as_ref(), Protocol::Http).await? })
    }

    /// Returns the addresses, with the ports that the system has chosen.
    fn addresses(&self) -> Result<String, String> {
        let named = [(&self.grpc, "gRPC"), (&self.http, "HTTP")];
        let all = named.into_iter().filter_map(|(listener, name)| Some((listener.as_ref()?, name)));
        let all = all.map(|(listener, name)| {
            let address = listener.address().map_err(|error| error.to_string())?;
            Ok(format!("{address} ({name})"))
        });
        Ok(all.collect::<Result<Vec<_>, String>>()?.join(", "))
    }

    /// Starts the services. Each ends after `stopped`, when its last call has ended.
    fn serve(
        self,
        live: &Live,
        decider: &Decider,
        metrics: &Arc<Metrics>,
        stopped: &watch::Receiver<bool>,
    ) -> Services {
        let mut services = Services::new();
        let parts = || (live.clone(), decider.clone(), metrics.clone());
        if let Some(listener) = self.grpc {
            let (live, decider, metrics) = parts();
            let service = grpc::Service::new(live, decider, metrics);
            services.spawn(grpc::serve(listener, service, stopped.clone()));
        }
        if let Some(listener) = self.http {
            let (live, decider, metrics) = parts();
            let service = http::Service::new(live, decider, metrics);
            services.spawn(http::serve(listener, service, stopped.clone()));
        }
        services
    }
}

async fn ended(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Waits until a service fails, or until all have ended.
async fn first_failure(services: &mut Services) -> Result<(), String> {
    while let Some(served) = services.join_next().await {
        served.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Waits for the last calls.
async fn drained(services: &mut Services) -> Result<(), String> {
    let ended = tokio::time::timeout(DRAINED_WITHIN, first_failure(services)).await;
    ended.unwrap_or_else(|_| {
        let message = "some calls did not end in time";
        event(Level::Warning, "calls_cut_off").with("message", message).write();
        Ok(())
    })
}

/// Reads the configuration and the certificate again on SIGHUP and on changes of their files.
fn follow(
    live: &Live,
    certificate: Option<Certificate>,
    metrics: &Arc<Metrics>,
    mut hang_up: Signal,
) {
    let requests = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let hung_up = requests.clone();
    tokio::spawn(async move {
        while hang_up.recv().await.is_some() {
            hung_up.iter().for_each(|request| request.notify_one());
        }
    });
    let [configuration_requested, certificate_requested] = requests;
    let counts = metrics.clone();
    let done = move |loaded: Result<_, _>| configuration_read(&counts, loaded);
    tokio::spawn(live.clone().follow(configuration_requested, done));
    if let Some(certificate) = certificate {
        let (files, metrics) = (certificate.files(), metrics.clone());
        let reload = move |is_requested| {
            if let Some(loaded) = certificate.reload(is_requested) {
                certificate_read(&metrics, loaded);
            }
        };
        tokio::spawn(reload::follow(move || files.clone(), certificate_requested, reload));
    }
}

fn configuration_read(metrics: &Metrics, loaded: Result<Arc<Configuration>, Vec<Remark>>) {
    metrics.reloaded(loaded.is_ok());
    match loaded {
        Ok(loaded) => log_loaded(&loaded),
        Err(mistakes) => {
            log_mistakes(&mistakes);
            let message = "the old configuration stays in force";
            event(Level::Error, "configuration_refused").with("message", message).write();
        }
    }
}

fn certificate_read(metrics: &Metrics, loaded: Result<(), String>) {
    metrics.reloaded(loaded.is_ok());
    match loaded {
        Ok(()) => event(Level::Info, "certificate_loaded").write(),
        Err(reason) => {
            let message = format!("{reason}; the old certificate stays in force");
            event(Level::Error, "certificate_refused").with("message", message).write();
        }
    }
}
