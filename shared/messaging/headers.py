"""Every header name, once: NATS keeps case and compares it (ADR-4). Trace headers are lower case because W3C says so."""

TRACEPARENT = "traceparent"
CANCEL_SCOPE = "Cancel-Scope"
TIMEOUT_MS = "Timeout-Ms"
ACCOUNT_ID = "Account-Id"
ACCOUNT_ROLE = "Account-Role"
EVENT_TYPE = "Event-Type"
EVENT_SEQ = "Event-Seq"
ATTEMPT = "Attempt"
ERROR_CODE = "Error-Code"
MESSAGE_ID = "Nats-Msg-Id"  # JetStream's own name for what it deduplicates by
EXPECTED_LAST_MESSAGE_ID = "Nats-Expected-Last-Msg-Id"  # and for what must have come before
