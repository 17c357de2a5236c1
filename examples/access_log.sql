-- Which operating systems visit us? The access-log job of access_log.py in SQL:
--   penstock sql run examples/access_log.sql

CREATE STREAM access_log (line VARCHAR) WITH (kafka_topic='access_log', value_format='KAFKA', partitions=1);

-- A line becomes a user agent and the time in the line; what is not a line of nginx has none, and is left out below.
CREATE STREAM hits WITH (kafka_topic='access_log-hits', value_format='JSON', timestamp='at') AS
  SELECT
    REGEXP_EXTRACT('^\S+ \S+ \S+ \[[^\]]+\] "[A-Z]+ \S+ [^"]*" \d{3} (?:\d+|-) "[^"]*" "([^"]*)"$', line, 1) AS agent,
    PARSE_TIMESTAMP(REGEXP_EXTRACT('\[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]', line, 1),
                    'dd/MMM/yyyy:HH:mm:ss Z') AS at
  FROM access_log
  WHERE line IS NOT NULL;

CREATE TABLE os_check WITH (kafka_topic='os-check', key_format='KAFKA', value_format='KAFKA') AS
  SELECT
    CASE
      WHEN agent LIKE '%Windows%' THEN 'Windows'
      WHEN agent LIKE '%iPhone%' OR agent LIKE '%iPad%' THEN 'iOS'
      WHEN agent LIKE '%Android%' THEN 'Android'
      WHEN agent LIKE '%Mac OS X%' THEN 'macOS'
      WHEN agent LIKE '%CrOS%' THEN 'ChromeOS'
      WHEN agent LIKE '%Linux%' THEN 'Linux'
      WHEN agent LIKE '%bot%' THEN 'a bot'
      ELSE 'other'
    END AS system,
    COUNT(*) AS hits
  FROM hits
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS)
  WHERE agent IS NOT NULL
  GROUP BY
    CASE
      WHEN agent LIKE '%Windows%' THEN 'Windows'
      WHEN agent LIKE '%iPhone%' OR agent LIKE '%iPad%' THEN 'iOS'
      WHEN agent LIKE '%Android%' THEN 'Android'
      WHEN agent LIKE '%Mac OS X%' THEN 'macOS'
      WHEN agent LIKE '%CrOS%' THEN 'ChromeOS'
      WHEN agent LIKE '%Linux%' THEN 'Linux'
      WHEN agent LIKE '%bot%' THEN 'a bot'
      ELSE 'other'
    END;
