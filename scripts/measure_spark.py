"""Counting on Spark for ./scripts/measure."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import h5py
from measuring import ROOT, big20, head, row

sys.path.insert(0, str(ROOT))  # the cluster is that of the tests
from tests.spark_cluster import cluster, finished_log, logged, override, shuffled, started, timed


def spark() -> None:
    """PTB and big20, orders 3 and 5: counting on Spark, on two threads and on a cluster of two workers

    counts=spark on local[2] and on a cluster beside counts=sorted. Seconds are of the whole command, and without the
    start of Java; bytes a token are those that tasks hand to others; the model files are compared.
    """
    columns = ("seconds", "without Java's start", "driver / Java / workers, MiB", "bytes a token")
    head("text", "order", "counts", *columns)
    for name, words in {"ptb": ["data=ptb"], "big20": big20()}.items():
        for order in (3, 5):
            train = [sys.executable, "-m", "lmtool", "train", "model=ngram", f"model.order={order}", *words]
            with cluster(Path(f"cluster-{name}-{order}"), "1g") as there:
                local, alone = "counts.master=local[2]", {"spark.driver.memory": "1g"}  # it does the work too
                kinds = {
                    "sorted": ([], {}, dict(os.environ), []),
                    "local[2]": ([local], there.options | alone, there.environment, []),
                    "cluster": ([f"counts.master={there.master}"], there.options, there.environment, there.workers),
                }
                for kind, (more, options, environment, workers) in kinds.items():
                    run = Path(f"{name}-{order}-{kind}")
                    line = [*train, *more, f"hydra.run.dir={run}", f"store_dir=stores-{run}"]
                    is_spark = kind != "sorted"
                    if is_spark:
                        line += ["counts=spark", override(options | logged(Path(f"events-{run}")))]
                    begin, seconds, most = timed(line, environment, [worker.pid for worker in workers])
                    moved, start = "", 0.0
                    if is_spark:
                        log = finished_log(Path(f"events-{run}"))
                        with h5py.File(next(Path(f"stores-{run}").glob("*-counted.h5"))) as file:
                            tokens = json.loads(file.attrs["provenance"])["rows"][0]["tokens"]
                        moved, start = f"{shuffled(log) / tokens:.1f}", started(log) - begin
                        here = Path(f"{name}-{order}-sorted")
                        assert (run / "model.h5").read_bytes() == (here / "model.h5").read_bytes(), "another model"
                    mib = " / ".join(f"{most[part] >> 20:,}" for part in ("driver", "java", "workers"))
                    row(name, order, kind, f"{seconds:.1f}", f"{seconds - start:.1f}", mib, moved)
                    shutil.rmtree(f"stores-{run}")
