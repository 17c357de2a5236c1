"""Nexmark's queries in SQL, as far as ksqlDB's language has them; the results have the names of those of queries.py.

Not in SQL: q5 and q7 (an aggregate of the rows of a windowed table by window), q6 (the last ten rows of a table), q12 (windows of
the clock), q15 and q16 (exact distinct counts: COUNT_DISTINCT estimates, as in ksqlDB).
"""

from __future__ import annotations

from collections.abc import Mapping

from nexmark.queries import TOPICS
from penstock import Topology
from penstock.sql.session import SessionSettings
from penstock.sql.session.script_application import Script

SOURCES = {
    "person": "CREATE STREAM person (k STRING KEY, id BIGINT, name STRING, city STRING, state STRING, `dateTime` BIGINT)",
    "auction": "CREATE STREAM auction (k STRING KEY, id BIGINT, `itemName` STRING, description STRING, `initialBid` BIGINT, reserve BIGINT, "
    "`dateTime` BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING)",
    "bid": "CREATE STREAM bid (k STRING KEY, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` BIGINT, extra STRING)",
    "side": "CREATE TABLE side (k STRING PRIMARY KEY, value STRING)",
}
BID = "auction AS `auction`, bidder AS `bidder`, price AS `price`, channel AS `channel`, url AS `url`, `dateTime`, extra AS `extra`"
FOLDER = "SPLIT(url, '/')"
SHORT_DAY = "FORMAT_TIMESTAMP(FROM_UNIXTIME(`dateTime`), 'yyyy-MM-dd', 'UTC')"


IN_TIME = """
    CREATE STREAM in_time WITH (kafka_topic='{in_time}') AS
      SELECT b.k AS k, a.seller AS seller, a.category AS category, a.expires AS expires, b.auction AS auction, b.bidder AS bidder, b.price AS price,
        b.channel AS channel, b.url AS url, b.`dateTime` AS `dateTime`, b.extra AS extra
      FROM auction a JOIN bid b WITHIN (0 MILLISECONDS, {longest} MILLISECONDS) GRACE PERIOD 1 HOUR ON a.k = b.k
      WHERE b.`dateTime` <= a.expires;"""
QUERIES = {
    "q0": f"CREATE STREAM o {{out}} AS SELECT k, {BID} FROM bid;",
    "q1": "CREATE STREAM o {out} AS SELECT k, auction AS `auction`, bidder AS `bidder`, CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) AS `price`, "
    "`dateTime`, extra AS `extra` FROM bid;",
    "q2": "CREATE STREAM o {out} AS SELECT k, auction AS `auction`, price AS `price` FROM bid WHERE auction % 123 = 0;",
    "q10": f"CREATE STREAM o {{out}} AS SELECT k, {BID}, {SHORT_DAY} AS `day`, "
    "FORMAT_TIMESTAMP(FROM_UNIXTIME(`dateTime`), 'HH:mm', 'UTC') AS `minute` FROM bid;",
    "q11": "CREATE TABLE o {out} AS SELECT CAST(bidder AS STRING) AS k, AS_VALUE(CAST(bidder AS STRING)) AS `bidder`, "
    "WINDOWSTART AS `start`, WINDOWEND AS `end`, COUNT(*) AS `bids` FROM bid WINDOW SESSION (10 SECONDS, GRACE PERIOD 1 HOUR) "
    "GROUP BY CAST(bidder AS STRING);",
    "q14": "CREATE STREAM o {out} AS SELECT k, auction AS `auction`, bidder AS `bidder`, CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) AS `price`, "
    "CASE WHEN `dateTime` / 3600000 % 24 >= 8 AND `dateTime` / 3600000 % 24 <= 18 THEN 'day' "
    "WHEN `dateTime` / 3600000 % 24 <= 6 OR `dateTime` / 3600000 % 24 >= 20 THEN 'night' ELSE 'other' END AS `time`, `dateTime`, extra AS `extra`, "
    "CAST(LEN(extra) - LEN(REPLACE(extra, 'c', '')) AS BIGINT) AS `c` FROM bid "
    "WHERE CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) > 1000000 AND CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) < 50000000;",
    "q18": "CREATE TABLE o {out} AS SELECT CAST(bidder AS STRING) + '|' + k AS kk, "
    + ", ".join(f"LATEST_BY_OFFSET({f}) AS `{f}`" for f in ("auction", "bidder", "price", "channel", "url"))
    + ", LATEST_BY_OFFSET(`dateTime`) AS `dateTime`, LATEST_BY_OFFSET(extra) AS `extra` FROM bid GROUP BY CAST(bidder AS STRING) + '|' + k;",
    "q21": "CREATE STREAM o {out} AS SELECT k, auction AS `auction`, bidder AS `bidder`, price AS `price`, channel AS `channel`, "
    "CASE WHEN LCASE(channel) = 'apple' THEN '0' WHEN LCASE(channel) = 'google' THEN '1' WHEN LCASE(channel) = 'facebook' THEN '2' "
    "WHEN LCASE(channel) = 'baidu' THEN '3' ELSE REGEXP_EXTRACT('(&|^)channel_id=([^&]*)', url, 2) END AS `channel_id` FROM bid "
    "WHERE LCASE(channel) IN ('apple', 'google', 'facebook', 'baidu') OR REGEXP_EXTRACT('(&|^)channel_id=([^&]*)', url, 2) IS NOT NULL;",
    "q22": "CREATE STREAM o {out} AS SELECT k, auction AS `auction`, bidder AS `bidder`, price AS `price`, channel AS `channel`, "
    + ", ".join(f"{FOLDER}[{at}] AS `dir{at - 3}`" for at in (4, 5, 6))
    + " FROM bid;",
    "q17": "CREATE TABLE o {out} AS SELECT k, FORMAT_TIMESTAMP(FROM_UNIXTIME(WINDOWSTART), 'yyyy-MM-dd', 'UTC') AS `day`, AS_VALUE(k) AS `auction`, "
    "COUNT(*) AS `n0`, SUM(CASE WHEN price < 10000 THEN 1 ELSE 0 END) AS `n1`, SUM(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 ELSE 0 END) AS `n2`, "
    "SUM(CASE WHEN price >= 1000000 THEN 1 ELSE 0 END) AS `n3`, MIN(price) AS `smallest`, MAX(price) AS `largest`, SUM(price) AS `total`, "
    "AVG(price) AS `average` FROM bid WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD 1 HOUR) GROUP BY k;",
    "q3": """
    CREATE TABLE persons WITH (kafka_topic='{in_time}') AS SELECT k, LATEST_BY_OFFSET(id) AS id, LATEST_BY_OFFSET(name) AS name,
      LATEST_BY_OFFSET(city) AS city, LATEST_BY_OFFSET(state) AS state FROM person WHERE state IN ('OR', 'ID', 'CA') GROUP BY k;
    CREATE TABLE auctions WITH (kafka_topic='{highest}') AS SELECT k, LATEST_BY_OFFSET(id) AS id,
      LATEST_BY_OFFSET(CAST(seller AS STRING)) AS seller FROM auction WHERE category = 10 GROUP BY k;
    CREATE TABLE o {out} AS SELECT a.k AS k, p.name AS `name`, p.city AS `city`, p.state AS `state`, a.id AS `id`
      FROM auctions a JOIN persons p ON a.seller = p.k;""",
    "q9": IN_TIME
    + """
    CREATE TABLE o {out} AS SELECT k, TRANSFORM(TOPK(price, seller, category, expires, auction, bidder, `dateTime`, 1),
      b => STRUCT(`price` := b->`sort_col`, `seller` := b->`col0`, `category` := b->`col1`, `expires` := b->`col2`, `auction` := b->`col3`, `bidder` := b->`col4`,
        `dateTime` := b->`col5`)) AS `best` FROM in_time GROUP BY k;""",
    "q4": IN_TIME
    + """
    CREATE TABLE highest WITH (kafka_topic='{highest}') AS SELECT k, LATEST_BY_OFFSET(category) AS category, MAX(price) AS price FROM in_time GROUP BY k;
    CREATE TABLE o {out} AS SELECT category AS k, AS_VALUE(category) AS `category`, AVG(price) AS `average` FROM highest GROUP BY category;""",
    "q8": "CREATE STREAM o {out} AS SELECT p.id AS k, AS_VALUE(p.id) AS `id`, p.name AS `name`, p.`dateTime` / 10000 * 10000 AS `start` "
    "FROM person p JOIN auction a WITHIN 10 SECONDS GRACE PERIOD 1 HOUR ON p.id = a.seller WHERE p.`dateTime` / 10000 = a.`dateTime` / 10000;",
    "q13": "CREATE STREAM o {out} AS SELECT s.k AS k, b.auction AS `auction`, b.bidder AS `bidder`, b.price AS `price`, b.`dateTime` AS `dateTime`, "
    "s.value AS `side` FROM bid b JOIN side s ON CAST(b.auction % 10000 AS STRING) = s.k;",
    "q19": "CREATE TABLE o {out} AS SELECT k, TRANSFORM(TOPK(price, auction, bidder, channel, url, `dateTime`, extra, 10), "
    "b => STRUCT(`auction` := b->`col0`, `bidder` := b->`col1`, `price` := b->`sort_col`, `channel` := b->`col2`, `url` := b->`col3`, `dateTime` := b->`col4`, "
    "`extra` := b->`col5`)) AS `bids` FROM bid GROUP BY k;",
    "q20": "CREATE STREAM o {out} AS SELECT b.k AS k, "
    + ", ".join(f"b.{f} AS `{f}`" for f in ("auction", "bidder", "price", "channel", "url"))
    + ", b.`dateTime` AS `dateTime`, b.extra AS `extra`, a.`itemName` AS `itemName`, a.description AS `description`, a.`initialBid` AS `initialBid`, "
    "a.reserve AS `reserve`, a.expires AS `expires`, a.seller AS `seller`, a.category AS `category`, a.`dateTime` AS `opened` "
    "FROM bid b JOIN auction a WITHIN 1 DAY GRACE PERIOD 1 HOUR ON b.k = a.k WHERE a.category = 10;",
}


def topology(query: str, topics: Mapping[str, str], longest_auction_ms: int) -> Topology:
    """The query over topics of these names, of one partition each."""
    created = "\n".join(
        f"{SOURCES[name]} WITH (kafka_topic='{topics[name]}', key_format='KAFKA', value_format='JSON');"
        for name in TOPICS[query]
    )
    out = f"WITH (kafka_topic='{topics['out']}', key_format='KAFKA', value_format='JSON')"
    text = QUERIES[query].format(
        out=out, longest=longest_auction_ms, in_time=topics["out"] + "-in-time", highest=topics["out"] + "-highest"
    )
    known = dict.fromkeys(topics.values(), 1)
    return Script(created + text, SessionSettings.of({}), known).topology()
