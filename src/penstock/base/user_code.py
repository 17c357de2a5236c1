"""Loading of modules that users have written: by name, or by the path of a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from penstock.errors import ConfigError, PenstockError, TopologyError

__all__ = ["is_module", "load_module"]


def is_module(target: str) -> bool:
    """Return whether ``MODULE:ATTRIBUTE``, a file or a module's name is meant, rather than another name."""
    if ":" in target or "/" in target or target.endswith(".py"):
        return True
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.util.find_spec(target) is not None
    except (ImportError, ValueError):  # a package before it is not there, or its name is none
        return False


def load_module(name: str) -> ModuleType:
    """Load a module by its name (also from the working directory) or by the path of its file."""
    if "/" not in name and not all(name.removesuffix(".py").split(".")):
        raise ConfigError(
            f"{name!r} is not a module or a file of Python", hint="Give the path of a Python file, or a module's name."
        )
    if name.endswith(".py") or "/" in name:
        return _from_file(Path(name))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except PenstockError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {name!r}", hint=f"Is the file here? Try {name.replace('.', '/')}.py:topology"
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="Give the path of a Python file, or a module's name.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # the file may import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file", hint="Its name must end with .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        raise _broken(str(path), error) from error
    return module


def _broken(name: str, error: Exception | SystemExit) -> TopologyError:
    """Make the error of a failed import, with the line of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if not frame.filename.startswith("<frozen ")]
    says_where = isinstance(error, SyntaxError) or not lines
    where = "" if says_where else f" at {lines[-1].filename}:{lines[-1].lineno}"
    if isinstance(error, SystemExit):
        return TopologyError(
            f"{name} ends the process while it is imported, by sys.exit({error.code!r}){where}",
            hint='Put what ends the process below: if __name__ == "__main__":',
        )
    return TopologyError(f"{name} cannot be imported: {type(error).__name__}: {error}{where}")
