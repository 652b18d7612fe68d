"""A Flower federation of real processes on loopback, for as long as a test needs it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

APP = Path(__file__).parents[2] / "apps/flower"
PROGRAMS = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


class Federation:
    """A SuperLink and its SuperNodes."""

    def __init__(self, folder: Path, simulation: bool = False) -> None:
        self.folder, self.port = folder, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # everything is here
            "RAY_TMPDIR": str(folder),
            "OMP_NUM_THREADS": "1",
        }
        (folder / "flwr").mkdir()
        address = (
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        (folder / "flwr/config.toml").write_text(address)
        self.start("superlink", "--port", str(self.port), *(["--simulation"] if simulation else []))
        self._wait_for_superlink()

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(PROGRAMS / f"flower-{program}"), "--insecure", *arguments]
        with (self.folder / f"{program}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_node(self, client: int, clients: int) -> subprocess.Popen[bytes]:
        place = f"partition-id={client} num-partitions={clients}"
        return self.start(
            *("supernode", "--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port()), "--node-config", place)
        )

    def _wait_for_superlink(self) -> None:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.processes[0].poll() is None, self.logs()
            time.sleep(0.1)

    def flwr(self, *arguments: str) -> str:
        command = [str(PROGRAMS / "flwr"), *arguments]
        done = subprocess.run(command, cwd=APP, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout

    def run(self, config: dict[str, object], *arguments: str) -> int:
        """Submit the app with this run config. Returns the number of the run."""
        given = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        said = json.loads(self.flwr("run", ".", "--run-config", given, "--format", "json", *arguments))
        assert said["success"], said
        return int(said["run-id"])

    def wait(self, run: int) -> str:
        """How the run ended. Its log is followed until then: asking costs more than a second of a core."""
        self.flwr("log", str(run), "--stream")
        while True:
            (found,) = json.loads(self.flwr("list", "--run-id", str(run), "--format", "json"))["runs"]
            if found["status"].startswith("finished"):
                return str(found["status"])
            time.sleep(1)

    def wait_for(self, file: Path) -> None:
        while not file.exists():
            assert self.processes[0].poll() is None, self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-6000:]}" for log in sorted(self.folder.glob("*.log")))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """A process with all that it started, at once."""
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            member.kill()
        process.wait()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                self.kill(process)
        for rest in self.left():
            rest.kill()

    def left(self) -> list[psutil.Process]:
        """Processes of this federation that still run."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("FLWR_HOME") == self.environment["FLWR_HOME"]
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found
