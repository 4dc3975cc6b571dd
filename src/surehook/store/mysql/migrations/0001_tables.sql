-- The tables of the pipeline and of its configuration.
-- oldest program: 0.1.0
--
-- :partitioning becomes nothing with one bucket, else PARTITION BY LIST (bucket): the same tables,
-- one partition per bucket. Keys end in bucket for that reason alone. :collation is the engine's
-- binary collation that does not pad: types that differ in case, accent or a trailing space differ.
--
-- DDL commits by itself here, so every statement may be run again after a crash.
-- The clock is UTC_TIMESTAMP(6), never CURRENT_TIMESTAMP: that one follows the writer's time zone.
-- Every number but a boolean is SMALLINT or wider: the driver takes TINYINT for a boolean.
-- There are no partial indexes: what changes with a status stands in as few indexes as possible,
-- and generated columns that are NULL for finished rows keep those rows out of the way.

CREATE TABLE IF NOT EXISTS events (
    id          BIGINT       NOT NULL AUTO_INCREMENT,
    event_type  VARCHAR(100) NOT NULL,
    created_at  DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    payload     LONGTEXT     NOT NULL, -- JSON as received; the engines' JSON types rewrite it
    tenant      VARCHAR(100) NOT NULL DEFAULT '',
    external_id VARCHAR(255),
    bucket      SMALLINT     NOT NULL DEFAULT 0,
    PRIMARY KEY (id, bucket),
    UNIQUE KEY uniq_event_external_id (tenant, external_id, bucket),
    KEY idx_event_created (created_at),
    KEY idx_event_type (event_type, created_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation
:partitioning :partitions;

CREATE TABLE IF NOT EXISTS subscriptions (
    id                      BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    tenant                  VARCHAR(100) NOT NULL DEFAULT '',
    event_type              VARCHAR(100) NOT NULL,
    callback_url            VARCHAR(500) NOT NULL CHECK (callback_url LIKE 'https://%'),
    pending_callback_url    VARCHAR(500) CHECK (pending_callback_url LIKE 'https://%'),
    active                  BOOLEAN      NOT NULL DEFAULT TRUE,
    verified                BOOLEAN      NOT NULL DEFAULT FALSE, -- see 0002
    eligible_from           DATETIME(6),
    max_attempts            INT CHECK (max_attempts >= 1),
    base_delay_seconds      DOUBLE CHECK (base_delay_seconds > 0),
    request_timeout_seconds DOUBLE CHECK (request_timeout_seconds > 0),
    concurrency_cap         INT CHECK (concurrency_cap >= 1),
    rate_limit_per_second   DOUBLE CHECK (rate_limit_per_second > 0),
    custom_headers          LONGTEXT, -- sealed: they carry secrets
    description             LONGTEXT,
    idempotency_key         VARCHAR(255),
    created_at              DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at              DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    UNIQUE KEY uniq_sub_idempotency_key (tenant, idempotency_key),
    KEY idx_sub_event_type (event_type),
    KEY idx_sub_active (active),
    -- The router's match, answered from the index alone.
    KEY idx_sub_match (tenant, event_type, active, verified, eligible_from)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

CREATE TABLE IF NOT EXISTS subscription_secrets (
    id              BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
    subscription_id BIGINT      NOT NULL,
    scheme          VARCHAR(10) NOT NULL CHECK (scheme IN ('v1', 'v1a')),
    sealed          LONGTEXT    NOT NULL,
    created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    expires_at      DATETIME(6),
    KEY idx_secret_subscription (subscription_id),
    CONSTRAINT fk_secret_subscription FOREIGN KEY (subscription_id) REFERENCES subscriptions (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

CREATE TABLE IF NOT EXISTS subscription_verifications (
    id              BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    subscription_id BIGINT       NOT NULL,
    callback_url    VARCHAR(500) NOT NULL, -- the URL and the secret that are being proved
    secret_id       BIGINT       NOT NULL,
    challenge       VARCHAR(100) NOT NULL,
    code            VARCHAR(100) NOT NULL,
    code_tries      INT          NOT NULL DEFAULT 0,
    attempts        INT          NOT NULL DEFAULT 0,
    last_result     VARCHAR(100),
    last_reason     LONGTEXT,
    created_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    last_attempt_at DATETIME(6),
    expires_at      DATETIME(6)  NOT NULL,
    verified_at     DATETIME(6),
    KEY idx_verification_subscription (subscription_id, id),
    KEY idx_verification_open (verified_at, id), -- the open ones are those with NULL
    KEY idx_verification_secret (secret_id),
    CONSTRAINT fk_verification_subscription
        FOREIGN KEY (subscription_id) REFERENCES subscriptions (id),
    CONSTRAINT fk_verification_secret FOREIGN KEY (secret_id) REFERENCES subscription_secrets (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

CREATE TABLE IF NOT EXISTS webhook_delivery_sagas (
    id               BIGINT      NOT NULL AUTO_INCREMENT,
    event_id         BIGINT      NOT NULL,
    subscription_id  BIGINT      NOT NULL,
    -- In the order of states.py: the guard counts on it.
    status           ENUM ('Pending', 'InProgress', 'PendingRetry', 'Completed', 'DeadLettered')
                     NOT NULL DEFAULT 'Pending',
    attempt_count    INT         NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_attempt_at  DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    final_error_code VARCHAR(100),
    created_at       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    requeued_from    BIGINT      NOT NULL DEFAULT 0, -- the dead letter; 0 = routed
    bucket           SMALLINT    NOT NULL DEFAULT 0,
    -- The status while the saga waits, else NULL: a saga that finishes leaves idx_saga_waiting
    -- untouched.
    waiting          ENUM ('Pending', 'PendingRetry')
                     AS (IF(status IN ('Pending', 'PendingRetry'), status, NULL)) STORED,
    -- When it died, else NULL: only a death touches idx_saga_dead.
    died_at          DATETIME(6) AS (IF(status = 'DeadLettered', updated_at, NULL)) STORED,
    PRIMARY KEY (id, bucket),
    -- Serves idx_saga_event too.
    UNIQUE KEY uniq_saga_event_subscription (event_id, subscription_id, requeued_from, bucket),
    -- What is due, in order of time, and the walk over what is in progress. Serves idx_saga_status.
    KEY idx_saga_status_retry (status, next_attempt_at, id),
    -- What waits, per subscription: the fair pick. With the bucket first, grouping by subscription
    -- jumps from one to the next instead of reading all that waits.
    KEY idx_saga_waiting (bucket, waiting, subscription_id, next_attempt_at),
    -- What died, in order of time: the dead-letter sweep.
    KEY idx_saga_dead (died_at, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation
:partitioning :partitions;

CREATE TABLE IF NOT EXISTS webhook_delivery_jobs (
    id               BIGINT      NOT NULL AUTO_INCREMENT,
    saga_id          BIGINT      NOT NULL,
    event_id         BIGINT      NOT NULL,
    subscription_id  BIGINT      NOT NULL,
    -- In the order of states.py: the guard counts on it.
    status           ENUM ('Pending', 'Leased', 'Completed', 'Failed') NOT NULL DEFAULT 'Pending',
    attempt_at       DATETIME(6) NOT NULL, -- the saga's next_attempt_at, copied
    lease_until      DATETIME(6),
    lease_token      BIGINT,
    lease_resets     SMALLINT    NOT NULL DEFAULT 0,
    worker_id        VARCHAR(100),
    response_status  INT,
    error_code       VARCHAR(100),
    retry_after      INT, -- seconds, as the endpoint asked
    response_excerpt VARCHAR(1000),
    created_at       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    started_at       DATETIME(6),
    finished_at      DATETIME(6),
    bucket           SMALLINT    NOT NULL DEFAULT 0,
    -- Its subscription while the job is open, else NULL: leasing leaves idx_job_open untouched.
    open_for         BIGINT AS (IF(status IN ('Pending', 'Leased'), subscription_id, NULL)) STORED,
    PRIMARY KEY (id, bucket),
    -- Serves idx_job_saga too.
    UNIQUE KEY uniq_job_saga_attempt (saga_id, attempt_at, bucket),
    -- Pending jobs (lease_until is NULL) in order of creation, leased ones in order of expiry.
    KEY idx_job_status_lease (status, lease_until, id),
    -- How many are open per subscription: the cap.
    KEY idx_job_open (open_for)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation
:partitioning :partitions;

CREATE TABLE IF NOT EXISTS dead_letters (
    id               BIGINT      NOT NULL AUTO_INCREMENT,
    saga_id          BIGINT      NOT NULL,
    event_id         BIGINT      NOT NULL,
    subscription_id  BIGINT      NOT NULL,
    final_error_code VARCHAR(100),
    failed_at        DATETIME(6) NOT NULL, -- when the saga died
    payload_snapshot LONGTEXT    NOT NULL,
    bucket           SMALLINT    NOT NULL DEFAULT 0,
    PRIMARY KEY (id, bucket),
    UNIQUE KEY idx_dead_saga (saga_id, bucket),
    KEY idx_dead_event (event_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation
:partitioning :partitions;

-- How far the router has read: one row per bucket. Every id up to read_until_id was routed, is not
-- of this bucket, or stands in router_gaps.
CREATE TABLE IF NOT EXISTS router_cursor (
    bucket        SMALLINT    NOT NULL PRIMARY KEY,
    read_until_id BIGINT      NOT NULL DEFAULT 0,
    updated_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

-- Ids below the cursor that nobody had committed when it passed: a transaction may still be open.
-- The router deletes a gap when its events have come or its writer is known to be dead.
CREATE TABLE IF NOT EXISTS router_gaps (
    bucket     SMALLINT    NOT NULL,
    first_id   BIGINT      NOT NULL,
    last_id    BIGINT      NOT NULL,
    noticed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (bucket, first_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

-- The orchestrator's one row per subscription: locked while it fills the subscription's cap.
CREATE TABLE IF NOT EXISTS orchestrator_subscriptions (
    subscription_id  BIGINT      NOT NULL PRIMARY KEY,
    rate_tokens      DOUBLE      NOT NULL DEFAULT 1,
    rate_refilled_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

-- How far the dead-letter sweep has come: one row per bucket.
CREATE TABLE IF NOT EXISTS dead_letter_cursor (
    bucket      SMALLINT    NOT NULL PRIMARY KEY,
    swept_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00', -- earlier deaths are written
    rewalked_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) -- it last looked at all of them
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

CREATE TABLE IF NOT EXISTS api_keys (
    id           BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name         VARCHAR(100)   NOT NULL,
    key_hash     VARBINARY(255) NOT NULL UNIQUE,
    scopes       VARCHAR(100)   NOT NULL, -- comma-separated
    tenant       VARCHAR(100), -- NULL = every tenant
    created_at   DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    last_used_at DATETIME(6),
    revoked_at   DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;
