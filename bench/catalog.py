"""Recall in a catalog: one model against a million synthetic entries, in the file (exact) and in PostgreSQL (lists of pgvector).

Entries are synthetic: lineages of a base and its children (a few to thousands, as on the hub), whose vectors lie at cosines of
0.8 to 0.99 from the base's, among strangers in random directions. A query is a child that is not entered. "Relatives" are the
entries among the exact nearest ten that belong to the query's lineage; the others are the strangers that happen to be nearest,
which stage two turns down. Memory is that of a process of its own, mapped arrays included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.common import Cell, Goal, Report, finish, median, parser
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.fingerprints.recall import FAMILIES

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.postgres import PostgresServer, lacking

RECALL_S, RECALL_BYTES = 0.060, 1.5e9
PG_S, PG_RECALL = 0.030, 0.99
FULL, QUICK = 1_000_000, 24_000
K = 10
_BLOCK = 20_000
Matrix = NDArray[np.float32]

# What a child process runs: recall of all queries through the catalog itself, and what it took.
_CHILD = """
import json, resource, sys, time
from pathlib import Path
import numpy as np
from kinprint.catalog.sqlite import SqliteCatalog
path, queries, rounds = sys.argv[1], np.load(sys.argv[2]), int(sys.argv[3])
with SqliteCatalog(Path(path), read_only=True) as catalog:
    began = time.perf_counter()
    catalog.nearest({name: queries[name][0] for name in queries.files}, 10)
    first, wall, cpu, found = time.perf_counter() - began, [], [], []
    for number in range(rounds):
        query = {name: queries[name][number % len(queries[name])] for name in queries.files}
        began, used = time.perf_counter(), time.process_time()
        answer = catalog.nearest(query, 10)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        found.append([(one.family, one.key) for one in answer])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"first": first, "wall": wall, "cpu": cpu, "peak": peak, "found": found}))
"""


def _unit(rows: Matrix) -> Matrix:
    made: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return made


def lineages(count: int, seed: int) -> NDArray[np.int64]:
    """Return the number of its lineage for each entry: sizes fall off as 1/rank, half of all entries are alone."""
    rng = np.random.default_rng(seed)
    groups = max(1, count // 200)
    weights = 1.0 / np.arange(1, groups + 1)
    related = rng.choice(groups, count // 2, p=weights / weights.sum())
    alone = np.arange(groups, groups + count - count // 2)
    return rng.permutation(np.concatenate([related, alone]))


def entry_vectors(count: int, lineage: NDArray[np.int64], family: str, seed: int) -> Iterator[Matrix]:
    """Yield the vectors of one family, block by block: those of a lineage around its base."""
    width = FAMILIES[family]
    for start in range(0, count, _BLOCK):
        rng = np.random.default_rng([seed, start, *family.encode()])
        yield around(lineage[start : start + _BLOCK], count, family, width, rng)


def around(lineage: NDArray[np.int64], count: int, family: str, width: int, rng: np.random.Generator) -> Matrix:
    """Return vectors at cosines of 0.8 to 0.99 from the bases of their lineages; those alone in random directions."""
    groups = max(1, count // 200)
    table = np.random.default_rng([groups, *family.encode()]).standard_normal((groups, width), dtype=np.float32)
    noise = rng.standard_normal((lineage.size, width), dtype=np.float32)
    cosine = rng.uniform(0.8, 0.99, (lineage.size, 1)).astype(np.float32)
    bases = _unit(table[np.minimum(lineage, groups - 1)])
    noise -= (noise * bases).sum(axis=1, keepdims=True) * bases
    related: Matrix = (cosine * bases + np.sqrt(1 - cosine**2) * _unit(noise)).astype(np.float32)
    return _unit(np.where((lineage < groups)[:, None], related, noise))


def fill_file(path: Path, count: int, lineage: NDArray[np.int64], seed: int) -> None:
    """Write entries and vectors into a catalog's tables in the order of its keys; fingerprints play no part in recall."""
    with SqliteCatalog(path) as catalog:
        db = catalog._db  # type: ignore[attr-defined]
        db.execute("BEGIN IMMEDIATE")
        db.executemany(
            "INSERT INTO entries (id, key, name, revision, record, seal) VALUES (?, ?, ?, '', '{}', '')",
            ((n, f"{n:064x}", f"synthetic/{n}") for n in range(1, count + 1)),
        )
        for family in sorted(FAMILIES):
            number = 0
            for block in entry_vectors(count, lineage, family, seed):
                rows = [(family, number + at + 1, row.tobytes()) for at, row in enumerate(block)]
                db.executemany("INSERT INTO vectors VALUES (?, ?, ?)", rows)
                number += len(block)
        db.execute("COMMIT")
        catalog.index()


def exact_nearest(
    count: int, lineage: NDArray[np.int64], queries: dict[str, Matrix], seed: int
) -> dict[str, list[NDArray[np.int64]]]:
    """Return the exact nearest ids of each query, by plain numpy over all vectors, apart from the catalog's code."""
    nearest = {}
    for family, rows in queries.items():
        scores = [block @ rows.T for block in entry_vectors(count, lineage, family, seed)]
        every = np.concatenate(scores)
        nearest[family] = [np.argsort(-every[:, n], kind="stable")[:K] + 1 for n in range(rows.shape[0])]
    return nearest


def agreement(
    found: list[list[tuple[str, int]]], exact: dict[str, list[NDArray[np.int64]]], related: Callable[[int, int], bool]
) -> tuple[float, float]:
    """Return the share of the exact nearest that were found: of all of them, and of the query's relatives."""
    hit = total = kin_hit = kin = 0
    for number, answer in enumerate(found):
        for family, nearest in exact.items():
            got = {key for name, key in answer if name == family}
            for key in nearest[number % len(nearest)].tolist():
                total += 1
                hit += key in got
                if related(key, number % len(nearest)):
                    kin += 1
                    kin_hit += key in got
    return hit / total, kin_hit / max(kin, 1)


def copy_block(numbers: NDArray[np.int64], rows: Matrix) -> bytes:
    """Return rows of (id, vector) in PostgreSQL's binary copy format."""
    width = rows.shape[1]
    kind = np.dtype(
        [("n", ">i2"), ("a", ">i4"), ("id", ">i8"), ("b", ">i4"), ("dim", ">i2"), ("zero", ">i2"), ("v", ">f4", width)]
    )
    made = np.zeros(len(rows), kind)
    made["n"], made["a"], made["id"] = 2, 8, numbers
    made["b"], made["dim"], made["v"] = 4 + 4 * width, width, rows
    return made.tobytes()


def fill_server(catalog: Any, count: int, lineage: NDArray[np.int64], seed: int) -> float:
    """Write the same entries into a database; return the seconds that its lists took."""
    db = catalog._db
    with db.transaction():
        with db.cursor().copy("COPY kinprint.entries (key, name, revision, record, seal) FROM STDIN") as out:
            for n in range(1, count + 1):
                out.write_row((f"{n:064x}", f"synthetic/{n}", "", b"{}", ""))
        for family in FAMILIES:
            with db.cursor().copy(f"COPY kinprint.recall_{family} FROM STDIN (FORMAT BINARY)") as out:
                out.write(b"PGCOPY\n\xff\r\n\0" + b"\0" * 8)
                number = 0
                for block in entry_vectors(count, lineage, family, seed):
                    out.write(copy_block(np.arange(number + 1, number + len(block) + 1), block))
                    number += len(block)
                out.write(b"\xff\xff")
    began = time.perf_counter()
    catalog.index()
    db.execute("VACUUM ANALYZE")
    return time.perf_counter() - began


def bench_server(
    count: int, lineage: NDArray[np.int64], queries: dict[str, Matrix], exact: Any, related: Any, rounds: int, seed: int
) -> tuple[list[dict[str, Cell]], list[Goal], list[str]]:
    from kinprint.catalog.store import open_catalog

    rows: list[dict[str, Cell]] = []
    goals: list[Goal] = []
    whole = count >= FULL  # on small sizes, beside whatever else runs, time is reported and not judged
    with PostgresServer(shared_buffers="2GB" if whole else "256MB", max_wal_size="8GB") as server:
        server.execute("postgres", "CREATE DATABASE bench")
        with open_catalog(server.url("bench")) as catalog:
            index_s = fill_server(catalog, count, lineage, seed)
            shipped = int(catalog._about("probes"))  # type: ignore[attr-defined]
            for probes in sorted({max(1, shipped // 4), shipped, 4 * shipped}):
                catalog._tell("probes", str(probes))  # type: ignore[attr-defined]
                wall, found = [], []
                for number in range(rounds + 1):
                    query = {family: each[max(0, number - 1) % len(each)] for family, each in queries.items()}
                    began = time.perf_counter()
                    answer = catalog.nearest(query, K)
                    if number:  # the first one fills the caches
                        wall.append(time.perf_counter() - began)
                        found.append([(one.family, int(one.key, 16)) for one in answer])
                every, kin = agreement(found, exact, related)
                way = f"pgvector, {probes} lists looked through" + (" (as shipped)" if probes == shipped else "")
                rows.append({"way": way, "ms": 1000 * median(wall), "recall": every, "of relatives": kin})
                if probes == shipped:
                    goals += [
                        Goal("pgvector, all families", 1000 * median(wall), "<=", 1000 * PG_S, "ms", whole),
                        Goal("pgvector, relatives found", kin, ">=", PG_RECALL, "", True),
                        Goal("pgvector, nearest ten found", every, ">=", PG_RECALL, "", False),
                    ]
    return rows, goals, [f"the lists of pgvector took {index_s:.0f} s to make"]


def main(argv: list[str] | None = None) -> int:
    options = parser("bench.catalog", __doc__)
    options.add_argument("--entries", type=int, help="so many instead")
    options.add_argument("--only", choices=["file", "server"], help="one store alone")
    given = options.parse_args(argv)
    count, rounds, seed = given.entries or (QUICK if given.quick else FULL), 20, 7
    lineage = lineages(count, seed)
    rng = np.random.default_rng(seed + 1)
    chosen = rng.choice(lineage[lineage < max(1, count // 200)], rounds)
    queries = {
        family: around(chosen, count, family, width, np.random.default_rng([seed, 99, *family.encode()]))
        for family, width in FAMILIES.items()
    }
    exact = exact_nearest(count, lineage, queries, seed)

    def related(key: int, number: int) -> bool:
        return bool(lineage[key - 1] == chosen[number])

    rows: list[dict[str, Cell]] = []
    goals: list[Goal] = []
    notes: list[str] = []
    whole = count >= FULL
    with tempfile.TemporaryDirectory(prefix="bench-catalog-") as folder:
        if given.only != "server":
            path = Path(folder) / "c.db"
            fill_file(path, count, lineage, seed)
            np.savez(Path(folder) / "queries.npz", **queries)  # type: ignore[arg-type]
            line = [sys.executable, "-c", _CHILD, str(path), str(Path(folder) / "queries.npz"), str(rounds)]
            env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
            told = json.loads(subprocess.run(line, capture_output=True, check=True, env=env).stdout)
            found = [[(family, int(key, 16)) for family, key in answer] for answer in told["found"]]
            every, kin = agreement(found, exact, related)
            row: dict[str, Cell] = {"way": "file, numpy over mapped arrays", "ms": 1000 * median(told["wall"])}
            row |= {"recall": every, "of relatives": kin, "CPU ms": 1000 * median(told["cpu"])}
            rows.append(row | {"MB": told["peak"] / 1e6})
            notes.append(
                f"first recall after opening: {1000 * told['first']:.0f} ms; best {1000 * min(told['wall']):.1f} ms"
            )
            goals += [
                Goal("numpy, all families", 1000 * median(told["wall"]), "<=", 1000 * RECALL_S, "ms", whole),
                Goal("numpy, memory", told["peak"] / 1e9, "<=", RECALL_BYTES / 1e9, "GB", True),
                Goal("numpy, nearest ten found", every, ">=", 1.0, "", True),
            ]
        if given.only != "file":
            if (why := lacking()) is not None:
                notes.append(f"pgvector not measured: {why}")
            else:
                more = bench_server(count, lineage, queries, exact, related, rounds, seed)
                rows, goals, notes = rows + more[0], goals + more[1], notes + more[2]
    columns = {key: None for row in rows for key in row}
    table = tuple({key: row.get(key) for key in columns} for row in rows)
    title = f"Recall: one model against {count:,} synthetic entries, {len(FAMILIES)} families, {sum(FAMILIES.values())} numbers"
    return finish([Report("catalog", title, table, tuple(goals), tuple(notes))], given.json)


if __name__ == "__main__":
    raise SystemExit(main())
