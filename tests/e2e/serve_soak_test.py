"""200 clients at a time for QUINTET_SOAK_SECONDS (600): no error, no request left behind, flat memory. Prints the
percentiles."""

import json
import os
import subprocess
import sys

import e2e
from e2e import ROOT, wait_for
from serving import serving, trained


def test_two_hundred_clients_leave_nothing_behind(folder):
    seconds = os.environ.get("QUINTET_SOAK_SECONDS", "600")
    with serving(trained(folder)) as server:
        server.complete(prompt="a", max_tokens=2)
        files = server.files()
        done = subprocess.run([sys.executable, ROOT / "bench/serve/load.py", f"--url=http://127.0.0.1:{server.port}",
                               "--clients=200", f"--seconds={seconds}", "--max_tokens=32", f"--pid={server.process.pid}"],
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        print(done.stdout)
        result = json.loads(done.stdout)
        assert result["requests"] > 200 and result["errors"] == 0, result
        memory = result["resident_mib"]
        assert memory["after"] <= 1.05 * memory["after_a_fifth"] + 4, memory
        server.wait_idle()
        wait_for(lambda: server.metrics()["quintet_connections"] <= 1)
        assert server.files() <= files + 2


e2e.run(globals())
