//! The formats that have a name: what their lines look like, and where key and time are.

use super::stamp::Unit;

/// A format with a name.
#[derive(Debug)]
pub struct Named {
    /// The name.
    pub name: &'static str,
    /// The program that writes it.
    pub about: &'static str,
    /// The form of the lines. Of several texts the lines have one.
    pub shape: Shape,
    /// The default of `--key`.
    pub key: &'static str,
    /// The names of the field with the time, of which the first that a line has is taken, or a
    /// template of several fields.
    pub times: &'static [&'static str],
    /// The field of the time that a request took, and its unit, if the line has the time of the
    /// request's end.
    pub request_time: Option<(&'static str, Unit)>,
    /// Whether that unit cannot be configured.
    pub knows_unit: bool,
    /// The source of the request's end, if the time of a line is the beginning.
    pub end: End,
    /// A field that only lines of this format have.
    pub marker: Option<&'static str>,
    /// The fields that have another name here.
    pub aliases: Aliases,
}

/// The end of a request, which is when its line is written: lines are nearly in its order.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The time of the line, or it is not known.
    AtTime,
    /// The time of the line; the request began at that of this field.
    Since(&'static str),
    /// So long after the time of the line: a field and its unit. Of numbers with `/` between them,
    /// the last counts.
    After(&'static str, Unit),
}

/// The form of the lines.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// One of these texts, as in nginx's `log_format`.
    Text(&'static [&'static str]),
    /// One of these texts, also behind what syslog writes.
    Syslog(&'static [&'static str]),
    /// An object of JSON.
    Json,
    /// Columns with a comment that names them; these are the default.
    Columns(&'static str),
}

/// Names of fields, each with the name that a format has in its place.
pub type Aliases = &'static [(&'static str, &'static str)];

/// The format of Apache's and nginx's default logs.
pub const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                            $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

const COMMON: &str =
    "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent";

const VHOST_COMBINED: &str = "$host:$server_port $remote_addr - $remote_user [$time_local] \
                              \"$request\" $status $bytes_sent \"$http_referer\" \
                              \"$http_user_agent\"";

const TRAEFIK: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                       $body_bytes_sent \"$http_referer\" \"$http_user_agent\" $number \
                       \"$router\" \"$server_url\" ${duration}ms";

const ALB: &str = "$type $time $elb $remote_addr:$remote_port $target $request_processing_time \
                   $target_processing_time $response_processing_time $status $target_status \
                   $received_bytes $sent_bytes \"$request\" \"$http_user_agent\" $ssl_cipher \
                   $ssl_protocol $target_group_arn \"$trace_id\" \"$host\" \
                   \"$chosen_cert_arn\" $matched_rule_priority $request_creation_time \
                   \"$actions_executed\"";

const NLB: &str = "$type $version $time $elb $listener $remote_addr:$remote_port $target \
                   $connection_time $tls_handshake_time $received_bytes $sent_bytes \
                   $incoming_tls_alert $chosen_cert_arn $chosen_cert_serial $tls_cipher \
                   $tls_protocol_version $tls_named_group $host $alpn_fe_protocol \
                   $alpn_be_protocol $alpn_client_preference_list $tls_connection_creation_time";

const ENVOY: &str = "[$start_time] \"$request\" $status $response_flags $bytes_received \
                     $body_bytes_sent $duration $upstream_service_time \
                     \"$http_x_forwarded_for\" \"$http_user_agent\" \"$request_id\" \"$host\" \
                     \"$upstream_host\"";

const ISTIO: &str = "[$start_time] \"$request\" $status $response_flags $details $connection \
                     \"$failure\" $bytes_received $body_bytes_sent $duration \
                     $upstream_service_time \"$http_x_forwarded_for\" \"$http_user_agent\" \
                     \"$request_id\" \"$host\" \"$upstream_host\"";

const HAPROXY: &str = "$remote_addr:$remote_port [$time_local] $frontend $backend/$server \
                       $timers $status $bytes_sent $rest \"$request\"";

const HAPROXY_TCP: &str = "$remote_addr:$remote_port [$time_local] $frontend $backend/$server \
                           $timers $bytes_sent $termination $connections $queues";

/// The text before a line of HAProxy: the number of the process, as syslog writes it, the fields
/// of RFC 5424, or nothing.
pub const SYSLOG: [&str; 3] = ["$syslog]: ", "$syslog - - ", ""];

const CLOUDFRONT: &str = "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem \
                          sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) \
                          x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes \
                          time-taken";

const COLUMNS: Aliases = &[
    ("remote_addr", "c-ip"),
    ("remote_user", "cs-username"),
    ("status", "sc-status"),
    ("method", "cs-method"),
    ("uri", "cs-uri-stem"),
    ("body_bytes_sent", "sc-bytes"),
    ("http_user_agent", "cs(User-Agent)"),
    ("http_x_forwarded_for", "x-forwarded-for"),
    ("request_time", "time-taken"),
];

const TEXT: Named = Named {
    name: "",
    about: "",
    shape: Shape::Text(&[]),
    key: "$remote_addr",
    times: &["time_local"],
    request_time: None,
    knows_unit: true,
    end: End::AtTime,
    marker: None,
    aliases: &[],
};

/// Returns Caddy's names, of which that of the client's address changed.
const fn caddy(client: &'static str) -> [(&'static str, &'static str); 9] {
    [
        ("remote_addr", client),
        ("remote_user", "user_id"),
        ("method", "request.method"),
        ("uri", "request.uri"),
        ("host", "request.host"),
        ("protocol", "request.proto"),
        ("body_bytes_sent", "size"),
        ("http_x_forwarded_for", "request.headers.X-Forwarded-For"),
        ("request_time", "duration"),
    ]
}

const CADDY: Named = Named {
    name: "caddy",
    about: "Caddy; with duration_format ms also --request-time duration:ms",
    shape: Shape::Json,
    key: "$remote_addr",
    times: &["ts"],
    request_time: Some(("duration", Unit::S)),
    knows_unit: false,
    end: End::AtTime,
    marker: None,
    aliases: &caddy("request.client_ip"),
};

/// Caddy's lines before version 2.7, under the same name.
const CADDY_OLD: Named = Named { aliases: &caddy("request.remote_ip"), ..CADDY };

/// The formats. Where the lines of one are also lines of another, the one with more texts comes
/// first.
const ALL: [Named; 13] = [
    Named {
        name: "vhost_combined",
        about: "Apache with virtual hosts",
        shape: Shape::Text(&[VHOST_COMBINED]),
        ..TEXT
    },
    Named {
        name: "traefik",
        about: "Traefik, common or JSON",
        shape: Shape::Text(&[TRAEFIK]),
        ..TEXT
    },
    Named { name: "combined", about: "nginx, Apache", shape: Shape::Text(&[COMBINED]), ..TEXT },
    Named { name: "common", about: "Apache", shape: Shape::Text(&[COMMON]), ..TEXT },
    Named {
        name: "alb",
        about: "AWS Application Load Balancer",
        shape: Shape::Text(&[ALB]),
        times: &["time"],
        end: End::Since("request_creation_time"),
        ..TEXT
    },
    Named {
        name: "nlb",
        about: "AWS Network Load Balancer, TLS",
        shape: Shape::Text(&[NLB]),
        times: &["time"],
        end: End::Since("tls_connection_creation_time"),
        ..TEXT
    },
    Named {
        name: "cloudfront",
        about: "AWS CloudFront, with #Fields or JSON",
        shape: Shape::Columns(CLOUDFRONT),
        times: &["timestamp(ms)", "$date $time", "timestamp"],
        request_time: Some(("time-taken", Unit::S)),
        marker: Some("x-edge-location"),
        aliases: COLUMNS,
        ..TEXT
    },
    Named {
        name: "envoy",
        about: "Envoy's and Istio's default text, and JSON",
        shape: Shape::Text(&[ISTIO, ENVOY]),
        key: "${http_x_forwarded_for[-1]}",
        times: &["start_time"],
        end: End::After("duration", Unit::Ms),
        ..TEXT
    },
    Named {
        name: "haproxy",
        about: "HAProxy, option httplog or tcplog",
        shape: Shape::Syslog(&[HAPROXY, HAPROXY_TCP]),
        end: End::After("timers", Unit::Ms),
        ..TEXT
    },
    Named {
        name: "iis",
        about: "IIS, W3C",
        // Its columns are configured, so without a comment that names them nothing is read.
        shape: Shape::Columns(""),
        times: &["$date $time"],
        request_time: Some(("time-taken", Unit::Ms)),
        aliases: COLUMNS,
        ..TEXT
    },
    CADDY,
    Named {
        name: "gcp",
        about: "Google Cloud load balancers",
        shape: Shape::Json,
        key: "$remote_addr",
        times: &["timestamp"],
        end: End::After("httpRequest.latency", Unit::S),
        aliases: &[
            ("remote_addr", "httpRequest.remoteIp"),
            ("status", "httpRequest.status"),
            ("method", "httpRequest.requestMethod"),
            ("uri", "httpRequest.requestUrl"),
            ("body_bytes_sent", "httpRequest.responseSize"),
            ("request_time", "httpRequest.latency"),
        ],
        ..TEXT
    },
    Named {
        name: "nginx-json",
        about: "nginx, JSON with nginx's names",
        shape: Shape::Json,
        times: &["msec", "time_iso8601", "time_local", "timestamp", "@timestamp", "time"],
        request_time: Some(("request_time", Unit::S)),
        knows_unit: false,
        ..TEXT
    },
];

/// Traefik's lines of JSON, under the same name as its lines of text.
const TRAEFIK_JSON: Named = Named {
    name: "traefik",
    about: "Traefik, JSON",
    shape: Shape::Json,
    key: "$remote_addr",
    times: &["StartUTC", "StartLocal"],
    request_time: None,
    knows_unit: true,
    end: End::After("Duration", Unit::Ns),
    marker: None,
    aliases: &[
        ("remote_addr", "ClientHost"),
        ("remote_user", "ClientUsername"),
        ("status", "DownstreamStatus"),
        ("method", "RequestMethod"),
        ("uri", "RequestPath"),
        ("host", "RequestHost"),
        ("protocol", "RequestProtocol"),
        ("body_bytes_sent", "DownstreamContentSize"),
        ("request_time", "Duration"),
    ],
};

/// CloudFront's lines of JSON, which have the names of its columns.
const CLOUDFRONT_JSON: Named = Named {
    name: "cloudfront",
    about: "AWS CloudFront, JSON",
    shape: Shape::Json,
    times: &["timestamp(ms)", "$date $time", "timestamp"],
    request_time: Some(("time-taken", Unit::S)),
    aliases: COLUMNS,
    ..TEXT
};

/// Envoy's lines of JSON with the names of Istio.
const ENVOY_JSON: Named = Named {
    name: "envoy",
    about: "Envoy, JSON",
    shape: Shape::Json,
    key: "${http_x_forwarded_for[-1]}",
    times: &["start_time"],
    end: End::After("duration", Unit::Ms),
    marker: Some("response_flags"),
    aliases: &[
        ("http_x_forwarded_for", "x_forwarded_for"),
        ("http_user_agent", "user_agent"),
        ("host", "authority"),
        ("status", "response_code"),
        ("uri", "path"),
        ("body_bytes_sent", "bytes_sent"),
        ("request_time", "duration"),
    ],
    ..TEXT
};

/// Returns all formats.
pub fn every() -> impl Iterator<Item = &'static Named> {
    static ALL_TEXTS: [Named; 13] = ALL;
    static OTHERS: [Named; 4] = [TRAEFIK_JSON, CADDY_OLD, CLOUDFRONT_JSON, ENVOY_JSON];
    ALL_TEXTS.iter().chain(&OTHERS)
}

/// Returns the formats of a name, of which the lines have one.
pub fn named(name: &str) -> impl Iterator<Item = &'static Named> {
    every().filter(move |format| format.name == name)
}

/// Returns the names, each with the program that writes such lines.
pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    every().take(ALL.len()).map(|format| (format.name, format.about))
}
