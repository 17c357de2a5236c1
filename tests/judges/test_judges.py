"""The judges themselves: what they run, and that they can say no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from client_program import CODECS, LIBRARIES, Sent, sent_by
from clients_judge import check_answers
from judge_topologies import (
    APPLICATIONS,
    Article,
    ArticleSerde,
    AugmentedArticle,
    AugmentedArticleSerde,
    AugmentedComment,
    AugmentedCommentSerde,
    Comment,
    CommentSerde,
)
from judges import JUDGES, MODES, entry_of, main, parsed, save
from kafka_judges import relevant_lines
from penstock import TopologyTestDriver
from penstock.serde import BaseSerde

ARTICLE, COMMENT = Article(7, 1_000, "a text"), Comment(8, 2_000, "ä", 7)
BYTES = {
    "article": (ArticleSerde(), ARTICLE, "00000007 00000000000003e8 00000006 612074657874"),
    "comment": (CommentSerde(), COMMENT, "00000008 00000000000007d0 00000002 c3a4 00000007"),
    "augmented article": (
        AugmentedArticleSerde(),
        AugmentedArticle(ARTICLE, 3),
        "00000007 00000000000003e8 00000006 612074657874 0000000000000003",
    ),
    "augmented comment": (
        AugmentedCommentSerde(),
        AugmentedComment(COMMENT, "a t"),
        "00000008 00000000000007d0 00000002 c3a4 00000007 00000003 612074",
    ),
}


@pytest.mark.parametrize(("serde", "value", "text"), BYTES.values(), ids=BYTES)
def test_serdes_have_the_bytes_of_the_java_classes(serde: BaseSerde, value: object, text: str) -> None:
    data = bytes.fromhex(text)
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None


@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_reads_and_writes_its_topics(name: str) -> None:
    judged = APPLICATIONS[name]
    described = str(judged.topology().describe())
    assert all(f"[{topic}]" in described for topic in judged.inputs)
    assert all(f"(topic: {topic})" in described for topic in judged.outputs if topic != "fk")  # nothing reads fk


def test_articles_and_comments_are_augmented() -> None:
    with TopologyTestDriver(APPLICATIONS["relational"].topology()) as driver:
        key, of_comment = (7).to_bytes(4, "big"), (8).to_bytes(4, "big")
        driver.pipe_raw("in-article", key, ArticleSerde().serialize(Article(7, 0, "a text of some length")), 0)
        driver.pipe_raw("in-comment", of_comment, CommentSerde().serialize(COMMENT), 0)
        articles = [AugmentedArticleSerde().deserialize(row.value) for row in driver.peek_raw("out-augmented-article")]
        comments = [AugmentedCommentSerde().deserialize(row.value) for row in driver.peek_raw("out-augmented-comment")]
    assert [each.comments for each in articles if each] == [0, 1]
    assert comments == [AugmentedComment(COMMENT, "a text of ")]


REQUESTS = [each for library in LIBRARIES for codec in CODECS for each in sent_by(library, codec, 12)]


def answers() -> list[Sent]:
    with TopologyTestDriver(APPLICATIONS["clients"].topology()) as driver:
        for key, value, headers in REQUESTS:
            encoded = [(name, text.encode()) for name, text in headers]
            driver.pipe_raw("requests", key and key.encode(), value and value.encode(), 0, encoded)
        return [
            Sent(
                row.key and row.key.decode(),
                row.value and row.value.decode(),
                [(name, (content or b"").decode()) for name, content in row.headers],
            )
            for row in driver.peek_raw("answers")
        ]


def test_the_answers_of_the_application_are_those_that_clients_expect() -> None:
    assert check_answers(REQUESTS, answers()) == []
    assert {each.key is None for each in REQUESTS} == {each.value is None for each in REQUESTS} == {True, False}


ABORTED = sent_by("aiokafka", "gzip", 2, "aborted")[1]
FAULTS = {
    "one lost": (lambda right: right[1:], ["1 answers are missing"]),
    "one double": (lambda right: [*right, right[0]], ["1 are too many"]),
    "one of an aborted transaction": (
        lambda right: [*right, ABORTED._replace(value=f"answer to {ABORTED.value}")],
        ["1 are too many"],
    ),
    "headers lost": (
        lambda right: [right[0], right[1]._replace(headers=[]), *right[2:]],
        ["1 answers are missing", "1 are"],
    ),
    "headers in another order": (
        lambda right: [right[0], right[1]._replace(headers=right[1].headers[::-1]), *right[2:]],
        ["1 answers are missing", "1 are"],
    ),
    "an empty key instead of none": (
        lambda right: [right[0]._replace(key=""), *right[1:]],
        ["1 answers are missing", "1 are"],
    ),
}


@pytest.mark.parametrize(("changed", "wanted"), FAULTS.values(), ids=FAULTS)
def test_wrong_answers_are_found(changed, wanted: list[str]) -> None:
    found = check_answers(REQUESTS, changed(answers()))
    assert len(found) == len(wanted)
    assert all(each.startswith(start) for each, start in zip(found, wanted, strict=True)), found


def test_the_words_of_a_judge_are_those_from_a_line_on() -> None:
    said = "noise\n-----\nResult Verification\n-----\nrecordGenerated=3\n\n{a=1}\nSUCCESS\n"
    assert relevant_lines(said, "Result", r"^-+$|\{.*=") == ["Result Verification", "recordGenerated=3", "SUCCESS"]
    assert relevant_lines("only\nthis", "Result", "^$") == ["only", "this"]
    assert len(relevant_lines("\n".join(map(str, range(100))), "0", "^$")) == 25


def test_results_replace_those_of_the_same_judge_mode_and_brokers(tmp_path: Path) -> None:
    file = tmp_path / "judges.json"
    for seed, judge, passed in ((1, "eos", True), (2, "smoke", True), (3, "eos", False)):
        arguments = parsed(["--judge", judge, "--mode", "continuous", "--seed", str(seed)])
        save(file, entry_of(arguments, judge, "continuous", 1, [{"passed": passed, "words": ["SUCCESS"]}]))
    smoke, eos = json.loads(file.read_text())
    assert smoke["judge"] == "smoke"
    assert smoke["passed"] == 1
    assert eos["passed"] == 0
    assert "--judge eos --mode continuous --brokers 1 --rounds 1 --seed 3" in eos["command"]


def test_all_judges_and_modes_are_the_default() -> None:
    arguments = parsed([])
    assert arguments.judge == list(JUDGES)
    assert arguments.mode == list(MODES)
    assert arguments.brokers == [1]


def test_a_judge_that_the_machine_cannot_run_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["judges.py", "--judge", "eos", "--mode", "continuous", "--folder", str(tmp_path)])
    main()
    said = capsys.readouterr().out
    assert f"SKIPPED eos: Java is missing: JAVA_HOME is {tmp_path}" in said
    assert "all passed, but these were skipped: eos" in said
