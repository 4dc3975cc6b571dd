-- Written by `make generate` from states.py; do not edit.

DO $$ BEGIN
    CREATE TYPE saga_status AS ENUM ('Pending', 'InProgress', 'PendingRetry', 'Completed', 'DeadLettered');
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

ALTER TYPE saga_status ADD VALUE IF NOT EXISTS 'Pending';

ALTER TYPE saga_status ADD VALUE IF NOT EXISTS 'InProgress';

ALTER TYPE saga_status ADD VALUE IF NOT EXISTS 'PendingRetry';

ALTER TYPE saga_status ADD VALUE IF NOT EXISTS 'Completed';

ALTER TYPE saga_status ADD VALUE IF NOT EXISTS 'DeadLettered';

DO $$ BEGIN
    CREATE TYPE job_status AS ENUM ('Pending', 'Leased', 'Completed', 'Failed');
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

ALTER TYPE job_status ADD VALUE IF NOT EXISTS 'Pending';

ALTER TYPE job_status ADD VALUE IF NOT EXISTS 'Leased';

ALTER TYPE job_status ADD VALUE IF NOT EXISTS 'Completed';

ALTER TYPE job_status ADD VALUE IF NOT EXISTS 'Failed';
