"""Parameters of Java's drivers in URLs of databases: each is obeyed, or refused with a sentence; none is ignored."""

import pytest
from sqlalchemy import create_engine, text

from mariadb_server import mariadb
from penstock.connect.config import Password
from penstock.connect.connectors.installed_plugins import with_own
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.connectors.sql_urls import DatabaseAddress
from penstock.connect.data import SettingError
from penstock.connect.functions import installed_plugins
from penstock.connect.plugins import validate_connector
from penstock.connect.testing import ConnectTestDriver
from postgres_server import postgres

__all__ = ["mariadb", "postgres"]


def address(url, zone="UTC"):
    nobody = {"connection.user": None, "connection.password": Password("")}
    return DatabaseAddress.of({"connection.url": url, "db.timezone": zone, **nobody})


@pytest.mark.parametrize(
    ("parameters", "query"),
    [
        ("useSSL=false", {"ssl_disabled": "true"}),
        ("useSSL=false&allowPublicKeyRetrieval=true&serverTimezone=UTC", {"ssl_disabled": "true"}),
        ("useSSL=true", {"ssl_check_hostname": "false"}),
        ("useSSL=true&requireSSL=true&verifyServerCertificate=false", {"ssl_check_hostname": "false"}),
        ("sslMode=REQUIRED", {"ssl_check_hostname": "false"}),
        ("sslMode=PREFERRED", {}),
        ("sslMode=VERIFY_CA&ssl_ca=/ca.pem", {"ssl_ca": "/ca.pem", "ssl_check_hostname": "false"}),
        ("sslMode=VERIFY_IDENTITY&ssl_ca=/ca.pem", {"ssl_ca": "/ca.pem", "ssl_check_hostname": "true"}),
        ("useUnicode=true&characterEncoding=UTF-8&rewriteBatchedStatements=true&tinyInt1isBit=false", {}),
        ("connectTimeout=1500&socketTimeout=60000", {"connect_timeout": "2", "read_timeout": "60", "write_timeout": "60"}),
        ("socketTimeout=0", {}),
        ("sessionVariables=sql_mode='ANSI,STRICT_ALL_TABLES',@x=1", {
            "init_command": "SET SESSION sql_mode='ANSI,STRICT_ALL_TABLES', @x=1"
        }),
        ("zeroDateTimeBehavior=EXCEPTION&yearIsDateType=true", {}),
    ],
)  # fmt: skip
def test_parameters_of_mysql_are_obeyed(parameters, query):
    assert dict(address(f"jdbc:mysql://h/d?{parameters}").url.query) == query


def test_mariadbs_own_ways_of_tls_are_obeyed():
    trusting = address("jdbc:mariadb://h/d?useSsl=true&trustServerCertificate=true").url.query
    assert dict(trusting) == {"ssl_check_hostname": "false"}
    checked = address("jdbc:mariadb://h/d?sslMode=verify-full&serverSslCert=/ca.pem").url.query
    assert dict(checked) == {"ssl_ca": "/ca.pem", "ssl_check_hostname": "true"}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jdbc:mysql://h/d?serverTimezone=Europe/Berlin", "serverTimezone: .* set db.timezone=Europe/Berlin"),
        ("jdbc:mysql://h/d?connectionTimeZone=LOCAL", "db.timezone"),
        ("jdbc:mysql://h:port/d", "is not a URL of a database"),
        ("jdbc:postgresql://ann:secret@h1:5432,h2:5433/d", "is not a URL of a database"),
        ("jdbc:mysql://h/d?sslMode=VERIFY_CA", "name its file in PEM by ssl_ca"),
        ("jdbc:mysql://h/d?sslMode=perhaps", "none of disable, trust"),
        ("jdbc:mysql://h/d?useSSL=true&trustCertificateKeyStoreUrl=file:x.jks", "Java's key stores are not read"),
        ("jdbc:mysql://h/d?zeroDateTimeBehavior=CONVERT_TO_NULL", "0000-00-00 fails"),
        ("jdbc:mysql://h/d?yearIsDateType=false", "first day of that year"),
        ("jdbc:mysql://h/d?createDatabaseIfNotExist=true", "create the database by hand"),
        ("jdbc:mysql://h/d?connectTimeout=soon", "no number of milliseconds"),
        ("jdbc:mysql://h/d?sessionVariables=x", "write name=value"),
        ("jdbc:mysql://h/d?usSSL=false", "parameter usSSL: it is not known here. Did you mean useSSL"),
        ("jdbc:mysql://h1,h2/d", "names several hosts"),
        ("jdbc:postgresql://h/d?socketTimeout=10", "set tcp_user_timeout in milliseconds"),
        ("jdbc:postgresql://h/d?sslfactory=com.example.Own", "classes of Java are not loaded"),
        ("jdbc:postgresql://h/d?targetServerType=preferPrimary", "any, primary, secondary or preferSecondary"),
        ("jdbc:postgresql://h/d?curentSchema=s", "it is not known here"),
        ("jdbc:sqlite:/x.db?date_class=TEXT", "times are written as texts"),
        ("jdbc:sqlite:/x.db?journal_mode=WAL;DROP", "neither a word nor a number"),
        ("jdbc:sqlite:/x.db?what=1", "it is not known here"),
    ],
)  # fmt: skip
def test_what_cannot_be_obeyed_is_refused_also_when_it_is_configured(url, message):
    with pytest.raises(SettingError, match=message):
        address(url)
    config = {
        "name": "s", "connector.class": SqlSourceConnector.java_class, "connection.url": url, "topic.prefix": "p-", "mode": "bulk",
        "table.whitelist": "t",
    }  # fmt: skip
    validated = validate_connector(config, with_own(installed_plugins()))
    (entry,) = [each["value"] for each in validated["configs"] if each["value"]["name"] == "connection.url"]
    assert any("connection.url" in error for error in entry["errors"])


@pytest.mark.parametrize(
    ("parameters", "query"),
    [
        ("ssl=true", {"sslmode": "verify-full"}),
        ("ssl=true&sslmode=require", {"sslmode": "require"}),
        ("ssl=false&ApplicationName=a&loginTimeout=5&stringtype=unspecified", {"application_name": "a", "connect_timeout": "5"}),
        ("sslfactory=org.postgresql.ssl.NonValidatingFactory", {"sslmode": "require"}),
        ("currentSchema=a b&readOnly=true", {"options": "-csearch_path=a\\ b -cdefault_transaction_read_only=on"}),
        ("targetServerType=primary&gssEncMode=disable", {"target_session_attrs": "primary", "gssencmode": "disable"}),
    ],
)  # fmt: skip
def test_parameters_of_postgresql_are_obeyed(parameters, query):
    assert dict(address(f"jdbc:postgresql://h/d?{parameters}").url.query) == query


def read(url, **more):
    config = {"connection.url": url, "topic.prefix": "p", "mode": "bulk", "poll.interval.ms": "0", **more}
    driver = ConnectTestDriver(SqlSourceConnector, config)
    try:
        return [record.value.to_dict() for record in driver.poll()]
    finally:
        driver.stop()


def test_the_parameters_reach_postgresql(postgres):
    hosts = f"127.0.0.1:1,127.0.0.1:{postgres.port}"
    url = f"jdbc:postgresql://{hosts}/postgres?user=postgres&readOnly=true&ApplicationName=me&targetServerType=primary"
    query = "SELECT current_setting('application_name') AS a, current_setting('default_transaction_read_only') AS b"
    assert read(url, query=query) == [{"a": "me", "b": "on"}]


def test_the_parameters_reach_mariadb(mariadb):
    url = f"jdbc:mariadb://127.0.0.1:{mariadb.port}/mysql?user=root&useSSL=false&serverTimezone=UTC&connectTimeout=5000"
    query = "SELECT @@session.sql_mode AS a, @@session.max_statement_time AS b"
    variables = "&sessionVariables=sql_mode='ANSI',max_statement_time=7"
    assert read(url + variables, query=query)[0]["b"] == 7
    assert "ANSI" in read(url + variables, query=query)[0]["a"]


def test_the_parameters_reach_sqlite(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (a text)"))
        connection.execute(text("INSERT INTO t VALUES ('x')"))
    engine.dispose()
    url = f"jdbc:sqlite:{tmp_path / 'x.db'}?journal_mode=WAL&busy_timeout=1234&cache_size=77"
    assert read(url, **{"table.whitelist": "t"}) == [{"a": "x"}]
    assert (tmp_path / "x.db").read_bytes()[18] == 2  # its header says that it has a write-ahead log
    assert read(f"jdbc:sqlite:{tmp_path / 'x.db'}?mode=ro", **{"table.whitelist": "t"}) == [{"a": "x"}]
