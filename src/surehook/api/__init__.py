"""The HTTP API: parse, call the action, answer. It decides nothing that an action decides.

Reads   requests, and under its logins what they may read
Writes  answers, and under its logins what they may write

    server.py         connections: limits, deadlines, draining
    app.py            one request: the thin path for events, else route, key, check, call, answer
    routes.py         what a route is, and the table of all of them
    auth.py           API keys: looked up, kept for a moment, failures limited
    events.py         POST /v1/events (no framework in its way), batch, reading
    subscriptions.py  deliveries.py  dead_letters.py  keys.py  health.py     the other routes
    problems.py       every refusal, as problem+json
    strict.py         what JSON is accepted
    pages.py          lists: where one page ended, the next goes on
    openapi.py        the OpenAPI document
    docspage.py       /docs, without anything from elsewhere
"""
