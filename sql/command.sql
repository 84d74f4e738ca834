-- zklock-run, beside the server's own programs, or, in a build that is not installed, below ZKLOCK_STAGE.
\t on
\a
SELECT setting AS bindir FROM pg_config WHERE name = 'BINDIR' \gset
\set run '"$ZKLOCK_STAGE"':bindir'/zklock-run -h ':HOST' -p ':PORT' -U ':USER' -d ':DBNAME
-- it has the lock while it runs
\setenv RUN :run
\echo `eval "$RUN --try /regress/run -- sh -c 'echo runs under \$ZKLOCK_PATH'" 2>&1`
-- it cannot have one that a session has
SELECT zk_lock('/regress/run');
\echo `eval "$RUN --try /regress/run -- echo runs" 2>&1; echo "exit status $?"`
SELECT zk_unlock('/regress/run');
