"""Checks three rules without a pause, and serves the metrics of its limiter on the port it prints.

python application.py PORT, the port of the server.
"""

import sys
import time

import redis
from prometheus_client import start_http_server

from redis_throttle_client import Limiter, fixed, gcra
from redis_throttle_client.prometheus import metrics

# Longer than the pauses of the server in the test: only a stopped server sends no reply.
TIMEOUT_MS = 60_000
PAUSE_S = 0.01

limiter = Limiter(redis.Redis(port=int(sys.argv[1])), timeout_ms=TIMEOUT_MS)
metrics(limiter)
# Without a reply, the server's last denial of a key comes before on_error. The key of "pages" has
# none.
rules = [
    gcra("api", 6, 10, "60s"),
    fixed("exports", 1, "60s", on_error="deny"),
    fixed("pages", 1_000_000, "1h"),
]
http, _ = start_http_server(0, "127.0.0.1")
print(http.server_port, flush=True)
while True:
    for rule in rules:
        limiter.check(rule, "user:42")
    time.sleep(PAUSE_S)
