-- Written by `make generate` from roles.py; do not edit.

REVOKE ALL ON events, subscriptions, subscription_eligibility, subscription_secrets, subscription_verifications, webhook_delivery_sagas, webhook_delivery_jobs, dead_letters, router_cursor, router_held, orchestrator_subscriptions, dead_letter_cursor, api_keys, processes, system_figures, schema_migrations, schema_settings
    FROM PUBLIC, event_ingest_writer, outbox_writer, subscription_admin, subscription_verifier, router_worker, saga_orchestrator, job_worker, lease_cleaner, dead_letter_operator, key_admin, key_checker, process_registrar, observer;

DO $$ BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO event_ingest_writer, outbox_writer, subscription_admin, subscription_verifier, router_worker, saga_orchestrator, job_worker, lease_cleaner, dead_letter_operator, key_admin, key_checker, process_registrar, observer', current_schema());
END $$;

-- ingest: stores events
GRANT SELECT (id, event_type, created_at, payload, tenant, external_id, bucket)
    ON events TO event_ingest_writer;
GRANT INSERT (event_type, payload, tenant, external_id, bucket)
    ON events TO event_ingest_writer;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO event_ingest_writer;
GRANT SELECT (name, value)
    ON schema_settings TO event_ingest_writer;

-- outbox: lets an application insert events in its own transaction
GRANT INSERT (event_type, payload, tenant, external_id, bucket)
    ON events TO outbox_writer;

-- subscriptions: creates and changes subscriptions
GRANT SELECT (id, tenant, event_type, callback_url, pending_callback_url, active, verified, eligible_from, max_attempts, base_delay_seconds, request_timeout_seconds, concurrency_cap, rate_limit_per_second, description, created_at, updated_at, version, idempotency_key)
    ON subscriptions TO subscription_admin;
GRANT INSERT (tenant, event_type, callback_url, active, max_attempts, base_delay_seconds, request_timeout_seconds, concurrency_cap, rate_limit_per_second, description, custom_headers, idempotency_key)
    ON subscriptions TO subscription_admin;
GRANT UPDATE (event_type, callback_url, pending_callback_url, active, max_attempts, base_delay_seconds, request_timeout_seconds, concurrency_cap, rate_limit_per_second, description, custom_headers)
    ON subscriptions TO subscription_admin;
GRANT SELECT (id, subscription_id, scheme, expires_at)
    ON subscription_secrets TO subscription_admin;
GRANT INSERT (subscription_id, scheme, sealed)
    ON subscription_secrets TO subscription_admin;
GRANT UPDATE (expires_at)
    ON subscription_secrets TO subscription_admin;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO subscription_admin;
GRANT SELECT (name, value)
    ON schema_settings TO subscription_admin;

-- verifier: challenges endpoints and marks them verified
GRANT SELECT (id, tenant, event_type, callback_url, pending_callback_url, request_timeout_seconds, custom_headers)
    ON subscriptions TO subscription_verifier;
GRANT UPDATE (callback_url, pending_callback_url, verified)
    ON subscriptions TO subscription_verifier;
GRANT SELECT (id, subscription_id, scheme, sealed, expires_at)
    ON subscription_secrets TO subscription_verifier;
GRANT SELECT (id, subscription_id, callback_url, secret_id, challenge, code, code_tries, attempts, last_result, last_reason, created_at, last_attempt_at, expires_at, verified_at)
    ON subscription_verifications TO subscription_verifier;
GRANT INSERT (subscription_id, callback_url, secret_id, challenge, code, expires_at)
    ON subscription_verifications TO subscription_verifier;
GRANT UPDATE (code_tries, attempts, last_result, last_reason, last_attempt_at, verified_at)
    ON subscription_verifications TO subscription_verifier;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO subscription_verifier;
GRANT SELECT (name, value)
    ON schema_settings TO subscription_verifier;

-- router: makes one saga per event and matching subscription
GRANT SELECT (id, event_type, created_at, tenant, bucket, xid)
    ON events TO router_worker;
GRANT SELECT (id, tenant, event_type, active, verified, eligible_from, eligible_until, eligible_first)
    ON subscriptions TO router_worker;
GRANT SELECT (subscription_id, tenant, pattern, eligible_from, eligible_until)
    ON subscription_eligibility TO router_worker;
GRANT SELECT (id, event_id, subscription_id, requeued_from, bucket)
    ON webhook_delivery_sagas TO router_worker;
GRANT INSERT (event_id, subscription_id, bucket)
    ON webhook_delivery_sagas TO router_worker;
GRANT SELECT (bucket, system_identifier, snapshot, partial_xid, partial_id, foreign_id_max, rescan_after_id, rescan_until_id)
    ON router_cursor TO router_worker;
GRANT INSERT (bucket, system_identifier, snapshot)
    ON router_cursor TO router_worker;
GRANT UPDATE (system_identifier, snapshot, partial_xid, partial_id, foreign_id_max, rescan_after_id, rescan_until_id, updated_at)
    ON router_cursor TO router_worker;
GRANT SELECT (bucket, subscription_id, event_id)
    ON router_held TO router_worker;
GRANT INSERT (bucket, subscription_id, event_id)
    ON router_held TO router_worker;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO router_worker;
GRANT SELECT (name, value)
    ON schema_settings TO router_worker;
GRANT DELETE ON router_held TO router_worker;

-- orchestrator: creates jobs and applies their results to sagas
GRANT SELECT (id, tenant, max_attempts, base_delay_seconds, concurrency_cap, rate_limit_per_second)
    ON subscriptions TO saga_orchestrator;
GRANT SELECT (id, event_id, subscription_id, status, attempt_count, next_attempt_at, final_error_code, updated_at, bucket)
    ON webhook_delivery_sagas TO saga_orchestrator;
GRANT UPDATE (status, attempt_count, next_attempt_at, final_error_code, updated_at)
    ON webhook_delivery_sagas TO saga_orchestrator;
GRANT SELECT (id, saga_id, event_id, subscription_id, status, attempt_at, error_code, retry_after, started_at, finished_at, bucket, lane)
    ON webhook_delivery_jobs TO saga_orchestrator;
GRANT INSERT (saga_id, event_id, subscription_id, attempt_at, bucket, lane)
    ON webhook_delivery_jobs TO saga_orchestrator;
GRANT SELECT (subscription_id, rate_tokens, rate_refilled_at, slow, ramp)
    ON orchestrator_subscriptions TO saga_orchestrator;
GRANT INSERT (subscription_id, ramp)
    ON orchestrator_subscriptions TO saga_orchestrator;
GRANT UPDATE (rate_tokens, rate_refilled_at, slow, ramp)
    ON orchestrator_subscriptions TO saga_orchestrator;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO saga_orchestrator;
GRANT SELECT (name, value)
    ON schema_settings TO saga_orchestrator;

-- worker: leases jobs, sends them, writes what came of it
GRANT SELECT (id, event_type, created_at, payload, bucket)
    ON events TO job_worker;
GRANT SELECT (id, tenant, callback_url, active, verified, request_timeout_seconds, custom_headers)
    ON subscriptions TO job_worker;
GRANT SELECT (id, subscription_id, sealed, expires_at)
    ON subscription_secrets TO job_worker;
GRANT SELECT (id, saga_id, event_id, subscription_id, status, lease_until, lease_token, lease_resets, worker_id, started_at, bucket, lane)
    ON webhook_delivery_jobs TO job_worker;
GRANT UPDATE (status, lease_until, lease_token, worker_id, response_status, error_code, retry_after, response_excerpt, started_at, finished_at, lane, failure_detail)
    ON webhook_delivery_jobs TO job_worker;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO job_worker;
GRANT SELECT (name, value)
    ON schema_settings TO job_worker;

-- cleaner: returns jobs whose lease has expired
GRANT SELECT (id, saga_id, event_id, status, lease_until, lease_resets, worker_id, error_code, bucket, lane)
    ON webhook_delivery_jobs TO lease_cleaner;
GRANT UPDATE (status, lease_until, lease_token, lease_resets, error_code, finished_at)
    ON webhook_delivery_jobs TO lease_cleaner;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO lease_cleaner;
GRANT SELECT (name, value)
    ON schema_settings TO lease_cleaner;

-- deadletters: writes down dead sagas and requeues them as new ones
GRANT SELECT (id, event_type, payload, bucket)
    ON events TO dead_letter_operator;
GRANT SELECT (id, tenant, active, verified)
    ON subscriptions TO dead_letter_operator;
GRANT SELECT (id, event_id, subscription_id, status, final_error_code, updated_at, requeued_from, bucket)
    ON webhook_delivery_sagas TO dead_letter_operator;
GRANT INSERT (event_id, subscription_id, requeued_from, bucket)
    ON webhook_delivery_sagas TO dead_letter_operator;
GRANT SELECT (id, saga_id, attempt_at, lease_until, worker_id, bucket)
    ON webhook_delivery_jobs TO dead_letter_operator;
GRANT SELECT (id, saga_id, event_id, subscription_id, final_error_code, failed_at, bucket)
    ON dead_letters TO dead_letter_operator;
GRANT INSERT (saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot, bucket)
    ON dead_letters TO dead_letter_operator;
GRANT SELECT (bucket, swept_until, rewalked_at)
    ON dead_letter_cursor TO dead_letter_operator;
GRANT INSERT (bucket)
    ON dead_letter_cursor TO dead_letter_operator;
GRANT UPDATE (swept_until, rewalked_at)
    ON dead_letter_cursor TO dead_letter_operator;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO dead_letter_operator;
GRANT SELECT (name, value)
    ON schema_settings TO dead_letter_operator;

-- keys: creates and revokes API keys
GRANT SELECT (id, name, scopes, tenant, created_at, last_used_at, revoked_at)
    ON api_keys TO key_admin;
GRANT INSERT (name, key_hash, scopes, tenant)
    ON api_keys TO key_admin;
GRANT UPDATE (revoked_at)
    ON api_keys TO key_admin;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO key_admin;
GRANT SELECT (name, value)
    ON schema_settings TO key_admin;

-- key_checks: looks API keys up
GRANT SELECT (id, name, key_hash, scopes, tenant, last_used_at, revoked_at)
    ON api_keys TO key_checker;
GRANT UPDATE (last_used_at)
    ON api_keys TO key_checker;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO key_checker;
GRANT SELECT (name, value)
    ON schema_settings TO key_checker;

-- registry: says which processes run, keeps the figures of the whole system
GRANT SELECT (process_id, component, heartbeat_at)
    ON processes TO process_registrar;
GRANT INSERT (process_id, component, host, pid, version, address, since, heartbeat_at, step_at, trouble)
    ON processes TO process_registrar;
GRANT UPDATE (heartbeat_at, step_at, trouble)
    ON processes TO process_registrar;
GRANT SELECT (name, begun_at, counted_at)
    ON system_figures TO process_registrar;
GRANT INSERT (name, begun_at)
    ON system_figures TO process_registrar;
GRANT UPDATE (begun_at, counted_at, figures)
    ON system_figures TO process_registrar;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO process_registrar;
GRANT SELECT (name, value)
    ON schema_settings TO process_registrar;
GRANT DELETE ON processes TO process_registrar;

-- observer: answers questions: read API, console, check, metrics
GRANT SELECT (id, event_type, created_at, payload, tenant, external_id, bucket, xid)
    ON events TO observer;
GRANT SELECT (id, tenant, event_type, callback_url, pending_callback_url, active, verified, eligible_from, max_attempts, base_delay_seconds, request_timeout_seconds, concurrency_cap, rate_limit_per_second, description, created_at, updated_at, version, idempotency_key, eligible_until, eligible_first)
    ON subscriptions TO observer;
GRANT SELECT (id, subscription_id, tenant, pattern, eligible_from, eligible_until)
    ON subscription_eligibility TO observer;
GRANT SELECT (id, subscription_id, callback_url, secret_id, code_tries, attempts, last_result, last_reason, created_at, last_attempt_at, expires_at, verified_at)
    ON subscription_verifications TO observer;
GRANT SELECT (id, event_id, subscription_id, status, attempt_count, next_attempt_at, final_error_code, created_at, updated_at, requeued_from, bucket)
    ON webhook_delivery_sagas TO observer;
GRANT SELECT (id, saga_id, event_id, subscription_id, status, attempt_at, lease_until, lease_token, lease_resets, worker_id, response_status, error_code, retry_after, response_excerpt, created_at, started_at, finished_at, bucket, lane, failure_detail)
    ON webhook_delivery_jobs TO observer;
GRANT SELECT (id, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot, bucket)
    ON dead_letters TO observer;
GRANT SELECT (bucket, system_identifier, snapshot, partial_xid, partial_id, foreign_id_max, rescan_after_id, rescan_until_id, updated_at)
    ON router_cursor TO observer;
GRANT SELECT (bucket, subscription_id, event_id)
    ON router_held TO observer;
GRANT SELECT (subscription_id, rate_tokens, rate_refilled_at, slow, ramp)
    ON orchestrator_subscriptions TO observer;
GRANT SELECT (bucket, swept_until, rewalked_at)
    ON dead_letter_cursor TO observer;
GRANT SELECT (id, name, scopes, tenant, created_at, last_used_at, revoked_at)
    ON api_keys TO observer;
GRANT SELECT (process_id, component, host, pid, version, address, since, heartbeat_at, step_at, trouble)
    ON processes TO observer;
GRANT SELECT (name, begun_at, counted_at, figures)
    ON system_figures TO observer;
GRANT SELECT (version, name, checksum, oldest_program, applied_at)
    ON schema_migrations TO observer;
GRANT SELECT (name, value)
    ON schema_settings TO observer;
