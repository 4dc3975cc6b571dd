"""Why an attempt failed: the closed list that jobs, sagas and dead letters carry. Pure.

docs/reference/errors.md is generated from it.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """Why an attempt failed. `permanent`: trying again cannot help, so the saga dies at once."""

    permanent: bool
    cause: str
    advice: str

    def __new__(cls, value: str, permanent: bool, cause: str, advice: str) -> ErrorCode:
        member = str.__new__(cls, value)
        member._value_ = value
        member.permanent = permanent
        member.cause = cause
        member.advice = advice
        return member

    TIMEOUT = (
        "TIMEOUT",
        False,
        "The deadline passed before the whole answer had arrived. It covers everything: the name "
        "lookup, connecting, TLS, sending and the last byte of the answer. The endpoint may have "
        "received the request.",
        "Answer first and work afterwards: queue the event and return 200. If the endpoint needs "
        "longer, raise the subscription's request timeout.",
    )
    DNS_FAILED = (
        "DNS_FAILED",
        False,
        "The host's name has no address, or its name servers did not answer. Nothing was sent.",
        "Check the host's A and AAAA records and its name servers from the machine that runs the "
        "worker.",
    )
    CONNECT_FAILED = (
        "CONNECT_FAILED",
        False,
        "No connection could be made to any of the host's addresses, or the egress proxy refused. "
        "Nothing was sent.",
        "Check that the endpoint listens on that port and that no firewall drops the worker's "
        "connections.",
    )
    TLS_FAILED = (
        "TLS_FAILED",
        False,
        "The TLS handshake did not succeed: the certificate is expired, self-signed, for another "
        "host or of an unknown authority, the protocol is older than TLS 1.2, or the endpoint "
        "does not speak TLS. Nothing was sent.",
        "Renew or complete the certificate chain. For a private authority, give its certificate "
        "in SUREHOOK_CA_FILE.",
    )
    BLOCKED_ADDRESS = (
        "BLOCKED_ADDRESS",
        True,
        "Every address of the host is private, loopback, link-local or otherwise reserved, and "
        "the address guard refused to dial it. Nothing was sent.",
        "Use a public address. If the endpoint is meant to be internal, add its network to "
        "SUREHOOK_ALLOW_NETWORKS.",
    )
    INVALID_REQUEST = (
        "INVALID_REQUEST",
        True,
        "The stored callback URL or a custom header is not one that may be sent (the API refuses "
        "such values, so it was written another way). Nothing was sent.",
        "Correct the subscription's URL or headers and requeue its dead letters.",
    )
    PROTOCOL_ERROR = (
        "PROTOCOL_ERROR",
        False,
        "The answer was not valid HTTP/1.1, or it began before the request was complete, or the "
        "connection ended after the request was sent and before the whole answer had arrived. The "
        "endpoint may have received the request.",
        "Look at what stands in front of the endpoint (proxy, load balancer) and at its crashes. "
        "Receivers recognise a repeated delivery by its webhook-id.",
    )
    RESPONSE_TOO_LARGE = (
        "RESPONSE_TOO_LARGE",
        False,
        "The answer had more than 32 KiB of headers, more than 64 KiB of body, or too many "
        "interim answers. The endpoint received the request.",
        "Answer a webhook with a status and a short body, or none.",
    )
    HTTP_3XX = (
        "HTTP_3XX",
        False,
        "The endpoint answered with a redirect. Redirects are never followed.",
        "Register the final URL.",
    )
    HTTP_4XX = (
        "HTTP_4XX",
        False,
        "The endpoint refused the request; the status stands beside the code.",
        "Read the excerpt of the answer. 401 and 403: check the secret or custom headers. 404: "
        "check the path. 429: the endpoint asks for less; a Retry-After is respected.",
    )
    HTTP_5XX = (
        "HTTP_5XX",
        False,
        "The endpoint failed; the status stands beside the code.",
        "Look at the endpoint's own logs for this webhook-id. A Retry-After is respected.",
    )
    GONE = (
        "GONE",
        True,
        "The endpoint answered 410: it is gone for good and wants no further deliveries.",
        "Disable the subscription, or change its URL and requeue its dead letters.",
    )
    SUBSCRIPTION_INACTIVE = (
        "SUBSCRIPTION_INACTIVE",
        True,
        "When the delivery's turn came, its subscription was not active and verified. Nothing was "
        "sent.",
        "Activate and verify the subscription, then requeue its dead letters in one call.",
    )
    SECRET_UNAVAILABLE = (
        "SECRET_UNAVAILABLE",
        False,
        "The subscription has no live secret, or its secret does not open with this worker's "
        "encryption key. Nothing was sent, because it could not be signed.",
        "Give every worker the SUREHOOK_ENCRYPTION_KEY that the secret was stored with, or rotate "
        "the subscription's secret.",
    )
    LEASE_EXPIRED = (
        "LEASE_EXPIRED",
        False,
        "The worker that held the job disappeared six times without a result. It is unknown "
        "whether the endpoint received anything.",
        "Look for workers that crash or are killed while sending, often for lack of memory.",
    )
    INTERNAL_ERROR = (
        "INTERNAL_ERROR",
        False,
        "surehook itself failed while sending; this is a bug.",
        "Please report it with the worker's log line.",
    )
