"""The prompt of `penstock sql`: history, statements over several lines, completion, highlighting."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments import token
from pygments.lexer import RegexLexer, words

from penstock.base.terminal.human_numbers import counted
from penstock.base.version import __version__
from penstock.cli.output import console, print_error
from penstock.cli.sql.render import ResultRenderer
from penstock.errors import PenstockError
from penstock.sql.catalog import Catalog
from penstock.sql.completion import KEYWORDS, TYPES, KnownNames, completions
from penstock.sql.results import StatementResult, Stream
from penstock.state.private_folders import own_folder, state_home

if TYPE_CHECKING:
    from penstock.sql.session import SqlSession

__all__ = ["Prompt", "SqlCompleter", "SqlLexer", "is_whole", "unechoed"]

HELP = """\
Statements end with a semicolon and may go over several lines. For example:

  CREATE STREAM clicks (page VARCHAR) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
  INSERT INTO clicks (page) VALUES ('/home');
  CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
  SELECT * FROM pages EMIT CHANGES;
  SHOW QUERIES;   DESCRIBE pages EXTENDED;   PRINT clicks FROM BEGINNING;   EXPLAIN CTAS_PAGES_0;

Tab completes, Ctrl-R searches the history, Ctrl-C ends what is running, exit (or Ctrl-D) leaves.
Streams, tables and queries stay: the next session of this log continues with them."""
LEAVE = ("exit", "quit", "\\q")
LOOK_S = 0.1


class Prompt:
    """A prompt over a session.

    Args:
        session: The session; it stays open at the end.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._console = console()
        self._console.soft_wrap = False
        self._renderer = ResultRenderer(self._console)
        self._input: PromptSession[str] = PromptSession(
            history=_history(),
            auto_suggest=AutoSuggestFromHistory(),
            completer=SqlCompleter(lambda: session.catalog, lambda: list(session.queries)),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=Condition(lambda: not is_whole(get_app().current_buffer.text)),
            prompt_continuation="   ...> ",
            enable_history_search=True,
        )

    def run(self) -> None:
        """Read statements and run them until the user leaves."""
        self._greet()
        while True:
            try:
                text = self._input.prompt("penstock> ").strip()
            except KeyboardInterrupt:
                continue  # what has been typed is given up
            except EOFError:
                return
            if text.rstrip(";").strip().lower() in LEAVE:
                return
            self.do(text)

    def do(self, text: str) -> None:
        """Run statements and show their results; errors are shown, Ctrl-C ends what is running."""
        if text.rstrip(";").strip().lower() in ("help", "?"):
            self._console.print(HELP, markup=False)
            return
        try:
            for result in self._executed(text):
                self._show(result)
        except KeyboardInterrupt:
            self._console.print("\nended", style="dim")
        except PenstockError as error:
            print_error(error.message, error.hint)
        except Exception as error:  # noqa: BLE001 - a bug must not end the session
            print_error(f"{type(error).__name__}: {error}", "This is not a message for users: please report it.")

    def _show(self, result: StatementResult) -> None:
        if not isinstance(result, Stream):
            self._renderer.show(result)
            return
        try:
            self._renderer.show(result)
        finally:
            result.close()

    def _executed(self, text: str) -> list[StatementResult]:
        """Execute in a thread: the start of Spark cannot be interrupted cleanly, so Ctrl-C only ends the waiting."""
        results: list[StatementResult] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                results.extend(self._session.execute(text))
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        thread = threading.Thread(target=work, name="penstock-sql-statement", daemon=True)
        thread.start()
        try:
            with unechoed(sys.stdin), self._console.status("running"):
                while thread.is_alive():
                    thread.join(LOOK_S)
        except KeyboardInterrupt:
            self._console.print("\nthe statement continues in the background", style="dim")
            return []
        if failed:
            raise failed[0]
        return results

    def _greet(self) -> None:
        session = self._session
        self._console.print(f"Penstock {__version__} SQL over {session.settings.log}", markup=False, highlight=False)
        count = len(session.queries)
        if session.holder is not None:
            self._console.print(f"The catalog is in use by {session.holder}: this session can look, not change.")
        elif count:
            self._console.print(f"{counted(count, 'query continues', 'queries continue')} in the background.")
        self._console.print("help shows examples; exit leaves.", style="dim")


def is_whole(text: str) -> bool:
    """Return whether Enter runs a text: it is empty, a word of the prompt, or ends with a semicolon outside of quotes.

    >>> is_whole("SELECT 1"), is_whole("SELECT ';"), is_whole("SHOW STREAMS; -- all"), is_whole("exit")
    (False, False, True, True)
    """
    from penstock.errors import SqlError
    from penstock.sql.parse.tokens import tokenize

    if not text.strip() or text.strip().lower() in (*LEAVE, "help", "?"):
        return True
    try:
        tokens = tokenize(text).tokens
    except SqlError:
        return text.rstrip().endswith(";") and text.count("'") % 2 == 0
    return len(tokens) > 1 and tokens[-2].key == ";"


def _history() -> History:
    """Return the history in the user's directory of state; in memory if that cannot be written."""
    try:
        folder = state_home() / "penstock"
        own_folder(folder)
        return FileHistory(str(folder / "sql-history"))
    except (OSError, PenstockError):
        return InMemoryHistory()


class SqlCompleter(Completer):
    """The completions of what may stand at the cursor.

    Args:
        catalog: Returns the present catalog.
        queries: Returns the ids of queries.
    """

    def __init__(self, catalog: Callable[[], Catalog], queries: Callable[[], Sequence[str]]) -> None:
        self._catalog = catalog
        self._queries = queries

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield completions; keywords take the case of what has been typed."""
        del complete_event
        catalog = self._catalog()
        sources = {
            name: (source.kind, [(column.name, f"{column.type}") for column in source.columns])
            for name, source in catalog.sources.items()
        }
        names = KnownNames(sources, catalog.topics, self._queries())
        for word, kind, replaces in completions(document.text_before_cursor, document.text, names):
            yield Completion(word, start_position=-replaces, display_meta=kind)


@contextmanager
def unechoed(stream: TextIO) -> Iterator[None]:
    """Switch off the echo of a terminal, whose place a spinner has; what is typed stays for the next reader.

    Args:
        stream: The input; nothing happens if it is not a terminal, or one without such a switch.
    """
    before = _switched_off(stream)
    try:
        yield
    finally:
        if before is not None:
            import termios

            with suppress(termios.error):
                termios.tcsetattr(stream.fileno(), termios.TCSANOW, before)


def _switched_off(stream: TextIO) -> list[Any] | None:
    """Return the attributes of the terminal before; None if nothing was switched."""
    try:
        import termios
    except ImportError:
        return None  # Windows
    try:
        before = termios.tcgetattr(stream.fileno())
    except (termios.error, OSError, ValueError):
        return None
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(stream.fileno(), termios.TCSANOW, changed)
    return before


class SqlLexer(RegexLexer):  # type: ignore[misc] # Pygments has no types
    """A lexer of Penstock SQL for Pygments."""

    name = "Penstock SQL"
    flags = re.IGNORECASE
    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"\s+", token.Whitespace),
            (r"--[^\n]*", token.Comment.Single),
            (r"/\*.*?\*/", token.Comment.Multiline),
            (r"'(?:[^']|'')*'?", token.String),
            (r"`(?:[^`]|``)*`?|\"(?:[^\"]|\"\")*\"?", token.Name),
            (r"\$\{[^}]*\}?", token.Name.Variable),
            (r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", token.Number),
            (words(TYPES, suffix=r"\b"), token.Keyword.Type),
            (words(KEYWORDS, suffix=r"\b"), token.Keyword),
            (r"[A-Za-z_]\w*(?=\s*\()", token.Name.Function),
            (r"[A-Za-z_]\w*", token.Name),
            (r"->|=>|<>|!=|<=|>=|\|\||[-+*/%=<>]", token.Operator),
            (r".", token.Punctuation),
        ]
    }
