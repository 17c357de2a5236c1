"""URLs of databases: SQLAlchemy's, and those of Java's drivers, whose parameters are obeyed or refused one by one."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.base.nearest_name import did_you_mean
from penstock.connect.connectors.sql_settings import zone_of
from penstock.connect.data import SettingError

if TYPE_CHECKING:
    from sqlalchemy import URL

__all__ = ["DatabaseAddress", "address_problems"]

_KEY_STORES = "Java's key stores are not read: name files in PEM by ssl_ca, ssl_cert and ssl_key"
_PG_STORES = "classes of Java are not loaded: name files in PEM by sslrootcert, sslcert and sslkey"
_LONGEST_S = 31_536_000


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What becomes of the parameters of one of Java's drivers, by their names in small letters.

    Attributes:
        idle: They tune Java's driver, and change no record.
        own: They go on to the driver here, under these names.
        only: The value that is what happens here anyway, and a sentence for any other.
        read: Functions of the value; they return parameters of the driver here.
        refused: Sentences.
        others: What is read elsewhere.
    """

    idle: Mapping[str, str]
    own: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    read: Mapping[str, Callable[[str], dict[str, str]]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)

    def translated(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters of the driver here.

        Raises:
            SettingError: One cannot be obeyed.
        """
        query: dict[str, str] = {}
        for name, value in parameters.items():
            key = name.lower()
            if key in self.idle:
                continue
            if key in self.own:
                query[self.own[key]] = value
            elif key in self.read:
                query |= self.read[key](value)
            elif key in self.only:
                allowed, sentence = self.only[key]
                if value.lower() != allowed:
                    raise _refusal(name, sentence)
            else:
                raise _refusal(name, self.refused.get(key) or self._unknown(key))
        return query

    def _unknown(self, key: str) -> str:
        names = [*self.idle.values(), *self.others.values(), *self.own, *self.only, *self.read, *self.refused]
        return f"it is not known here. {did_you_mean(key, names)}".strip()


def _refusal(name: str, sentence: str) -> SettingError:
    return SettingError(f"connection.url has the parameter {name}: {sentence}")


def _names(text: str) -> dict[str, str]:
    """Return names as they are spelled, by their small letters."""
    return {name.lower(): name for name in text.split()}


def _seconds(milliseconds: str, name: str) -> int:
    """Return whole seconds, at least one; 0 means without a limit.

    Raises:
        SettingError: It is no number.
    """
    if not milliseconds.isdigit():
        raise _refusal(name, f"{milliseconds!r} is no number of milliseconds")
    return math.ceil(int(milliseconds) / 1000) if int(milliseconds) else _LONGEST_S


def _socket_timeout(value: str) -> dict[str, str]:
    seconds = str(_seconds(value, "socketTimeout"))
    return {} if value.isdigit() and not int(value) else {"read_timeout": seconds, "write_timeout": seconds}


def _session_variables(value: str) -> dict[str, str]:
    parts = [each.strip() for each in re.split(r"[,;](?=(?:[^'\"]*['\"][^'\"]*['\"])*[^'\"]*$)", value) if each.strip()]
    if not all(re.fullmatch(r"@{0,2}[A-Za-z_.]+\s*=.+", each) for each in parts):
        raise _refusal("sessionVariables", "write name=value,name=value")
    return {"init_command": "SET " + ", ".join(each if each[0] == "@" else f"SESSION {each}" for each in parts)}


def _zero_dates(value: str) -> dict[str, str]:
    if value.lower() != "exception":
        raise _refusal("zeroDateTimeBehavior", "a row with the date 0000-00-00 fails; read such columns with a query")
    return {}


_MARIADB_TLS = _names("useSSL requireSSL verifyServerCertificate trustServerCertificate sslMode serverSslCert ssl_ca")
_ZONES = _names("serverTimezone connectionTimeZone timezone")
_MARIADB = _Dialect(
    idle=_names(
        "allowLoadLocalInfile allowLocalInfile allowMultiQueries allowPublicKeyRetrieval autoReconnect "
        "autoReconnectForPools cacheCallableStmts cachePrepStmts cacheResultSetMetadata cacheServerConfiguration "
        "characterEncoding characterSetResults connectionCollation continueBatchOnError defaultFetchSize "
        "disconnectOnExpiredPasswords dontTrackOpenResources elideSetAutoCommits emulateUnsupportedPstmts "
        "enablePacketDebug failOverReadOnly forceConnectionTimeZoneToSession initialTimeout interactiveClient "
        "jdbcCompliantTruncation logger maintainTimeStats maxAllowedPacket maxReconnects metadataCacheSize "
        "noAccessToProcedureBodies noDatetimeStringSync paranoid permitMysqlScheme preserveInstants "
        "prepStmtCacheSize prepStmtCacheSqlLimit profileSQL queryInterceptors reconnectAtTxEnd "
        "rewriteBatchedStatements serverAffinityOrder slowQueryThresholdMillis tcpKeepAlive tcpNoDelay tcpRcvBuf "
        "tcpSndBuf tinyInt1isBit useAffectedRows useBatchMultiSend useBulkStmts useBulkStmtsForInserts "
        "useCompression useConfigs useCursorFetch useDynamicCharsetInfo useInformationSchema "
        "useJDBCCompliantTimezoneShift useLegacyDatetimeCode useLocalSessionState useLocalTransactionState "
        "useMysqlMetadata useOldAliasMetadataBehavior useReadAheadInput useServerPrepStmts "
        "useSSPSCompatibleTimezoneShift useStreamLengthsInPrepStmts useTimezone useUnbufferedInput useUnicode"
    ),
    own={
        "ssl_cert": "ssl_cert", "ssl_key": "ssl_key", "localsocket": "unix_socket",
        "localsocketaddress": "bind_address",
        "charset": "charset", "unix_socket": "unix_socket",
    },
    only={
        "createdatabaseifnotexist": ("false", "create the database by hand; connectors create tables only"),
        "sendfractionalseconds": ("true", "times are written with their fractions"),
        "sendfractionalsecondsfortime": ("true", "times are written with their fractions"),
        "transformedbitisboolean": ("false", "TINYINT(1) and BIT(1) are read as INT8"),
        "yearisdatetype": ("true", "a YEAR is read as the first day of that year"),
        "dumpqueriesonexception": ("false", "statements are not shown, as they may hold values"),
    },
    read={
        "connecttimeout": lambda value: {"connect_timeout": str(min(_seconds(value, "connectTimeout"), _LONGEST_S))},
        "sockettimeout": _socket_timeout,
        "sessionvariables": _session_variables,
        "zerodatetimebehavior": _zero_dates,
    },
    refused={
        **dict.fromkeys(
            _names(
                "keyStore keyStorePassword keyStoreType trustStore trustStorePassword trustStoreType keyPassword "
                "clientCertificateKeyStoreUrl clientCertificateKeyStorePassword clientCertificateKeyStoreType "
                "trustCertificateKeyStoreUrl trustCertificateKeyStorePassword trustCertificateKeyStoreType"
            ),
            _KEY_STORES,
        ),
        **dict.fromkeys(
            _names("nullCatalogMeansCurrent nullDatabaseMeansCurrent databaseTerm"),
            "set catalog.pattern to the database whose tables are read",
        ),
        **dict.fromkeys(
            _names("socketFactory defaultAuthenticationPlugin credentialType"), "classes of Java are not loaded"
        ),
        **dict.fromkeys(
            _names("enabledTLSProtocols enabledSslProtocolSuites tlsVersions enabledSslCipherSuites tlsCiphersuites"),
            "versions and ciphers of TLS are those of Python's ssl",
        ),
    },
    others=_MARIADB_TLS | _ZONES,
)  # fmt: skip

_PG_IDLE = _names(
    "adaptiveFetch adaptiveFetchMaximum adaptiveFetchMinimum allowEncodingChanges assumeMinServerVersion autosave "
    "binaryTransfer binaryTransferDisable binaryTransferEnable cancelSignalTimeout cleanupSavepoints "
    "databaseMetadataCacheFields databaseMetadataCacheFieldsMiB defaultRowFetchSize disableColumnSanitiser "
    "escapeSyntaxCallMode hideUnprivilegedObjects hostRecheckSeconds logServerErrorDetail logUnclosedConnections "
    "loggerFile loggerLevel maxResultBuffer preferQueryMode prepareThreshold preparedStatementCacheQueries "
    "preparedStatementCacheSizeMiB protocolVersion quoteReturningIdentifiers reWriteBatchedInserts "
    "receiveBufferSize sendBufferSize stringtype tcpKeepAlive tcpNoDelay unknownLength"
)
_SESSION_ATTRIBUTES = {
    "any": "any", "primary": "primary", "master": "primary", "secondary": "standby", "slave": "standby",
    "prefersecondary": "prefer-standby", "preferslave": "prefer-standby",
}  # fmt: skip


def _target(value: str) -> dict[str, str]:
    attributes = _SESSION_ATTRIBUTES.get(value.lower())
    if attributes is None:
        raise _refusal("targetServerType", "it may be any, primary, secondary or preferSecondary")
    return {"target_session_attrs": attributes}


def _login_timeout(value: str) -> dict[str, str]:
    return {"connect_timeout": value} if value.strip("0") else {}


def _factory(value: str) -> dict[str, str]:
    if value != "org.postgresql.ssl.NonValidatingFactory":
        raise _refusal("sslfactory", _PG_STORES)
    return {"sslmode": "require"}


_POSTGRES = _Dialect(
    idle=_PG_IDLE,
    own={
        **_names(
            "application_name channel_binding client_encoding connect_timeout fallback_application_name "
            "gssencmode host hostaddr keepalives keepalives_count keepalives_idle keepalives_interval "
            "krbsrvname load_balance_hosts options passfile password port require_auth service sslcert "
            "sslcrl sslkey sslmode sslnegotiation sslpassword sslrootcert ssl_min_protocol_version "
            "target_session_attrs tcp_user_timeout user"
        ),
        "applicationname": "application_name", "channelbinding": "channel_binding", "gssencmode": "gssencmode",
        "kerberosservername": "krbsrvname", "requireauth": "require_auth",
    },
    only={
        "replication": ("false", "rows are read and written by ordinary connections"),
        "sockettimeout": ("0", "set tcp_user_timeout in milliseconds, or options=-c statement_timeout=..."),
        "gsslib": ("auto", "the library is that of libpq"),
        "readonlymode": ("transaction", "set readOnly, or options"),
    },
    read={
        "connecttimeout": _login_timeout,
        "logintimeout": _login_timeout,
        "ssl": lambda value: {"sslmode": "verify-full"} if value.lower() in ("", "true") else {},
        "sslfactory": _factory,
        "targetservertype": _target,
        "loadbalancehosts": lambda value: {"load_balance_hosts": "random"} if value.lower() == "true" else {},
        "readonly": lambda value: {"options": "-cdefault_transaction_read_only=on"} if value.lower() == "true" else {},
        "currentschema": lambda value: {"options": "-csearch_path=" + re.sub(r"([\\\s])", r"\\\1", value)},
    },
    refused=dict.fromkeys(
        _names(
            "sslfactoryarg sslhostnameverifier sslpasswordcallback socketFactory socketFactoryArg "
            "authenticationPluginClassName jaasApplicationName jaasLogin xmlFactoryFactory localSocketAddress "
            "useSpnego sspiServiceClass"
        ),
        _PG_STORES,
    ),
)  # fmt: skip

_PRAGMAS = _names(
    "auto_vacuum busy_timeout cache_size cache_spill case_sensitive_like foreign_keys journal_mode "
    "journal_size_limit locking_mode max_page_count mmap_size page_size read_uncommitted recursive_triggers "
    "reverse_unordered_selects secure_delete synchronous temp_store wal_autocheckpoint"
)
_OWN_TIMES = "times are written as texts, and read in any of SQLite's forms"
_SQLITE = _Dialect(
    idle=_names("shared_cache jdbc.explicit_readonly jdbc.get_generated_keys legacy_file_format count_changes"),
    only={
        "open_mode": ("6", "set mode=ro to read only"),
        "transaction_mode": ("deferred", "transactions begin as SQLite's own do"),
        "encoding": ("utf-8", "texts are UTF-8; PRAGMA encoding belongs to the creation of the database"),
        "enable_load_extension": ("false", "extensions are not loaded"),
    },
    own={
        **{name: name for name in ("timeout", "mode", "cache", "immutable", "vfs", "nolock")},
        **{name: f"pragma {name}" for name in _PRAGMAS},
    },
    refused=dict.fromkeys(_names("date_class date_precision date_string_format"), _OWN_TIMES)
    | dict.fromkeys(_names("password hexkey_mode cipher key"), "databases of SQLite are read without encryption"),
)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a database is, and how a connection to it begins.

    Attributes:
        url: SQLAlchemy's URL, with user and password.
        pragmas: Statements that a connection to SQLite begins with.
    """

    url: URL
    pragmas: tuple[str, ...] = ()

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> DatabaseAddress:
        """Return the address that the settings name.

        Raises:
            SettingError: It is none, or has a parameter that cannot be obeyed.
        """
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        setting = str(parsed["connection.url"])
        text, is_jdbc = setting.removeprefix("jdbc:"), setting.startswith("jdbc:")
        if text.startswith("sqlite:") and not text.startswith("sqlite:///"):
            text = f"sqlite:///{text.removeprefix('sqlite:')}"
        hosts = re.fullmatch(r"(\w+://)([^/?@]*,[^/?@]*)(.*)", text) if is_jdbc else None
        try:
            url = make_url(text if hosts is None else f"{hosts[1]}{hosts[3]}")
        except (ArgumentError, ValueError) as error:  # a port that is no number, such as several hosts behind a user
            hint = "For example postgresql+psycopg://host/db, or sqlite:///file.db."
            raise SettingError("connection.url is not a URL of a database", hint=hint) from error
        names = [] if hosts is None else hosts[2].split(",")
        pragmas: tuple[str, ...] = ()
        if url.drivername == "postgresql":
            url = _postgres_url(url, names, is_jdbc=is_jdbc)
        elif names:
            raise SettingError("connection.url names several hosts", hint="Name one: only PostgreSQL's may be several.")
        elif url.drivername in ("mariadb", "mysql"):
            url = _mariadb_url(url, str(parsed["db.timezone"]), is_jdbc=is_jdbc)
        elif url.drivername == "sqlite" and is_jdbc:
            url, pragmas = _sqlite_url(url)
        if parsed["connection.user"]:
            url = url.set(username=parsed["connection.user"])
        if parsed["connection.password"]:
            url = url.set(password=parsed["connection.password"].secret)
        return cls(url, pragmas)


def address_problems(parsed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the URL, as of a contradiction of settings."""
    try:
        DatabaseAddress.of(parsed)
    except SettingError as error:
        yield "connection.url", error.message
    except ImportError:
        return  # SQLAlchemy is not installed, which the task says


def _query_of(url: URL) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}


def _postgres_url(url: URL, hosts: list[str], *, is_jdbc: bool) -> URL:
    """With the driver that is installed, and the parameters of Java's driver under the names of this one."""
    if importlib.util.find_spec("psycopg") is not None:
        url = url.set(drivername="postgresql+psycopg")
    if not is_jdbc:
        return url
    parameters = _query_of(url)
    options = [
        part
        for name in list(parameters)
        if name.lower() in ("currentschema", "readonly", "options")
        for part in _POSTGRES.translated({name: parameters.pop(name)}).values()
    ]
    explicit = {name: parameters.pop(name) for name in list(parameters) if name.lower() == "sslmode"}
    query: dict[str, Any] = _POSTGRES.translated(parameters) | _POSTGRES.translated(explicit)
    if options:
        query["options"] = " ".join(options)
    if hosts:
        query["host"] = tuple(hosts)
    return url.set(query=query)


def _mariadb_url(url: URL, zone: str, *, is_jdbc: bool) -> URL:
    """With the driver that is installed, and the parameters of Java's drivers under the names of this one."""
    is_mariadb = url.drivername == "mariadb"
    if importlib.util.find_spec("pymysql") is not None:
        url = url.set(drivername=f"{url.drivername}+pymysql")
    if not is_jdbc:
        return url
    parameters = _query_of(url)
    user, password = (parameters.pop(name, None) for name in ("user", "password"))
    for name in [each for each in parameters if each.lower() in _ZONES]:
        _check_zone(name, parameters.pop(name), zone)
    tls = {name.lower(): parameters.pop(name) for name in list(parameters) if name.lower() in _MARIADB_TLS}
    url = url.set(query=_MARIADB.translated(parameters) | _mariadb_tls(tls, is_mariadb=is_mariadb))
    if user:
        url = url.set(username=user)
    return url.set(password=password) if password else url


def _check_zone(name: str, value: str, zone: str) -> None:
    """Refuse a time zone beside the connector's own, by which times are read and written."""
    try:
        is_same = zone_of(value) == zone_of(zone)
    except LookupError:
        is_same = value.upper() == "DISABLE"
    if not is_same:
        raise _refusal(name, f"times are read and written in db.timezone, which is {zone}: set db.timezone={value}")


def _mariadb_tls(given: Mapping[str, str], *, is_mariadb: bool) -> dict[str, str]:
    """Return the parameters for TLS: whether there is any, and who has to have signed the server's certificate."""
    if not given:
        return {}
    is_on = {name: given.get(name, "").lower() == "true" for name in given}
    mode = given.get("sslmode", "").lower().replace("_", "-")
    authority = given.get("ssl_ca") or given.get("serversslcert")
    if not mode:
        uses = is_on.get("usessl", not is_mariadb or authority is not None)
        if not uses and not is_on.get("requiressl"):
            mode = "disabled"
        elif is_mariadb:
            mode = "trust" if is_on.get("trustservercertificate") else "verify-full"
        else:
            mode = "verify-ca" if is_on.get("verifyservercertificate", authority is not None) else "required"
    if mode in ("disable", "disabled"):
        return {"ssl_disabled": "true"}
    if mode == "preferred":
        return {}
    if mode in ("required", "trust"):
        return {"ssl_check_hostname": "false"}
    if mode not in ("verify-ca", "verify-full", "verify-identity"):
        raise _refusal("sslMode", f"{mode!r} is none of disable, trust, verify-ca, verify-full, or those of MySQL")
    if not authority:
        raise _refusal(
            "sslMode" if "sslmode" in given else "useSSL",
            "a server's certificate is checked against an authority: name its file in PEM by ssl_ca",
        )
    return {"ssl_ca": authority, "ssl_check_hostname": "false" if mode == "verify-ca" else "true"}


def _sqlite_url(url: URL) -> tuple[URL, tuple[str, ...]]:
    query = _SQLITE.translated(_query_of(url))
    pragmas = []
    for name in [each for each in query if each.startswith("pragma ")]:
        value = query.pop(name)
        if not re.fullmatch(r"-?\w+", value):
            raise _refusal(name.removeprefix("pragma "), f"{value!r} is neither a word nor a number")
        pragmas.append(f"PRAGMA {name.removeprefix('pragma ')} = {value}")
    if {"mode", "cache", "immutable", "vfs", "nolock"} & query.keys():
        database = str(url.database or "")
        query["uri"] = "true"
        url = url.set(database=database if database.startswith("file:") else f"file:{database}")
    return url.set(query=query), tuple(pragmas)
