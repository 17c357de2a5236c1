"""Writes the bill of materials of an installation, as CycloneDX: what Penstock brings, and what that brings.

    python tools/sbom.py FILE                     of the environment that runs this
    python tools/sbom.py FILE --packages FOLDER   of the one with this site-packages

It has the packages that Penstock needs, those of its extras as far as they are installed (optional), the scripts of the
console that are part of the wheel, and the jars that tools fetch on demand, with their pinned digests (optional). The
same installation gives the same bytes: the time is that of SOURCE_DATE_EPOCH, and the serial number comes from the
contents. What is written has been checked against the schema of CycloneDX.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["bill_of", "written"]

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "penstock"
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)\.jar")


def bill_of(installed: Iterable[Distribution], at: dt.datetime) -> Bom:
    """Return the bill of the Penstock among installed distributions.

    Args:
        installed: All of them; those that Penstock does not need are left out.
        at: The time to note in it.
    """
    present = {canonicalize_name(each.metadata["Name"]): each for each in installed}
    needed = _closure(present, {("penstock", "")})
    extras = set(present["penstock"].metadata.get_all("Provides-Extra") or ()) - {"dev", "all"}
    wanted = _closure(present, {("penstock", extra) for extra in ("", *sorted(extras))})
    bom = Bom(serial_number=uuid.UUID(int=0))
    bom.metadata.timestamp = at
    components = {
        name: _package(present[name], ComponentScope.REQUIRED if name in needed else ComponentScope.OPTIONAL)
        for name in wanted
    }
    root = components.pop("penstock")
    root.scope = None
    bom.metadata.component = root
    scripts, jars = list(_scripts()), list(_jars())
    for component in (*components.values(), *scripts, *jars):
        bom.components.add(component)
    components["penstock"] = root
    for name, component in components.items():
        direct = _direct(present[name], extras if name == "penstock" else {""}) if name in present else set()
        targets = [components[other] for other, _ in direct if other in components and other != name]
        bom.register_dependency(component, [*targets, *(scripts + jars if name == "penstock" else ())])
    return bom


def _closure(present: dict[str, Distribution], wanted: set[tuple[str, str]]) -> set[str]:
    """The installed distributions that these distributions with their extras bring, themselves too."""
    seen: set[tuple[str, str]] = set()
    waiting = list(wanted)
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen or name not in present:
            continue
        seen.add((name, extra))
        waiting += _direct(present[name], {extra})
    return {name for name, _ in seen}


def _direct(of: Distribution, extras: Iterable[str]) -> set[tuple[str, str]]:
    """Name and extra of all that a distribution requires with any of these extras."""
    found = set()
    for text in of.requires or ():
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            found |= {(canonicalize_name(needed.name), extra) for extra in ("", *needed.extras)}
    return found


def _package(found: Distribution, scope: ComponentScope) -> Component:
    name, version = canonicalize_name(found.metadata["Name"]), found.version
    reference = PackageURL("pypi", None, name, version)
    expression = found.metadata.get("License-Expression")
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=str(reference),
        purl=reference,
        scope=scope,
        description=found.metadata.get("Summary"),
        licenses=[LicenseExpression(expression)] if expression else [],
    )


def _scripts() -> Iterator[Component]:
    """The scripts of others that are part of the wheel."""
    for folder in sorted(SOURCES.rglob("vendor.json")):
        for package in json.loads(folder.read_text(encoding="utf-8")):
            group, _, name = package["package"].rpartition("/")
            reference = PackageURL("npm", group or None, name, package["version"])
            yield Component(
                type=ComponentType.LIBRARY,
                group=group or None,
                name=name,
                version=package["version"],
                bom_ref=str(reference),
                purl=reference,
                scope=ComponentScope.REQUIRED,
                licenses=[DisjunctiveLicense(id=package["licence"])],
                external_references=[
                    ExternalReference(
                        type=ExternalReferenceType.DISTRIBUTION,
                        url=XsUri(file),
                        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
                    )
                    for file, (_, digest) in package["files"].items()
                ],
            )


def _jars() -> Iterator[Component]:
    """The jars that `penstock broker`, judges and comparisons fetch when they are used."""
    for line in (SOURCES / "base" / "jars.sha256").read_text(encoding="utf-8").splitlines():
        digest, file = line.split()
        parts = _JAR.fullmatch(file)
        yield Component(
            type=ComponentType.LIBRARY,
            name=parts["name"] if parts else file.removesuffix(".jar"),
            version=parts["version"] if parts else None,
            bom_ref=f"jar:{file}",
            scope=ComponentScope.OPTIONAL,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )


def written(bom: Bom) -> str:
    """Return a bill as JSON, with a serial number from its contents.

    Raises:
        ValueError: It does not follow the schema.
    """
    contents = JsonV1Dot6(bom).output_as_string()
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, contents)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    wrong: Any = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise ValueError(f"the bill does not follow the schema of CycloneDX: {wrong}")
    return text + "\n"


def main() -> int:
    """Write the bill."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of an installation, as CycloneDX.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--packages", type=Path, help="the site-packages of another environment")
    chosen = parser.parse_args()
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = dt.datetime.now(dt.UTC)
    at = now if epoch is None else dt.datetime.fromtimestamp(int(epoch), dt.UTC)
    found = distributions() if chosen.packages is None else distributions(path=[str(chosen.packages)])
    bom = bill_of(found, at)
    chosen.file.write_text(written(bom), encoding="utf-8")
    print(f"{chosen.file}: {len(bom.components)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
