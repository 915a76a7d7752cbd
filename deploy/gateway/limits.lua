-- Asks redis-throttle-gateway about a request: sets txn.limits to the status of its answer, or to 0
-- if the gateway is away. The proxy `limits` of haproxy.cfg leads to the gateway.
local dropped = { "connection", "content-length", "expect", "transfer-encoding", "upgrade" }
local kept = { "retry-after", "ratelimit", "ratelimit-policy" }

core.register_action("limits", { "http-req" }, function(txn, domain)
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        headers[name] = {}
        for at = 0, #values do table.insert(headers[name], values[at]) end
    end
    for _, name in ipairs(dropped) do headers[name] = nil end
    headers["x-forwarded-method"] = { txn.sf:method() }
    headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
    headers["x-forwarded-uri"] = { txn.sf:pathq() }
    headers["x-forwarded-for"] = { txn.sf:src() }
    local url = "http://limits/check/" .. domain
    local answer = core.httpclient():get{
        url = url, dst = "abns@limits", headers = headers, timeout = 300
    }
    local fields = answer.headers or {}
    txn:set_var("txn.limits", fields["x-gateway-away"] and 0 or answer.status or 0)
    for _, name in ipairs(kept) do
        if fields[name] then txn:set_var("txn." .. name:gsub("-", "_"), fields[name][0]) end
    end
end, 1)
