-- What the other files of this suite use.
CREATE EXTENSION zklock;

-- What a statement ends with: its value, or its SQLSTATE with all its texts.
CREATE FUNCTION outcome(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  value text;
  message text;
  detail text;
  hint text;
BEGIN
  EXECUTE statement INTO value;
  RETURN NEXT 'value: ' || coalesce(value, 'NULL');
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT,
    detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
  RETURN NEXT SQLSTATE || ': ' || message;
  IF detail <> '' THEN
    RETURN NEXT '  DETAIL: ' || detail;
  END IF;
  IF hint <> '' THEN
    RETURN NEXT '  HINT: ' || hint;
  END IF;
END
$$;

-- The locks of this session.
CREATE VIEW held AS
  SELECT path, scope, count FROM zk_locks
  WHERE pid = pg_backend_pid() AND state = 'held'
  ORDER BY path COLLATE "C", scope;
GRANT SELECT ON held TO PUBLIC;
