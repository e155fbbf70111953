"""Migrations: the numbered `.sql` files of a part that owns tables, in order. It reads them and never runs them."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema, frozen once released."""

    number: int
    name: str
    """`0001_native`, as the file is called."""
    sql: str


@cache
def load_migrations(package: str) -> list[Migration]:
    """Return the migrations in `package`'s folder `migrations`, numbered from 1 without a gap."""
    migrations: list[Migration] = []
    for file in sorted(files(package).joinpath("migrations").iterdir(), key=lambda entry: entry.name):
        matched = _FILE.fullmatch(file.name)
        if matched is None:
            if file.name.endswith(".sql"):
                raise ValueError(f"migration {file.name} of {package} is not called NNNN_name.sql")
            continue
        migrations.append(Migration(int(matched[1]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")))
    numbers = [migration.number for migration in migrations]
    if numbers != list(range(1, len(numbers) + 1)):
        raise ValueError(f"the migrations of {package} are numbered {numbers}: they have to count from 1 without a gap")
    return migrations
