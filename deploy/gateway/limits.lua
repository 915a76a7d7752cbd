-- Sends a request to redis-throttle-gateway: sets txn.limits to the status of its response, or to 0
-- if the gateway is down. The proxy `limits` of haproxy.cfg leads to the gateway.

-- The fields of the client that the gateway's file names as `header:NAME`, in lower case.
local sent = { "x-user", "traceparent" }
local kept = { "retry-after", "ratelimit", "ratelimit-policy" }

core.register_action("limits", { "http-req" }, function(txn, domain)
    local fields = txn.http:req_get_headers()
    local headers = {
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-host"] = { txn.sf:req_hdr("host") },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
        ["x-forwarded-for"] = { txn.sf:src() },
    }
    for _, name in ipairs(sent) do
        local values = fields[name]
        -- The gateway refuses a repeated field. Two show it; more than 100 would end HAProxy 2.6.
        if values then headers[name] = { values[0], values[1] } end
    end
    local url = "http://limits/check/" .. domain
    local response = core.httpclient():get{
        url = url, dst = "abns@limits", headers = headers, timeout = 5000
    }
    fields = response.headers or {}
    txn:set_var("txn.limits", fields["x-gateway-down"] and 0 or response.status or 0)
    for _, name in ipairs(kept) do
        if fields[name] then txn:set_var("txn." .. name:gsub("-", "_"), fields[name][0]) end
    end
end, 1)
