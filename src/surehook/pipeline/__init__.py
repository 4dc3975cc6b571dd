"""The pipeline, in the order in which a delivery meets its components.

    subscriptions an owner            → subscriptions
    verifier      a challenge         → subscriptions, verified
    ingest        a request            → events
    router        events               → sagas
    orchestrator  due sagas            → jobs;  job results → sagas
    worker        jobs → HTTPS         → job results
    cleaner       expired leases       → jobs
    deadletters   dead sagas           → dead_letters → (requeued) new sagas

    service       the loop that each of them runs in: step, wake, drain
    hints         how one tells another that there is work; a lost hint costs a moment

One file is one component is one database role is one SQL file. They meet only in the database.
"""
