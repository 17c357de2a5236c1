"""URLs of object stores, and what is missing when one cannot be used; without any server."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from penstock.errors import EnvironmentProblemError, StateError
from penstock.state.segments.object_storage import OBJECT_SCHEMES, ObjectStorage, check_object_store, new_object_store
from penstock.state.segments.segment import SegmentName

ACCOUNT = {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
KEYS = {"AWS_ACCESS_KEY_ID": "anyone", "AWS_SECRET_ACCESS_KEY": "anything", "AWS_REGION": "us-east-1"}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ACCOUNT, *KEYS, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)


def make(url: str, monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[str, str]:
    """The kind of store, and the folder in it."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    store = new_object_store(url)
    return type(store).__name__, str(store.prefix)


@pytest.mark.parametrize("url", ["s3://bucket/app/one", "s3a://bucket/app/one"])
def test_amazon(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make(url, monkeypatch, **KEYS) == ("S3Store", "app/one")


@pytest.mark.parametrize("url", ["gs://bucket/app/one", "gcs://bucket/app/one"])
def test_google(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make(url, monkeypatch) == ("GCSStore", "app/one")


@pytest.mark.parametrize(
    "url",
    [
        "az://container/app/one",
        "azure://container/app/one",
        "abfs://container/app/one",
        "abfs://container@acc.dfs.core.windows.net/app/one",
        "abfss://container@acc.dfs.core.windows.net/app/one",
    ],
)
def test_azure(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make(url, monkeypatch, **ACCOUNT) == ("AzureStore", "app/one")


def test_every_scheme_is_known_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ACCOUNT, **KEYS}.items():
        monkeypatch.setenv(name, value)
    for scheme in OBJECT_SCHEMES - {"memory"}:
        assert new_object_store(f"{scheme}://place/app") is not None


@pytest.mark.parametrize(
    ("url", "environment", "said", "remedy"),
    [
        ("az://container/app", {}, "Account must be specified", "AZURE_STORAGE_ACCOUNT_NAME"),
        ("abfs://container/app", {}, "Account must be specified", "AZURE_STORAGE_ACCOUNT_KEY"),
        (
            "gs://bucket/app",
            {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/key.json"},
            "/nowhere/key.json",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ),
        (
            "s3://bucket/app",
            {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "127.0.0.1:9",
            "AWS_ENDPOINT_URL",
        ),
        ("wasb://container/app", {}, "no storage for wasb://", "s3://, gs:// or az://"),
    ],
)
def test_what_is_missing_is_named_before_anything_starts(
    url: str, environment: dict[str, str], said: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    with pytest.raises(EnvironmentProblemError, match=said) as raised:
        check_object_store(url)
    assert raised.value.hint is not None
    assert remedy in raised.value.hint
    assert url in raised.value.message
    assert time.monotonic() - began < 30


def test_a_segment_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    store = new_object_store("s3://bucket/app", retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    storage = ObjectStorage(store, "state/0_0", "s3://bucket/app")
    with pytest.raises(StateError, match=r"segment s3://bucket/app/state/0_0/.*7.* could not be read") as raised:
        storage.read(SegmentName(7, "delta"))
    assert "continues where it stopped" in (raised.value.hint or "")
