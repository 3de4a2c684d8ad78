"""A scheduler behind TLS, with certificates made here: Dask's configuration is all that it takes."""

from pathlib import Path

import pytest
from dask import config as dask_config
from distributed import Security

from fedpca.cluster.connect import connected
from fedpca.cluster.grid import Grid
from fedpca.cluster.options import ClusterOptions
from fedpca.errors import RunError
from fedpca.runs.folder import finished_rounds
from tests.cluster.processes import dask
from tests.cluster.test_grid import enter
from tests.cluster.test_spread import cell_for


def test_with_certificates_and_without(tmp_path: Path):
    made = Security.temporary()
    texts = {"ca.crt": made.tls_ca_file, "own.crt": made.tls_client_cert, "own.key": made.tls_client_key}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    ca, cert, key = (str(tmp_path / name) for name in texts)
    options = ["--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key]
    tls = {"ca-file": ca, "client.cert": cert, "client.key": key}
    client = {f"distributed.comm.tls.{name}": path for name, path in tls.items()}
    with dask(tmp_path, workers=1, options=[*options, "--protocol", "tls"]) as cluster:
        assert '"address": "tls://127.0.0.1:' in Path(cluster.file).read_text()
        cell = cell_for(tmp_path / "runs", methods=["fedavg"], rounds=2)
        configured = dask_config.set(client | {"distributed.comm.require-encryption": True})
        with configured, connected(ClusterOptions(cluster.file), tmp_path / "runs", print) as link:
            Grid(link, None, None).play([cell], lambda cell, line: None)
        assert finished_rounds(cell.folder) == 2
        with dask_config.set({"distributed.comm.timeouts.connect": "1s"}), pytest.raises(RunError) as caught:
            enter(cluster.file, tmp_path / "runs")
    assert "Dask's configuration names this cluster's certificates" in str(caught.value)
